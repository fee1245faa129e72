//! Punctuation that stays with its formula.
//!
//! KaTeX sets a formula as a box, and a browser may break the line behind any box: a comma then
//! begins the next line. A formula of one box and the punctuation behind it are put into a span
//! that does not break. Longer formulas may break inside, and are left to.

const FORMULA: &str = "<span class=\"katex\">";
const BOX: &str = "<span class=\"base\">";
const TOGETHER: &str = "<span class=\"nowrap\">";

/// `rendered` with the punctuation behind formulas held fast.
pub(super) fn hold(rendered: &str) -> String {
    let mut held = String::with_capacity(rendered.len());
    let mut rest = rendered;
    while let Some(start) = rest.find(FORMULA) {
        let end = start + end_of_span(&rest[start..]);
        let formula = &rest[start..end];
        let marks: usize = rest[end..]
            .chars()
            .take_while(|c| ",.;:!?)’”".contains(*c))
            .map(char::len_utf8)
            .sum();
        held.push_str(&rest[..start]);
        if marks > 0 && formula.matches(BOX).count() == 1 {
            held.push_str(TOGETHER);
            held.push_str(&rest[start..end + marks]);
            held.push_str("</span>");
        } else {
            held.push_str(&rest[start..end + marks]);
        }
        rest = &rest[end + marks..];
    }
    held + rest
}

/// Where the span ends that `html` begins with: behind the end tag that closes it.
fn end_of_span(html: &str) -> usize {
    let mut open = 0_usize;
    let mut at = 0;
    while let Some(tag) = html[at..].find(['<']).map(|offset| at + offset) {
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

    fn formula(boxes: usize) -> String {
        let boxes = "<span class=\"base\"><span>x</span></span>".repeat(boxes);
        format!("{FORMULA}<math><mi>x</mi></math><span>{boxes}</span></span>")
    }

    #[test]
    fn a_mark_stays_with_its_formula() {
        let x = formula(1);
        let held = hold(&format!("(with {x}), or {x} alone, then {x}."));
        let span = |marks| format!("{TOGETHER}{x}{marks}</span>");
        assert_eq!(
            held,
            format!("(with {} or {x} alone, then {}", span("),"), span("."))
        );
    }

    #[test]
    fn a_formula_that_may_break_is_left_to() {
        let text = format!("{}, and no end: {FORMULA}<span>", formula(2));
        assert_eq!(hold(&text), text);
    }
}
