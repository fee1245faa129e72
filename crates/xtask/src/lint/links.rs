//! Links that go nowhere, and chapters that the summary leaves out.

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

/// Links to files that do not exist.
pub(super) fn broken(sources: &Sources) -> Vec<Finding> {
    let broken_in = |document: &Document| -> Vec<Finding> {
        let links = links(&document.text).into_iter().filter(|link| {
            // A page may be linked by the name that it gets.
            link.file(document.folder()).is_some_and(|file| {
                !file.exists() && !file.with_extension("md").is_file()
            })
        });
        let message =
            |link: &Link| format!("links to {}, which does not exist", link.target);
        links.map(|link| document.finding(link.line, message(&link))).collect()
    };
    sources.documents().chain([&sources.summary]).flat_map(broken_in).collect()
}

/// Chapters that the summary leaves out. Files that chapters include are parts of chapters.
pub(super) fn forgotten(sources: &Sources) -> Vec<Finding> {
    let mut named: BTreeSet<_> = of_all(sources).map(|include| include.file).collect();
    named.extend(linked_files(&sources.summary));
    let forgotten =
        sources.chapters.iter().filter(|chapter| !named.contains(&chapter.path));
    let message = "this chapter is not in SUMMARY.md";
    forgotten.map(|chapter| chapter.finding(1, message)).collect()
}
