//! A reader's code, as far as it has to be understood: which words stand in it, outside of comments, text in quotes, and tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A word or a sign, and the number of its line.
type Token = (usize, String);

/// The first line of code that has these words, wherever its spaces are: `.exp` stands in `x.exp()`, and not in `x.exponent()`. Without
/// `with_tests`, items behind `#[test]` and `#[cfg(test)]` are passed by. In code that is no Rust, as far as brackets and quotes go, none is
/// found: the compiler refuses it.
#[must_use]
pub fn line_with(code: &str, words: &str, with_tests: bool) -> Option<usize> {
    let mut tokens = vec![];
    flatten(code.parse().ok()?, with_tests, &mut tokens);
    let words = split(words);
    let found = tokens
        .windows(words.len())
        .find(|tokens| tokens.iter().map(|(_, token)| token).eq(&words));
    found.map(|tokens| tokens[0].0)
}

/// Words and single signs: brackets need not be closed here.
fn split(words: &str) -> Vec<String> {
    let is_part = |it: char| it.is_alphanumeric() || it == '_';
    let mut split: Vec<String> = vec![];
    let mut goes_on = false;
    for sign in words.chars() {
        match split.last_mut() {
            Some(word) if goes_on && is_part(sign) => word.push(sign),
            _ if sign.is_whitespace() => {}
            _ => split.push(sign.into()),
        }
        goes_on = is_part(sign);
    }
    split
}

/// Adds the tokens of code, those in brackets between their brackets.
fn flatten(code: TokenStream, with_tests: bool, tokens: &mut Vec<Token>) {
    let mut code = code.into_iter().peekable();
    while let Some(tree) = code.next() {
        let is_mark = matches!(&tree, TokenTree::Punct(sign) if sign.as_char() == '#');
        if is_mark && !with_tests && code.peek().is_some_and(is_of_tests) {
            // The item ends with its last brace, or with a semicolon.
            let ends = |tree: &TokenTree| match tree {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(sign) => sign.as_char() == ';',
                _ => false,
            };
            code.find(ends);
            continue;
        }
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push((line, open.to_owned()));
                flatten(group.stream(), with_tests, tokens);
                tokens.push((group.span_close().start().line, close.to_owned()));
            }
            other => tokens.push((line, other.to_string())),
        }
    }
}

/// Whether these are the brackets of `#[test]` or `#[cfg(test)]`.
fn is_of_tests(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    let inside = group.stream().to_string().replace(' ', "");
    group.delimiter() == Delimiter::Bracket && ["test", "cfg(test)"].contains(&&*inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r####"//! Not x.exp() here,
/* nor /* .exp() */ .exp()
*/
fn quiet<'a>(x: &'a f64) -> char {
    let text = "\" .exp() // "; let raw = r#"" .exp() "#;
    let (a, b) = ('"', '\''); let exponent = x.exponent();
    '\u{41}'
}
#[test]
fn mine() { if true { 1.0_f64.exp() } else { 2.0 } }
#[cfg(test)]
use std::f64::exp;
fn late(x: f64) -> f64 {
    x
        . exp ()
}
"####;

    #[test]
    fn words_count_outside_of_comments_quotes_and_tests() {
        assert_eq!(line_with(CODE, ".exp", false), Some(15));
        assert_eq!(line_with(CODE, ".exp(", false), Some(15));
        assert_eq!(line_with(CODE, ".exp", true), Some(10));
        assert_eq!(line_with(CODE, "::exp", true), Some(12));
        assert_eq!(line_with(CODE, "::exp", false), None);
        assert_eq!(line_with(CODE, "fn late", false), Some(13));
    }

    #[test]
    fn code_that_is_cut_off_anywhere_ends() {
        for (end, _) in CODE.char_indices() {
            assert!(line_with(&CODE[..end], ".exp", false) <= Some(15));
        }
    }
}
