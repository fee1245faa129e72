//! `preprocess snippets`: runs the Rust snippets of all chapters against the crates as they are now.
//!
//! `mdbook test` alone cannot: it calls rustdoc without `--extern`, and a folder given with `-L`
//! may hold a crate in several versions. So cargo builds the crates and says exactly which files
//! it made, the snippets of all chapters go into one file, and rustdoc compiles that file as one
//! program. What fails is reported by its place in the chapter. mdBook is then handed chapters with
//! nothing left to run.

use crate::console::{count, seconds};
use crate::files;
use crate::markdown::{self, CodeBlock, ERROR_CODE};
use crate::pattern::{Pattern, pattern};
use crate::process::{artifacts, cargo, toolchain};
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use exercises::trial::NO_CAPTURE;
use fs_err as fs;
use mdbook_preprocessor::book::{Book, Chapter};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use regex::Captures;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Runs the snippets and returns the book with nothing left to run.
#[derive(Debug)]
pub struct Snippets {
    /// The project with the crate and the chapters.
    pub project: Project,
    /// The name of the one chapter to run; none for all.
    pub only: Option<String>,
    /// The command with which cargo builds the crates.
    pub build: fn(&Project) -> Command,
}

impl Preprocessor for Snippets {
    fn name(&self) -> &str {
        "snippets"
    }

    fn supports_renderer(&self, renderer: &str) -> Result<bool> {
        Ok(renderer == "test")
    }

    /// # Errors
    ///
    /// If a crate does not build or a snippet fails; the message names the chapter and the line.
    fn run(&self, _: &PreprocessorContext, mut book: Book) -> Result<Book> {
        let begun = Instant::now();
        let mut snippets = Vec::new();
        let is_chosen = |chapter: &&Chapter| match (&self.only, &chapter.source_path) {
            (Some(name), Some(path)) => {
                path.file_stem().is_some_and(|stem| stem == name.as_str())
            }
            (only, _) => only.is_none(),
        };
        for chapter in book.chapters().filter(is_chosen) {
            snippets.extend(snippets_in(chapter, &self.project)?);
        }
        if !snippets.is_empty() {
            let libraries = libraries((self.build)(&self.project))?;
            run(&snippets, &libraries, &self.project)?;
        }
        let chapters: BTreeSet<_> =
            snippets.iter().map(|snippet| &snippet.chapter).collect();
        eprintln!(
            "snippets: {} in {} ran, all passed ({})",
            snippets.len(),
            count(chapters.len(), "chapter"),
            seconds(begun.elapsed())
        );
        book.for_each_chapter_mut(|chapter| chapter.content.clear());
        Ok(book)
    }
}

/// A Rust program in a chapter.
#[derive(Debug)]
struct Snippet {
    /// The chapter's file, as in `src/softmax.md`.
    chapter: String,
    /// The block as written, where includes are still directives.
    written: CodeBlock,
    /// The block as it runs, where includes are resolved.
    resolved: CodeBlock,
}

/// The snippets of the chapter, which are all Rust blocks but listings: pairs its blocks with those of its file, where the
/// line numbers are the author's.
fn snippets_in(chapter: &Chapter, project: &Project) -> Result<Vec<Snippet>> {
    let resolved = rust_blocks(&chapter.content);
    let (name, written) = match &chapter.source_path {
        Some(path) => {
            let file = project.chapters().join(path);
            let name = files::relative(&file, project.root());
            (name, rust_blocks(&files::read(&file)?))
        }
        None => (chapter.name.clone(), resolved.clone()),
    };
    ensure!(
        written.len() == resolved.len(),
        "{name}: an include brings in the fences of a Rust block; \
         write the fences in the chapter and include only what is between them"
    );
    let pairs =
        written.into_iter().zip(resolved).filter(|(written, _)| !written.is_listing());
    Ok(pairs
        .map(|(written, resolved)| Snippet { chapter: name.clone(), written, resolved })
        .collect())
}

fn rust_blocks(text: &str) -> Vec<CodeBlock> {
    let mut blocks = markdown::code_blocks(text);
    blocks.retain(CodeBlock::is_rust);
    blocks
}

impl Snippet {
    /// The attributes that rustdoc understands.
    fn attributes(&self) -> impl Iterator<Item = &str> {
        self.written.words().filter(|word| {
            matches!(*word, "should_panic" | "no_run" | "compile_fail")
                || ERROR_CODE.is_match(word)
        })
    }

    fn must_not_compile(&self) -> bool {
        self.written.has("compile_fail")
    }

    /// The line in the chapter that line `line` of the running program comes from, both counted
    /// from one. Lines of an include come from its directive.
    fn line_in_chapter(&self, line: usize) -> usize {
        let written: Vec<_> = self.written.body.lines().collect();
        let within = match written.iter().position(|line| line.contains("{{#")) {
            // Below an include, only the distance from the end is the same in both.
            Some(above) if line > above => {
                let below = self.resolved.body.lines().count().saturating_sub(line);
                written.len().saturating_sub(below).max(above + 1)
            }
            _ => line.min(written.len()),
        };
        self.written.line + within
    }

    /// Returns the message about a panic at line `line` of the program that rustdoc made of the snippet alone:
    /// it puts one line before the code, and one more for a `main` of its own.
    fn panicked(&self, line: usize) -> String {
        let before = if OWN_MAIN.is_match(&self.resolved.body) { 1 } else { 2 };
        let line = self.line_in_chapter(line.saturating_sub(before).max(1));
        format!("panicked at {}:{line}:", self.chapter)
    }
}

/// The names that rustdoc and rustc have for a place in the file of snippets, and a test in it.
static IN_FILE: Pattern = pattern!(r"snippets\.md:(\d+)(:\d+)?");
static TEST_NAME: Pattern = pattern!(r"---- snippets\.md - \(line (\d+)\).* stdout ----");
static FAILED: Pattern =
    pattern!(r"(?m)^test snippets\.md - \(line (\d+)\).* \.\.\. FAILED");
static PANICKED: Pattern = pattern!(r"panicked at snippets\.md:(\d+):\d+");
static OWN_MAIN: Pattern = pattern!(r"(?m)^\s*fn main\(");
static PASSED: Pattern = pattern!(r"(?m)^test result: .* (\d+) passed;");

fn number(digits: &str) -> usize {
    digits.parse().unwrap_or(0)
}

/// The crates that snippets are about, if the workspace has them.
const CRATES: [&str; 4] = ["attention", "fast", "laboratory", "model"];

/// The crates that snippets may name: those, and what `attention` shows of others.
const NAMED: [&str; 7] =
    ["attention", "fast", "laboratory", "model", "nalgebra", "rand", "rand_distr"];

/// Returns a command by which cargo builds the crates alone.
#[must_use]
pub fn build_alone(project: &Project) -> Command {
    let mut build = cargo(project);
    build.args(["build", "--quiet", "--lib"]);
    for name in CRATES {
        if project.root().join("crates").join(name).is_dir() {
            build.args(["--package", name]);
        }
    }
    build
}

/// Builds the crates, and returns the arguments by which rustc and rustdoc find them and all that they depend on.
///
/// # Errors
///
/// If a crate does not build.
pub fn libraries(mut build: Command) -> Result<Vec<String>> {
    let artifacts = artifacts(&mut build)
        .context("the crates do not build, so no snippet can run")?;
    let mut arguments = BTreeSet::new();
    for artifact in artifacts {
        let mut files = artifact.files.iter();
        let is_library =
            |file: &&PathBuf| file.extension().is_some_and(|it| it == "rlib");
        let Some(file) = files.find(is_library) else { continue };
        if NAMED.contains(&artifact.name.as_str()) {
            arguments.insert(format!("--extern={}={}", artifact.name, file.display()));
        }
        let folder = file.parent().map(Path::display);
        arguments.extend(folder.map(|folder| format!("-Ldependency={folder}")));
    }
    Ok(arguments.into_iter().collect())
}

/// Runs all snippets: those that compile together as one program, those that must not each alone.
fn run(snippets: &[Snippet], libraries: &[String], project: &Project) -> Result<()> {
    let (refused, accepted): (Vec<_>, Vec<_>) =
        snippets.iter().partition(|snippet| snippet.must_not_compile());
    let mut batches = vec![Batch::new(accepted, false), Batch::new(refused, false)];
    batches.retain(|batch| !batch.snippets.is_empty());
    let mut report = String::new();
    let mut failures = 0;
    for batch in &batches {
        let output = batch.test(libraries, project)?;
        let failed = batch.failed(&output)?;
        if !failed.is_empty() {
            failures += failed.len();
            report += &batch.explain(&output, failed, libraries, project)?;
        }
    }
    let all = count(snippets.len(), "snippet");
    ensure!(failures == 0, "{failures} of {all} failed\n{report}");
    Ok(())
}

/// Snippets that go to rustdoc in one file.
struct Batch<'a> {
    snippets: Vec<&'a Snippet>,
    /// The line in that file of each snippet's opening fence.
    lines: Vec<usize>,
    text: String,
}

/// Longer than any fence in a snippet.
const FENCE: &str = "````````````";

impl<'a> Batch<'a> {
    /// With `alone`, rustdoc makes a program of each snippet, and where possible a snippet lies on
    /// the same line as in its chapter, for rustc prints the number of each line that it quotes.
    fn new(snippets: Vec<&'a Snippet>, alone: bool) -> Self {
        let (mut text, mut lines, mut line) = (String::new(), Vec::new(), 1);
        for snippet in &snippets {
            if alone && line < snippet.written.line {
                text += &"\n".repeat(snippet.written.line - line);
                line = snippet.written.line;
            }
            let standalone = alone.then_some("standalone_crate");
            let info: Vec<_> = ["rust"]
                .into_iter()
                .chain(standalone)
                .chain(snippet.attributes())
                .collect();
            let body = &snippet.resolved.body;
            let block =
                format!("{FENCE}{}\n{}\n{FENCE}\n\n", info.join(","), body.trim_end());
            lines.push(line);
            line += block.lines().count();
            text += &block;
        }
        Self { snippets, lines, text }
    }

    /// Lets rustdoc run the batch, and returns what it says.
    fn test(&self, libraries: &[String], project: &Project) -> Result<String> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("snippets.md"), &self.text)?;
        let mut command = toolchain("rustdoc");
        command
            .current_dir(folder.path())
            .args(["--test", "snippets.md", "--edition", "2024", "--color", "never"])
            .arg("--test-run-directory")
            .arg(project.root())
            .args(libraries)
            .env("RUST_BACKTRACE", "0")
            .env_remove(NO_CAPTURE);
        if self.snippets.iter().all(|snippet| snippet.must_not_compile()) {
            // Without this, rustdoc takes any error for the one that the snippet names.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        let output = command.output().context("rustdoc could not be started")?;
        let said = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// The snippets that failed, after making sure that none was passed over.
    fn failed(&self, output: &str) -> Result<Vec<&'a Snippet>> {
        let failed: Vec<_> = FAILED
            .captures_iter(output)
            .filter_map(|found| self.at(number(&found[1])))
            .map(|(snippet, _)| snippet)
            .collect();
        // A snippet may print such a line too, with any number in it.
        let passed = PASSED.captures_iter(output).map(|found| number(&found[1]));
        let ran = passed.fold(failed.len(), usize::saturating_add);
        let all = self.snippets.len();
        ensure!(ran == all, "rustdoc ran {ran} of {}:\n{output}", count(all, "snippet"));
        Ok(failed)
    }

    /// Explains the snippets that failed. In a merged program the lines of a panic are
    /// lost, so each is run once more alone.
    fn explain(
        &self,
        output: &str,
        failed: Vec<&'a Snippet>,
        libraries: &[String],
        project: &Project,
    ) -> Result<String> {
        let alone = Batch::new(failed, true);
        let again = alone.test(libraries, project)?;
        let (batch, said) = if alone.failed(&again)?.len() == alone.snippets.len() {
            (&alone, again.as_str())
        } else {
            (self, output)
        };
        Ok(batch.in_chapters(details(said)))
    }

    /// Rewrites every place in the file of snippets to the one in the chapter.
    fn in_chapters(&self, output: &str) -> String {
        let mut blamed = None;
        let mut report = String::new();
        for line in output.lines() {
            let name = TEST_NAME.captures(line);
            if let Some((snippet, _)) = name.and_then(|name| self.at(number(&name[1]))) {
                blamed = Some(snippet);
                report +=
                    &format!("\n── {}:{} ──", snippet.chapter, snippet.written.line);
            } else if let (Some(snippet), Some(place)) = (blamed, PANICKED.captures(line))
            {
                report += &snippet.panicked(number(&place[1]));
            } else {
                report +=
                    &IN_FILE.replace_all(line, |place: &Captures| self.in_chapter(place));
            }
            report.push('\n');
        }
        report
    }

    /// The place in the chapter, or this one if it belongs to no snippet.
    fn in_chapter(&self, place: &Captures) -> String {
        let Some((snippet, within)) = self.at(number(&place[1])) else {
            return place[0].to_owned();
        };
        let column = place.get(2).map_or("", |column| column.as_str());
        format!("{}:{}{column}", snippet.chapter, snippet.line_in_chapter(within))
    }

    /// The snippet that line `line` of the file belongs to, and the line within its code.
    fn at(&self, line: usize) -> Option<(&'a Snippet, usize)> {
        let index = self.lines.partition_point(|first| *first <= line).checked_sub(1)?;
        Some((self.snippets[index], line - self.lines[index]))
    }
}

/// The part of rustdoc's output that explains the failures: it lies between two lists of them.
fn details(output: &str) -> &str {
    let after = output.split_once("failures:\n").map_or(output, |(_, after)| after);
    after.split_once("\nfailures:\n").map_or(after, |(details, _)| details).trim_end()
}
