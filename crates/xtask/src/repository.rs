//! The repository that the book's sources are published in, and what a page can link to only if it knows it: the files that
//! its listings are from, its own source, and a form in which to report a mistake.

use crate::address::SiteAddress;
use crate::files;
use crate::lint::html::{Page, text_of};
use crate::pattern::{Pattern, pattern};
use crate::project::Project;
use anyhow::{Result, bail};
use fs_err as fs;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::path::Path;
use std::str::FromStr;

/// The address of a repository as GitHub shows it, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository(String);

/// The caption of a listing, up to its file, with the lines of that file which the listing shows.
static CAPTION: Pattern =
    pattern!(r#"<div class="source" data-lines="(\d+)-(\d+)">From ([\w./-]+)"#);

impl FromStr for Repository {
    type Err = anyhow::Error;

    /// # Errors
    ///
    /// If it is no address of the web, or one without an owner and a name.
    fn from_str(text: &str) -> Result<Self> {
        let address = text.trim_end_matches('/').trim_end_matches(".git");
        if !address.starts_with("https://") {
            bail!("`{text}` does not begin with `https://` and a host");
        }
        let path = address.parse::<SiteAddress>()?.path().to_owned();
        if path.trim_matches('/').split('/').filter(|part| !part.is_empty()).count() < 2 {
            bail!("`{text}` has no owner and name, as https://github.com/OWNER/NAME has");
        }
        Ok(Self(address.to_owned()))
    }
}

impl Repository {
    /// Its own address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.0
    }

    /// Links the captions of the pages in the folder `book`, and the chapters' ends.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or written.
    pub fn add_to(&self, project: &Project, book: &Path) -> Result<()> {
        let first = files::read(&book.join("index.html"))?;
        for page in fs::read_dir(book)? {
            let page = page?.path();
            let is_page = page.extension().is_some_and(|extension| extension == "html");
            if !is_page || page.ends_with("index.html") {
                continue;
            }
            let html = files::read(&page)?;
            let mut linked = self.linked(&html);
            let source = files::relative(&page.with_extension("md"), book);
            if project.chapters().join(&source).is_file() {
                let end = self.end(&format!("src/{source}"), &html);
                linked = linked.replacen("</main>", &end, 1);
            }
            // The first chapter is there twice.
            if html == first {
                files::write(&book.join("index.html"), &linked)?;
            }
            files::write(&page, linked)?;
        }
        Ok(())
    }

    /// The page with a link in each caption to the lines of the file that it names.
    fn linked(&self, html: &str) -> String {
        let link = format!(
            "<div class=\"source\">From <a href=\"{}/blob/HEAD/$3#L$1-L$2\">$3</a>",
            self.0
        );
        CAPTION.replace_all(html, link).into_owned()
    }

    /// The end of the text of the chapter in the file `source`, with links to that file and to a form that names the chapter.
    fn end(&self, source: &str, html: &str) -> String {
        let title = Page::parse(String::new(), html)
            .all("title")
            .map(text_of)
            .collect::<String>();
        let chapter =
            title.rsplit_once(" - ").map_or(title.as_str(), |(chapter, _)| chapter);
        let report = format!("Mistake in “{chapter}”");
        format!(
            "<p class=\"about-source\"><a href=\"{0}/edit/HEAD/{source}\">Edit this page</a> · \
             <a href=\"{0}/issues/new?title={1}\">Report a mistake</a></p>\n</main>",
            self.0,
            utf8_percent_encode(&report, NON_ALPHANUMERIC)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "https://github.com/someone/book";

    fn repository() -> Repository {
        ADDRESS.parse().unwrap()
    }

    #[test]
    fn what_is_no_address_of_a_repository_is_refused() {
        for text in
            ["https://github.com/someone/book/", "https://github.com/someone/book.git"]
        {
            assert_eq!(text.parse::<Repository>().unwrap(), repository());
        }
        let error = |text: &str| text.parse::<Repository>().unwrap_err().to_string();
        for text in ["http://github.com/a/b", "git@github.com:a/b", "a/b"] {
            assert_eq!(
                error(text),
                format!("`{text}` does not begin with `https://` and a host")
            );
        }
        for text in
            ["https://github.com", "https://github.com/a/", "https://github.com//a"]
        {
            let why = "has no owner and name, as https://github.com/OWNER/NAME has";
            assert_eq!(error(text), format!("`{text}` {why}"));
        }
        assert_eq!(error("https://a.b/c/d e"), "`https://a.b/c/d e` is no address");
        assert!(error("https://a.b/c/d?e").contains("more than a path"));
    }

    #[test]
    fn a_caption_links_to_the_lines_that_its_listing_shows() {
        let caption = |rest: &str| {
            format!(
                "<div class=\"source\" data-lines=\"3-9\">From crates/a/src/x.rs{rest}</div>"
            )
        };
        // The documentation keeps its link.
        for rest in ["", ", in y", "; <a href=\"api/a/fn.y.html\">documentation of y</a>"]
        {
            assert_eq!(
                repository().linked(&caption(rest)),
                format!(
                    "<div class=\"source\">From <a href=\"{ADDRESS}/blob/HEAD/crates/a/src/x.rs#L3-L9\">\
                     crates/a/src/x.rs</a>{rest}</div>"
                )
            );
        }
        let exercise = "<div class=\"source\">easy, 5 minutes, src/x.rs</div>";
        assert_eq!(repository().linked(exercise), exercise);
    }
}
