//! The tools that build the book: mdBook, and its KaTeX preprocessor.
//!
//! Their versions are pinned here and nowhere else. One that is on the PATH in just that version is
//! used; otherwise it is compiled once into `target/tools`, which needs the network and, for KaTeX's
//! JavaScript engine, a C compiler.

use crate::console::{Activity, seconds};
use crate::process::cargo;
use crate::project::Project;
use anyhow::{Context, Result, anyhow};
use regex::Regex;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

/// A program from crates.io in exactly one version.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name, as a package and as a program.
    pub name: &'static str,
    /// The version that the book is written for.
    pub version: &'static str,
}

/// Turns the chapters into pages.
pub const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4" };

/// Turns formulas into HTML while the book is built.
pub const MDBOOK_KATEX: Tool = Tool { name: "mdbook-katex", version: "0.10.0" };

/// Makes sure that all tools are there.
///
/// # Errors
///
/// If one is missing and cannot be installed; the message says what to do.
pub fn ensure_all(project: &Project) -> Result<()> {
    MDBOOK.ensure(project)?;
    MDBOOK_KATEX.ensure(project)?;
    Ok(())
}

/// A command that runs mdBook in the project's root, and lets it find the installed tools first.
///
/// # Errors
///
/// If mdBook is missing and cannot be installed.
pub fn mdbook(project: &Project) -> Result<Command> {
    let mut command = Command::new(MDBOOK.ensure(project)?);
    command.current_dir(project.root()).env("PATH", path_with_tools(project)?);
    Ok(command)
}

fn path_with_tools(project: &Project) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let installed = project.tools().join("bin");
    env::join_paths(std::iter::once(installed).chain(env::split_paths(&path)))
        .context("the project lies in a folder whose name cannot be put on the PATH")
}

impl Tool {
    /// The program, if it is on the PATH or in `target/tools` in the pinned version.
    #[must_use]
    pub fn find(&self, project: &Project) -> Option<PathBuf> {
        which::which_all(self.name)
            .into_iter()
            .flatten()
            .chain([self.installed(project)])
            .find(|program| self.is(program))
    }

    /// The program, installed first if need be.
    ///
    /// # Errors
    ///
    /// If it cannot be installed; the message says what to do.
    pub fn ensure(&self, project: &Project) -> Result<PathBuf> {
        if let Some(program) = self.find(project) {
            return Ok(program);
        }
        let _turn = wait_for_turn(project)?;
        // Whoever had the turn before us may have installed it.
        match self.find(project) {
            Some(program) => Ok(program),
            None => self.install(project),
        }
    }

    fn installed(&self, project: &Project) -> PathBuf {
        let file = format!("{}{}", self.name, env::consts::EXE_SUFFIX);
        project.tools().join("bin").join(file)
    }

    /// Whether `program` answers, and with the pinned version: a file that an interrupted
    /// installation left behind does not.
    fn is(&self, program: &Path) -> bool {
        let Ok(output) = Command::new(program).arg("--version").output() else {
            return false;
        };
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .last()
            .is_some_and(|version| version.trim_start_matches('v') == self.version)
    }

    fn install(&self, project: &Project) -> Result<PathBuf> {
        let begun = Instant::now();
        let output = self.compile(project)?;
        let program = self.installed(project);
        if !self.is(&program) {
            let trouble = Trouble::from_output(&output);
            return Err(anyhow!(trouble.advice(self, &output)));
        }
        // What cargo keeps to go on after an interruption is of no use any more.
        let _ = fs::remove_dir_all(project.tools().join("build"));
        let time = seconds(begun.elapsed());
        eprintln!("installed {} {} in target/tools ({time})", self.name, self.version);
        Ok(program)
    }

    /// Lets cargo compile and install the tool, and returns what it said.
    fn compile(&self, project: &Project) -> Result<String> {
        let Tool { name, version } = self;
        let activity = Activity::begin(format!(
            "installing {name} {version} into target/tools, once; this takes a minute or two"
        ));
        let mut child = cargo(project)
            .args(["install", "--locked", "--force", name])
            .args(["--version", &format!("={version}")])
            .arg("--root")
            .arg(project.tools())
            .arg("--target-dir")
            .arg(project.tools().join("build"))
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cargo could not be started; install Rust from https://rustup.rs")?;
        let mut output = String::new();
        let stderr = child.stderr.take().context("cargo gave no output")?;
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            activity.detail(line.trim());
            output += &line;
            output.push('\n');
        }
        child.wait().context("cargo went away")?;
        Ok(output)
    }
}

/// Lets one process at a time install: tests run side by side.
fn wait_for_turn(project: &Project) -> Result<File> {
    let folder = project.tools();
    fs::create_dir_all(&folder)
        .with_context(|| format!("{} cannot be created", folder.display()))?;
    let turn = File::create(folder.join("lock"))?;
    turn.lock().context("target/tools cannot be locked")?;
    Ok(turn)
}

/// Why an installation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// There is nothing to compile or link C with.
    NoCompiler,
    /// The crate registry cannot be reached.
    NoNetwork,
    /// Something else, which the output tells.
    Other,
}

static NO_COMPILER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)linker `[^`]+` not found|failed to find tool|is `[^`]+` installed\?|compiler family detection failed",
    )
});

static NO_NETWORK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?ix) could\ not\ resolve\ (host|proxy) | spurious\ network\ error | network\ failure
              | failed\ to\ download | download\ of\ config\.json\ failed
              | (could\ not|couldn't|failed\ to)\ connect | timeout\ was\ reached
              | unable\ to\ update\ registry | failed\ to\ query\ replaced\ source",
    )
});

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant")
}

impl Trouble {
    /// Reads the reason out of what cargo said.
    #[must_use]
    pub fn from_output(output: &str) -> Self {
        if NO_COMPILER.is_match(output) {
            Self::NoCompiler
        } else if NO_NETWORK.is_match(output) {
            Self::NoNetwork
        } else {
            Self::Other
        }
    }

    fn advice(self, tool: &Tool, output: &str) -> String {
        let Tool { name, version } = tool;
        match self {
            Self::NoCompiler => format!(
                "{name} {version} could not be compiled because there is no C compiler.\n\
                 Install one, then run the command again:\n\
                 \x20 Debian, Ubuntu   sudo apt install build-essential\n\
                 \x20 Fedora           sudo dnf install gcc patch\n\
                 \x20 macOS            xcode-select --install\n\
                 \x20 Windows          winget install Microsoft.VisualStudio.2022.BuildTools, \
                 with its C++ workload"
            ),
            Self::NoNetwork => format!(
                "{name} {version} could not be downloaded: crates.io cannot be reached.\n\
                 Connect to the network once and run the command again, or put exactly this version \
                 on the PATH:\n\
                 \x20 cargo install --locked {name} --version ={version}"
            ),
            Self::Other => format!(
                "{name} {version} could not be installed. Cargo's last words:\n{}{}",
                last_lines(output, 20),
                windows_advice(tool),
            ),
        }
    }
}

/// KaTeX's JavaScript engine compiles with GCC but not with Microsoft's compiler.
fn windows_advice(tool: &Tool) -> String {
    if !cfg!(windows) || tool.name != MDBOOK_KATEX.name {
        return String::new();
    }
    format!(
        "\nOn Windows, put the ready-made mdbook-katex.exe of version {} on the PATH: \
         https://github.com/lzanini/mdbook-katex/releases",
        tool.version
    )
}

fn last_lines(text: &str, number: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(number);
    lines[from..].iter().map(|line| format!("  {line}\n")).collect()
}
