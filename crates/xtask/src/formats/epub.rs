//! The EPUB: each chapter's page as XHTML, behind a cover and a title page.

use super::xhtml;
use super::{Chapter, Contents, EPUB, RIGHTS, escaped, first, parsed, show, title_page};
use crate::files;
use crate::project::Project;
use anyhow::{Context, Result};
use rbook::Epub;
use rbook::ebook::toc::TocEntryKind;
use rbook::epub::EpubChapter;
use rbook::epub::manifest::DetachedEpubManifestEntry;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The name of this book, whatever its version.
const IDENTIFIER: &str = "urn:uuid:6f1d3c52-8a0e-4d6b-9b57-2e7c0d9a41f3";

const STYLE: &str = "book.css";

/// The font that the figures are drawn for, so that what is written in their boxes fits, with its licence.
const FONTS: &[&str] =
    &["source-sans-3-latin-wght-normal.woff2", "source-sans-3-greek-wght-normal.woff2"];
const LICENCE_OF_FONTS: &str = "OFL-source-sans-3.txt";

/// The accessibility of the book, in the words of <https://www.w3.org/TR/epub-a11y>.
const ACCESSIBILITY: &[(&str, &str)] = &[
    ("schema:accessMode", "textual"),
    ("schema:accessMode", "visual"),
    ("schema:accessModeSufficient", "textual"),
    ("schema:accessibilityFeature", "alternativeText"),
    ("schema:accessibilityFeature", "describedMath"),
    ("schema:accessibilityFeature", "longDescription"),
    ("schema:accessibilityFeature", "MathML"),
    ("schema:accessibilityFeature", "readingOrder"),
    ("schema:accessibilityFeature", "structuralNavigation"),
    ("schema:accessibilityFeature", "tableOfContents"),
    ("schema:accessibilityHazard", "none"),
    (
        "schema:accessibilitySummary",
        "Every figure has a title and a description. Formulas are MathML with their LaTeX source as alternative text.",
    ),
];

/// Writes the EPUB into the folder `book`.
///
/// # Errors
///
/// If a chapter's page cannot be read or made into XHTML, or the browser draws no cover.
pub(super) fn write(
    project: &Project,
    contents: &Contents,
    book: &Path,
    browser: &Path,
) -> Result<()> {
    let style = files::read(&project.root().join("theme/epub.css"))?;
    let licence = files::read(&project.root().join("LICENSE-CC-BY-4.0"))?;
    let mut epub = Epub::builder()
        .identifier(IDENTIFIER)
        .title(contents.title.as_str())
        .language(contents.language.as_str())
        .description(contents.description.as_str())
        .rights(RIGHTS)
        .published_date(contents.released.as_str())
        .resource((STYLE, style))
        .cover_image(("cover.png", cover(project, contents, book, browser)?))
        .toc_title("Contents");
    let fonts = project.root().join("theme/fonts");
    for font in FONTS {
        let bytes = fs::read(fonts.join(font));
        let bytes =
            bytes.with_context(|| format!("theme/fonts/{font} cannot be read"))?;
        epub = epub.resource((*font, bytes));
    }
    for author in &contents.authors {
        epub = epub.author(author.as_str());
    }
    for entry in ACCESSIBILITY {
        epub = epub.meta(*entry);
    }

    let title = title_page(contents, "");
    epub = epub.chapter(
        file(contents, "Title page", "title", &title).kind(TocEntryKind::TitlePage),
    );
    let pages: BTreeSet<_> =
        contents.chapters().map(|chapter| chapter.name.as_str()).collect();
    for part in &contents.parts {
        let chapters = part.chapters.iter();
        let chapters = chapters.map(|chapter| of_page(contents, chapter, &pages, book));
        let chapters = chapters.collect::<Result<Vec<_>>>()?;
        epub = match &part.title {
            Some(title) => {
                // Its title has no page of its own, so it leads to its first chapter.
                let first = part.chapters.first().context("a part has chapters")?;
                let part = EpubChapter::new(title).href(format!("{}.xhtml", first.name));
                epub.chapter(part.children(chapters))
            }
            None => epub.chapter(chapters),
        };
    }
    let text = format!(
        "<h1>Licence</h1>\n<p>Text and figures of this book are under the licence below. Its code is under MIT or \
         Apache-2.0, as you like.</p>\n<div class=\"licence\">{}</div>\n<h2>The font of the figures</h2>\n\
         <div class=\"licence\">{}</div>",
        paragraphs(&licence),
        paragraphs(&files::read(&fonts.join(LICENCE_OF_FONTS))?),
    );
    epub = epub.chapter(
        file(contents, "Licence", "licence", &text).kind(TocEntryKind::CopyrightPage),
    );
    epub.write().toc_stylesheet(STYLE).compression(9).save(book.join(EPUB))?;
    Ok(())
}

/// A chapter, made of its page.
fn of_page(
    contents: &Contents,
    chapter: &Chapter,
    pages: &BTreeSet<&str>,
    book: &Path,
) -> Result<EpubChapter> {
    let name = format!("{}.html", chapter.name);
    let page = parsed(book, &name)?;
    let content = xhtml::content(first(&page, "main", &name)?, pages);
    let content = content.with_context(|| name.clone())?;
    let file = file(contents, &chapter.title, &chapter.name, &content);
    let is_first =
        contents.chapters().next().is_some_and(|first| first.name == chapter.name);
    Ok(match chapter.name.as_str() {
        "glossary" => file.kind(TocEntryKind::Glossary),
        _ if is_first => file.kind(TocEntryKind::BodyMatter), // where the text begins
        _ => file,
    })
}

/// A file of the EPUB with its place in the table of contents.
fn file(contents: &Contents, title: &str, name: &str, body: &str) -> EpubChapter {
    let language = escaped(&contents.language);
    let xhtml = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!DOCTYPE html>\n\
         <html xmlns=\"http://www.w3.org/1999/xhtml\" xmlns:epub=\"http://www.idpf.org/2007/ops\" \
         lang=\"{language}\" xml:lang=\"{language}\">\n\
         <head>\n<title>{}</title>\n<link rel=\"stylesheet\" type=\"text/css\" href=\"{STYLE}\"/>\n</head>\n\
         <body>\n{}\n</body>\n</html>\n",
        escaped(title),
        body.trim(),
    );
    let mut entry = DetachedEpubManifestEntry::new(format!("chapter-{name}"));
    for (tag, property) in [("<math ", "mathml"), ("<svg ", "svg")] {
        if body.contains(tag) {
            entry = entry.property(property);
        }
    }
    EpubChapter::new(title)
        .with_manifest_entry(entry)
        .href(format!("{name}.xhtml"))
        .xhtml(xhtml)
}

/// The text with a paragraph for each part that blank lines divide.
fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(str::trim).filter(|text| !text.is_empty());
    paragraphs.map(|text| format!("<p>{}</p>\n", escaped(text))).collect()
}

/// The cover: the book's first figure below its title, as a picture.
fn cover(
    project: &Project,
    contents: &Contents,
    book: &Path,
    browser: &Path,
) -> Result<Vec<u8>> {
    let chapter = contents.chapters().next().context("the book has no chapter")?;
    let name = format!("{}.html", chapter.name);
    let page = parsed(book, &name)?;
    let figure = first(&page, "main figure svg", &name)?;
    let fonts = files::with_extension(&book.join("fonts"), "css");
    let fonts = files::relative(fonts.first().context("the book has no fonts")?, book);
    let style = files::read(&project.root().join("theme/pdf.css"))?;
    let html = format!(
        "<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n<link rel=\"stylesheet\" href=\"{fonts}\">\n<style>{style} body {{ margin: 0 auto; inline-size: \
         162mm; }}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
        title_page(contents, &figure.html()),
    );
    let folder = tempfile::tempdir().context("no folder for the cover")?;
    let picture = folder.path().join("cover.png");
    let options = [
        format!("--screenshot={}", picture.display()),
        "--window-size=800,1130".to_owned(),
        "--force-device-scale-factor=2".to_owned(),
        "--hide-scrollbars".to_owned(),
        "--virtual-time-budget=10000".to_owned(), // so that the fonts are there
    ];
    show(browser, book, &html, &picture, &options)?;
    fs::read(&picture).context("the cover cannot be read")
}
