//! Anchors and generated files that nothing shows.

use super::includes::{Part, of_all};
use super::links::links;
use super::{Document, Finding, Sources, pattern};
use crate::files;
use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// An anchor that is a comment of its own, rather than part of a program about anchors.
static COMMENT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(?://+!?|/\*|#|<!--)\s*ANCHOR:\s*([\w-]+)"));

/// An anchor in a file of values, which has no comments.
static VALUE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^ANCHOR:\s*([\w-]+)"));

/// Anchors in the code and in what is generated that no chapter includes.
pub(super) fn anchors(sources: &Sources) -> Vec<Finding> {
    let used = of_all(sources, |include| match &include.part {
        Part::Anchor(name) => Some((include.file.clone(), name.clone())),
        _ => None,
    });
    let mut findings = Vec::new();
    for file in files_with_anchors(&sources.root) {
        for (line, name) in anchors_in(&file) {
            if !used.contains(&(file.clone(), name.clone())) {
                findings.push(Finding {
                    file: sources.name(&file),
                    line: Some(line),
                    message: format!(
                        "an anchor nobody includes: `{name}`; show it in a chapter or remove it"
                    ),
                });
            }
        }
    }
    findings
}

/// What a chapter may show of the crates, and what is generated.
fn files_with_anchors(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut crates: Vec<_> = crates.map(|entry| entry.path()).collect();
    crates.sort();
    crates
        .iter()
        .flat_map(|folder| {
            ["src", "examples", "benches", "tests", "cuda"].map(|part| folder.join(part))
        })
        .chain([root.join("src").join("generated")])
        .flat_map(|folder| files::under(&folder))
        .collect()
}

fn anchors_in(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let is_code = file.extension().is_some_and(|extension| extension != "txt");
    let anchor = if is_code { &COMMENT } else { &VALUE };
    let numbered = (1..).zip(text.lines());
    numbered
        .filter_map(|(number, line)| Some((number, anchor.captures(line)?[1].to_owned())))
        .collect()
}

/// Generated files that neither a chapter nor the README shows.
pub(super) fn generated(sources: &Sources) -> Vec<Finding> {
    let mut shown = of_all(sources, |include| Some(include.file.clone()));
    shown.extend(sources.documents().flat_map(linked));
    files::under(&sources.root.join("src").join("generated"))
        .into_iter()
        .filter(|file| !shown.contains(file))
        .map(|file| Finding {
            file: sources.name(&file),
            line: None,
            message:
                "no chapter shows this generated file; show it or stop generating it"
                    .into(),
        })
        .collect()
}

fn linked(document: &Document) -> Vec<PathBuf> {
    let links = links(&document.text);
    links.iter().filter_map(|link| link.file(document.folder())).collect()
}
