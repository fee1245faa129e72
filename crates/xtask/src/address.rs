//! The address at which the book is published, and what a page can say only if it knows its own: a canonical address and a
//! picture for those who link to it.

use crate::files;
use anyhow::{Result, bail};
use std::path::Path;
use std::str::FromStr;

/// The picture that others show beside a link to the book; `src/` has it, so it comes with the chapters.
const PICTURE: &str = "social.png";

/// The picture in words.
const PICTURE_SHOWS: &str = "Attention weights of “the boat left the river bank”: each word of the sentence \
                             is a row of cells, and darker cells are larger shares of its attention.";

/// Pages that are no chapters: an error, all chapters in one for the printer, and a frame.
const NO_CHAPTERS: [&str; 3] = ["404.html", "print.html", "toc.html"];

/// The address of the folder that the pages are in: of a scheme, a host and a path that ends with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteAddress {
    whole: String,
    path: String,
}

impl FromStr for SiteAddress {
    type Err = anyhow::Error;

    /// # Errors
    ///
    /// If it is no address of the web, or has more than a path behind its host.
    fn from_str(text: &str) -> Result<Self> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let (host, path) =
            rest.map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
        if host.is_empty() {
            bail!("`{text}` does not begin with `https://` and a host");
        }
        if text.contains(['?', '#']) {
            bail!("`{text}` has more than a path behind its host");
        }
        if text.contains(|c: char| c.is_whitespace() || c == '"' || c == '<') {
            bail!("`{text}` is no address");
        }
        let path = match path.trim_matches('/') {
            "" => "/".to_owned(),
            path => format!("/{path}/"),
        };
        Ok(Self { whole: format!("{}/", text.trim_end_matches('/')), path })
    }
}

impl SiteAddress {
    /// The path of the folder, as the page for addresses that lead nowhere needs it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The address of a page. The first chapter is there twice, and what is in the folder's own name counts.
    fn of(&self, page: &str) -> String {
        let page = if page == "index.html" { "" } else { page };
        format!("{}{page}", self.whole)
    }

    /// Lets the chapters in the folder `book` say their addresses.
    ///
    /// # Errors
    ///
    /// If a page cannot be read, or a file cannot be written.
    pub fn add_to(&self, book: &Path) -> Result<()> {
        let index = files::read(&book.join("index.html"))?;
        for file in files::with_extension(book, "html") {
            let name = files::relative(&file, book);
            if NO_CHAPTERS.contains(&name.as_str()) {
                continue;
            }
            let html = files::read(&file)?;
            let page = if html == index { "index.html" } else { &name };
            let address = self.of(page);
            let html =
                html.replacen("</head>", &format!("{}</head>", self.tags(&address)), 1);
            files::write(&file, html)?;
        }
        Ok(())
    }

    fn tags(&self, page: &str) -> String {
        let picture = self.of(PICTURE);
        format!(
            "<link rel=\"canonical\" href=\"{page}\">\n\
             <meta property=\"og:url\" content=\"{page}\">\n\
             <meta property=\"og:image\" content=\"{picture}\">\n\
             <meta property=\"og:image:alt\" content=\"{PICTURE_SHOWS}\">\n\
             <meta name=\"twitter:card\" content=\"summary_large_image\">\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn published_at(address: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let page =
            |title: &str| format!("<html><head><title>{title}</title></head></html>");
        for (name, title) in [
            ("index.html", "Welcome"),
            ("welcome.html", "Welcome"),
            ("softmax.html", "Softmax"),
            ("404.html", "Nothing here"),
            ("print.html", "All"),
        ] {
            fs::write(folder.path().join(name), page(title)).unwrap();
        }
        address.parse::<SiteAddress>().unwrap().add_to(folder.path()).unwrap();
        folder
    }

    #[test]
    fn each_chapter_says_its_address_and_no_other_page_does() {
        let folder = published_at("https://someone.github.io/book");
        let read = |name: &str| files::read(&folder.path().join(name)).unwrap();
        let canonical = |page: &str| {
            format!(
                "<link rel=\"canonical\" href=\"https://someone.github.io/book/{page}\">"
            )
        };
        assert!(read("softmax.html").contains(&canonical("softmax.html")));
        // The first chapter has one address, though it is there twice.
        assert!(read("index.html").contains(&canonical("")));
        assert!(read("welcome.html").contains(&canonical("")));
        for page in ["404.html", "print.html"] {
            assert!(!read(page).contains("someone.github.io"), "{page}");
        }
    }

    #[test]
    fn what_is_no_address_of_a_folder_is_refused() {
        let error = |text: &str| text.parse::<SiteAddress>().unwrap_err().to_string();
        assert_eq!(error("https://a b"), "`https://a b` is no address");
        for text in ["/book", "example.org", "ftp://example.org/"] {
            assert_eq!(
                error(text),
                format!("`{text}` does not begin with `https://` and a host")
            );
        }
        for text in ["https://example.org/?a", "https://example.org/#a"] {
            assert_eq!(
                error(text),
                format!("`{text}` has more than a path behind its host")
            );
        }
    }

    #[test]
    fn the_path_ends_with_one_slash() {
        let path = |text: &str| text.parse::<SiteAddress>().unwrap().path().to_owned();
        assert_eq!(path("https://example.org"), "/");
        assert_eq!(path("https://example.org/book/"), "/book/");
    }
}
