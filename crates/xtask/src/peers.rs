//! `cargo xtask bench --peers`: times the crate beside PyTorch, NumPy and candle.
//!
//! What they need is made in `target/peers`: two programs, and a Python environment.

use crate::process::{cargo, run, typed};
use crate::project::Project;
use anyhow::{Context, Result, bail};
use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Installs and builds what the peers need, and lets them take turns.
///
/// # Errors
///
/// If something cannot be installed or built, or if the peers disagree.
pub fn peers(project: &Project, arguments: &[String]) -> Result<()> {
    let folder = project.target().join("peers");
    build(project, &folder)?;
    let program = folder.join("release").join(format!("peers{EXE_SUFFIX}"));
    let mut command = Command::new(&program);
    command.args(arguments).current_dir(project.root());
    if ["-h", "--help", "--list"].iter().any(|option| names(arguments, option)) {
        return run(&mut command);
    }
    // What makes no sense is refused before gigabytes are installed.
    run(Command::new(&program).args(arguments).arg("--list").stdout(Stdio::null()))?;
    if !names(arguments, "--python") {
        let requirements = project.root().join("benches/peers/requirements.txt");
        command.arg("--python").arg(python(&folder.join("venv"), &requirements)?);
    }
    run(&mut command)
}

fn names(arguments: &[String], option: &str) -> bool {
    arguments.iter().any(|argument| argument.split('=').next() == Some(option))
}

/// Compiles the program, and candle beside it: without flags for the processor at hand, as most users do it.
fn build(project: &Project, folder: &Path) -> Result<()> {
    let mut command = cargo(project);
    command.args(["build", "--release", "--locked", "--workspace"]);
    command.args(["--manifest-path", "benches/peers/Cargo.toml", "--target-dir"]);
    run(command.arg(folder))
}

/// The Python of an environment that has exactly the requirements. They are installed once, and again when they change.
fn python(folder: &Path, requirements: &Path) -> Result<PathBuf> {
    let wanted = fs::read_to_string(requirements)
        .with_context(|| requirements.display().to_string())?;
    let inside = if cfg!(windows) { "Scripts" } else { "bin" };
    let python = folder.join(inside).join(format!("python{EXE_SUFFIX}"));
    let installed = folder.join("installed.txt"); // written last: an interrupted installation has none
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(python);
    }
    eprintln!(
        "installing PyTorch and NumPy into target/peers/venv, once; these are some gigabytes"
    );
    let system = ["python3", "python"].iter().find_map(|name| which::which(name).ok());
    let Some(system) = system else {
        bail!(
            "there is no Python; install Python 3.11 or later and run the command again"
        );
    };
    install(Command::new(system).args(["-m", "venv", "--clear"]).arg(folder))?;
    install(
        Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
            ])
            .arg(requirements),
    )?;
    fs::write(&installed, wanted).with_context(|| installed.display().to_string())?;
    Ok(python)
}

fn install(command: &mut Command) -> Result<()> {
    let typed = typed(command);
    run(command).with_context(|| {
        format!(
            "PyTorch and NumPy could not be installed by `{typed}`; with a Python that has what \
             benches/peers/requirements.txt asks for, run\n  cargo xtask bench --peers --python PROGRAM"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_with_and_without_an_equals_sign() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(names(&words("--quick --python /usr/bin/python3"), "--python"));
        assert!(names(&words("--python=/usr/bin/python3"), "--python"));
        assert!(!names(&words("--quick --candle x"), "--python"));
    }

    #[test]
    fn an_environment_that_has_the_requirements_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let requirements = folder.path().join("requirements.txt");
        fs::write(&requirements, "torch==2.15.0\n").unwrap();
        fs::write(folder.path().join("installed.txt"), "torch==2.15.0\n").unwrap();
        let python = python(folder.path(), &requirements).unwrap();
        assert!(python.starts_with(folder.path()), "{}", python.display());
    }
}
