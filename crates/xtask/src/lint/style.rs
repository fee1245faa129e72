//! Paragraphs, sentences and listings that are too long to be read with pleasure.

use super::Finding;
use super::html::{Node, Page, Part, inside, texts};
use crate::pattern::{Pattern, pattern};

/// Words of a paragraph, and of a sentence.
const PARAGRAPH: usize = 120;
const SENTENCE: usize = 45;
/// Numbers of a paragraph. More belong in a table, or into a fold.
const NUMBERS: usize = 5;
/// Lines of a listing that is not in a fold.
const LISTING: usize = 30;

static END_OF_SENTENCE: Pattern = pattern!(r"[.!?:]”?\)?\s+[“(]?\p{Lu}");

pub(super) fn check(page: &Page) -> Vec<Finding> {
    let in_main = |tag| page.all("main").flat_map(move |main| inside(main, tag));
    let paragraphs = in_main("p").flat_map(|element| paragraph(page, element));
    paragraphs
        .chain(in_main("pre").filter_map(|element| listing(page, element)))
        .collect()
}

fn is_inside(node: Node, is_it: impl Fn(&Part) -> bool) -> bool {
    node.ancestors().any(|element| is_it(element.value()))
}

fn is_folded(node: Node) -> bool {
    is_inside(node, |element| element.tag == "details")
}

fn paragraph(page: &Page, element: Node) -> Vec<Finding> {
    let line = element.value().line;
    let text = prose(element);
    let count = |text: &str| text.split_whitespace().count();
    let is_number = |word: &&str| {
        let word = word.trim_start_matches(['“', '(', '−', '+', '×']);
        word.starts_with(|first: char| first.is_ascii_digit())
    };
    let start =
        |text: &str| text.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
    let mut findings = vec![];
    if count(&text) > PARAGRAPH {
        let message = format!(
            "a paragraph of {} words, “{}…”: more than {PARAGRAPH}; split it",
            count(&text),
            start(&text)
        );
        findings.push(page.finding(line, message));
    }
    let numbers = text.split_whitespace().filter(is_number).count();
    if numbers > NUMBERS && !is_folded(element) {
        let message = format!(
            "{numbers} numbers in a paragraph, “{}…”: more than {NUMBERS} belong in a table, a figure or a fold",
            start(&text)
        );
        findings.push(page.finding(line, message));
    }
    for sentence in sentences(&text).into_iter().filter(|text| count(text) > SENTENCE) {
        let message = format!(
            "a sentence of {} words, “{}…”: more than {SENTENCE}; split it",
            count(sentence),
            start(sentence)
        );
        findings.push(page.finding(line, message));
    }
    findings
}

fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = vec![];
    let mut from = 0;
    while let Some(end) = END_OF_SENTENCE.find_at(text, from) {
        sentences.push(&text[from..=end.start()]);
        from = end.start() + 1;
    }
    sentences.push(&text[from..]);
    sentences
}

/// The text of an element, with a word for each formula; a formula that is a number is that number.
fn prose(element: Node) -> String {
    let piece = |node: Node| {
        let text = &node.value().text;
        if is_inside(node, |element| element.tag == "annotation") {
            let formula = text.trim();
            let is_number = formula.contains(|c: char| c.is_ascii_digit())
                && formula.chars().all(|c| c.is_ascii_digit() || ".,{} ".contains(c));
            return if is_number { formula.to_owned() } else { "formula".to_owned() };
        }
        let is_formula = is_inside(node, |element| element.has_class("katex"));
        if is_formula { String::new() } else { text.clone() }
    };
    texts(element).map(piece).collect()
}

fn listing(page: &Page, element: Node) -> Option<Finding> {
    let is_hidden = |text: Node| is_inside(text, |element| element.has_class("boring"));
    let shown = texts(element).filter(|text| !is_hidden(*text));
    let shown: String = shown.map(|text| text.value().text.as_str()).collect();
    let lines = shown.lines().filter(|line| !line.trim().is_empty()).count();
    let is_long = lines > LISTING && !is_folded(element);
    is_long.then(|| {
        let message =
            format!("a listing of {lines} lines: more than {LISTING} belong in a fold");
        page.finding(element.value().line, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(body: &str) -> Vec<String> {
        let page = format!(
            "<html><body><nav><p>{}</p></nav><main>{body}</main></body></html>",
            "word ".repeat(130)
        );
        let findings = check(&Page::parse("page.html".to_owned(), &page));
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn long_paragraphs_and_sentences_are_found_where_they_stand() {
        assert_eq!(messages(&format!("<p>{}</p>", "A few words. ".repeat(40))), [""; 0]);
        let found = messages(&format!("<p>{}</p>", "A few words. ".repeat(41)));
        assert!(
            found.len() == 1 && found[0].starts_with("a paragraph of 123"),
            "{found:?}"
        );
        let found =
            messages(&format!("<p>Short. {}it ends. So it is.</p>", "Word ".repeat(44)));
        assert!(
            found.len() == 1 && found[0].starts_with("a sentence of 46"),
            "{found:?}"
        );
    }

    #[test]
    fn numbers_are_counted_outside_folds_and_formulas() {
        let formula = "<span class=\"katex\"><span class=\"katex-mathml\"><annotation>x_1 = 5</annotation></span>7</span>";
        assert_eq!(messages(&format!("<p>1 2 3 4 5 {formula} x6.</p>")), [""; 0]);
        let number = formula.replace("x_1 = 5", "5");
        let found = messages(&format!("<p>1 2 3 4 5 {number}</p>"));
        assert!(found.len() == 1 && found[0].starts_with("6 numbers"), "{found:?}");
        assert_eq!(messages("<details><p>1 2 3 4 5 6</p></details>"), [""; 0]);
    }

    #[test]
    fn long_listings_are_found_outside_folds_and_without_their_hidden_lines() {
        let code = |shown: usize| {
            let hidden = "<span class=\"boring\">hidden\n</span>".repeat(9);
            format!("<pre><code>{hidden}{}</code></pre>", "line\n\n".repeat(shown))
        };
        assert_eq!(messages(&code(30)), [""; 0]);
        assert!(messages(&code(31))[0].starts_with("a listing of 31 lines"));
        assert_eq!(messages(&format!("<details>{}</details>", code(31))), [""; 0]);
    }
}
