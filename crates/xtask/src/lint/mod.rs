//! Checks of the book that mdBook does not make.
//!
//! mdBook exits with success when an include resolves to nothing or a link goes nowhere. [`sources`] looks at the chapters as
//! they are written, [`pages()`] at what the reader gets.

mod blocks;
pub mod html;
pub(crate) mod includes;
mod links;
pub mod pages;
mod prose;
mod style;
mod unused;

use crate::files;
use crate::project::Project;
use anyhow::Result;
use path_clean::PathClean;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Something that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, as seen from the root.
    pub file: String,
    /// The line, counted from one, unless it is about the whole file.
    pub line: Option<usize>,
    /// The fault, and the remedy.
    pub message: String,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Checks the chapters, `SUMMARY.md` and the anchors in the code.
///
/// # Errors
///
/// If a file cannot be read.
pub fn sources(root: &Path) -> Result<Vec<Finding>> {
    let sources = Sources::read(root)?;
    let checks = [
        includes::broken,
        unused::anchors,
        unused::generated,
        blocks::check,
        links::broken,
        links::forgotten,
        links::without_address,
        prose::check,
    ];
    Ok(sorted(checks.par_iter().flat_map_iter(|check| check(&sources)).collect()))
}

/// Returns the folders of `src/generated` of which the chapter `name` includes or links a file, sorted.
///
/// # Errors
///
/// If a file cannot be read.
pub fn generated_folders(project: &Project, name: &str) -> Result<Vec<String>> {
    let sources = Sources::read(project.root())?;
    let file = format!("src/{name}.md");
    let chapters = sources.chapters.iter().filter(|chapter| chapter.name == file);
    let files = chapters.flat_map(|chapter| {
        let includes = includes::includes(&chapter.text, chapter.folder()).into_iter();
        includes.map(|include| include.file).chain(links::linked_files(chapter))
    });
    let folder = |file: PathBuf| {
        let name = sources.name(&file);
        Some(name.strip_prefix("src/generated/")?.split_once('/')?.0.to_owned())
    };
    let folders: BTreeSet<_> = files.filter_map(folder).collect();
    Ok(folders.into_iter().collect())
}

/// Checks the built pages, style sheets and scripts in `folder`.
///
/// # Errors
///
/// If a file cannot be read.
pub fn pages(folder: &Path) -> Result<Vec<Finding>> {
    Ok(sorted(pages::check(folder)?))
}

fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort();
    findings.dedup();
    findings
}

/// A Markdown file that people write.
struct Document {
    path: PathBuf,
    /// The path as seen from the root.
    name: String,
    text: String,
}

impl Document {
    fn read(path: PathBuf, root: &Path) -> Result<Self> {
        let text = files::read(&path)?;
        let name = files::relative(&path, root);
        Ok(Self { path, name, text })
    }

    /// The folder that relative paths in the document start from.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding::new(&self.name, line, message)
    }
}

/// All that is written rather than computed.
struct Sources {
    root: PathBuf,
    /// Every Markdown file in `src/`, but for `SUMMARY.md` and what is generated.
    chapters: Vec<Document>,
    summary: Document,
    /// The README of the project, if it has one.
    readme: Option<Document>,
}

impl Sources {
    fn read(root: &Path) -> Result<Self> {
        let root = std::path::absolute(root)?.clean();
        let folder = Project::at(&root).chapters();
        let (summary, generated) = (folder.join("SUMMARY.md"), folder.join("generated"));
        let mut chapters = files::with_extension(&folder, "md");
        chapters.retain(|path| *path != summary && !path.starts_with(&generated));
        let read = |path| Document::read(path, &root);
        let readme = Some(root.join("README.md")).filter(|readme| readme.is_file());
        Ok(Self {
            chapters: chapters.into_iter().map(read).collect::<Result<_>>()?,
            summary: read(summary)?,
            readme: readme.map(read).transpose()?,
            root,
        })
    }

    /// The chapters and the README: what people read.
    fn documents(&self) -> impl Iterator<Item = &Document> {
        self.chapters.iter().chain(&self.readme)
    }

    /// `path` as seen from the root.
    fn name(&self, path: &Path) -> String {
        files::relative(path, &self.root)
    }
}
