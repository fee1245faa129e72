//! Links that go nowhere, and chapters that the summary leaves out.

use super::includes::includes;
use super::{Document, Finding, Sources, pattern};
use crate::files;
use crate::markdown::parse;
use pulldown_cmark::{Event, Tag};
use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static ATTRIBUTE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"\b(?:src|href)\s*=\s*["']([^"']*)["']"#));
static SCHEME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([a-zA-Z][a-zA-Z0-9+.-]*:|//)"));

/// A link or an image.
#[derive(Debug)]
pub(super) struct Link {
    line: usize,
    target: String,
}

impl Link {
    /// The file that the link goes to, if it is one of ours.
    pub(super) fn file(&self, folder: &Path) -> Option<PathBuf> {
        local_path(&self.target).map(|path| files::normal(&folder.join(path)))
    }
}

/// The path in `target`, without fragment and query; nothing if it goes to another host or stays on
/// the page.
pub(super) fn local_path(target: &str) -> Option<String> {
    if SCHEME.is_match(target) {
        return None;
    }
    let path = target.split(['#', '?']).next().unwrap_or_default();
    (!path.is_empty()).then(|| decoded(path))
}

/// `path` with `%20` and its like resolved.
pub(super) fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The links and images in `text`, in Markdown or in HTML.
pub(super) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (event, range) in parse(text) {
        let line = files::line_at(text, range.start);
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(Link { line, target: dest_url.to_string() });
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                let attributes = ATTRIBUTE.captures_iter(&html);
                links.extend(
                    attributes.map(|found| Link { line, target: found[1].to_owned() }),
                );
            }
            _ => {}
        }
    }
    links
}

/// Links to files that do not exist.
pub(super) fn broken(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in sources.documents() {
        for link in links(&document.text) {
            let Some(file) = link.file(document.folder()) else {
                continue;
            };
            // A page may be linked by the name that it gets.
            if !file.exists() && !file.with_extension("md").is_file() {
                let message = format!("links to {}, which does not exist", link.target);
                findings.push(document.finding(link.line, message));
            }
        }
    }
    findings
}

/// Chapters that the summary names but are not there, and the other way round.
pub(super) fn summary(sources: &Sources) -> Vec<Finding> {
    let summary = &sources.summary;
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    for link in links(&summary.text) {
        let Some(file) = link.file(summary.folder()) else {
            continue;
        };
        if !file.is_file() {
            let message = format!("names {}, which does not exist", link.target);
            findings.push(summary.finding(link.line, message));
        }
        named.insert(file);
    }
    let parts = included_documents(sources);
    for chapter in &sources.chapters {
        if !named.contains(&chapter.path) && !parts.contains(&chapter.path) {
            findings.push(chapter.finding(1, "this chapter is not in SUMMARY.md"));
        }
    }
    findings
}

/// Files that chapters include are parts of chapters.
fn included_documents(sources: &Sources) -> BTreeSet<PathBuf> {
    let files = |chapter: &Document| includes(&chapter.text, chapter.folder());
    sources.chapters.iter().flat_map(files).map(|include| include.file).collect()
}
