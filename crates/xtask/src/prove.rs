//! `cargo xtask test`: proves the book, or one chapter of it.

use crate::build::{self, build};
use crate::console::{count, seconds};
use crate::lint::{self, Finding};
use crate::mdbook;
use crate::process::{cargo, run, typed};
use crate::project::Project;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The options of `test`.
#[derive(Debug, Args)]
pub struct Options {
    /// The chapter to prove, by the name of its file (softmax, many-heads, …); without it, the whole book
    #[arg(value_name = "CHAPTER")]
    chapter: Option<String>,
}

/// The package that `cargo xtask test` leaves to `.ci/run slow`: its kernels take a C++ compiler and minutes.
const SLOW: &str = "gpu";

/// The test that compares the generated files.
const GENERATED: &str = "tests::generated_files_are_those_of_the_code";

/// Runs every step, each announced, up to the first that fails.
///
/// # Errors
///
/// If a step failed, or there is no such chapter.
pub fn prove(project: &Project, options: &Options) -> Result<()> {
    rename_running_program();
    let begun = Instant::now();
    match &options.chapter {
        Some(name) => chapter(project, &chapter_named(project, name)?)?,
        None => book(project)?,
    }
    eprintln!("\nThe book holds: every step passed in {}.", seconds(begun.elapsed()));
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("\n── {name} ──");
    let begun = Instant::now();
    work().with_context(|| format!("`{name}` failed"))?;
    eprintln!("passed in {}", seconds(begun.elapsed()));
    Ok(())
}

fn book(project: &Project) -> Result<()> {
    step("cargo xtask build", || build(project, &build::Options::default()))?;
    step("cargo test", || run(&mut cargo_test(project)))?;
    step("snippets", || mdbook::test(project, None, crates_of_tests))
}

/// The tests of the whole workspace. Whatever of them is chosen, cargo then compiles everything with the same features, and once.
fn cargo_test(project: &Project) -> Command {
    let mut command = cargo(project);
    command.args(["test", "--workspace", "--exclude", SLOW]);
    command
}

/// Builds the crates as the tests have them: a test of the root package, which depends on them.
#[must_use]
pub fn crates_of_tests(project: &Project) -> Command {
    let mut command = cargo_test(project);
    command.args(["--quiet", "--no-run", "--test", "copy_out"]);
    command
}

/// Returns the name as the chapter's file has it. It may be given with underscores for hyphens.
fn chapter_named(project: &Project, name: &str) -> Result<String> {
    let known = project.chapters_of_summary()?;
    let name = name.trim_end_matches(".md").replace('_', "-");
    ensure!(
        known.contains(&name),
        "there is no chapter `{name}`; the chapters are {}",
        known.join(", ")
    );
    Ok(name)
}

fn chapter(project: &Project, name: &str) -> Result<()> {
    let folders = folders(project, name)?;
    if folders.is_empty() {
        eprintln!("{name} shows nothing that is generated");
    } else {
        let generate = folders.join(", ");
        step(&format!("generated files of {generate}"), || {
            let mut command = cargo_test(project);
            command.args(["--bin", "chapters", "--", "--exact", GENERATED]);
            run(command.env("CHAPTERS", folders.join(" ")))
        })?;
        step(&format!("claims of {generate}"), || claims(project, &folders))?;
    }
    step("snippets", || mdbook::test(project, Some(name), crates_of_tests))?;
    step("page", || page(project, name, &folders))
}

/// Returns the folder of `src/generated` with the name of the chapter, or else those that it includes.
fn folders(project: &Project, name: &str) -> Result<Vec<String>> {
    let shown = lint::generated_folders(project, name)?;
    let own: Vec<_> = shown.iter().filter(|folder| *folder == name).cloned().collect();
    Ok(if own.is_empty() { shown } else { own })
}

/// Runs the tests in the folders of `crates/chapters`, of which there has to be one.
fn claims(project: &Project, folders: &[String]) -> Result<()> {
    let mut list = cargo_test(project);
    list.args(["--quiet", "--bin", "chapters", "--", "--list"]);
    let output = list.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "`{}` failed", typed(&list));
    let listed = String::from_utf8_lossy(&output.stdout);
    let tests: Vec<_> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|test| {
            let folder = test.split("::").next().unwrap_or_default();
            folders.iter().any(|name| name.replace('-', "_") == folder)
        })
        .collect();
    if tests.is_empty() {
        bail!(
            "no test is in crates/chapters/src/{}",
            folders.join(" or ").replace('-', "_")
        );
    }
    let mut command = cargo_test(project);
    command.args(["--quiet", "--bin", "chapters", "--", "--exact"]);
    run(command.args(tests))
}

/// Checks the sources of the chapter and its page.
fn page(project: &Project, name: &str, folders: &[String]) -> Result<()> {
    let mut findings = lint::sources(project.root())?;
    let pages = tempfile::tempdir()?;
    mdbook::render(project, pages.path(), None, None, true)?;
    build::complete(pages.path())?;
    findings.extend(lint::pages(pages.path())?);
    let code = folders
        .iter()
        .map(|folder| format!("crates/chapters/src/{}/", folder.replace('-', "_")));
    let of_chapter: Vec<_> = [format!("src/{name}.md"), format!("{name}.html")]
        .into_iter()
        .chain(code)
        .chain(folders.iter().map(|folder| format!("src/generated/{folder}/")))
        .collect();
    let is_of_chapter = |finding: &Finding| {
        of_chapter.iter().any(|start| finding.file.starts_with(start))
    };
    findings.retain(is_of_chapter);
    let list: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    ensure!(findings.is_empty(), "{}:{list}", count(findings.len(), "finding"));
    Ok(())
}

/// Windows does not let cargo replace a program that runs, but lets it be renamed; `cargo test` may
/// want to link this one again.
fn rename_running_program() {
    if cfg!(windows)
        && let Ok(program) = std::env::current_exe()
    {
        let _ = std::fs::rename(&program, program.with_extension("running.exe"));
    }
}
