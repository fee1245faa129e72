//! `cargo xtask gpu`: the kernels on a GPU, which may be in another machine.
//!
//! What it takes is made in `target/gpu`: a folder for there, one for here, and two Python environments.

use crate::process::{artifacts, cargo, program, run, typed};
use crate::project::Project;
use crate::python::{Environment, in_packages};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use fs_err as fs;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of `gpu`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build all that a Linux machine with a GPU runs, in target/gpu/attention-gpu and a .tar.gz beside it
    #[command(
        after_help = "Example:\n  cargo xtask gpu pack\n  scp target/gpu/attention-gpu.tar.gz there:\n  \
                      ssh there 'tar xzf attention-gpu.tar.gz && attention-gpu/run.sh'\n  \
                      scp there:gpu.json . && cargo xtask gpu add gpu.json"
    )]
    Pack,

    /// Test and time the kernels on the GPU of this machine; gpu.json goes to its folder in records/
    #[command(
        after_help = "Example:\n  cargo xtask gpu run --python venv/bin/python\n  \
                      cargo xtask gpu run --output target/records --quick"
    )]
    Run {
        /// Passed to run.sh, and from there to `gpu time`
        #[arg(value_name = "ARGUMENTS", num_args = 0.., allow_hyphen_values = true, trailing_var_arg = true)]
        arguments: Vec<String>,
    },

    /// Put a gpu.json that run.sh left on another machine into that machine's folder in records/
    #[command(after_help = "Example:\n  cargo xtask gpu add gpu.json")]
    Add {
        /// The record
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },

    /// Compile every kernel, and write what the compiler says to records/kernels.json; needs no GPU
    #[command(after_help = "Example:\n  cargo xtask gpu compile --check")]
    Compile {
        /// Fail if the compiler says something else than the record, and write nothing
        #[arg(long)]
        check: bool,
    },
}

/// A compiler and a linker for a glibc that is older than this machine's.
const CROSS: Environment = Environment {
    what: "Zig and cargo-zigbuild",
    size: "these are some hundred megabytes",
    folder: "gpu/venv",
    requirements: "benches/gpu/pack/requirements.txt",
    otherwise: "on the machine with the GPU, with Rust there, run\n  cargo xtask gpu run",
};

/// The compiler of the kernels.
const NVRTC: Environment = Environment {
    what: "NVRTC",
    size: "these are some hundred megabytes",
    folder: "gpu/nvrtc",
    requirements: "benches/gpu/nvrtc.txt",
    otherwise: "with NVRTC 13.0 from elsewhere, put its folder on LD_LIBRARY_PATH and run the command again",
};

/// Machines that are not older than this can run what is packed.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const GLIBC: &str = "2.28";

/// The tests that go with the program.
const TESTS: [&str; 2] = ["cuda_compile", "cuda_device"];

/// Packs the kernels, runs them, or compiles them.
///
/// # Errors
///
/// If something cannot be installed or built, or fails.
pub fn gpu(project: &Project, options: &Options) -> Result<()> {
    match &options.command {
        Task::Pack => pack(project),
        Task::Run { arguments } => run_here(project, arguments),
        Task::Add { file } => add(project, file),
        Task::Compile { check } => compile(project, *check),
    }
}

// ---------------------------------------------------------------------------------------------------------- pack

fn pack(project: &Project) -> Result<()> {
    let python = CROSS.ensure(project)?;
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = [CROSS.programs(project)].into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(folders).context("the PATH cannot be extended")?;
    let target = format!("{TRIPLE}.{GLIBC}");
    let zigbuild = || {
        let mut command = Command::new(python.with_file_name("cargo-zigbuild"));
        command.current_dir(project.root()).env("PATH", &path);
        command.args(["zigbuild", "--target", &target]);
        command
    };
    let folder = project.target().join("gpu");
    assemble(project, &folder.join("attention-gpu"), zigbuild)?;
    let mut tar = Command::new("tar");
    run(tar.args(["-czf", "attention-gpu.tar.gz", "attention-gpu"]).current_dir(folder))?;
    eprintln!(
        "packed target/gpu/attention-gpu, and a .tar.gz of it: copy one of them to the machine with the GPU, and run \
         ./run.sh there"
    );
    Ok(())
}

/// Builds what runs there, and puts it into a fresh folder.
fn assemble(project: &Project, folder: &Path, build: impl Fn() -> Command) -> Result<()> {
    let [compile, device] = TESTS;
    let gpu = ["--manifest-path", "benches/Cargo.toml", "--bin", "gpu"];
    let tests = ["--package", "gpu", "--test", compile, "--test", device];
    let mut files = vec![];
    for (arguments, names) in [(&gpu[..], &["gpu"][..]), (&tests, &TESTS)] {
        let mut command = build();
        command.args(["--release", "--locked"]).args(arguments);
        let made = artifacts(command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols"))?;
        for name in names {
            let file = program(&made, name);
            let file =
                file.with_context(|| format!("`{}` made no {name}", typed(&command)))?;
            files.push((*name, file.to_owned()));
        }
    }
    let source = project.root().join("benches/gpu");
    files.push(("torch_worker.py", source.join("torch_worker.py")));
    files.extend(
        ["run.sh", "README.md"].map(|name| (name, source.join("pack").join(name))),
    );
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    for (name, file) in files {
        fs::copy(&file, folder.join(name))?;
    }
    Ok(())
}

// ----------------------------------------------------------------------------------------------------------- run

/// The same folder for this machine, and what is in it runs at once.
fn run_here(project: &Project, arguments: &[String]) -> Result<()> {
    ensure!(
        cfg!(target_os = "linux"),
        "the tests on a GPU run on Linux; `cargo xtask gpu pack` makes them for it"
    );
    let folder = project.target().join("gpu/here");
    // Tests are built by `cargo test`, which would run them: `cargo build --test` does not.
    let build = || {
        let mut command = cargo(project);
        command.arg("build");
        command
    };
    assemble(project, &folder, build)?;
    let mut command = Command::new(folder.join("run.sh"));
    command.args(arguments).current_dir(project.root());
    let names = |option: &str| arguments.iter().any(|word| word.starts_with(option));
    if env::var_os("OUTPUT").is_some() || names("--output") {
        return run(&mut command);
    }
    let output = project.target().join("gpu/results");
    run(command.env("OUTPUT", &output))?;
    // What was measured in a hurry is not to be shown.
    if names("--quick") { Ok(()) } else { add(project, &output.join("gpu.json")) }
}

/// Puts a record into the folder of its machine.
fn add(project: &Project, file: &Path) -> Result<()> {
    let file = file.canonicalize().with_context(|| file.display().to_string())?;
    let mut command = cargo(project);
    command.args(["run", "--quiet", "--locked", "--manifest-path", "benches/Cargo.toml"]);
    command.args(["--package", "recorder", "--", "--add"]);
    run(command.arg(file))
}

// ------------------------------------------------------------------------------------------------------- compile

fn compile(project: &Project, check: bool) -> Result<()> {
    let option = if check { "--check" } else { "--record" };
    let mut command = cargo(project);
    command.args(["run", "--quiet", "--locked", "--manifest-path", "benches/Cargo.toml"]);
    command.args(["--bin", "gpu", "--", "compile", option, "records/kernels.json"]);
    let set = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    if !env::split_paths(&set).any(|folder| has_nvrtc(&folder)) {
        command.env("LD_LIBRARY_PATH", with_wheel(project, &set)?);
    }
    run(&mut command)
}

fn has_nvrtc(folder: &Path) -> bool {
    folder.join("libnvrtc.so.13").is_file()
}

/// The folders, and that of the wheel, which is installed if need be.
fn with_wheel(project: &Project, set: &OsString) -> Result<OsString> {
    NVRTC.ensure(project)?;
    let environment = project.target().join(NVRTC.folder);
    let wheel = in_packages(&environment, "nvidia/cu13/lib")
        .with_context(|| format!("{} has no NVRTC", environment.display()))?;
    let set = env::split_paths(set).filter(|folder| !folder.as_os_str().is_empty());
    env::join_paths([wheel].into_iter().chain(set))
        .context("LD_LIBRARY_PATH cannot be extended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvrtc_is_looked_for_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_nvrtc(folder.path()));
        fs::write(folder.path().join("libnvrtc.so.13"), "").unwrap();
        assert!(has_nvrtc(folder.path()));
    }

    #[test]
    fn what_is_needed_is_pinned() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        for environment in [CROSS, NVRTC] {
            let text = fs::read_to_string(root.join(environment.requirements)).unwrap();
            assert!(
                !text.is_empty() && text.lines().all(|line| line.contains("==")),
                "{text}"
            );
        }
    }
}
