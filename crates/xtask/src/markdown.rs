//! Reading Markdown the way mdBook does.

use crate::files::line_at;
use crate::pattern::{Pattern, pattern};
use mdbook_katex::cfg::KatexConfig;
use mdbook_katex::scan::{self, Scan};
use mdbook_markdown::pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};
use mdbook_markdown::{MarkdownOptions, new_cmark_parser};
use std::ops::Range;

/// A parser with the extensions that mdBook turns on; with each event comes where it is.
pub fn parse(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    let mut options = MarkdownOptions::default();
    options.smart_punctuation = false; // which would cut texts into pieces
    new_cmark_parser(text, &options).into_offset_iter()
}

/// The code of an error of the compiler, behind a fence.
pub(crate) static ERROR_CODE: Pattern = pattern!(r"^E\d{4}$");

/// A block of code in a chapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeBlock {
    /// What stands behind the opening fence; nothing for an indented block.
    pub info: String,
    /// The line of the opening fence, or of the first line if it is indented.
    pub line: usize,
    /// The code.
    pub body: String,
}

impl CodeBlock {
    /// The words behind the fence: the language and its attributes.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.info.split([',', ' ', '\t']).filter(|word| !word.is_empty())
    }

    /// Whether `word` stands behind the fence.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.words().any(|found| found == word)
    }

    /// Whether it is Rust.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.words().next() == Some("rust")
    }

    /// Whether it shows a part of the crate, which is compiled and tested there, rather than a
    /// program of its own.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        self.has("listing")
    }
}

/// All blocks of code in `text`.
#[must_use]
pub fn code_blocks(text: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<CodeBlock> = None;
    for (event, range) in parse(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                open = Some(CodeBlock {
                    info: match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    },
                    line: line_at(text, range.start),
                    body: String::new(),
                });
            }
            Event::Text(code) => {
                if let Some(block) = &mut open {
                    block.body.push_str(&code);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

/// The formulas of `text`, with their dollar signs, as mdbook-katex finds them.
#[must_use]
pub fn formulas(text: &str) -> Vec<Range<usize>> {
    let KatexConfig { block_delimiter, inline_delimiter, .. } = KatexConfig::default();
    let mut found = Vec::new();
    let mut begin = 0;
    for event in Scan::new(text, &block_delimiter, &inline_delimiter) {
        match event {
            scan::Event::Begin(at) => begin = at,
            scan::Event::TextEnd(_) => {}
            scan::Event::InlineEnd(at) => found.push(begin - 1..at + 1),
            scan::Event::BlockEnd(at) => found.push(begin - 2..at + 2),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    #[test]
    fn code_blocks_know_their_line_and_attributes() {
        let text = "a\n\n```rust,should_panic\nx\ny\n```\n\n> ~~~text\n> z\n> ~~~\n";
        let blocks = code_blocks(text);
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[0].line, blocks[0].body.as_str()), (3, "x\ny\n"));
        assert!(blocks[0].is_rust() && blocks[0].has("should_panic"));
        assert_eq!((blocks[1].line, blocks[1].body.as_str()), (8, "z\n"));
        assert!(!blocks[1].is_rust());
    }

    #[test]
    fn formulas_are_found_as_katex_finds_them() {
        let text = r"a $x$ \$5 `$no$` ``a`$b$`` $$ y \$ z $$ end $ open";
        let found: Vec<_> =
            formulas(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["$x$", r"$$ y \$ z $$"]);
    }

    const WORDS: &[&str] =
        &["$", "$$", "`", "```", "```rust\n", "\\", "\n", "\r", "> ", "é", "\u{a0}"];

    proptest! {
        /// Whatever a chapter holds: formulas between dollars, one after the other, and blocks that begin on its lines.
        #[test]
        fn a_damaged_chapter_is_read(
            text in mutated::text("a $x$ \\$5 `$no$`\n\n```rust,listing\né\n```\n\n$$ y $$", WORDS),
        ) {
            let mut end = 0;
            for range in formulas(&text) {
                prop_assert!(end <= range.start && range.end <= text.len());
                prop_assert!(text[range.clone()].starts_with('$') && text[range.clone()].ends_with('$'));
                end = range.end;
            }
            let lines = text.matches('\n').count() + 1;
            for block in code_blocks(&text) {
                prop_assert!((1..=lines).contains(&block.line));
            }
        }
    }
}
