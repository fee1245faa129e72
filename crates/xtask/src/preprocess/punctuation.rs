//! Formulas that come through Markdown in one piece, and punctuation that stays with them.
//!
//! A rendered formula is HTML in the midst of Markdown. Its text must not be read as Markdown: the
//! tilde of `\tilde` would strike out half of the formula.
//!
//! KaTeX sets a formula as a box, and a browser may break the line behind any box: a comma then
//! begins the next line. A formula of one box and the punctuation behind it are put into a span
//! that does not break. Longer formulas may break inside, and are left to.

const FORMULA: &str = "<span class=\"katex\">";
const BOX: &str = "<span class=\"base\">";
const TOGETHER: &str = "<span class=\"nowrap\">";

/// `rendered` with the text of formulas made literal and the punctuation behind them held fast.
pub(super) fn keep_together(rendered: &str) -> String {
    let mut held = String::with_capacity(rendered.len());
    let mut rest = rendered;
    while let Some(start) = rest.find(FORMULA) {
        let end = start + end_of_span(&rest[start..]);
        let formula = literal(&rest[start..end]);
        let marks: usize = rest[end..]
            .chars()
            .take_while(|c| ",.;:!?)’”".contains(*c))
            .map(char::len_utf8)
            .sum();
        let stays = marks > 0 && formula.matches(BOX).count() == 1;
        let (begin, close) = if stays { (TOGETHER, "</span>") } else { ("", "") };
        held.extend([&rest[..start], begin, &formula, &rest[end..end + marks], close]);
        rest = &rest[end + marks..];
    }
    held + rest
}

/// What means something to Markdown in the midst of a line.
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

/// Where the span ends that `html` begins with: behind the end tag that closes it.
fn end_of_span(html: &str) -> usize {
    let mut open = 0_usize;
    let mut at = 0;
    while let Some(tag) = html[at..].find('<').map(|offset| at + offset) {
        if html[tag..].starts_with("<span") {
            open += 1;
        } else if html[tag..].starts_with("</span>") {
            open -= 1;
            if open == 0 {
                return tag + "</span>".len();
            }
        }
        at = tag + 1;
    }
    html.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    fn formula(boxes: usize) -> String {
        let boxes = "<span class=\"base\"><span>x</span></span>".repeat(boxes);
        format!("{FORMULA}<math><mi>x</mi></math><span>{boxes}</span></span>")
    }

    #[test]
    fn a_mark_stays_with_its_formula() {
        let x = formula(1);
        let held = keep_together(&format!("(with {x}), or {x} alone, then {x}."));
        let span = |marks| format!("{TOGETHER}{x}{marks}</span>");
        assert_eq!(
            held,
            format!("(with {} or {x} alone, then {}", span("),"), span("."))
        );
    }

    #[test]
    fn a_formula_is_not_markdown() {
        let formula =
            |text: &str| format!("{FORMULA}<mo class=\"a_b\">{text}</mo></span>");
        assert_eq!(keep_together(&formula("~ a_b *")), formula("&#126; a&#95;b &#42;"));
        assert_eq!(keep_together(&formula(r"1 & 0 \\ 2")), formula("1 & 0 &#92;&#92; 2"));
        assert_eq!(keep_together("*not* a_formula"), "*not* a_formula");
    }

    #[test]
    fn a_formula_that_may_break_is_left_to() {
        let text = format!("{}, and no end: {FORMULA}<span>", formula(2));
        assert_eq!(keep_together(&text), text);
    }

    proptest! {
        /// Whatever is rendered, all of it is kept: only tags are added, and letters of a formula are written as numbers.
        #[test]
        fn damaged_pages_keep_their_text(
            page in mutated::text(
                &format!("(with {}), or {}.", formula(1), formula(2)),
                &[FORMULA, BOX, "</span>", "<span", "<", ">", ",", "’", "é"],
            ),
        ) {
            let text = |html: &str| html.replace(TOGETHER, "").replace("</span>", "");
            let mut plain = text(&keep_together(&page));
            for c in MARKDOWN.chars() {
                plain = plain.replace(&format!("&#{};", u32::from(c)), &c.to_string());
            }
            prop_assert_eq!(plain, text(&page).replace(TOGETHER, ""));
        }
    }
}
