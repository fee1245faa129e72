//! Formulas that come through Markdown in one piece, and punctuation that stays with them.
//!
//! A rendered formula is HTML in the midst of Markdown. Its text must not be read as Markdown: the
//! tilde of `\tilde` would strike out half of the formula.
//!
//! KaTeX sets a formula as a box, and a browser may break the line behind any box: a comma then
//! begins the next line. A formula of one box and the punctuation behind it are put into a span
//! that does not break. Longer formulas may break inside, and are left to.
//!
//! A number and its unit stay together, too.

use crate::markdown::{formulas, parse};
use crate::pattern::{Pattern, pattern};
use mdbook_markdown::pulldown_cmark::{Event, Tag};
use regex::Captures;

/// The beginning of a formula in running text, other than one on lines of its own.
const INLINE: &str = "<span class=\"katex\">";
const BOX: &str = "<span class=\"base\">";
const TOGETHER: &str = "<span class=\"nowrap\">";

/// A rendered formula with its text made literal, and with the punctuation that the text `after` it begins with, if that
/// is held fast; and how many bytes of the text that is.
pub(super) fn keep_together(formula: &str, after: &str) -> (String, usize) {
    let formula = literal(formula);
    let marks = after.find(|c| !",.;:!?)’”".contains(c)).unwrap_or(after.len());
    if marks > 0 && formula.starts_with(INLINE) && formula.matches(BOX).count() == 1 {
        (format!("{TOGETHER}{formula}{}</span>", &after[..marks]), marks)
    } else {
        (formula, 0)
    }
}

/// A number's last digit, what may break, and a unit.
static UNIT: Pattern = pattern!(
    r"(\d)[ \n]((?:ns|µs|ms|s|[KMGT]i?B(?:/s)?|GHz|[GT]?FLOPs?(?:/s|/byte)?|bytes?|bits?)\b)"
);

/// The text with the narrow space between each number and its unit that does not break, as in the values that were computed. Code
/// and formulas stay as they are.
pub(super) fn with_units(text: &str) -> String {
    let code = parse(text).filter_map(|(event, range)| {
        matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_))).then_some(range)
    });
    let apart: Vec<_> = code.chain(formulas(text)).collect();
    let joined = |found: &Captures| {
        let whole = found.get_match();
        if apart.iter().any(|range| range.contains(&whole.start())) {
            return whole.as_str().to_owned();
        }
        format!("{}\u{202f}{}", &found[1], &found[2])
    };
    UNIT.replace_all(text, joined).into_owned()
}

/// The characters that mean something to Markdown in the midst of a line.
const MARKDOWN: &str = r"\`*_~[]|";

/// The HTML of a formula with the characters escaped that mean something to Markdown.
fn literal(formula: &str) -> String {
    let mut literal = String::with_capacity(formula.len());
    let mut in_tag = false;
    for c in formula.chars() {
        match c {
            '<' => in_tag = true,
            '>' => in_tag = false,
            c if !in_tag && MARKDOWN.contains(c) => {
                literal += &format!("&#{};", u32::from(c));
                continue;
            }
            _ => {}
        }
        literal.push(c);
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formula(boxes: usize) -> String {
        let boxes = "<span class=\"base\"><span>x</span></span>".repeat(boxes);
        format!("{INLINE}<math><mi>x</mi></math><span>{boxes}</span></span>")
    }

    #[test]
    fn a_mark_stays_with_its_formula() {
        let x = formula(1);
        assert_eq!(keep_together(&x, "), or"), (format!("{TOGETHER}{x}),</span>"), 2));
        assert_eq!(keep_together(&x, "."), (format!("{TOGETHER}{x}.</span>"), 1));
        assert_eq!(keep_together(&x, " alone."), (x, 0));
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let text = "In 0.97 ns and 16 KiB,\nat 3 GB/s; 4 tokens, 2 sums.";
        let joined =
            "In 0.97\u{202f}ns and 16\u{202f}KiB,\nat 3\u{202f}GB/s; 4 tokens, 2 sums.";
        assert_eq!(with_units(text), joined);
        assert_eq!(with_units("128\nbytes"), "128\u{202f}bytes");
        let apart = "`2 ms`, $4 B$\n\n```text\n8 bytes\n```\n";
        assert_eq!(with_units(apart), apart);
    }

    #[test]
    fn a_formula_is_not_markdown() {
        let formula =
            |text: &str| format!("{INLINE}<mo class=\"a_b\">{text}</mo></span>");
        let kept = |text: &str| keep_together(&formula(text), "").0;
        assert_eq!(kept("~ a_b *"), formula("&#126; a&#95;b &#42;"));
        assert_eq!(kept(r"1 & 0 \\ 2"), formula("1 & 0 &#92;&#92; 2"));
    }

    #[test]
    fn a_formula_that_may_break_is_left_to() {
        let display = format!("<span class=\"katex-display\">{}</span>", formula(1));
        for formula in [formula(2), display] {
            assert_eq!(keep_together(&formula, ", and"), (formula, 0));
        }
    }
}
