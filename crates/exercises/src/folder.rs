//! A reader's folder: the stubs, their tests, the crate `attention`, and the program of this crate. It stands alone.

use crate::files::{is_leftover, read_if_there, same_lines, write};
use crate::task::{self, Task};
use anyhow::{Result, ensure};
use fs_err as fs;
use std::path::{Path, PathBuf};

/// Where the sources of a folder are.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The book's folder.
    pub root: &'a Path,
}

impl Sources<'_> {
    /// The folder of the tasks.
    #[must_use]
    pub fn tasks(&self) -> PathBuf {
        self.root.join("crates/exercises/tasks")
    }

    /// The folder of the crate `attention`.
    #[must_use]
    pub fn attention(&self) -> PathBuf {
        self.root.join("crates/attention")
    }
}

/// The settings of cargo in a folder.
const SETTINGS: &str = ".cargo/config.toml";
// Not `--quiet`, since the first call compiles for some minutes, and cargo shows what it does meanwhile.
const ALIAS: &str = "[alias]\nexercises = \"run --package exercises --\"\n";

/// Has cargo compile what is in a folder into a folder beside it, which others share.
pub(crate) fn share_target(folder: &Path) -> Result<()> {
    let settings = format!("{ALIAS}\n[build]\ntarget-dir = \"../target\"\n");
    write(&folder.join(SETTINGS), settings)
}

/// The tests of the whole program: those in it.
const WHOLE_PROGRAM: &str = "//! The checks of the whole program, when all its steps are done: `cargo test --test program`.\n\n\
    #[path = \"../src/program/mod.rs\"]\npub mod program;\n";

/// What [`create`] has done.
#[derive(Debug, Default)]
pub struct Created {
    /// How many files were written.
    pub written: usize,
    /// Files that were there already and are not what the book has; they were left as they are.
    pub kept: Vec<String>,
}

/// Makes a folder with the exercises, or adds to one what it lacks. No file that is there is changed.
///
/// # Errors
///
/// If the folder holds something else, or a file cannot be written.
pub fn create(
    sources: Sources<'_>,
    folder: &Path,
    with_solutions: bool,
) -> Result<Created> {
    if folder.exists() && !is_practice(folder) {
        ensure!(folder.is_dir(), "{} is not a folder", folder.display());
        for entry in fs::read_dir(folder)? {
            // A repository that was just begun has `.git`, and an editor may have made a folder of its own.
            ensure!(
                entry?.file_name().to_string_lossy().starts_with('.'),
                "{} is not empty, and holds no exercises",
                folder.display()
            );
        }
    }
    let mut created = Created::default();
    for (path, text) in files(sources, with_solutions)? {
        let target = folder.join(&path);
        match read_if_there(&target)? {
            None => {
                write(&target, text)?;
                created.written += 1;
            }
            Some(there) if same_lines(&there, &text) => {}
            // The reader's own files are expected to differ, and cargo changes its lock.
            Some(_) if path.starts_with("src/") || path == "Cargo.lock" => {}
            Some(_) => created.kept.push(path),
        }
    }
    Ok(created)
}

/// Whether a folder is one that [`create`] has made.
#[must_use]
pub fn is_practice(folder: &Path) -> bool {
    folder.join("tool/tasks").join(task::ORDER).is_file()
}

/// The files of a folder, by their paths in it.
pub(crate) fn files(
    sources: Sources<'_>,
    with_solutions: bool,
) -> Result<Vec<(String, Vec<u8>)>> {
    let tasks = task::read_all(&sources.tasks())?;
    let workspace = "\n[workspace]\nmembers = [\"tool\"]\nexclude = [\"attention\"]\n";
    // The first of them tells a folder of exercises, so that one with the others missing can still be completed.
    let mut files: Vec<(String, Vec<u8>)> = vec![
        (
            format!("tool/tasks/{}", task::ORDER),
            fs::read(sources.tasks().join(task::ORDER))?,
        ),
        ("Cargo.toml".into(), manifest("mine", "attention", workspace).into()),
        (SETTINGS.into(), ALIAS.into()),
        (".gitignore".into(), "/target\n".into()),
        ("README.md".into(), include_str!("../folder/README.md").into()),
        ("AGENTS.md".into(), include_str!("../folder/AGENTS.md").into()),
        ("Cargo.lock".into(), fs::read(sources.root.join("Cargo.lock"))?),
    ];
    for task in &tasks {
        let Task { name, .. } = task;
        let own = format!("src/{}", task.file());
        let tests = task.test_file("../src/program", &format!("../{own}"));
        files.push((format!("tests/{name}.rs"), tests.into()));
        files.push((own, task.stub().into()));
        let source = task::source(&sources.tasks(), name)?;
        let source =
            if with_solutions { source } else { Task::without_solution(&source) };
        files.push((format!("tool/tasks/{name}.rs"), source.into()));
    }
    // What is no step of the program that the reader builds: its list of files, and the checks that it keeps.
    for file in ["mod.rs", "tests.rs"] {
        let path = sources.attention().join("src/plain").join(file);
        files.push((format!("src/program/{file}"), fs::read(path)?));
    }
    files.push(("tests/program.rs".into(), WHOLE_PROGRAM.into()));
    for part in ["Cargo.toml", "src", "folder"] {
        add(
            &sources.root.join("crates/exercises").join(part),
            &format!("tool/{part}"),
            &mut files,
        )?;
    }
    for part in [
        "Cargo.toml",
        "README.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "src",
        "examples",
        "cuda",
    ] {
        add(&sources.attention().join(part), &format!("attention/{part}"), &mut files)?;
    }
    Ok(files)
}

/// Adds a file, or the files of a folder.
fn add(from: &Path, to: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    if !from.is_dir() {
        files.push((to.to_owned(), fs::read(from)?));
        return Ok(());
    }
    let mut names: Vec<_> =
        fs::read_dir(from)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.retain(|name| !is_leftover(name));
    names.sort();
    for name in names {
        add(&from.join(&name), &format!("{to}/{}", name.to_string_lossy()), files)?;
    }
    Ok(())
}

/// A manifest with what the tasks use.
#[must_use]
pub fn manifest(name: &str, attention: &str, workspace: &str) -> String {
    let workspace = if workspace.is_empty() { "\n[workspace]\n" } else { workspace };
    format!(
        r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"
publish = false

[dependencies]
attention = {{ path = {attention:?} }}
nalgebra = "0.35"
rand = {{ version = "0.10", default-features = false, features = ["std", "chacha"] }}
rand_distr = {{ version = "0.6", default-features = false, features = ["std"] }}

[dev-dependencies]
allocation-counter = "0.8"

# A verdict should come soon, say a line where it can, and matrices should not be slow.
[profile.dev]
debug = "line-tables-only"

[profile.dev.package."*"]
debug = false
opt-level = 2
{workspace}"#
    )
}
