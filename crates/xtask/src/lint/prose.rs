//! Numbers typed by hand, and words that the book does without.
//!
//! A decimal in the prose looks measured, so it must have been: it comes from `src/generated` by an
//! include. Not meant are code, formulas, links, and places in other texts: "Section 3.2".

use super::includes::without_directives;
use super::{Document, Finding, Sources};
use crate::files;
use crate::markdown::{formulas, parse};
use crate::pattern::{Pattern, pattern};
use mdbook_markdown::pulldown_cmark::{Event, Tag, TagEnd};
use regex::{Captures, Match};
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

/// Words that make the number behind them a place or a name rather than a result.
static BEFORE_A_NAME: Pattern = pattern!(
    r"(?i)([\w:/]|\b(section|sections|§|chapter|appendix|equation|eq\.|figure|table|theorem|algorithm)\s*)$",
);

static TAG: Pattern = pattern!(r"(?s)<!--.*?-->|<[^>]*>");

/// Words that make a reader stop, as patterns in which a blank stands for any space, and their replacement.
const WORDS: [(&str, &str); 13] = [
    ("but for rounding", "up to rounding"),
    ("dearest", "most expensive"),
    ("everybody", "all, and who they are"),
    ("filling", "padding"),
    ("foretell", "predict"),
    ("foretold", "predicted"),
    ("gradients? by (?:the|its|their|each|every|an?|[a-z])", "gradient with respect to"),
    ("is to be had", "is available"),
    ("nobody", "no one, or better who"),
    ("shall", "will or should"),
    ("there and back", "forward and backward"),
    ("way back", "backward pass"),
    ("whoever", "who it is"),
];

/// The [`WORDS`], a group each.
static WORD: Pattern = pattern!(&format!(
    r"(?i)\b(?:{})\b",
    WORDS.map(|(word, _)| format!("({})", word.replace(' ', r"\s+"))).join("|")
));

/// Decimals, percentages and powers of ten in the text of the chapters, and the [`WORDS`].
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let check = |chapter: &Document| {
        let prose = prose(&chapter.text);
        [numbers(chapter, &prose), words(chapter, &prose)].concat()
    };
    sources.chapters.iter().flat_map(check).collect()
}

fn words(chapter: &Document, prose: &str) -> Vec<Finding> {
    let finding = |found: Captures| {
        let whole = found.get(0)?;
        let which = (1..=WORDS.len()).find(|group| found.get(*group).is_some())?;
        let word = whole.as_str().to_lowercase();
        let word = word.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = format!("“{word}”: write {}", WORDS[which - 1].1);
        Some(chapter.finding(files::line_at(prose, whole.start()), message))
    };
    WORD.captures_iter(prose).filter_map(finding).collect()
}

fn numbers(chapter: &Document, prose: &str) -> Vec<Finding> {
    let numbers = NUMBER.find_iter(prose);
    let typed = numbers.filter(|found| !is_name(&prose[..found.start()], found.as_str()));
    let finding = |found: Match| {
        let message = format!(
            "the number {} is typed by hand; compute it in crates/chapters and include it \
             from src/generated",
            found.as_str()
        );
        chapter.finding(files::line_at(prose, found.start()), message)
    };
    typed.map(finding).collect()
}

/// Returns whether `number`, after the text `before` it, is a version such as 0.5.4 or names a place.
fn is_name(before: &str, number: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before);
    number.matches('.').count() > 1 || BEFORE_A_NAME.is_match(line)
}

/// `text` with everything blanked that is not prose, so that places in it stay the same.
fn prose(text: &str) -> String {
    let formulas = formulas(text); // a directive in one is still there
    let mut text = without_directives(text);
    for formula in formulas {
        let kept = blank(&text[formula.clone()], []);
        text.replace_range(formula, &kept);
    }
    blank(&text, prose_ranges(&text))
}

/// `text` with blanks in place of all bytes but those of these ranges, and line breaks.
fn blank(text: &str, kept: impl IntoIterator<Item = Range<usize>>) -> String {
    let byte = |byte| if byte == b'\n' { byte } else { b' ' };
    let mut blank: Vec<u8> = text.bytes().map(byte).collect();
    for range in kept {
        blank[range.clone()].copy_from_slice(&text.as_bytes()[range]);
    }
    String::from_utf8_lossy(&blank).into_owned()
}

/// Returns the ranges of `text` that have words to be read, outside code, tags and addresses.
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
