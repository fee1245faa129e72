//! `cargo xtask test`: the one command that proves the book.

use crate::console::seconds;
use crate::process::{cargo, run};
use crate::project::Project;
use crate::{build, generate, mdbook};
use anyhow::{Result, bail};
use clap::Args;
use std::time::{Duration, Instant};

/// What `test` can be asked for.
#[derive(Debug, Args)]
pub struct Options {
    /// Go on after a failure, to see all of them
    #[arg(long)]
    keep_going: bool,
}

/// One thing to prove.
struct Step {
    name: &'static str,
    prove: fn(&Project) -> Result<()>,
}

// The crate with its default features is tested where they matter, in a copy of its folder: `tests/copy_out.rs`.
const STEPS: &[Step] = &[
    Step {
        name: "cargo test --workspace --all-features",
        prove: |project| cargo_test(project, &["--workspace", "--all-features"]),
    },
    Step {
        name: "cargo test -p attention --no-default-features",
        prove: |project| {
            cargo_test(project, &["-p", "attention", "--no-default-features"])
        },
    },
    Step {
        name: "cargo xtask generate --check",
        prove: |project| {
            generate::generate(
                project,
                &generate::Options { check: true, ..Default::default() },
            )
        },
    },
    Step { name: "mdbook test", prove: mdbook::test },
    Step { name: "cargo xtask build", prove: |project| build::build(project, false) },
];

/// What came of a step.
struct Outcome {
    name: &'static str,
    passed: bool,
    time: Duration,
}

/// Runs every step, each announced, and sums up.
///
/// # Errors
///
/// If a step failed.
pub fn prove(project: &Project, options: &Options) -> Result<()> {
    step_aside();
    let begun = Instant::now();
    let mut outcomes = Vec::new();
    for step in STEPS {
        let outcome = take(step, project, outcomes.len() + 1);
        let stop = !outcome.passed && !options.keep_going;
        outcomes.push(outcome);
        if stop {
            break;
        }
    }
    sum_up(&outcomes);
    conclude(&outcomes, begun.elapsed())
}

fn take(step: &Step, project: &Project, number: usize) -> Outcome {
    eprintln!("\n── {number}/{} {} ──", STEPS.len(), step.name);
    let begun = Instant::now();
    let result = (step.prove)(project);
    let time = begun.elapsed();
    if let Err(error) = &result {
        eprintln!("error: {error:#}");
    }
    let passed = result.is_ok();
    eprintln!("{} in {}", verdict(passed), seconds(time));
    Outcome { name: step.name, passed, time }
}

fn cargo_test(project: &Project, arguments: &[&str]) -> Result<()> {
    run(cargo(project).arg("test").args(arguments))
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

fn sum_up(outcomes: &[Outcome]) {
    eprintln!("\n{:<48} {:<6} {:>12}", "step", "result", "time");
    for outcome in outcomes {
        let (result, time) = (verdict(outcome.passed), seconds(outcome.time));
        eprintln!("{:<48} {result:<6} {time:>12}", outcome.name);
    }
    for step in &STEPS[outcomes.len()..] {
        eprintln!("{:<48} {:<6} {:>12}", step.name, "-", "-");
    }
}

fn conclude(outcomes: &[Outcome], time: Duration) -> Result<()> {
    let failed: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !outcome.passed)
        .map(|outcome| outcome.name)
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    eprintln!("\nThe book holds: every step passed in {}.", seconds(time));
    Ok(())
}

/// Windows does not let cargo replace a program that runs, but lets it be renamed; `cargo test` may
/// want to link this one anew.
fn step_aside() {
    if !cfg!(windows) {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let _ = std::fs::rename(&program, program.with_extension("running.exe"));
    }
}
