//! `cargo xtask exercises`: a reader's folder, the proof of all tasks, and a teacher's table.

use crate::project::Project;
use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use exercises::files::write;
use exercises::folder::{Sources, create};
use exercises::trial::Limits;
use exercises::{grade, task, verify};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of `exercises`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a folder with all exercises, or add to one what it lacks
    New {
        /// The folder
        folder: PathBuf,
        /// Leave the solutions out
        #[arg(long)]
        without_solutions: bool,
    },
    /// Prove that solutions pass, stubs fail and planted faults are caught
    Verify {
        /// The exercises; without any, all
        names: Vec<String>,
    },
    /// Run the book's tests on what somebody has written, and write grade.json and grade.html
    #[command(
        after_help = "It compiles and runs their code: do so where that may do no harm."
    )]
    Grade {
        /// Their folder
        folder: PathBuf,
        /// Where to write the two files
        #[arg(long, default_value = ".")]
        out: PathBuf,
        /// Seconds for the tests of each exercise
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Mebibytes of address space for them
        #[arg(long, default_value_t = 4096)]
        memory: usize,
    },
}

/// Does what is asked for.
///
/// # Errors
///
/// If a folder or a file cannot be read or written, or a task is not as it should be.
pub fn exercises(project: &Project, options: &Options) -> Result<()> {
    let sources = Sources { root: project.root() };
    let target = project.root().join("target/exercises");
    match &options.command {
        Command::New { folder, without_solutions } => {
            new(sources, folder, !without_solutions)
        }
        Command::Verify { names } => {
            let mut tasks = task::read_all(&sources.tasks())?;
            for name in names {
                ensure!(
                    tasks.iter().any(|task| task.name == *name),
                    "there is no task `{name}`"
                );
            }
            tasks.retain(|task| names.is_empty() || names.contains(&task.name));
            verify::verify(&tasks, &sources.attention(), &target.join("variants"))
        }
        Command::Grade { folder, out, seconds, memory } => {
            ensure!(out.is_dir(), "there is no folder {} for the grade", out.display());
            let limits = Limits { time: Duration::from_secs(*seconds), memory: *memory };
            let grade = grade::grade(sources, folder, &target.join("graded"), limits)?;
            let json = serde_json::to_string_pretty(&grade)? + "\n";
            write(&out.join("grade.json"), json)?;
            write(&out.join("grade.html"), grade.page())?;
            println!(
                "{} of {} passed, {} begun",
                grade.passed,
                grade.exercises.len(),
                grade.begun
            );
            Ok(())
        }
    }
}

fn new(sources: Sources<'_>, folder: &Path, with_solutions: bool) -> Result<()> {
    let created = create(sources, folder, with_solutions)?;
    println!("wrote {} files to {}", created.written, folder.display());
    for path in created.kept {
        println!("left as it is, though the book has another: {path}");
    }
    println!("\nNow: cd {} && cargo exercises watch", folder.display());
    Ok(())
}
