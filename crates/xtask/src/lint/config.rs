//! Keys in `book.toml` that mdBook would pass over in silence, with the whole table around them.

use super::{Finding, Sources, pattern};
use mdbook_preprocessor::config::{Config, HtmlConfig};
use regex::Regex;
use std::fs;
use std::str::FromStr;
use std::sync::LazyLock;

static UNKNOWN: LazyLock<Regex> = LazyLock::new(|| pattern(r"unknown field `([^`]+)`"));

/// What mdbook-katex 0.10.0 reads; it passes over anything else.
const KATEX: &[&str] = &[
    "output",
    "leqno",
    "fleqn",
    "throw-on-error",
    "error-color",
    "min-rule-thickness",
    "max-size",
    "max-expand",
    "trust",
    "no-css",
    "include-src",
    "macros",
    "block-delimiter",
    "inline-delimiter",
    "pre-render",
];

/// What mdBook reads of any preprocessor.
const PREPROCESSOR: &[&str] = &["command", "renderers", "before", "after", "optional"];

/// Keys that nothing reads, and values of the wrong kind.
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let text = fs::read_to_string(sources.root.join("book.toml")).unwrap_or_default();
    let config = match Config::from_str(&text) {
        Ok(config) => config,
        Err(error) => return vec![finding(&text, &format!("{error:#}"))],
    };
    let mut findings = unknown_katex_keys(&text, &config);
    if let Err(error) = config.get::<HtmlConfig>("output.html") {
        findings.push(finding(&text, &format!("{error:#}")));
    }
    findings
}

fn unknown_katex_keys(text: &str, config: &Config) -> Vec<Finding> {
    let Ok(Some(katex)) = config.get::<toml::Table>("preprocessor.katex") else {
        return Vec::new();
    };
    katex
        .keys()
        .filter(|key| {
            !KATEX.contains(&key.as_str()) && !PREPROCESSOR.contains(&key.as_str())
        })
        .map(|key| finding(text, &format!("unknown field `{key}` for mdbook-katex")))
        .collect()
}

fn finding(text: &str, error: &str) -> Finding {
    let key = UNKNOWN.captures(error).map(|found| found[1].to_owned());
    Finding {
        file: "book.toml".to_owned(),
        line: key.and_then(|key| line_of(text, &key)),
        message: error.trim().replace('\n', " "),
    }
}

/// The line that sets `key`, or that opens a table of that name.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let key = regex::escape(key);
    let setting = pattern(&format!(r#"^\s*(?:"?{key}"?\s*=|\[.*\b{key}\])"#));
    (1..)
        .zip(text.lines())
        .find(|(_, line)| setting.is_match(line))
        .map(|(number, _)| number)
}
