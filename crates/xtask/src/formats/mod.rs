//! `cargo xtask build --formats`: the whole book in one file, to take away.
//!
//! The built pages are the source of both: the EPUB is made of each chapter's page, and the PDF is the page with all
//! chapters as Chromium prints it. So listings, numbers and figures are those that the checks have seen.

mod epub;
mod pdf;
mod xhtml;

use crate::console::Activity;
use crate::project::Project;
use crate::{browser, files, process};
use anyhow::{Context, Result, bail, ensure};
use mdbook_driver::MDBook;
use mdbook_driver::book::BookItem;
use regex::{Captures, Regex};
use scraper::{ElementRef, Html, Selector};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The EPUB in the folder of the built book.
pub const EPUB: &str = "attention-built.epub";

/// The PDF in the folder of the built book.
pub const PDF: &str = "attention-built.pdf";

/// The licences of the book.
const RIGHTS: &str = "Text and figures: CC BY 4.0. Code: MIT or Apache-2.0.";

/// The book as `book.toml` and `SUMMARY.md` describe it.
pub struct Contents {
    /// The book's title.
    pub title: String,
    /// Its subject, in a sentence.
    pub description: String,
    /// Its authors.
    pub authors: Vec<String>,
    /// The code of its language.
    pub language: String,
    /// Its version, by `CITATION.cff`.
    pub version: String,
    /// The day on which that version was released, as `2026-11-20`.
    pub released: String,
    /// Its parts in order.
    pub parts: Vec<Part>,
}

/// Chapters under one title. The chapters before the first title are a part without.
#[derive(Default)]
pub struct Part {
    /// The title above the chapters in the list of chapters.
    pub title: Option<String>,
    /// The chapters in order.
    pub chapters: Vec<Chapter>,
}

/// A chapter of the book.
pub struct Chapter {
    /// Its name in the list of chapters.
    pub title: String,
    /// Its page without the extension: `softmax` for `softmax.html`.
    pub name: String,
}

impl Contents {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// If one of the three files cannot be read, or lacks what belongs into it.
    pub fn read(project: &Project) -> Result<Self> {
        let book = MDBook::load(project.root())?;
        let mut parts = vec![Part::default()];
        for item in book.iter() {
            match item {
                BookItem::PartTitle(title) => {
                    parts.push(Part { title: Some(title.clone()), chapters: Vec::new() });
                }
                BookItem::Chapter(chapter) => {
                    let Some(path) = &chapter.path else { continue };
                    let name = path.with_extension("");
                    let name = files::relative(&name, Path::new(""));
                    let chapter = Chapter { title: chapter.name.clone(), name };
                    parts.last_mut().context("no part")?.chapters.push(chapter);
                }
                BookItem::Separator => {}
            }
        }
        parts.retain(|part| !part.chapters.is_empty());
        let citation = files::read(&project.root().join("CITATION.cff"))?;
        let cited = |key: &str| {
            let mut lines = citation.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            value
                .map(str::to_owned)
                .with_context(|| format!("CITATION.cff names no `{key}`"))
        };
        let about = book.config.book;
        Ok(Self {
            title: about.title.context("book.toml has no `title`")?,
            description: about.description.context("book.toml has no `description`")?,
            authors: about.authors,
            language: about.language.context("book.toml has no `language`")?,
            version: cited("version")?,
            released: cited("date-released")?,
            parts,
        })
    }

    /// All chapters in order.
    pub fn chapters(&self) -> impl Iterator<Item = &Chapter> {
        self.parts.iter().flat_map(|part| &part.chapters)
    }
}

/// Puts the EPUB and the PDF beside the pages in the folder `book`, and links them where the pages speak of them.
///
/// # Errors
///
/// If a page lacks what a format needs, or the browser fails.
pub fn add_to(project: &Project, book: &Path, browser: &Path) -> Result<()> {
    let contents = Contents::read(project)?;
    let activity = Activity::begin("making the EPUB");
    epub::write(project, &contents, book, browser)?;
    activity.done(&format!("made the EPUB, {}", size(&book.join(EPUB))?));
    let activity = Activity::begin("making the PDF");
    pdf::write(project, &contents, book, browser)?;
    activity.done(&format!("made the PDF, {}", size(&book.join(PDF))?));
    link(book)
}

fn size(file: &Path) -> Result<String> {
    let bytes = fs::metadata(file)
        .with_context(|| format!("{} was not written", file.display()))?
        .len();
    Ok(format!("{:.1} MB", bytes as f64 / 1e6))
}

/// `<span data-format="epub">…</span>` in a page becomes a link to the EPUB with its size, and the same for the PDF. Where no
/// formats are made, the words stay plain words.
fn link(book: &Path) -> Result<()> {
    let mark = Regex::new(r#"<span data-format="(epub|pdf)">([^<]*)</span>"#)?;
    let (epub, pdf) = (size(&book.join(EPUB))?, size(&book.join(PDF))?);
    let mut links = 0;
    for page in files::with_extension(book, "html") {
        let html = files::read(&page)?;
        links += mark.find_iter(&html).count();
        let linked = mark.replace_all(&html, |found: &Captures| {
            let (file, size) =
                if &found[1] == "epub" { (EPUB, &epub) } else { (PDF, &pdf) };
            let words = &found[2];
            format!("<a href=\"{file}\">{words}<span class=\"size\"> ({size})</span></a>")
        });
        if linked != html {
            files::write(&page, linked.as_bytes())?;
        }
    }
    ensure!(
        links > 0,
        "no page has a `<span data-format=…>` where the formats can be linked"
    );
    Ok(())
}

/// The title page, in HTML that is XML as well: the cover of the EPUB and the first page of the PDF.
fn title_page(contents: &Contents, figure: &str) -> String {
    format!(
        "<section class=\"title-page\">\n\
         <p class=\"title\">{}</p>\n\
         <p class=\"description\">{}</p>\n\
         <div class=\"picture\">{figure}</div>\n\
         <p class=\"authors\">{}</p>\n\
         <p class=\"edition\">Version {}, {}</p>\n\
         <p class=\"edition\">{RIGHTS}</p>\n\
         </section>\n",
        escaped(&contents.title),
        escaped(&contents.description),
        escaped(&contents.authors.join(", ")),
        escaped(&contents.version),
        escaped(&contents.released),
    )
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

fn parsed(book: &Path, page: &str) -> Result<Html> {
    Ok(Html::parse_document(&files::read(&book.join(page))?))
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The first element of `page` that `what` selects.
fn first<'a>(html: &'a Html, what: &str, page: &str) -> Result<ElementRef<'a>> {
    html.select(&selector(what)).next().with_context(|| format!("{page} has no `{what}`"))
}

/// Lets the browser show the page `html` of the book without a window and write `file`, as `options` ask it to.
fn show(
    browser: &Path,
    book: &Path,
    html: &str,
    file: &Path,
    options: &[String],
) -> Result<()> {
    // Beside the other pages, so that it finds style sheets and fonts.
    let page = tempfile::Builder::new().suffix(".html").tempfile_in(book)?;
    files::write(page.path(), html)?;
    let page = std::path::absolute(page.path())?;
    let profile = tempfile::tempdir().context("no folder for the browser's profile")?;
    let mut command = Command::new(browser);
    command.args(browser::FLAGS).args(options).arg(page);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.with_context(|| format!("{} could not be started", browser.display()))?;
    if !output.status.success() || !file.is_file() {
        let said = String::from_utf8_lossy(&output.stderr);
        let typed = process::typed(&command);
        bail!("`{typed}` wrote no {} ({}):\n{said}", file.display(), output.status);
    }
    Ok(())
}
