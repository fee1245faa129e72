//! `cargo xtask test`: the one command that proves the book.

use crate::build::{self, build};
use crate::console::seconds;
use crate::generate::{self, generate};
use crate::mdbook;
use crate::process::{cargo, run};
use crate::project::Project;
use anyhow::{Context, Result};
use std::time::Instant;

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

/// Runs every step, each announced, up to the first that fails.
///
/// # Errors
///
/// If a step failed.
pub fn prove(project: &Project) -> Result<()> {
    rename_running_program();
    let begun = Instant::now();
    for (number, (name, step)) in (1..).zip(STEPS) {
        eprintln!("\n── {number}/{} {name} ──", STEPS.len());
        let begun = Instant::now();
        step(project).with_context(|| format!("`{name}` failed"))?;
        eprintln!("passed in {}", seconds(begun.elapsed()));
    }
    eprintln!("\nThe book holds: every step passed in {}.", seconds(begun.elapsed()));
    Ok(())
}

fn cargo_test(project: &Project, arguments: &[&str]) -> Result<()> {
    run(cargo(project).arg("test").args(arguments))
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
