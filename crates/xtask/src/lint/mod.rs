//! Checks of the book that mdBook does not make.
//!
//! mdBook exits with success when an include resolves to nothing or a link goes nowhere. [`sources`] looks at the chapters as
//! they are written, [`pages()`] at what the reader gets.

mod blocks;
pub(crate) mod html;
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
use std::fmt;
use std::path::{Path, PathBuf};

/// Something that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, as seen from the root.
    pub file: String,
    /// The line, counted from one, unless it is about the whole file.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
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
        prose::check,
        prose::comments,
    ];
    Ok(sorted(checks.par_iter().flat_map_iter(|check| check(&sources)).collect()))
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

    /// What relative paths in the document start from.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    const CHAPTER: &str = "# A\n\nSee [B](b.md#c), ![d](figures/d%20e.svg), 12.5 % and $ x $.\n\n\
        <img src=\"f.svg\">\n\n{{#include ../g.rs:h}} and {{#include i.txt:5:7}}\n\n```rust,listing\nlet é = 1;\n```\n";

    const WORDS: &[&str] = &[
        "{{#include ",
        "}}",
        ":0",
        ":3:1",
        ":18446744073709551615:1",
        "%",
        "%e",
        "%C3",
        "](",
        "[",
        "<!--",
        "-->",
        "```rust,ignore\n",
        "$",
        "`",
        "\\",
        "\r",
        "é",
        "3 × 10⁻⁴",
        "src=\"",
        "href='",
        "§ ",
    ];

    const PAGE: &str = "<!DOCTYPE html><html lang=\"en\"><head><title>A</title></head><body><main><h1 id=\"a\">A</h1>\
        <p>{{#include b}} <a href=\"c.html#d\">e</a></p><svg role=\"img\"><title>f</title></svg></main></body></html>";

    const TAGS: &[&str] = &[
        "<",
        ">",
        "</p>",
        "<svg",
        "<main>",
        "</main>",
        "<script>",
        "<!--",
        "id=\"a\"",
        "href=\"%\"",
        "é",
        "\"",
        "&#x",
        "<h2>",
    ];

    proptest! {
        /// Whatever a chapter holds, each finding has a place in it.
        #[test]
        fn a_damaged_chapter_has_findings_with_their_lines(text in mutated::text(CHAPTER, WORDS)) {
            let root = PathBuf::from("/nowhere/at/all");
            let document = |name: &str, text: &str| Document {
                path: root.join(name),
                name: name.to_owned(),
                text: text.to_owned(),
            };
            let lines = text.matches('\n').count() + 1;
            let sources = Sources {
                chapters: vec![document("src/a.md", &text)],
                summary: document("src/SUMMARY.md", "[A](a.md)"),
                readme: Some(document("README.md", &text)),
                root: root.clone(),
            };
            let checks = [includes::broken, blocks::check, links::broken, links::forgotten, prose::check];
            for finding in checks.iter().flat_map(|check| check(&sources)) {
                let is_known = ["src/a.md", "README.md", "src/SUMMARY.md"].contains(&finding.file.as_str());
                let has_line = finding.line.is_some_and(|line| (1..=lines).contains(&line));
                prop_assert!(is_known && has_line, "{}", finding);
            }
        }

        /// Whatever a page holds, each finding has its name.
        #[test]
        fn a_damaged_page_has_findings_with_its_name(html in mutated::text(PAGE, TAGS)) {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("page.html"), html).unwrap();
            for finding in pages(folder.path()).unwrap() {
                prop_assert!(finding.file.contains("page.html"), "{}", finding);
            }
        }
    }
}
