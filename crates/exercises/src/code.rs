//! A reader's code, as far as it has to be understood: which words stand in it, outside of comments, text in quotes, and tests.

/// A word or a sign, and the number of its line.
type Token<'a> = (usize, &'a str);

/// The first line of code that has these words, wherever its spaces are: `.exp` stands in `x.exp()`, and not in `x.exponent()`. Without
/// `with_tests`, items behind `#[test]` and `#[cfg(test)]` are passed by.
#[must_use]
pub fn line_with(code: &str, words: &str, with_tests: bool) -> Option<usize> {
    let mut code = tokens(code);
    if !with_tests {
        code = without_tests(&code);
    }
    let words: Vec<_> = tokens(words).into_iter().map(|(_, word)| word).collect();
    let found = code
        .windows(words.len())
        .find(|tokens| tokens.iter().map(|(_, token)| *token).eq(words.iter().copied()));
    found.map(|tokens| tokens[0].0)
}

/// Splits code into words and signs.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = vec![];
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => comment(rest),
            '"' => quoted(rest),
            '\'' => character(rest),
            _ if is_part(first) => {
                let end = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
                match raw(&rest[..end], &rest[end..]) {
                    Some(text) => end + text,
                    None => {
                        tokens.push((line, &rest[..end]));
                        end
                    }
                }
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push((line, &rest[..first.len_utf8()]));
                }
                first.len_utf8()
            }
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The length of the comment at the beginning, in which others may stand.
fn comment(code: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < code.len() {
        let rest = &code[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of the text in quotes at the beginning.
fn quoted(code: &str) -> usize {
    let mut escaped = false;
    for (at, character) in code.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The length of the character at the beginning, or of the quote of a lifetime.
fn character(code: &str) -> usize {
    let mut behind = code.char_indices().skip(1);
    match (behind.next(), behind.next()) {
        (Some((_, '\\')), Some((escaped, character))) => {
            let from = escaped + character.len_utf8();
            code[from..].find('\'').map_or(code.len(), |end| from + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// The length of the text behind `r`, `br` or `cr`, as in `r#"…"#`.
fn raw(word: &str, behind: &str) -> Option<usize> {
    let text = behind.trim_start_matches('#');
    let hashes = behind.len() - text.len();
    if !matches!(word, "r" | "br" | "cr") || !text.starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let found = text[1..].find(&end);
    Some(found.map_or(behind.len(), |at| hashes + 1 + at + end.len()))
}

/// Leaves out items that are compiled for tests only: up to the bracket that closes them, or to a semicolon before any opens.
fn without_tests<'a>(code: &[Token<'a>]) -> Vec<Token<'a>> {
    let marks = [&["#", "[", "test", "]"][..], &["#", "[", "cfg", "(", "test", ")", "]"]];
    let mut kept = vec![];
    let mut at = 0;
    while at < code.len() {
        let is = |mark: &&&[&str]| {
            let tokens = code[at..].iter().map(|(_, token)| *token);
            tokens.take(mark.len()).eq(mark.iter().copied())
        };
        let Some(mark) = marks.iter().find(is) else {
            kept.push(code[at]);
            at += 1;
            continue;
        };
        at += mark.len();
        let mut depth = 0;
        while let Some((_, token)) = code.get(at) {
            at += 1;
            match *token {
                "{" => depth += 1,
                "}" => depth -= 1,
                ";" if depth == 0 => break,
                _ => continue,
            }
            if depth <= 0 {
                break;
            }
        }
    }
    kept
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
