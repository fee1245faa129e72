//! The PDF: the page with all chapters, printed by Chromium behind a title page and a list of the chapters.

use super::{Contents, PDF, escaped, first, parsed, selector, show, title_page};
use crate::files;
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;

/// All chapters, one after the other.
const ALL: &str = "print.html";

/// Writes the PDF into the folder `book`.
///
/// # Errors
///
/// If the chapters of the printed page are not those of the book, or the browser fails.
pub(super) fn write(
    project: &Project,
    contents: &Contents,
    book: &Path,
    browser: &Path,
) -> Result<()> {
    let html = files::read(&book.join(ALL))?;
    let style = files::read(&project.root().join("theme/pdf.css"))?;
    let front = front(contents, book)?;
    let html = html
        .replacen("</head>", &format!("<style>\n{style}</style>\n</head>"), 1)
        .replacen("<main>", &format!("<main>\n{front}"), 1);
    let file = book.join(PDF);
    let options = [
        format!("--print-to-pdf={}", file.display()),
        "--no-pdf-header-footer".to_owned(),
        "--generate-pdf-document-outline".to_owned(),
    ];
    show(browser, book, &html, &file, &options)
}

/// The pages before the first chapter.
fn front(contents: &Contents, book: &Path) -> Result<String> {
    let page = parsed(book, ALL)?;
    let figure = first(&page, "main figure svg", ALL)?.html();
    // Ids are on the page once, and this figure comes again in the first chapter.
    let figure = figure
        .replace(" id=\"", " data-id=\"")
        .replace("aria-labelledby", "data-labelledby");
    let mut html = title_page(contents, &figure);
    html += "<nav class=\"contents\" aria-label=\"Contents\">\n<p class=\"contents-title\">Contents</p>\n";
    let headings = selector("main > h1[id]");
    let mut headings = page.select(&headings);
    for part in &contents.parts {
        if let Some(title) = &part.title {
            let _ = writeln!(html, "<p class=\"part\">{}</p>", escaped(title));
        }
        html += "<ol>\n";
        for chapter in &part.chapters {
            let heading = headings.next().with_context(|| {
                format!("{ALL} lacks the chapter “{}”", chapter.title)
            })?;
            let id = heading.attr("id").unwrap_or_default();
            let text: String = heading.text().collect();
            let _ = writeln!(
                html,
                "<li><a href=\"#{}\">{}</a></li>",
                escaped(id),
                escaped(&text)
            );
        }
        html += "</ol>\n";
    }
    ensure!(headings.next().is_none(), "{ALL} has more chapters than SUMMARY.md");
    html += "</nav>\n";
    Ok(html)
}
