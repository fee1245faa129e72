//! The prose of the book, as a text to learn from: headings, paragraphs and lists, without listings, tables, figures and formulas.

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::fs;
use std::path::Path;

/// What stands for a formula until its sentence is left out.
const FORMULA: char = '\u{1}';

/// Returns the prose of a book's chapters, in its order, a paragraph a line.
///
/// # Errors
/// A file can't be read.
pub fn prose_of_book(src: &Path) -> Result<String> {
    let summary = read(&src.join("SUMMARY.md"))?;
    let mut prose = String::new();
    for event in Parser::new(&summary) {
        if let Event::Start(Tag::Link { dest_url, .. }) = event {
            prose += &prose_of_page(&read(&src.join(&*dest_url))?, src)?;
        }
    }
    Ok(prose)
}

fn prose_of_page(page: &str, src: &Path) -> Result<String> {
    let page = with_values(page, src)?;
    let options = Options::ENABLE_TABLES | Options::ENABLE_MATH | Options::ENABLE_GFM;
    let (mut prose, mut paragraph) = (String::new(), String::new());
    let mut skipped = 0; // how many things around this that are no prose
    for event in Parser::new_ext(&page, options) {
        match event {
            Event::Start(Tag::CodeBlock(_) | Tag::Table(_) | Tag::HtmlBlock) => {
                skipped += 1
            }
            Event::End(TagEnd::CodeBlock | TagEnd::Table | TagEnd::HtmlBlock) => {
                skipped -= 1
            }
            _ if skipped > 0 => {}
            Event::Text(text) | Event::Code(text) => paragraph += &text,
            Event::InlineMath(formula) if formula.chars().all(char::is_alphanumeric) => {
                paragraph += &formula;
            }
            Event::InlineMath(_) | Event::DisplayMath(_) => paragraph.push(FORMULA),
            Event::SoftBreak | Event::HardBreak => paragraph.push(' '),
            Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::Heading(_)) => {
                let sentences = paragraph.split_inclusive(". ");
                let whole: String =
                    sentences.filter(|sentence| !sentence.contains(FORMULA)).collect();
                let whole = whole.trim();
                if !whole.is_empty() {
                    prose += whole;
                    prose.push('\n');
                }
                paragraph.clear();
            }
            _ => {}
        }
    }
    Ok(prose)
}

/// Returns a page with the numbers that it includes.
fn with_values(page: &str, src: &Path) -> Result<String> {
    let mut parts = page.split("{{#include ");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (included, rest) =
            part.split_once("}}").context("an include without an end")?;
        if let Some((file, key)) = included.split_once(".txt:") {
            let values = read(&src.join(format!("{file}.txt")))?;
            let value = values
                .split_once(&format!("ANCHOR: {key}\n"))
                .and_then(|(_, rest)| rest.split_once('\n'));
            let (value, _) =
                value.with_context(|| format!("no value `{key}` in {file}.txt"))?;
            whole += value;
        }
        whole += rest;
    }
    Ok(whole)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
}
