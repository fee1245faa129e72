//! The folders of the project.

use crate::files;
use crate::pattern::{Pattern, pattern};
use anyhow::{Context, Result};
use std::env;
use std::path::{Path, PathBuf};

/// The file of a chapter in `SUMMARY.md`.
static CHAPTER: Pattern = pattern!(r"\]\(([\w-]+)\.md\)");

/// A checkout of the book, known by the folder that holds its `book.toml`.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// The project around the current folder, or else the one that this program was compiled in.
    ///
    /// # Errors
    ///
    /// If neither has a `book.toml`.
    pub fn find() -> Result<Self> {
        let here = env::current_dir().context("the current folder cannot be read")?;
        let compiled_in = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors()
            .chain(compiled_in.ancestors())
            .find(|folder| folder.join("book.toml").is_file())
            .map(Self::at)
            .context("no book.toml in this folder or above it; run the command inside the project")
    }

    /// The project whose root is `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder of `book.toml`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The chapters.
    #[must_use]
    pub fn chapters(&self) -> PathBuf {
        self.root.join("src")
    }

    /// Returns the names of the chapters, in the order of `SUMMARY.md`: `softmax` for `softmax.md`.
    ///
    /// # Errors
    ///
    /// If `SUMMARY.md` cannot be read.
    pub fn chapters_of_summary(&self) -> Result<Vec<String>> {
        let summary = files::read(&self.chapters().join("SUMMARY.md"))?;
        Ok(CHAPTER.captures_iter(&summary).map(|found| found[1].to_owned()).collect())
    }

    /// The folder of everything that can be thrown away and made again.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// The built book.
    #[must_use]
    pub fn book(&self) -> PathBuf {
        self.target().join("book")
    }
}
