//! Reading Markdown the way mdBook does.

use crate::files::line_at;
use crate::pattern::{Pattern, pattern};
use mdbook_katex::scan::{self, Delimiter, Scan};
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
    /// The text behind the opening fence; nothing for an indented block.
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

    /// Returns whether `word` stands behind the fence.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.words().any(|found| found == word)
    }

    /// Returns whether it is Rust.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.words().next() == Some("rust")
    }

    /// Returns whether it shows a part of the crate, which is compiled and tested there, rather than a
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

/// Returns where the formulas of `text` are, with their dollar signs: `$…$` in a line and `$$…$$` on lines of their own. A
/// backslash makes a dollar sign a character, and code has no formulas.
#[must_use]
pub fn formulas(text: &str) -> Vec<Range<usize>> {
    let [display, inline] =
        ["$$", "$"].map(|dollars| Delimiter::same(dollars.to_owned()));
    let mut begin = 0;
    let formula = |event| match event {
        scan::Event::Begin(at) => {
            begin = at;
            None
        }
        scan::Event::TextEnd(_) => None,
        scan::Event::InlineEnd(end) => Some(begin - 1..end + 1),
        scan::Event::BlockEnd(end) => Some(begin - 2..end + 2),
    };
    Scan::new(text, &display, &inline).filter_map(formula).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn formulas_are_found_outside_code() {
        let text = r"a $x$ \$5 é `$no$` ``a`$b$`` $$ y \$ z $$ \é$c$ end $ open `x` $y$";
        let found: Vec<_> =
            formulas(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["$x$", r"$$ y \$ z $$", "$c$", "$ open `x` $"]);
        assert!(formulas("`$x$ and \\").is_empty());
    }
}
