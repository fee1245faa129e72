//! The search index, made once more so that it knows the names in code. mdBook's takes what stands between blanks for a word, so a
//! search for `with_mask` misses `ForwardOptions::new().with_mask(&mask)`.

use crate::files;
use crate::pattern::{Pattern, pattern};
use anyhow::{Context, Result};
use elasticlunr::IndexBuilder;
use serde_json::Value;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The text that mdBook writes around the index, which is JSON in a string of JavaScript.
const BEFORE: &str = "window.search = Object.assign(window.search, JSON.parse('";
const AFTER: &str = "'));";

/// The fields of a section, in mdBook's order.
const FIELDS: [&str; 3] = ["title", "body", "breadcrumbs"];

/// Longer words are left out, as mdBook does.
const LONGEST: usize = 80;

/// Indexes the sections of the book again, by words and by the names in them.
///
/// # Errors
///
/// If the book has no index, or one of another form.
pub fn index_names(book: &Path) -> Result<()> {
    let is_index =
        |file: &&PathBuf| files::relative(file, book).starts_with("searchindex-");
    let scripts = files::with_extension(book, "js");
    let file = scripts.iter().find(is_index).context("the book has no search index")?;
    let script = indexed_again(&files::read(file)?)
        .with_context(|| format!("{} has another form", file.display()))?;
    files::write(file, script)
}

fn indexed_again(script: &str) -> Result<String> {
    let json = script.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
    let mut search: Value = serde_json::from_str(&unescaped(json.context("no JSON")?))?;
    let sections = search["doc_urls"].as_array().context("no sections")?.len();
    let mut index = IndexBuilder::new();
    for field in FIELDS {
        index = index.add_field_with_tokenizer(field, Box::new(words_and_names));
    }
    let mut index = index.build();
    for section in 0..sections {
        let section = section.to_string();
        let texts = &search["index"]["documentStore"]["docs"][&section];
        let text = |field| texts[field].as_str().context("a section without text");
        let texts = FIELDS.iter().map(text).collect::<Result<Vec<_>>>()?;
        index.add_doc(&section, texts);
    }
    search["index"] = serde_json::to_value(&index)?;
    let json = search.to_string().replace('\\', "\\\\").replace('\'', "\\'");
    Ok(format!("{BEFORE}{json}{AFTER}"))
}

/// A backslash, and what it stands before, in a string of JavaScript.
static ESCAPED: Pattern = pattern!(r"(?s)\\(.)");

fn unescaped(text: &str) -> Cow<'_, str> {
    ESCAPED.replace_all(text, "$1")
}

/// The words between blanks and hyphens, as mdBook takes them, and where one consists of several names, those as well.
fn words_and_names(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || c == '-') {
        let word = word.to_lowercase();
        let names: Vec<_> = word
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|name| !name.is_empty())
            .collect();
        if names.len() > 1 {
            found.extend(names.iter().map(|name| (*name).to_owned()));
        }
        found.push(word);
    }
    found.retain(|word| !word.is_empty() && word.len() <= LONGEST);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_code_are_words() {
        let found =
            words_and_names("Call ForwardOptions::new().with_mask(&mask) – don't");
        let expected = [
            "call",
            "forwardoptions",
            "new",
            "with_mask",
            "mask",
            "forwardoptions::new().with_mask(&mask)",
            "–",
            "don",
            "t",
            "don't",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_index_keeps_its_texts_and_gets_the_names() {
        let mut index = IndexBuilder::new().add_fields(FIELDS).build();
        index.add_doc("0", ["A title", "It's `a.with_mask(&m)`, \"b\\n\"", "Page"]);
        let search = serde_json::json!({
            "doc_urls": ["page.html#a-title"],
            "index": serde_json::to_value(&index).unwrap(),
        });
        let json = search.to_string().replace('\\', "\\\\").replace('\'', "\\'");
        let again = indexed_again(&format!("{BEFORE}{json}{AFTER}")).unwrap();
        let json = again.strip_prefix(BEFORE).unwrap().strip_suffix(AFTER).unwrap();
        let again: Value = serde_json::from_str(&unescaped(json)).unwrap();
        let text = "/index/documentStore/docs/0/body";
        assert_eq!(again.pointer(text), search.pointer(text));
        let name: String = "with_mask".chars().map(|c| format!("/{c}")).collect();
        let place = format!("/index/index/body/root{name}/docs/0");
        assert!(again.pointer(&place).is_some() && search.pointer(&place).is_none());
        assert!(indexed_again("window.search = {};").is_err());
    }
}
