//! A teacher's table: untouched tests on what somebody has written, with limits on time and memory.
//!
//! It compiles and runs what they wrote, so it belongs on a machine where that may do no harm.

use crate::files::{lock, read_if_there, write};
use crate::folder::{Sources, files, is_practice, share_target};
use crate::task::{self, Task};
use crate::trial::{self, Limits, Outcome};
use anyhow::{Result, ensure};
use fs_err as fs;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What somebody has reached.
#[derive(Debug, Serialize)]
pub struct Grade {
    /// The exercises that passed.
    pub passed: usize,
    /// The exercises that were begun.
    pub begun: usize,
    /// All exercises.
    pub exercises: Vec<Graded>,
}

/// What came of an exercise.
#[derive(Debug, Serialize)]
pub struct Graded {
    /// Its name.
    pub name: String,
    /// The chapter that it belongs to.
    pub chapter: String,
    /// Its title.
    pub title: String,
    /// How much it asks for.
    pub level: &'static str,
    /// What came of it; nothing where the file is missing or still the stub.
    pub outcome: Option<Outcome>,
    /// How long the compiler and the tests took.
    pub seconds: f64,
}

/// Runs the tests of the book on the files in `src/` of somebody's folder. Its own tests, manifest and crate `attention`
/// are not looked at. `work` is where it is compiled.
///
/// # Errors
///
/// If the folder holds no exercises, or something cannot be read, written or started.
pub fn grade(
    sources: Sources<'_>,
    folder: &Path,
    work: &Path,
    limits: Limits,
) -> Result<Grade> {
    let tasks = task::read_all(&sources.tasks())?;
    // Somebody may hand in nothing but `src/`.
    let has_exercise =
        tasks.iter().any(|task| folder.join("src").join(task.file()).is_file());
    ensure!(
        has_exercise || is_practice(folder),
        "{} holds no exercises: there is none of them in its src/",
        folder.display()
    );
    let _turn = lock(&work.join("lock"))?;
    for (path, text) in files(sources, false)? {
        // By another name, since it shares a folder of programs.
        let text = if path == "Cargo.toml" {
            String::from_utf8(text)?.replacen("\"mine\"", "\"graded\"", 1).into()
        } else {
            text
        };
        write_changed(&work.join(path), &text)?;
    }
    share_target(work)?;
    // Each step of the program is judged beside right ones, whatever somebody made of those.
    let steps: Vec<_> = tasks.iter().filter(|task| !task.program.is_empty()).collect();
    let put_right = |task: &Task| {
        write_changed(&work.join("src").join(task.file()), task.solution().as_bytes())
    };
    for step in steps {
        put_right(step)?;
    }
    let mut exercises = vec![];
    for task in &tasks {
        let name = &task.name;
        let begun = Instant::now();
        let file = format!("src/{}", task.file());
        let written = read_if_there(&folder.join(&file))?.unwrap_or_default();
        let outcome = if written.is_empty() || task.is_stub(&written) {
            None
        } else {
            write_changed(&work.join(file), &written)?;
            let outcome = trial::of_task(work, task, limits)?;
            if !task.program.is_empty() {
                put_right(task)?;
            }
            Some(outcome)
        };
        exercises.push(Graded {
            name: name.clone(),
            chapter: task.chapter.clone(),
            title: task.title.clone(),
            level: task.level.name(),
            outcome,
            seconds: begun.elapsed().as_secs_f64(),
        });
    }
    let outcomes = || exercises.iter().filter_map(|graded| graded.outcome.as_ref());
    let (passed, begun) =
        (outcomes().filter(|it| it.has_passed()).count(), outcomes().count());
    Ok(Grade { passed, begun, exercises })
}

/// Writes a file unless it is so already, so that cargo compiles only what has changed.
fn write_changed(path: &Path, text: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == text) {
        Ok(())
    } else {
        write(path, text)
    }
}

impl Grade {
    /// A page with a row for each exercise.
    #[must_use]
    pub fn page(&self) -> String {
        let rows: String = self.exercises.iter().map(row).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Exercises</title>\n\
             <style>body {{ font: 1rem/1.4 sans-serif; margin: 2rem; }} td, th {{ padding: 0.3rem 0.8rem; text-align: left; \
             vertical-align: top; }} pre {{ white-space: pre-wrap; margin: 0; }}</style>\n\
             <h1>Exercises</h1>\n<p>{} of {} passed, {} begun</p>\n\
             <table>\n<tr><th>chapter<th>exercise<th>level<th>tests passed<th>what failed\n{rows}</table>\n</html>\n",
            self.passed,
            self.exercises.len(),
            self.begun,
        )
    }
}

fn row(graded: &Graded) -> String {
    let (count, words) = match &graded.outcome {
        None => ("not begun".to_owned(), String::new()),
        Some(Outcome::Passed { passed }) => (format!("all {passed}"), String::new()),
        Some(Outcome::Failed { passed, failures }) => {
            let words = failures
                .iter()
                .map(|failure| format!("{}: {}", failure.test, failure.message));
            (
                format!("{passed} of {}", passed + failures.len()),
                words.collect::<Vec<_>>().join("\n"),
            )
        }
        Some(Outcome::Refused { message }) => ("not run".to_owned(), message.clone()),
        Some(Outcome::DoesNotCompile { message }) => {
            ("does not compile".to_owned(), message.clone())
        }
        Some(Outcome::Stopped { message }) => ("stopped".to_owned(), message.clone()),
    };
    let Graded { chapter, title, level, .. } = graded;
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    format!("<tr><td>{chapter}<td>{title}<td>{level}<td>{count}<td><pre>{words}</pre>\n")
}
