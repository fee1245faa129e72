//! The documentation of the crate beside the book, and a link to it from each listing that shows something public.

use crate::console::Activity;
use crate::files;
use crate::pattern::{Pattern, pattern};
use crate::process;
use crate::project::Project;
use anyhow::Result;
use fs_err as fs;
use regex::Captures;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Its folder in the book.
pub const FOLDER: &str = "api";

const CRATE: &str = "attention";

/// Documents the crate and puts that into the folder `api` of the book, and links to it into the captions of listings.
///
/// # Errors
///
/// If rustdoc fails, or a file cannot be read or written.
pub fn add_to(project: &Project, book: &Path) -> Result<()> {
    let activity = Activity::begin("documenting the crate");
    let target = project.target().join(FOLDER);
    let made = target.join("doc");
    // What is left of an item that is no more would be published.
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    let mut command = process::cargo(project);
    command.args([
        "doc",
        "--quiet",
        "--locked",
        "--no-deps",
        "--all-features",
        "--package",
        CRATE,
    ]);
    process::run(command.arg("--target-dir").arg(&target))?;
    let folder = book.join(FOLDER);
    files::copy(&made, &folder)?;
    let items = Items::read(&folder)?;
    for page in fs::read_dir(book)? {
        let page = page?.path();
        if page.extension().is_some_and(|extension| extension == "html") {
            let html = files::read(&page)?;
            files::write(&page, items.linked(&html))?;
        }
    }
    activity.done("documented the crate");
    Ok(())
}

/// The places where items are documented, by the item's source file and its name; with each place, the line of the source where the item begins.
struct Items(BTreeMap<(String, String), BTreeSet<(String, String)>>);

/// The name of an item's page.
static ITEM: Pattern =
    pattern!(r"^(?:fn|struct|enum|trait|macro|constant|type)\.(\w+)\.html$");

/// The origin of a page's item: file and line.
static SOURCE: Pattern =
    pattern!(r##"<a class="src" href="[./]*/src/attention/([^"#]+)\.html#(\d+)"##);

/// A method, and where it comes from.
static METHOD: Pattern = pattern!(
    r##"id="((?:ty)?method\.(\w+))"[^>]*><a class="src rightside" href="[./]*/src/attention/([^"#]+)\.html#(\d+)"##
);

/// The caption of a listing of the crate, and the listing.
static LISTING: Pattern = pattern!(
    r#"(?s)(<div class="source"[^>]*>)From crates/attention/src/([^<,]+)(?:, in (\w+))?</div>(.*?</pre>)"#
);

/// The public item that a listing shows.
static PUBLIC: Pattern = pattern!(
    r"(?m)(?:^|>)pub (?:const )?(?:unsafe )?(?:fn|struct|enum|trait|type) (\w+)"
);

impl Items {
    fn read(folder: &Path) -> Result<Self> {
        let mut items = Self(BTreeMap::new());
        for file in files::with_extension(&folder.join(CRATE), "html") {
            let page = format!("{FOLDER}/{}", files::relative(&file, folder));
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            items.add(&page, &name, &files::read(&file)?);
        }
        Ok(items)
    }

    /// Adds the items that the page called `name` documents.
    fn add(&mut self, page: &str, name: &str, html: &str) {
        let mut insert = |file: &str, item: &str, line: &str, place: String| {
            let places = self.0.entry((file.to_owned(), item.to_owned())).or_default();
            places.insert((line.to_owned(), place));
        };
        if let (Some(item), Some(source)) = (ITEM.captures(name), SOURCE.captures(html)) {
            insert(&source[1], &item[1], &source[2], page.to_owned());
        }
        for method in METHOD.captures_iter(html) {
            insert(&method[3], &method[2], &method[4], format!("{page}#{}", &method[1]));
        }
    }

    /// Returns the place where the item is documented. Nothing if the file has several of that name, such as methods of two types.
    fn place(&self, file: &str, name: &str) -> Option<&str> {
        let places = self.0.get(&(file.to_owned(), name.to_owned()))?;
        let lines: BTreeSet<_> = places.iter().map(|(line, _)| line).collect();
        let shortest =
            places.iter().map(|(_, place)| place).min_by_key(|place| place.len());
        shortest.filter(|_| lines.len() == 1).map(String::as_str)
    }

    /// The page with a link below each caption of something that is documented.
    fn linked(&self, html: &str) -> String {
        let link = |listing: &Captures| {
            let (tag, file, rest) = (&listing[1], &listing[2], &listing[4]);
            let within = listing.get(3).map(|name| name.as_str());
            let shown = || Some(PUBLIC.captures(rest)?.get(1)?.as_str());
            let Some(name) = within.or_else(shown) else { return listing[0].to_owned() };
            let Some(place) = self.place(file, name) else {
                return listing[0].to_owned();
            };
            let caption = within.map_or(String::new(), |name| format!(", in {name}"));
            format!(
                "{tag}From crates/attention/src/{file}{caption}; \
                 <a href=\"{place}\">documentation of {name}</a></div>{rest}"
            )
        };
        LISTING.replace_all(html, link).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Items {
        let mut items = Items(BTreeMap::new());
        let function =
            "<a class=\"src\" href=\"../src/attention/softmax.rs.html#9-12\">Source</a>";
        items.add("api/attention/fn.softmax.html", "fn.softmax.html", function);
        items.add("api/attention/again/fn.softmax.html", "fn.softmax.html", function);
        let method = |name: &str, line: u32| {
            format!(
                "<section id=\"method.{name}\" class=\"method\"><a class=\"src rightside\" \
                 href=\"../src/attention/mask.rs.html#{line}-40\">Source</a>"
            )
        };
        let methods = method("causal", 30) + &method("new", 50) + &method("new", 60);
        items.add("api/attention/struct.Mask.html", "struct.Mask.html", &methods);
        items
    }

    fn listing(caption: &str, code: &str) -> String {
        format!(
            "<div class=\"source\" data-lines=\"3-9\">From crates/attention/src/{caption}</div>\n\n<pre><code>{code}</code></pre>\n"
        )
    }

    #[test]
    fn a_listing_of_something_public_links_to_its_documentation() {
        let linked = items().linked(&listing("softmax.rs", "pub fn softmax&lt;T&gt;()"));
        let link = "softmax.rs; <a href=\"api/attention/fn.softmax.html\">documentation of softmax</a></div>";
        assert!(linked.contains(link), "{linked}");
        let linked = items().linked(&listing("mask.rs, in causal", "x"));
        let link = "mask.rs, in causal; <a href=\"api/attention/struct.Mask.html#method.causal\">documentation of causal</a>";
        assert!(linked.contains(link), "{linked}");
    }

    #[test]
    fn what_has_no_page_or_several_has_no_link() {
        for (caption, code) in [
            ("softmax.rs", "fn shift()"),
            ("softmax.rs", "pub fn missing()"),
            ("mask.rs", "pub fn softmax()"),
            ("mask.rs, in new", "x"),
        ] {
            let html = listing(caption, code);
            assert_eq!(items().linked(&html), html);
        }
    }
}
