//! `cargo xtask across`: attention over several processes, which MPI connects.
//!
//! The program is a workspace of its own, in `crates/across/mpi`, since it needs an MPI library, and libclang to read that library's
//! header. What it takes is made in `target/across`.

use crate::process::{artifacts, cargo, program, run};
use crate::project::Project;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// The options of `across`.
#[derive(Debug, Args)]
pub struct Options {
    /// Time the ring beside one process, too, with up to so many ranks
    #[arg(long, value_name = "RANKS", num_args = 0..=1, default_missing_value = "2")]
    time: Option<usize>,

    /// Write the times to this machine's folder in records/
    #[arg(long, requires = "time")]
    record: bool,

    /// Small sizes and few rounds, whose record goes to target/records
    #[arg(long, requires = "time")]
    quick: bool,
}

/// The numbers of ranks of the cases.
const RANKS: [usize; 5] = [1, 2, 3, 4, 8];

/// The faults that `across-mpi fault` provokes.
const FAULTS: [&str; 4] = ["leave", "die", "length", "shapes"];

/// No fault may keep the ranks waiting for longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Builds the program, and runs its cases and its faults.
///
/// # Errors
///
/// If something that it needs is missing, a case fails, or a fault ends without an error or not at all.
pub fn across(project: &Project, options: &Options) -> Result<()> {
    check_installed()?;
    let program = build(project)?;
    for ranks in RANKS {
        eprintln!("the cases on {ranks} ranks");
        run(mpirun(&program, ranks).arg("check").stdout(Stdio::null()))?;
    }
    for fault in FAULTS {
        eprintln!("a fault on 4 ranks, `{fault}`: errors are expected");
        fails_soon(mpirun(&program, 4).args(["fault", fault]))?;
    }
    let Some(ranks) = options.time else { return Ok(()) };
    let mut command = mpirun(&program, ranks);
    command.arg("time").args(options.quick.then_some("--quick"));
    if options.record {
        command.arg("--record").arg(project.root());
    }
    run(&mut command)
}

/// Says by the names of packages what is missing; installs nothing.
fn check_installed() -> Result<()> {
    let programs = [("mpirun", "openmpi-bin"), ("mpicc", "libopenmpi-dev")];
    let missing = programs.into_iter().filter(|(name, _)| which::which(name).is_err());
    let mut packages: Vec<_> = missing.map(|(_, package)| package).collect();
    if !has_libclang() {
        packages.push("libclang-dev"); // or LIBCLANG_PATH says in which folder it is
    }
    ensure!(
        packages.is_empty(),
        "this needs packages that aren't installed; on Debian and Ubuntu they are called {}",
        packages.join(", ")
    );
    Ok(())
}

/// Where the generator of bindings looks, more or less: the folder of `LIBCLANG_PATH`, those of LLVM, and those of the system.
fn has_libclang() -> bool {
    let named = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let usual =
        ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/opt/llvm/lib"];
    let usual = usual.map(PathBuf::from).into_iter();
    let below = |folder: &str, inner: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(inner)).collect()
    };
    let folders = named.into_iter().chain(usual).chain(below("/usr/lib", ""));
    folders.chain(below("/usr/lib", "lib")).any(|folder| holds_libclang(&folder))
}

fn holds_libclang(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Not libclang-cpp, which is another library.
        ["libclang.so", "libclang.dylib", "libclang-"]
            .iter()
            .any(|start| name.starts_with(start))
            && !name.starts_with("libclang-cpp")
            && (name.contains(".so") || name.contains(".dylib"))
    })
}

fn build(project: &Project) -> Result<PathBuf> {
    let mut command = cargo(project);
    command.args(["build", "--release", "--locked"]);
    command.args(["--manifest-path", "crates/across/mpi/Cargo.toml"]);
    command.arg("--target-dir").arg(project.target().join("across"));
    let made = artifacts(&mut command)?;
    let file = program(&made, "across-mpi").context("cargo made no across-mpi")?;
    Ok(file.to_owned())
}

/// The program on so many ranks, which may be more than there are cores. A rank isn't bound to a core: threads would all share that one.
fn mpirun(program: &Path, ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    if is_root() {
        command.arg("--allow-run-as-root"); // in a container, most likely
    }
    command.arg(program).env("RAYON_NUM_THREADS", "1");
    command
}

/// Whether the user is root, as whom `mpirun` starts nothing unless it is told to.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Runs a command that has to fail, before the patience is at its end.
fn fails_soon(command: &mut Command) -> Result<()> {
    let mut child = command.spawn().context("`mpirun` could not be started")?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            ensure!(!status.success(), "the fault went unnoticed");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    bail!("the ranks still wait after {} s", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_known_by_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let holds = |name: &str| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
            holds_libclang(&folder)
        };
        assert!(
            holds("libclang.so.1")
                && holds("libclang-14.so.1")
                && holds("libclang.dylib")
        );
        assert!(
            !holds("libclang-cpp.so.14")
                && !holds("libclangBasic.a")
                && !holds("clang.h")
        );
        assert!(!holds_libclang(&folder.path().join("nowhere")));
    }

    #[test]
    fn a_fault_has_to_be_noticed() {
        assert!(fails_soon(&mut Command::new("false")).is_ok());
        assert!(fails_soon(&mut Command::new("true")).is_err());
    }
}
