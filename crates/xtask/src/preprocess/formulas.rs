//! What a formula in KaTeX's HTML has beyond KaTeX: a colour for queries, keys and values, and lines that end before a relation.

use crate::pattern::{Pattern, pattern};
use std::collections::BTreeSet;

/// A letter that stands for queries, keys or values, also as an index.
static ROLE: Pattern =
    pattern!(r#"<span class="mord mathnormal( mtight)?"([^>]*)>([QKV])</span>"#);

/// A small letter that may stand for a query, a key or a value. As an index it is a number.
static VECTOR: Pattern = pattern!(
    r#"<span class="mord mathnormal"([^>]*)>([qkv])</span>(<span class="msupsub">)?"#
);

/// Where a part of a formula begins that isn't broken: KaTeX lets a line end behind each relation and operator.
const BASE: &str = "<span class=\"base\">";

/// A relation at the end of a base, with the space around it.
static RELATION: Pattern = pattern!(
    r#"((?:<span class="mspace"[^>]*></span>)?<span class="mrel">[^<]*</span>(?:<span class="mspace"[^>]*></span>)?)</span>$"#
);

/// The height of a base comes first in it.
static STRUT: Pattern =
    pattern!(r#"^<span class="base"><span class="strut"[^>]*></span>"#);

/// The letters of queries, keys and values with a class for each: book.css. A small letter alone may be something else; one with an index,
/// or beside another of the three, is none.
pub(super) fn with_roles(html: &str) -> String {
    let vectors: BTreeSet<_> =
        VECTOR.captures_iter(html).map(|found| found[2].to_owned()).collect();
    let html = VECTOR.replace_all(html, |letter: &regex::Captures| {
        let index = letter.get(3).map_or("", |index| index.as_str());
        if vectors.len() < 2 && index.is_empty() {
            return letter[0].to_owned();
        }
        let role = &letter[2];
        format!(
            "<span class=\"mord mathnormal role-{role}\"{}>{role}</span>{index}",
            &letter[1]
        )
    });
    let html = ROLE.replace_all(&html, |letter: &regex::Captures| {
        let role = letter[3].to_lowercase();
        let tight = letter.get(1).map_or("", |tight| tight.as_str());
        format!(
            "<span class=\"mord mathnormal{tight} role-{role}\"{}>{}</span>",
            &letter[2], &letter[3]
        )
    });
    html.into_owned()
}

/// A formula on its own, where a line goes on with a relation and never ends with one. What is between two relations is a part, and is broken
/// at operators only if it is wider than a line.
pub(super) fn broken_before_relations(html: &str) -> String {
    let starts: Vec<_> = html.match_indices(BASE).map(|(at, _)| at).collect();
    let Some((&first, &last)) = starts.first().zip(starts.last()) else {
        return html.to_owned();
    };
    let mut broken = html[..first].to_owned();
    broken += "<span class=\"part\">";
    let mut moved = String::new();
    for pair in starts.windows(2) {
        let base = with_front(&html[pair[0]..pair[1]], &moved);
        match RELATION.captures(&base) {
            Some(found) => {
                broken += &base[..found.get_match().start()];
                broken += "</span></span><span class=\"part\">";
                moved = found[1].to_owned();
            }
            None => {
                broken += &base;
                moved.clear();
            }
        }
    }
    // Behind the last base end the elements around the formula.
    let rest = with_front(&html[last..], &moved);
    let end = rest.len() - "</span></span></span>".len();
    broken + &rest[..end] + "</span>" + &rest[end..]
}

/// A base that begins with what was moved to it.
fn with_front(base: &str, moved: &str) -> String {
    let strut = STRUT.find(base).map_or(BASE.len(), |strut| strut.end());
    format!("{}{moved}{}", &base[..strut], &base[strut..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRUT: &str = "<span class=\"strut\" style=\"height:1em;\"></span>";
    const SPACE: &str = "<span class=\"mspace\" style=\"margin-right:0.2em;\"></span>";

    #[test]
    fn a_relation_begins_a_part_and_an_operator_does_not() {
        let relation = format!("{SPACE}<span class=\"mrel\">=</span>{SPACE}");
        let operator = format!("{SPACE}<span class=\"mbin\">+</span>{SPACE}");
        let around = |inner: &str| {
            format!(
                "<span class=\"katex-display\"><span class=\"katex\"><span class=\"katex-html\">{inner}</span></span></span>"
            )
        };
        let base =
            |front: &str, inner: &str| format!("{BASE}{STRUT}{front}{inner}</span>");
        let (a, b, c) = (format!("a{relation}"), format!("b{operator}"), "c");
        let html = around(&(base("", &a) + &base("", &b) + &base("", c)));
        let part = |inner: String| format!("<span class=\"part\">{inner}</span>");
        let first = part(base("", "a"));
        let second = part(base(&relation, &b) + &base("", c));
        assert_eq!(broken_before_relations(&html), around(&(first + &second)));
    }

    #[test]
    fn queries_keys_and_values_have_classes() {
        let html = "<span class=\"mord mathnormal\">Q</span><span class=\"mord mathnormal mtight\" style=\"x\">V</span><span class=\"mord mathnormal\">X</span>";
        let expected = "<span class=\"mord mathnormal role-q\">Q</span><span class=\"mord mathnormal mtight role-v\" style=\"x\">V</span><span class=\"mord mathnormal\">X</span>";
        assert_eq!(with_roles(html), expected);
        let letter = |letter, role: &str| {
            format!("<span class=\"mord mathnormal{role}\">{letter}</span>")
        };
        let index = "<span class=\"msupsub\">j</span>";
        assert_eq!(with_roles(&letter("k", "")), letter("k", ""));
        let indexed = letter("k", " role-k") + index;
        assert_eq!(with_roles(&(letter("k", "") + index)), indexed);
        let both = letter("q", " role-q") + &letter("v", " role-v");
        assert_eq!(with_roles(&(letter("q", "") + &letter("v", ""))), both);
    }
}
