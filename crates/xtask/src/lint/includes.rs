//! Includes, and those that resolve to nothing.

use super::{Document, Finding, Sources};
use crate::files;
use crate::pattern::{Pattern, pattern};
use fs_err as fs;
use path_clean::PathClean;
use regex::{Captures, Regex};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A directive as mdBook reads it, or the escaped form that it prints as it is.
static DIRECTIVE: Pattern = pattern!(
    r"\\\{\{#.*\}\}|\{\{\s*#(include|rustdoc_include|playground)\s+([^}\s]+)[^}]*\}\}",
);

static BEGIN: Pattern = pattern!(r"ANCHOR:\s*([\w-]+)");
static END: Pattern = pattern!(r"ANCHOR_END:\s*([\w-]+)");

/// The depth to which mdBook follows includes in included files.
const DEPTH: usize = 10;

/// A directive that takes in a file, or a part of one.
#[derive(Debug)]
pub(crate) struct Include {
    pub(crate) line: usize,
    pub(crate) file: PathBuf,
    /// The name of the part, unless it is the whole file. mdBook takes numbers of lines as well, which no longer fit when
    /// the file changes, so here they are names that no part has.
    pub(crate) anchor: Option<String>,
}

/// The includes in `text`, whose relative paths start from `folder`.
pub(crate) fn includes(text: &str, folder: &Path) -> Vec<Include> {
    DIRECTIVE
        .captures_iter(text)
        .filter_map(|directive| {
            let target = directive.get(2)?.as_str();
            let (file, anchor) = target.split_once(':').unwrap_or((target, ""));
            Some(Include {
                line: files::line_at(text, directive.get(0)?.start()),
                file: folder.join(file).clean(),
                anchor: Some(anchor.to_owned()).filter(|name| !name.is_empty()),
            })
        })
        .collect()
}

/// `text` with what its includes bring in their place. One that is broken brings nothing.
pub(super) fn included(text: &str, folder: &Path) -> String {
    let bring = |line: &str| match includes(line, folder).first() {
        Some(include) => {
            let file = fs::read_to_string(&include.file).unwrap_or_default();
            include.part_of(&file).unwrap_or_default()
        }
        None => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(bring).collect();
    lines.join("\n")
}

/// `text` with every directive blanked, so that places in it stay the same.
pub(super) fn without_directives(text: &str) -> String {
    DIRECTIVE
        .replace_all(text, |found: &Captures| " ".repeat(found[0].len()))
        .into_owned()
}

impl Include {
    /// Returns the line of the file with which the part begins, counted from one.
    pub(crate) fn first_line(&self, text: &str) -> Option<usize> {
        match &self.anchor {
            None => Some(1),
            Some(name) => Some(marked(text, &BEGIN, name)? + 2),
        }
    }

    /// The part of `text`, or what is missing.
    pub(crate) fn part_of(&self, text: &str) -> Result<String, String> {
        match &self.anchor {
            None => Ok(text.to_owned()),
            Some(name) => anchored(text, name),
        }
    }
}

/// Returns the place of the first line in which `mark` has this name.
fn marked(text: &str, mark: &Regex, name: &str) -> Option<usize> {
    let is_marked = |found: Captures| &found[1] == name;
    text.lines().position(|line| mark.captures(line).is_some_and(is_marked))
}

fn anchored(text: &str, name: &str) -> Result<String, String> {
    match (marked(text, &BEGIN, name), marked(text, &END, name)) {
        (Some(begin), Some(end)) if begin < end => {
            let lines: Vec<_> =
                text.lines().skip(begin + 1).take(end - begin - 1).collect();
            Ok(lines.join("\n"))
        }
        (Some(_), None) => Err(format!("has no `ANCHOR_END: {name}`")),
        (Some(_), Some(_)) => Err(format!("ends the anchor `{name}` before it begins")),
        (None, _) => Err(format!("has no anchor `{name}`")),
    }
}

/// Includes of files or anchors that do not exist.
pub(super) fn broken(sources: &Sources) -> Vec<Finding> {
    let broken_in = |chapter: &Document| -> Vec<Finding> {
        let all = followed(&chapter.text, chapter.folder(), DEPTH);
        let broken = |(include, missing): (Include, Option<String>)| {
            let file = sources.name(&include.file);
            let message = format!("includes {file}, which {}", missing?);
            Some(chapter.finding(include.line, message))
        };
        all.into_iter().filter_map(broken).collect()
    };
    sources.chapters.iter().flat_map(broken_in).collect()
}

/// The includes in `text` and those inside what they include, which get the line of the outermost one. Each comes with
/// what is missing, if something is.
fn followed(text: &str, folder: &Path, depth: usize) -> Vec<(Include, Option<String>)> {
    let mut found = Vec::new();
    for include in includes(text, folder) {
        let part = fs::read_to_string(&include.file)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => "does not exist".to_owned(),
                _ => format!("cannot be read: {error}"),
            })
            .and_then(|text| include.part_of(&text));
        let (line, inner_folder) =
            (include.line, include.file.parent().unwrap_or(folder));
        let inner = match (&part, depth) {
            (Ok(part), 1..) => followed(part, inner_folder, depth - 1),
            _ => Vec::new(),
        };
        found.push((include, part.err()));
        found.extend(
            inner
                .into_iter()
                .map(|(inner, missing)| (Include { line, ..inner }, missing)),
        );
    }
    found
}

/// The includes of all documents, and those inside what they include.
pub(super) fn of_all(sources: &Sources) -> impl Iterator<Item = Include> {
    let of = |document: &Document| followed(&document.text, document.folder(), DEPTH);
    sources.documents().flat_map(of).map(|(include, _)| include)
}
