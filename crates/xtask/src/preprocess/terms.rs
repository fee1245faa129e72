//! The words of the glossary: each of its entries gets an id, and where a later chapter uses a word for the first time, the word
//! links to its entry.

use crate::markdown::{formulas, parse};
use crate::pattern::{Pattern, pattern};
use anyhow::Result;
use mdbook_markdown::pulldown_cmark::{Event, TagEnd};
use mdbook_preprocessor::book::{Book, Chapter};
use regex::{Captures, Regex};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The chapter with the entries.
const GLOSSARY: &str = "glossary.md";

/// An entry: the word, the chapter that introduces it, and what it means.
static ENTRY: Pattern =
    pattern!(r"(?m)^\| \*\*\[([^\]]+)\]\(([^)#]+)([^)]*)\)\*\* \| (.*) \|$");

/// An entry whose word means this in one context only, such as "Of a mask: …". Elsewhere the word means something else.
static IN_CONTEXT: Pattern =
    pattern!(r"^(?:Of|On|In) [^:.]*[:,]|Not to be confused|[Ee]lsewhere");

/// Words that the chapters also use in another sense: a link would often lead readers astray.
const ALSO_ORDINARY: [&str; 14] = [
    "Bank",
    "Core",
    "Correction",
    "Key",
    "Lane",
    "Layer",
    "Padding",
    "Peak",
    "Projection",
    "Race",
    "State",
    "Value",
    "Weight",
    "Window",
];

/// A word of the glossary.
struct Term {
    id: String,
    /// The place in the book of the chapter that introduces it.
    introduced: usize,
    /// True if a use of it may become a link.
    linked: bool,
}

/// Gives the entries of the glossary their ids, and the chapters their links.
///
/// # Errors
///
/// If the words make no pattern.
pub(super) fn link(book: &mut Book) -> Result<()> {
    let order: Vec<String> = book.chapters().filter_map(file).collect();
    let Some(glossary) = book.chapters().find(|chapter| is_glossary(chapter)) else {
        return Ok(());
    };
    let terms = terms(&glossary.content, &order);
    let uses = uses(terms.keys())?;
    book.for_each_chapter_mut(|chapter| {
        if is_glossary(chapter) {
            chapter.content = with_ids(&chapter.content);
        } else if let Some(at) =
            order.iter().position(|name| file(chapter).as_ref() == Some(name))
        {
            chapter.content = with_links(&chapter.content, at, &terms, &uses);
        }
    });
    Ok(())
}

fn file(chapter: &Chapter) -> Option<String> {
    Some(chapter.source_path.as_ref()?.to_string_lossy().into_owned())
}

fn is_glossary(chapter: &Chapter) -> bool {
    file(chapter).is_some_and(|name| name == GLOSSARY)
}

/// The words, in small letters.
fn terms(glossary: &str, order: &[String]) -> HashMap<String, Term> {
    let entries = ENTRY.captures_iter(glossary);
    let term = |entry: Captures| {
        let (word, introduced) =
            (&entry[1], order.iter().position(|name| *name == entry[2])?);
        let linked = !IN_CONTEXT.is_match(&entry[4]) && !ALSO_ORDINARY.contains(&word);
        Some((word.to_lowercase(), Term { id: id(word), introduced, linked }))
    };
    entries.filter_map(term).collect()
}

fn id(word: &str) -> String {
    format!("term-{}", word.to_lowercase().replace(' ', "-"))
}

fn with_ids(glossary: &str) -> String {
    let marked = |entry: &Captures| {
        let [word, page, section, meaning] = [1, 2, 3, 4].map(|group| &entry[group]);
        format!(
            "| <strong id=\"{}\">[{word}]({page}{section})</strong> | {meaning} |",
            id(word)
        )
    };
    ENTRY.replace_all(glossary, marked).into_owned()
}

/// Finds any of the words, the longest first and in one or several, and in a group the word without its ending.
fn uses<'a>(words: impl Iterator<Item = &'a String>) -> Result<Regex> {
    let mut words: Vec<_> = words.collect();
    words.sort_by_key(|word| (std::cmp::Reverse(word.len()), *word));
    let words: Vec<_> =
        words.iter().map(|word| regex::escape(word).replace(' ', r"\s+")).collect();
    Ok(Regex::new(&format!(r"(?i)\b({})(?:s|es)?\b", words.join("|")))?)
}

/// The chapter at place `at` of the book, in which the first use of each earlier word is a link.
fn with_links(
    text: &str,
    at: usize,
    terms: &HashMap<String, Term>,
    uses: &Regex,
) -> String {
    let formulas = formulas(text);
    let mut seen = HashSet::new();
    let mut links = Vec::new();
    for run in prose(text) {
        for found in uses.captures_iter(&text[run.clone()]) {
            let Some(whole) = found.get(0) else { continue };
            let place = run.start + whole.start()..run.start + whole.end();
            let word =
                found[1].to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
            let Some(term) = terms.get(&word) else { continue };
            let in_formula = formulas
                .iter()
                .any(|formula| formula.start < place.end && place.start < formula.end);
            let free = !in_formula && stands_alone(text, &place);
            if free && term.linked && term.introduced < at && seen.insert(&term.id) {
                links.push((place, &term.id));
            }
        }
    }
    let mut linked = String::with_capacity(text.len());
    let mut end = 0;
    for (place, id) in links {
        let word = &text[place.clone()];
        linked += &text[end..place.start];
        linked += &format!("<a class=\"term\" href=\"{GLOSSARY}#{id}\">{word}</a>");
        end = place.end;
    }
    linked + &text[end..]
}

/// Not a part of a word with a hyphen, or of a path.
fn stands_alone(text: &str, place: &Range<usize>) -> bool {
    let part = |c: char| "-_/:.".contains(c);
    let before = text[..place.start].chars().next_back();
    let mut after = text[place.end..].chars();
    let goes_on = match (after.next(), after.next()) {
        (Some('-' | '_' | '/' | ':' | '.'), Some(next)) => next.is_alphanumeric(),
        _ => false,
    };
    !before.is_some_and(part) && !goes_on
}

/// The stretches of running text: of paragraphs and lists, without headings, tables, code, links, what is strong, since that is
/// where words are defined, and what is emphasised, such as titles.
fn prose(text: &str) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut apart = 0_usize; // how many of the elements around are not for links
    let mut in_link = false; // one that is written as HTML
    for (event, range) in parse(text) {
        match event {
            Event::Start(tag) if is_apart(&tag.to_end()) => apart += 1,
            Event::End(tag) if is_apart(&tag) => apart -= 1,
            Event::InlineHtml(html) if html.starts_with("<a ") => in_link = true,
            Event::InlineHtml(html) if html.starts_with("</a>") => in_link = false,
            Event::Text(_) | Event::SoftBreak if apart == 0 && !in_link => {
                match runs.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => runs.push(range),
                }
            }
            _ => {}
        }
    }
    runs
}

fn is_apart(tag: &TagEnd) -> bool {
    matches!(
        tag,
        TagEnd::Heading(_)
            | TagEnd::Table
            | TagEnd::CodeBlock
            | TagEnd::HtmlBlock
            | TagEnd::Link
            | TagEnd::Image
            | TagEnd::Strong
            | TagEnd::Emphasis
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdbook_preprocessor::book::BookItem;

    const ENTRIES: &str = "\
| **[Head](a.md)** | One of several. |
| **[Forward pass](a.md#one)** | Computing the output. |
| **[Dead](a.md#two)** | Of a head: useless. |
| **[Tile](c.md)** | A block. |
";

    fn linked(chapters: [(&str, &str); 3]) -> Vec<String> {
        let chapter = |(path, content): (&str, &str)| {
            BookItem::Chapter(Chapter::new(path, content.to_owned(), path, vec![]))
        };
        let [first, second, third] = chapters;
        let all = [first, second, third, (GLOSSARY, ENTRIES)];
        let mut book = Book::new_with_items(all.map(chapter).to_vec());
        link(&mut book).unwrap();
        book.chapters().map(|chapter| chapter.content.clone()).collect()
    }

    fn second_chapter(text: &str) -> String {
        linked([("a.md", ""), ("b.md", text), ("c.md", "")]).swap_remove(1)
    }

    fn to(id: &str, word: &str) -> String {
        format!("<a class=\"term\" href=\"glossary.md#term-{id}\">{word}</a>")
    }

    #[test]
    fn the_first_use_on_a_later_page_is_a_link() {
        let text = "*Heads*, two heads, one head; a forward\npass.\n";
        let expected = format!(
            "*Heads*, two {}, one head; a {}.\n",
            to("head", "heads"),
            to("forward-pass", "forward\npass")
        );
        assert_eq!(second_chapter(text), expected);
        let chapters =
            linked([("a.md", "A head."), ("b.md", "A tile."), ("c.md", "A tile.")]);
        assert_eq!(chapters[..3], ["A head.", "A tile.", "A tile."]);
    }

    #[test]
    fn nothing_else_is_a_link() {
        for text in [
            "# Heads\n",
            "`head` and **head** and [head](a.md)",
            "    head\n",
            "| head |\n|---|\n| head |\n",
            "A multi-head layer, head-first, head.rs, overhead and $head$.",
            "<figure>\nA head.\n</figure>\n",
            "<a href=\"a.md\">a head</a>",
            "A dead end.",
        ] {
            assert_eq!(second_chapter(text), text);
        }
    }

    #[test]
    fn an_entry_has_an_id() {
        let glossary = linked([("a.md", ""), ("b.md", ""), ("c.md", "")]).swap_remove(3);
        let first =
            "| <strong id=\"term-head\">[Head](a.md)</strong> | One of several. |\n";
        assert!(glossary.starts_with(first), "{glossary}");
        assert!(glossary.contains(
            "<strong id=\"term-forward-pass\">[Forward pass](a.md#one)</strong>"
        ));
    }
}
