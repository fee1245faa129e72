//! Anchors and generated files that nothing shows.

use super::includes::of_all;
use super::links::linked_files;
use super::{Finding, Sources};
use crate::files;
use crate::pattern::{Pattern, pattern};
use fs_err as fs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// An anchor that is a comment of its own, rather than part of a program about anchors.
static COMMENT: Pattern = pattern!(r"^\s*(?://+!?|/\*|#|<!--)\s*ANCHOR:\s*([\w-]+)");

/// An anchor in a file of values, which has no comments.
static VALUE: Pattern = pattern!(r"^ANCHOR:\s*([\w-]+)");

/// Anchors in the code and in what is generated that no chapter includes.
pub(super) fn anchors(sources: &Sources) -> Vec<Finding> {
    let used: BTreeSet<_> = of_all(sources)
        .filter_map(|include| Some((include.file, include.anchor?)))
        .collect();
    let unused_in = |file: PathBuf| -> Vec<Finding> {
        let anchors = anchors_in(&file).into_iter();
        let unused =
            anchors.filter(|(_, name)| !used.contains(&(file.clone(), name.clone())));
        let finding = |(line, name)| {
            let message = format!(
                "an anchor that no page includes: `{name}`; show it in a chapter or remove it"
            );
            Finding::new(&sources.name(&file), line, message)
        };
        unused.map(finding).collect()
    };
    files_with_anchors(&sources.root).into_iter().flat_map(unused_in).collect()
}

/// The files of the crates that a chapter may show, and the generated ones.
fn files_with_anchors(root: &Path) -> Vec<PathBuf> {
    [root.join("crates"), root.join("src/generated")]
        .iter()
        .flat_map(|folder| files::under(folder))
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
    let mut shown: BTreeSet<_> = of_all(sources).map(|include| include.file).collect();
    shown.extend(sources.documents().flat_map(linked_files));
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
