//! What a formula in KaTeX's HTML has beyond KaTeX: a colour for queries, keys and values, and lines that end before a relation.

use crate::pattern::{Pattern, pattern};
use std::collections::BTreeSet;

/// A letter that stands for queries, keys or values, also as an index.
static ROLE: Pattern =
    pattern!(r#"<span class="mord mathnormal( mtight)?"([^>]*)>([QKV])</span>"#);

/// A small letter that may stand for a query, a key or a value; not in an index, where it counts.
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

/// A sign of a product at the end of a base.
static TIMES: Pattern = pattern!(
    r#"<span class="mbin">[⋅×]</span>(?:<span class="mspace"[^>]*></span>)?</span>$"#
);

/// The space between two things that a formula says.
static QUAD: Pattern =
    pattern!(r#"^<span class="mspace" style="margin-right:[12]em;"></span>$"#);

static SPAN: Pattern = pattern!("<(/?)span\\b[^>]*>");
static TAG: Pattern = pattern!("<[^>]*>");

/// The most letters of a left side that never stands alone in a line.
const SHORT: usize = 9;

/// The letters of queries, keys and values with a class for each: book.css. A small letter that stands alone, without an
/// index and without another of the three, may be something else, and stays as it is.
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
/// at operators only if it is wider than a line; a short left side stays with the part behind it. Where a formula says several things side by
/// side, a line ends between two of them first.
pub(super) fn broken_before_relations(html: &str) -> String {
    let starts: Vec<_> = html.match_indices(BASE).map(|(at, _)| at).collect();
    let Some((&first, &last)) = starts.first().zip(starts.last()) else {
        return html.to_owned();
    };
    // Behind the last base end the elements around the formula.
    let end = html.len() - "</span></span></span>".len();
    let mut bases: Vec<_> =
        starts.windows(2).map(|pair| &html[pair[0]..pair[1]]).collect();
    bases.push(&html[last..end]);
    let mut sentences = vec![Vec::new()];
    for base in bases {
        let mut pieces = split_at_quads(base).into_iter();
        if let (Some(sentence), Some(piece)) = (sentences.last_mut(), pieces.next()) {
            sentence.push(piece);
        }
        sentences.extend(pieces.map(|piece| vec![piece]));
    }
    let sentences: Vec<_> = sentences.into_iter().map(in_parts).collect();
    let inner = match sentences.as_slice() {
        [one] => one.clone(),
        several => several
            .iter()
            .map(|it| format!("<span class=\"sentence\">{it}</span>"))
            .collect(),
    };
    format!("{}{inner}{}", &html[..first], &html[end..])
}

/// The bases of one sentence in parts.
fn in_parts(bases: Vec<String>) -> String {
    // A line doesn't end within a short product.
    let mut bases = bases.into_iter().fold(Vec::<String>::new(), |mut joined, base| {
        match joined
            .last_mut()
            .filter(|last| TIMES.is_match(last) && letters(last) <= SHORT)
        {
            Some(last) => *last = with_rest(last, &base),
            None => joined.push(base),
        }
        joined
    });
    if let [left, right, ..] = &bases[..]
        && RELATION.is_match(left)
        && letters(left) <= SHORT
        && letters(left) + letters(right) <= 3 * SHORT
    {
        let joined = with_rest(left, right);
        bases.splice(..2, [joined]);
    }
    let mut broken = "<span class=\"part\">".to_owned();
    let mut moved = String::new();
    let last = bases.len() - 1;
    for (at, base) in bases.iter().enumerate() {
        let base = with_front(base, &moved);
        match RELATION.captures(&base) {
            Some(found) if at < last => {
                broken += &base[..found.get_match().start()];
                broken += "</span></span><span class=\"part\">";
                moved = found[1].to_owned();
            }
            _ => {
                broken += &base;
                moved.clear();
            }
        }
    }
    broken + "</span>"
}

/// Two bases as one.
fn with_rest(base: &str, next: &str) -> String {
    base[..base.len() - "</span>".len()].to_owned() + &next[BASE.len()..]
}

/// A base, parted behind each wide space between its elements.
fn split_at_quads(base: &str) -> Vec<String> {
    let strut = STRUT.find(base).map_or(BASE, |strut| strut.as_str());
    let inner = &base[strut.len()..base.len() - "</span>".len()];
    let mut pieces = vec![strut.to_owned()];
    for element in elements(inner) {
        if let Some(piece) = pieces.last_mut() {
            *piece += element;
        }
        if QUAD.is_match(element) {
            pieces.push(strut.to_owned());
        }
    }
    pieces.iter().map(|piece| format!("{piece}</span>")).collect()
}

/// The elements of a list of spans, each with what is in it.
fn elements(html: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0);
    for tag in SPAN.captures_iter(html) {
        depth += if &tag[1] == "/" { -1 } else { 1 };
        if depth == 0 {
            let end = tag.get_match().end();
            found.push(&html[start..end]);
            start = end;
        }
    }
    found
}

/// How many letters of it can be seen.
fn letters(html: &str) -> usize {
    TAG.replace_all(html, "")
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '\u{200b}')
        .count()
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

    fn around(inner: &str) -> String {
        format!(
            "<span class=\"katex-display\"><span class=\"katex\"><span class=\"katex-html\">{inner}</span></span></span>"
        )
    }

    fn base(inner: &str) -> String {
        format!("{BASE}{STRUT}{inner}</span>")
    }

    fn part(inner: &str) -> String {
        format!("<span class=\"part\">{inner}</span>")
    }

    #[test]
    fn a_relation_begins_a_part_and_an_operator_does_not() {
        let relation = format!("{SPACE}<span class=\"mrel\">=</span>{SPACE}");
        let operator = format!("{SPACE}<span class=\"mbin\">+</span>{SPACE}");
        let of = |left: &str| {
            let left = format!("<span class=\"mord\">{left}</span>{relation}");
            let sum = format!("<span class=\"mord\">b</span>{operator}");
            (left, sum, "<span class=\"mord\">c</span>")
        };
        let (left, sum, rest) = of("a long left side");
        let html = around(&(base(&left) + &base(&sum) + &base(rest)));
        let first = part(&base("<span class=\"mord\">a long left side</span>"));
        let second = part(&(base(&format!("{relation}{sum}")) + &base(rest)));
        assert_eq!(broken_before_relations(&html), around(&(first + &second)));

        let (left, sum, rest) = of("a");
        let html = around(&(base(&left) + &base(&sum) + &base(rest)));
        let whole = part(&(base(&format!("{left}{STRUT}{sum}")) + &base(rest)));
        assert_eq!(broken_before_relations(&html), around(&whole));
    }

    #[test]
    fn a_short_product_is_one_base() {
        let times = format!("{SPACE}<span class=\"mbin\">⋅</span>{SPACE}");
        let letter = |letter| format!("<span class=\"mord\">{letter}</span>");
        let (left, right) = (letter("a") + &times, letter("b"));
        let html = around(&(base(&left) + &base(&right)));
        let whole = part(&base(&format!("{left}{STRUT}{right}")));
        assert_eq!(broken_before_relations(&html), around(&whole));
    }

    #[test]
    fn a_wide_space_parts_sentences() {
        let quad = "<span class=\"mspace\" style=\"margin-right:1em;\"></span>";
        let letter = |letter| format!("<span class=\"mord\">{letter}</span>");
        let html = around(&base(&(letter("a") + quad + &letter("b"))));
        let sentence = |inner: &str| {
            format!("<span class=\"sentence\">{}</span>", part(&base(inner)))
        };
        let expected = sentence(&(letter("a") + quad)) + &sentence(&letter("b"));
        assert_eq!(broken_before_relations(&html), around(&expected));
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
