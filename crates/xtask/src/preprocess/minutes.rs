//! The time that chapters take to read: `{{minutes softmax masking}}` becomes a number, and a chapter that some page names in this way says it
//! below its own title, too.

use crate::markdown::parse;
use crate::pattern::{Pattern, pattern};
use anyhow::{Result, bail};
use mdbook_markdown::pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};
use mdbook_preprocessor::book::{Book, Chapter};
use regex::Captures;
use std::collections::{BTreeSet, HashMap};

/// Slower than a novel is read, since there are formulas on the way.
const WORDS_PER_MINUTE: usize = 100;

static DIRECTIVE: Pattern = pattern!(r"\{\{minutes((?: [a-z-]+)+)\}\}");

/// Writes the minutes into the chapters. Those of a chapter are rounded to five, so that sums agree with what is shown of
/// their parts.
///
/// # Errors
/// There is no chapter of that name.
pub(super) fn insert(book: &mut Book) -> Result<()> {
    let minutes: HashMap<String, usize> = book
        .chapters()
        .filter_map(|chapter| Some((name(chapter)?, minutes(chapter))))
        .collect();
    let named: BTreeSet<String> =
        book.chapters().flat_map(|chapter| names(&chapter.content)).collect();
    if let Some(unknown) = named.iter().find(|name| !minutes.contains_key(*name)) {
        bail!("{{{{minutes {unknown}}}}}: there is no chapter `{unknown}`");
    }
    book.for_each_chapter_mut(|chapter| {
        let sum = |found: &Captures| {
            let sum: usize = found[1].split_whitespace().map(|name| minutes[name]).sum();
            sum.to_string()
        };
        chapter.content = DIRECTIVE.replace_all(&chapter.content, sum).into_owned();
        if let Some(name) = name(chapter).filter(|name| named.contains(name)) {
            chapter.content = below_title(&chapter.content, minutes[&name]);
        }
    });
    Ok(())
}

/// The chapters whose minutes are asked for.
fn names(content: &str) -> Vec<String> {
    let directives = DIRECTIVE.captures_iter(content);
    let words =
        directives.map(|found| found[1].split_whitespace().map(str::to_owned).collect());
    words.collect::<Vec<Vec<_>>>().concat()
}

/// The chapter with a line on its minutes below its title.
fn below_title(content: &str, minutes: usize) -> String {
    let is_title =
        |event: &Event| *event == Event::End(TagEnd::Heading(HeadingLevel::H1));
    let title = parse(content).find(|(event, _)| is_title(event));
    let (above, below) = content.split_at(title.map_or(0, |(_, range)| range.end));
    let time =
        format!("<div class=\"reading-time\">About {minutes} minutes to read</div>");
    format!("{above}\n{time}\n\n{}", below.trim_start_matches('\n'))
}

/// The chapter's file without its ending, as addresses have it.
fn name(chapter: &Chapter) -> Option<String> {
    Some(chapter.source_path.as_ref()?.file_stem()?.to_string_lossy().into_owned())
}

/// Words of formulas count, those of code and figures do not.
fn minutes(chapter: &Chapter) -> usize {
    let mut in_code = false;
    let mut words = 0;
    for (event, _) in parse(&chapter.content) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(text) if !in_code => words += text.split_whitespace().count(),
            _ => {}
        }
    }
    let fives = words as f64 / (5 * WORDS_PER_MINUTE) as f64;
    5 * (fives.round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdbook_preprocessor::book::BookItem;

    fn book(contents: [(&str, &str); 2]) -> Book {
        let chapter = |(name, content): (&str, &str)| {
            let path = format!("{name}.md");
            BookItem::Chapter(Chapter::new(name, content.to_owned(), path, vec![]))
        };
        Book::new_with_items(contents.map(chapter).to_vec())
    }

    #[test]
    fn code_takes_no_time_and_words_take_theirs() {
        let words = "word ".repeat(1950);
        let long = format!("{words}\n\n```rust\n{words}\n```\n");
        let mut book = book([
            ("welcome", "{{minutes long}}, {{minutes long welcome}}"),
            ("long", &long),
        ]);
        insert(&mut book).unwrap();
        let welcome = &book.chapters().next().unwrap().content;
        assert!(welcome.ends_with("20, 25"), "{welcome}");
    }

    #[test]
    fn a_chapter_says_its_own_time_below_its_title() {
        let chapter = "# Long\n\nOnce.\n\n# Not the title\n";
        let mut book =
            book([("welcome", "# Hello\n\n{{minutes long}}\n"), ("long", chapter)]);
        insert(&mut book).unwrap();
        let contents: Vec<_> =
            book.chapters().map(|chapter| chapter.content.as_str()).collect();
        let time = "<div class=\"reading-time\">About 5 minutes to read</div>";
        assert_eq!(
            contents,
            [
                "# Hello\n\n5\n".to_owned(),
                format!("# Long\n\n{time}\n\nOnce.\n\n# Not the title\n")
            ]
        );
    }

    #[test]
    fn an_unknown_chapter_is_named() {
        let mut book = book([("welcome", "{{minutes long}}"), ("short", "")]);
        let error = insert(&mut book).unwrap_err().to_string();
        assert_eq!(error, "{{minutes long}}: there is no chapter `long`");
    }
}
