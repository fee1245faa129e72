//! Adds to mdBook's pages what they lack: a description of its own for each, where mdBook writes the book's on all
//! of them, and plain cells where it writes headers without a word.

use crate::files;
use crate::lint::html::{Page, inside, text_of};
use anyhow::Result;
use rayon::prelude::*;
use regex::{Captures, Regex};
use std::path::Path;

/// The number of characters of a description that search engines show.
const LONGEST: usize = 160;

/// Puts the beginning of each page's text into its description, and turns the table headers that are
/// empty into cells: a screen reader would announce a header and have nothing to say.
///
/// # Errors
///
/// If a page cannot be read or written.
pub fn describe(book: &Path) -> Result<()> {
    let description = Regex::new(
        r#"(<meta (?:name="description"|property="og:description") content=")[^"]*"#,
    )?;
    let empty_header = Regex::new("<th( [^>]*)?></th>")?;
    files::with_extension(book, "html").into_par_iter().try_for_each(|path| {
        let source = files::read(&path)?;
        let mut html = empty_header.replace_all(&source, "<td$1></td>").into_owned();
        // The page for the printer is all of them in one, and is not for search engines.
        if !path.ends_with("print.html")
            && let Some(text) = beginning(&Page::parse(path.display().to_string(), &html))
        {
            let text =
                text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
            html = description
                .replace_all(&html, |found: &Captures| format!("{}{text}", &found[1]))
                .into_owned();
        }
        files::write(&path, html)
    })
}

/// The first paragraphs of the text, as far as they fit; those with maths are passed over, since
/// their text says everything twice.
fn beginning(page: &Page) -> Option<String> {
    let main = page.all("main").next()?;
    let paragraphs = main.children().filter(|child| child.value().tag == "p");
    let plain = paragraphs.filter(|text| inside(*text, "math").next().is_none());
    let text: Vec<String> = plain.take(3).map(text_of).collect();
    let mut description = String::new();
    for word in text.join(" ").split_whitespace() {
        if description.chars().count() + word.chars().count() >= LONGEST {
            return Some(description.trim_end_matches([',', ';', ':']).to_owned() + "…");
        }
        if !description.is_empty() {
            description.push(' ');
        }
        description.push_str(word);
    }
    (!description.is_empty()).then_some(description)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn page_with(main: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let head = r#"<meta name="description" content="the book's">"#;
        fs::write(&path, format!("<html><head>{head}</head><main>{main}</main></html>"))
            .unwrap();
        describe(folder.path()).unwrap();
        fs::read_to_string(&path).unwrap()
    }

    fn described(main: &str) -> String {
        page_with(main).split('"').nth(3).unwrap().to_owned()
    }

    #[test]
    fn a_page_is_described_by_its_beginning() {
        let main = "<h1>Title</h1><p><em>Why</em> “so” &amp; \"so\"?</p><p>Because.</p>";
        assert_eq!(described(main), "Why “so” &amp; &quot;so&quot;? Because.");
    }

    #[test]
    fn maths_is_passed_over_and_long_text_ends_at_a_word() {
        let long = "word ".repeat(60);
        let text = described(&format!("<p>x <math></math></p><p>{long}</p>"));
        assert!(text.starts_with("word word") && text.ends_with("word…"));
        assert!(text.chars().count() <= LONGEST);
    }

    #[test]
    fn a_page_without_text_keeps_the_description_of_the_book() {
        assert_eq!(described("<h1>Title</h1>"), "the book's");
    }

    #[test]
    fn a_table_header_without_a_word_becomes_a_cell() {
        let main = r#"<tr><th style="text-align: left"></th><th></th><th>n</th></tr>"#;
        let cells = r#"<tr><td style="text-align: left"></td><td></td><th>n</th></tr>"#;
        assert!(page_with(main).contains(cells));
    }
}
