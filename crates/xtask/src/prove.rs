//! `cargo xtask test`: the one command that proves the book.

use crate::build::{self, build};
use crate::console::seconds;
use crate::generate::{self, generate};
use crate::mdbook;
use crate::process::{cargo, run};
use crate::project::Project;
use anyhow::{Result, ensure};
use clap::Args;
use std::time::Instant;

/// What `test` can be asked for.
#[derive(Debug, Args)]
pub struct Options {
    /// Go on after a failure, to see all of them
    #[arg(long)]
    keep_going: bool,
}

/// What a step is called, and what it does.
type Step = (&'static str, fn(&Project) -> Result<()>);

// The crate with its default features is tested where they matter, in a copy of its folder: `tests/copy_out.rs`.
const STEPS: &[Step] = &[
    ("cargo test --workspace --all-features", |project| {
        cargo_test(project, &["--workspace", "--all-features"])
    }),
    ("cargo test -p attention --no-default-features", |project| {
        cargo_test(project, &["-p", "attention", "--no-default-features"])
    }),
    ("cargo xtask generate --check", |project| {
        generate(project, &generate::Options { check: true, ..Default::default() })
    }),
    ("mdbook test", mdbook::test),
    ("cargo xtask build", |project| build(project, &build::Options::default())),
];

/// Runs every step, each announced, and sums up.
///
/// # Errors
///
/// If a step failed.
pub fn prove(project: &Project, options: &Options) -> Result<()> {
    rename_running_program();
    let begun = Instant::now();
    let mut failed = Vec::new();
    let mut summary = format!("\n{:<48} {:<6} {:>12}", "step", "result", "time");
    for (number, (name, step)) in (1..).zip(STEPS) {
        let (mut result, mut time) = ("-", "-".to_owned());
        if failed.is_empty() || options.keep_going {
            eprintln!("\n── {number}/{} {name} ──", STEPS.len());
            let begun = Instant::now();
            let outcome = step(project);
            (result, time) = ("passed", seconds(begun.elapsed()));
            if let Err(error) = outcome {
                eprintln!("error: {error:#}");
                failed.push(*name);
                result = "FAILED";
            }
            eprintln!("{result} in {time}");
        }
        summary += &format!("\n{name:<48} {result:<6} {time:>12}");
    }
    eprintln!("{summary}");
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    eprintln!("\nThe book holds: every step passed in {}.", seconds(begun.elapsed()));
    Ok(())
}

fn cargo_test(project: &Project, arguments: &[&str]) -> Result<()> {
    run(cargo(project).arg("test").args(arguments))
}

/// Windows does not let cargo replace a program that runs, but lets it be renamed; `cargo test` may
/// want to link this one anew.
fn rename_running_program() {
    if cfg!(windows)
        && let Ok(program) = std::env::current_exe()
    {
        let _ = std::fs::rename(&program, program.with_extension("running.exe"));
    }
}
