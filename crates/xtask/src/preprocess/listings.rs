//! Listings without the indentation that they have in their file.

use crate::markdown::code_blocks;
use std::borrow::Cow;

/// `text` with every `listing` moved to the left, as far as its least indented line.
pub(super) fn dedent(text: &str) -> String {
    let mut lines: Vec<Cow<str>> = text.lines().map(Cow::from).collect();
    for block in code_blocks(text).into_iter().filter(|block| block.is_listing()) {
        let body = &mut lines[block.line..][..block.body.lines().count()];
        let margin = margin(&block.body);
        for line in body {
            *line = Cow::from(line.get(margin..).unwrap_or("").to_owned());
        }
    }
    let mut dedented = lines.join("\n");
    dedented.push('\n');
    dedented
}

/// The spaces that all lines of `code` begin with, but for empty ones.
pub(crate) fn margin(code: &str) -> usize {
    let indents = code.lines().filter(|line| !line.trim().is_empty());
    indents.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    #[test]
    fn a_listing_begins_at_the_margin() {
        let fenced =
            |info: &str, code: &str| format!("A.\n\n```{info}\n{code}```\n\nB.\n");
        let indented = "    if x {\n\n        y\n    }\n";
        assert_eq!(
            dedent(&fenced("rust,listing", indented)),
            fenced("rust,listing", "if x {\n\n    y\n}\n")
        );
        assert_eq!(dedent(&fenced("rust", indented)), fenced("rust", indented));
    }

    const MARKDOWN: &[&str] = &[
        "```rust,listing\n",
        "```\n",
        "~~~rust,listing\n",
        "\r",
        "\r\n",
        "\n",
        "> ",
        "- ",
        "\t",
        "    ",
        "\u{a0}",
        "\u{2028}",
        "é",
        "\0",
    ];

    proptest! {
        /// Whatever a chapter holds, no line is lost, and none but those of a listing changes.
        #[test]
        fn a_damaged_chapter_keeps_its_lines(
            text in mutated::text("A.\n\n> ```rust,listing\n>     é\n>\n>       b\n> ```\n\n```rust,listing\n    x\n```\n", MARKDOWN),
        ) {
            let dedented = dedent(&text);
            let lines = |text: &str| -> Vec<String> {
                text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
            };
            let (before, after) = (lines(&text), lines(&dedented));
            prop_assert_eq!(before.len().max(1), after.len());
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(before.ends_with(after.as_str()));
            }
        }
    }
}
