//! The processes of the peers.

use crate::arguments::Arguments;
use crate::question::Kernel;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;
use worker::Process;

/// A program that computes, in one or more ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub enum Program {
    #[strum(serialize = "this crate")]
    Ours,
    PyTorch,
    NumPy,
}

impl Program {
    pub fn of(kernel: Kernel) -> Self {
        match kernel {
            Kernel::Flash | Kernel::Naive => Self::Ours,
            Kernel::PytorchFused | Kernel::PytorchWritten => Self::PyTorch,
            Kernel::Numpy => Self::NumPy,
        }
    }

    fn command(self, arguments: &Arguments) -> Result<Command> {
        let own = std::env::current_exe()?;
        let mut command = Command::new(match self {
            Self::Ours => &own,
            Self::PyTorch | Self::NumPy => &arguments.python,
        });
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers.py");
        match self {
            Self::Ours => command.arg("worker"),
            Self::PyTorch => command.arg(script).arg("pytorch"),
            Self::NumPy => command.arg(script).arg("numpy"),
        };
        Ok(command)
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Ours => "",
            Self::PyTorch | Self::NumPy => {
                "; install Python 3, then\n  python3 -m venv target/peers/venv\n  \
                 target/peers/venv/bin/pip install -r benches/peers/requirements.txt\nand name it with \
                 --python target/peers/venv/bin/python; `cargo xtask bench --peers` does all of that"
            }
        }
    }
}

/// Starts a peer with so many threads.
///
/// # Errors
/// It is not there, or lacks what it needs; the message says what to do.
pub fn start(program: Program, threads: usize, arguments: &Arguments) -> Result<Process> {
    let mut command = program.command(arguments)?;
    command.arg(threads.to_string());
    if arguments.avx2 {
        if program == Program::Ours {
            command.arg("--avx2");
        }
        // PyTorch's own loops, and its library of products.
        command.env("ATEN_CPU_CAPABILITY", "avx2");
        command.env("MKL_ENABLE_INSTRUCTIONS", "AVX2").env("ONEDNN_MAX_CPU_ISA", "AVX2");
    }
    // Every library that reads its number of threads from the environment. How its threads wait is left to each:
    // PyTorch is slower with OMP_WAIT_POLICY=passive.
    for library in ["RAYON", "OMP", "MKL", "OPENBLAS"] {
        command.env(format!("{library}_NUM_THREADS"), threads.to_string());
    }
    let process = Process::start(&program.to_string(), command, program.advice())?;
    let has = process.threads;
    ensure!(has == threads, "{program} uses {has} threads, not {threads}");
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_python_that_is_not_there_is_an_error_that_says_what_to_install() {
        let arguments = Arguments::parse_from(["peers", "--python", "no-such-python"]);
        let error = start(Program::NumPy, 1, &arguments).err().unwrap().to_string();
        for part in [
            "NumPy (no-such-python) could not be started",
            "pip install -r benches/peers/requirements.txt",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
