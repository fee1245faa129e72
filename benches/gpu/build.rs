//! Tells the program what it was built from, and with.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Crates of which the record tells the version.
const CRATES: [&str; 3] = ["attention", "cudarc", "nalgebra"];

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let versions = recorder::versions(here, &CRATES).context("the versions")?;
    println!("cargo::rustc-env=BUILT_WITH={}", serde_json::to_string(&versions)?);
    // Again for each commit, and for another choice of crates.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(file) = git_file(name) {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    for file in ["build.rs", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={file}");
    }
    Ok(())
}

/// A file of the repository that exists, if the project is in one.
fn git_file(name: &str) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.args(["rev-parse", "--git-path", name]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&path).is_file().then_some(path)
}
