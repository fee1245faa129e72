//! `cargo xtask bench --peers`: times the crate beside PyTorch and NumPy.
//!
//! Everything that they need is made: a program in `benches/target`, and a Python environment in `target/peers`.

use crate::process::{artifacts, cargo, program, run};
use crate::project::Project;
use crate::python::Environment;
use anyhow::{Context, Result};
use std::process::Command;

/// The environment of the peers in Python.
const PEERS: Environment = Environment {
    what: "PyTorch and NumPy",
    size: "these are some gigabytes",
    folder: "peers/venv",
    requirements: "benches/peers/requirements.txt",
    otherwise: "with a Python that has them, run\n  cargo xtask bench --peers --python PROGRAM",
};

/// Installs and builds what the peers need, and interleaves them.
///
/// # Errors
///
/// If something cannot be installed or built, or if the peers disagree.
pub fn peers(project: &Project, arguments: &[String]) -> Result<()> {
    let made = artifacts(&mut build(project))?;
    let program = program(&made, "peers").context("cargo made no program `peers`")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(project.root());
    if !["-h", "--help", "--python"].iter().any(|option| names(arguments, option)) {
        command.arg("--python").arg(PEERS.ensure(project)?);
    }
    run(&mut command)
}

fn names(arguments: &[String], option: &str) -> bool {
    arguments.iter().any(|argument| argument.split('=').next() == Some(option))
}

/// Compiles the program: without flags for the processor at hand, as most users do it.
fn build(project: &Project) -> Command {
    let mut command = cargo(project);
    command.args(["build", "--release", "--locked"]);
    command.args(["--manifest-path", "benches/Cargo.toml", "--package", "peers"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_with_and_without_an_equals_sign() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(names(&words("--quick --python /usr/bin/python3"), "--python"));
        assert!(names(&words("--python=/usr/bin/python3"), "--python"));
        assert!(!names(&words("--quick --check-only"), "--python"));
    }
}
