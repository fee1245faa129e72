//! Keys in `book.toml` that mdBook would pass over in silence, with the whole table around them.

use super::{Finding, Sources};
use crate::files;
use crate::pattern::{Pattern, pattern};
use mdbook_katex::cfg::KatexConfig;
use mdbook_preprocessor::config::{Config, HtmlConfig};
use regex::Regex;
use std::str::FromStr;

static UNKNOWN: Pattern = pattern!(r"unknown field `([^`]+)`");

/// How an error ends that is about the value of a key: with the key, behind the tables that it is in.
static WRONG_KIND: Pattern = pattern!(r"\nin `(?:[^`]*\.)?([^`.]+)`\s*$");

static PLACE: Pattern = pattern!(r"TOML parse error at line (\d+), column");

/// What mdBook reads of any preprocessor.
const PREPROCESSOR: &[&str] = &["command", "renderers", "before", "after", "optional"];

/// Keys that nothing reads, and values of the wrong kind.
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    match files::read(&sources.root.join("book.toml")) {
        Ok(text) => findings(&text),
        Err(error) => vec![finding("", &format!("{error:#}"))],
    }
}

fn findings(text: &str) -> Vec<Finding> {
    let config = match Config::from_str(text) {
        Ok(config) => config,
        Err(error) => return vec![finding(text, &format!("{error:#}"))],
    };
    let mut findings = unknown_katex_keys(text, &config);
    if let Err(error) = config.get::<HtmlConfig>("output.html") {
        findings.push(finding(text, &format!("{error:#}")));
    }
    findings
}

fn unknown_katex_keys(text: &str, config: &Config) -> Vec<Finding> {
    let katex = match config.get::<toml::Table>("preprocessor.katex") {
        Ok(katex) => katex.unwrap_or_default(),
        Err(error) => return vec![finding(text, &format!("{error:#}"))],
    };
    // mdbook-katex passes over any other key.
    let read = serde_json::json!(KatexConfig::default());
    let is_known = |key: &str| PREPROCESSOR.contains(&key) || read.get(key).is_some();
    let unknown = katex.keys().filter(|key| !is_known(key));
    unknown
        .map(|key| finding(text, &format!("unknown field `{key}` for mdbook-katex")))
        .collect()
}

/// The error, at the line that it names, or else at the line of the key that it names.
fn finding(text: &str, error: &str) -> Finding {
    let named = |pattern: &Regex| Some(pattern.captures(error)?[1].to_owned());
    let line = named(&PLACE).and_then(|line| line.parse().ok());
    let key = || named(&UNKNOWN).or_else(|| named(&WRONG_KIND));
    Finding {
        file: "book.toml".to_owned(),
        line: line.or_else(|| line_of(text, &key()?)),
        message: error.trim().replace('\n', " "),
    }
}

/// The line that sets `key`, or that opens a table of that name.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let key = regex::escape(key);
    let setting = Regex::new(&format!(r#"^\s*(?:"?{key}"?\s*=|\[.*\b{key}\])"#)).ok()?;
    (1..)
        .zip(text.lines())
        .find(|(_, line)| setting.is_match(line))
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    const BOOK: &str = include_str!("../../../../book.toml");
    const WORDS: &[&str] = &[
        "[preprocessor.katex]\n",
        "[output.html]\n",
        "no-ccs = true\n",
        "runable = false\n",
        "\n",
        "]",
        "[[",
        " = ",
        "\"",
        "true",
        "99999999999999999999",
        "#",
    ];

    #[test]
    fn what_is_no_table_or_of_the_wrong_kind_is_found() {
        let at = |text: &str| {
            findings(text).into_iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(at(BOOK), []);
        assert_eq!(at("[book]\ntitle = \"A\"\n= 3\n"), [Some(3)]);
        assert_eq!(at("[output.html.print]\n\nenable = \"yes\"\n"), [Some(3)]);
        assert_eq!(at("[preprocessor]\nkatex = 3\n").len(), 1);
    }

    proptest! {
        /// Whatever the file holds, each finding names the file and a line in it, or the table that it is about.
        #[test]
        fn a_damaged_book_toml_has_findings_with_their_lines(book in mutated::text(BOOK, WORDS)) {
            let lines = book.matches('\n').count() + 1;
            let findings = findings(&book);
            for finding in &findings {
                prop_assert_eq!(&finding.file, "book.toml");
                let has_place = match finding.line {
                    Some(line) => (1..=lines).contains(&line),
                    None => finding.message.contains('`'), // the table that it is about
                };
                prop_assert!(has_place, "{}", finding);
            }
            if let Err(error) = toml::from_str::<toml::Table>(&book) {
                prop_assert!(!findings.is_empty(), "{}", error);
            }
        }
    }
}
