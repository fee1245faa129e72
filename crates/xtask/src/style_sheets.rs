//! One style sheet instead of ten: a page shows nothing before all of them have come, and a phone waits for each request.

use crate::files;
use anyhow::Result;
use regex::Regex;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

/// Joins the style sheets that each page links, in their order, into one. A sheet with an `id`, which the theme switch of
/// mdBook turns on and off, moves into the page; the book's are empty.
///
/// # Errors
///
/// If a page or a style sheet cannot be read or written.
pub fn join(book: &Path) -> Result<()> {
    let link = Regex::new(
        r#"<link rel="stylesheet"( id="[^"]*")? href="([^"]*)"( media="print")?>\s*"#,
    )?;
    for path in files::with_extension(book, "html") {
        let html = files::read(&path)?;
        let (mut page, mut joined) = (String::new(), String::new());
        let (mut place, mut done) = (None, 0);
        for found in link.captures_iter(&html) {
            let tag = found.get_match();
            page += &html[done..tag.start()];
            done = tag.end();
            let sheet = files::read(&book.join(&found[2]))?;
            if let Some(id) = found.get(1) {
                page += &format!("<style{}>{sheet}</style>\n", id.as_str());
                continue;
            }
            place.get_or_insert(page.len());
            joined += &match found.get(3) {
                Some(_) => format!("@media print {{\n{sheet}\n}}\n"),
                None => sheet + "\n",
            };
        }
        let Some(place) = place else { continue };
        page += &html[done..];
        let mut hasher = DefaultHasher::new();
        joined.hash(&mut hasher);
        // In this folder the sheets' own addresses, `../fonts/…`, stay right.
        let name = format!("css/style-{:016x}.css", hasher.finish());
        page.insert_str(place, &format!("<link rel=\"stylesheet\" href=\"{name}\">\n"));
        for (file, text) in [(book.join(&name), joined), (path, page)] {
            files::write(&file, text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn style_sheets_are_joined_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("css/a.css", "p { color: red }");
        write("css/print.css", "p { color: black }");
        write("empty.css", "");
        write("theme/b.css", "p { background: url(\"../fonts/b.png\") }");
        write(
            "page.html",
            "<link rel=\"stylesheet\" href=\"css/a.css\">\n\
             <link rel=\"stylesheet\" href=\"css/print.css\" media=\"print\">\n\
             <link rel=\"stylesheet\" id=\"switched\" href=\"empty.css\">\n\
             <link rel=\"stylesheet\" href=\"theme/b.css\">\n<p>",
        );
        join(folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
        let name = page.split('"').nth(3).unwrap();
        assert_eq!(
            page,
            format!(
                "<link rel=\"stylesheet\" href=\"{name}\">\n<style id=\"switched\"></style>\n<p>"
            )
        );
        assert_eq!(
            fs::read_to_string(folder.path().join(name)).unwrap(),
            "p { color: red }\n@media print {\np { color: black }\n}\n\
             p { background: url(\"../fonts/b.png\") }\n"
        );
    }
}
