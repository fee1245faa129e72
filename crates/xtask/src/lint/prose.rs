//! Numbers typed by hand.
//!
//! A decimal in the prose looks measured, so it must have been: it comes from `src/generated` by an
//! include. Not meant are code, formulas, links, and places in other texts: "Section 3.2".

use super::includes::without_directives;
use super::{Document, Finding, Sources};
use crate::files;
use crate::markdown::{formulas, parse};
use crate::pattern::{Pattern, pattern};
use pulldown_cmark::{Event, Tag, TagEnd};
use std::ops::Range;

static NUMBER: Pattern = pattern!(
    r"(?x)
        \d+(?:\.\d+)+ (?:\s?%)?            # 12.5, 12.5 %, and 0.5.4 to tell it apart
        | \d+ \s? %                        # 12 %
        | \d+ \s+ per\s?cent\b             # 12 percent
        | \d+ \s? [×·x] \s? 10 (?:\^|[⁻⁰¹²³⁴-⁹])   # 3 × 10⁻⁴
        | \b10 (?:\^-?\d|[⁻⁰¹²³⁴-⁹]+)      # 10⁻⁴
        | \b\d+ e [-+]? \d+\b              # 3e-4
        ",
);

/// What makes the number behind it a place or a name rather than a result.
static BEFORE_A_NAME: Pattern = pattern!(
    r"(?i)([\w:/]|\b(section|sections|§|chapter|appendix|equation|eq\.|figure|table|theorem|algorithm)\s*)$",
);

static TAG: Pattern = pattern!(r"(?s)<!--.*?-->|<[^>]*>");

/// Decimals, percentages and powers of ten in the text of the chapters.
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    sources.chapters.iter().flat_map(numbers).collect()
}

fn numbers(chapter: &Document) -> Vec<Finding> {
    let prose = prose(&chapter.text);
    NUMBER
        .find_iter(&prose)
        .filter(|found| !is_name(&prose[..found.start()], found.as_str()))
        .map(|found| {
            chapter.finding(
                files::line_at(&prose, found.start()),
                format!(
                    "the number {} is typed by hand; compute it in crates/chapters and include it \
                     from src/generated",
                    found.as_str()
                ),
            )
        })
        .collect()
}

/// Whether `number`, after the text `before` it, is a version such as 0.5.4 or names a place.
fn is_name(before: &str, number: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before);
    number.matches('.').count() > 1 || BEFORE_A_NAME.is_match(line)
}

/// `text` with everything blanked that is not prose, so that places in it stay the same.
fn prose(text: &str) -> String {
    let mut text = without_directives(text);
    for formula in formulas(&text) {
        blank(&mut text, formula);
    }
    let mut kept = vec![b' '; text.len()];
    for range in prose_ranges(&text) {
        kept[range.clone()].copy_from_slice(&text.as_bytes()[range]);
    }
    for (at, byte) in text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n') {
        kept[at] = byte;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn blank(text: &mut String, range: Range<usize>) {
    let blanks: String = text[range.clone()]
        .bytes()
        .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
        .collect();
    text.replace_range(range, &blanks);
}

/// Where `text` has words to be read, outside code, tags and addresses.
fn prose_ranges(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut in_code = false;
    for (event, range) in parse(text) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(_) if !in_code && !is_address(&text[range.clone()]) => {
                ranges.push(range);
            }
            Event::Html(_) => ranges.extend(between_tags(text, range)),
            _ => {}
        }
    }
    ranges
}

/// The text of `<https://…>` is its address.
fn is_address(text: &str) -> bool {
    text.contains("://")
}

fn between_tags(text: &str, html: Range<usize>) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = html.start;
    for tag in TAG.find_iter(&text[html.clone()]) {
        ranges.push(at..html.start + tag.start());
        at = html.start + tag.end();
    }
    ranges.push(at..html.end);
    ranges
}
