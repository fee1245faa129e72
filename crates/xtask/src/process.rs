//! Running other programs.

use crate::project::Project;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The cargo that runs us, or the one on the PATH.
#[must_use]
pub fn cargo(project: &Project) -> Command {
    let mut command =
        Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(project.root());
    command
}

/// The program of this crate that cargo builds with the feature of its name, so that other commands don't wait for its dependencies.
#[must_use]
pub fn own_program(project: &Project, name: &str) -> Command {
    let mut command = cargo(project);
    command.args(["run", "--quiet", "--locked", "--package", "xtask"]);
    command.args(["--features", name, "--bin", name, "--"]);
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

/// Returns `command` as it would be typed, for messages.
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

/// A program or a library that cargo made or found up to date.
#[derive(Debug)]
pub struct Artifact {
    /// The name of the target.
    pub name: String,
    /// The files that were made.
    pub files: Vec<PathBuf>,
    /// The program, unless it is a library.
    pub executable: Option<PathBuf>,
}

/// Returns what a build by cargo made or found up to date.
///
/// # Errors
///
/// If it cannot be started, or reports failure.
pub fn artifacts(command: &mut Command) -> Result<Vec<Artifact>> {
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let typed = typed(command);
    let output =
        command.output().with_context(|| format!("`{typed}` could not be started"))?;
    if !output.status.success() {
        bail!("`{typed}` failed ({})", output.status);
    }
    Ok(artifacts_in(&output.stdout))
}

fn artifacts_in(messages: &[u8]) -> Vec<Artifact> {
    let mut artifacts = Vec::new();
    for line in messages.split(|byte| *byte == b'\n') {
        // Tests and build scripts may print other lines.
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        if message["reason"] != "compiler-artifact" {
            continue;
        }
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let files = message["filenames"].as_array().into_iter().flatten();
        artifacts.push(Artifact {
            name: message["target"]["name"].as_str().unwrap_or_default().to_owned(),
            files: files.filter_map(path).collect(),
            executable: path(&message["executable"]),
        });
    }
    artifacts
}

/// The program of that name, if it is among what cargo made.
#[must_use]
pub fn program<'a>(artifacts: &'a [Artifact], name: &str) -> Option<&'a Path> {
    let mut named = artifacts.iter().filter(|artifact| artifact.name == name);
    named.find_map(|artifact| artifact.executable.as_deref())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let artifact = |name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{name}"}},"filenames":["/t/{name}"],"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("attention", "null"),
            artifact("cuda_device", "\"/t/cuda_device-0f\""),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "not JSON\n".to_owned(),
        ];
        let found = artifacts_in(messages.join("\n").as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!(program(&found, "cuda_device"), Some(Path::new("/t/cuda_device-0f")));
        assert_eq!(program(&found, "attention"), None);
    }
}
