//! Links that go nowhere, works without an address, and chapters that the summary leaves out.

use super::includes::of_all;
use super::{Document, Finding, Sources};
use crate::files;
use crate::markdown::parse;
use crate::pattern::{Pattern, pattern};
use mdbook_markdown::pulldown_cmark::{Event, Tag};
use path_clean::PathClean;
use percent_encoding::percent_decode_str;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

static ATTRIBUTE: Pattern = pattern!(r#"\b(?:src|href)\s*=\s*["']([^"']*)["']"#);
static SCHEME: Pattern = pattern!(r"^([a-zA-Z][a-zA-Z0-9+.-]*:|//)");

/// An address on another host.
static ELSEWHERE: Pattern = pattern!(r"^https://[\w-]+(\.[\w-]+)+(:\d+)?([/?#]\S*)?$");

/// A link or an image.
#[derive(Debug)]
pub(super) struct Link {
    line: usize,
    target: String,
}

impl Link {
    /// The file that the link goes to, if it is one of ours.
    pub(super) fn file(&self, folder: &Path) -> Option<PathBuf> {
        local_path(&self.target).map(|path| folder.join(path).clean())
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
    percent_decode_str(path).decode_utf8_lossy().into_owned()
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

/// The files of ours that `document` links to.
pub(super) fn linked_files(document: &Document) -> impl Iterator<Item = PathBuf> {
    let links = links(&document.text).into_iter();
    links.filter_map(|link| link.file(document.folder()))
}

/// Links to files that do not exist, and addresses on other hosts that are none.
pub(super) fn broken(sources: &Sources) -> Vec<Finding> {
    let broken_in = |document: &Document| -> Vec<Finding> {
        let fault = |link: Link| {
            let fault = match link.file(document.folder()) {
                // A page may be linked by the name that it gets.
                Some(file) => (!file.exists() && !file.with_extension("md").is_file())
                    .then_some("which does not exist"),
                None => {
                    let is_elsewhere = SCHEME.is_match(&link.target);
                    (is_elsewhere && !ELSEWHERE.is_match(&link.target)).then_some(
                        "which is no address: `https://` and a host, without spaces",
                    )
                }
            };
            let message = format!("links to {}, {}", link.target, fault?);
            Some(document.finding(link.line, message))
        };
        links(&document.text).into_iter().filter_map(fault).collect()
    };
    sources.documents().chain([&sources.summary]).flat_map(broken_in).collect()
}

/// Entries of “Read more” that name works and no address.
pub(super) fn without_address(sources: &Sources) -> Vec<Finding> {
    let without_in = |chapter: &Document| -> Vec<Finding> {
        let start = chapter.text.find("\n## Read more\n").unwrap_or(chapter.text.len());
        let entries = parse(&chapter.text).filter(|(event, range)| {
            matches!(event, Event::Start(Tag::Item))
                && range.start > start
                && !chapter.text[range.clone()].contains("](https://")
        });
        let message = "an entry of “Read more” without an address";
        let line = |at| files::line_at(&chapter.text, at);
        entries.map(|(_, range)| chapter.finding(line(range.start), message)).collect()
    };
    sources.chapters.iter().flat_map(without_in).collect()
}

/// Chapters that the summary leaves out. Files that chapters include are parts of chapters, and mdBook makes the page of an error of `404.md`.
pub(super) fn forgotten(sources: &Sources) -> Vec<Finding> {
    let mut named: BTreeSet<_> = of_all(sources).map(|include| include.file).collect();
    named.extend(linked_files(&sources.summary));
    let forgotten = sources.chapters.iter().filter(|chapter| {
        !named.contains(&chapter.path) && !chapter.path.ends_with("404.md")
    });
    let message = "this chapter is not in SUMMARY.md";
    forgotten.map(|chapter| chapter.finding(1, message)).collect()
}
