//! Running other programs.

use crate::project::Project;
use anyhow::{Context, Result, bail};
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The cargo that runs us, or the one on the PATH.
#[must_use]
pub fn cargo(project: &Project) -> Command {
    let mut command =
        Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(project.root());
    command
}

/// `rustc` or `rustdoc` of the same toolchain as [`cargo`], so that it can read what cargo compiled.
#[must_use]
pub fn toolchain(name: &str) -> Command {
    let beside_cargo = || {
        let cargo = PathBuf::from(env::var_os("CARGO")?);
        let program = cargo.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX));
        program.is_file().then(|| program.into_os_string())
    };
    let program = env::var_os(name.to_uppercase()).or_else(beside_cargo);
    Command::new(program.unwrap_or_else(|| name.into()))
}

/// How `command` would be typed, for messages.
#[must_use]
pub fn typed(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_stem().unwrap_or_default().to_os_string();
    std::iter::once(name.as_os_str())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs `command` with our own input and outputs.
///
/// # Errors
///
/// If it cannot be started, or reports failure.
pub fn run(command: &mut Command) -> Result<()> {
    let typed = typed(command);
    let status =
        command.status().with_context(|| format!("`{typed}` could not be started"))?;
    if !status.success() {
        bail!("`{typed}` failed ({status})");
    }
    Ok(())
}
