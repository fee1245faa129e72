//! The processes of the peers.

use crate::arguments::Arguments;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use worker::{Answer, Kernel, Question};

/// Which program knows which ways to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Ours,
    PyTorch,
    NumPy,
    Candle,
}

impl Program {
    pub fn of(kernel: Kernel) -> Self {
        match kernel {
            Kernel::Flash | Kernel::Naive => Self::Ours,
            Kernel::PytorchFused | Kernel::PytorchWritten => Self::PyTorch,
            Kernel::Numpy => Self::NumPy,
            Kernel::CandleFlash | Kernel::CandleWritten => Self::Candle,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "this crate",
            Self::PyTorch => "PyTorch",
            Self::NumPy => "NumPy",
            Self::Candle => "candle",
        }
    }

    fn command(self, arguments: &Arguments) -> Result<Command> {
        let own = std::env::current_exe()?;
        let python = |peer| {
            let mut command = Command::new(&arguments.python);
            command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers.py")).arg(peer);
            command
        };
        Ok(match self {
            Self::Ours => {
                let mut command = Command::new(own);
                command.arg("worker");
                command
            }
            Self::PyTorch => python("pytorch"),
            Self::NumPy => python("numpy"),
            Self::Candle => {
                let file = format!("candle-peer{}", std::env::consts::EXE_SUFFIX);
                let beside: PathBuf = own.with_file_name(file);
                Command::new(arguments.candle.as_ref().unwrap_or(&beside))
            }
        })
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Ours => "",
            Self::PyTorch | Self::NumPy => {
                "; install Python 3, then\n  python3 -m venv target/peers/venv\n  \
                 target/peers/venv/bin/pip install -r benches/peers/requirements.txt\nand name it with \
                 --python target/peers/venv/bin/python; `cargo xtask bench --peers` does all of that"
            }
            Self::Candle => {
                "; build it with `cargo build --release --workspace` in benches/peers; `cargo xtask bench --peers` does"
            }
        }
    }
}

/// A peer at work, until it is dropped.
pub struct Process {
    program: Program,
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Of its libraries.
    pub versions: BTreeMap<String, String>,
}

impl Process {
    /// Starts a peer with so many threads.
    ///
    /// # Errors
    /// It is not there, or has not what it needs; the message says what to do.
    pub fn start(
        program: Program,
        threads: usize,
        arguments: &Arguments,
    ) -> Result<Self> {
        let mut command = program.command(arguments)?;
        command.arg(threads.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Every library that reads its number of threads from the environment. How its threads wait is left to each:
        // PyTorch is slower with OMP_WAIT_POLICY=passive.
        for name in ["RAYON", "CANDLE", "OMP", "MKL", "OPENBLAS"] {
            command.env(format!("{name}_NUM_THREADS"), threads.to_string());
        }
        let mut child = command.spawn().map_err(|error| {
            let missing =
                if error.kind() == ErrorKind::NotFound { program.advice() } else { "" };
            let path = Path::new(command.get_program()).display();
            anyhow!("{} ({path}) could not be started: {error}{missing}", program.name())
        })?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("it has no output")?);
        let versions = BTreeMap::new();
        let mut process = Self { program, child, questions, answers, versions };
        match process.listen()? {
            Answer::Hello { versions, threads: has } => {
                ensure!(
                    has == threads,
                    "{} uses {has} threads, not {threads}",
                    program.name()
                );
                process.versions = versions;
            }
            Answer::Done { .. } => bail!("{} said no hello", program.name()),
            Answer::Error { message } => bail!("{}: {message}", program.name()),
        }
        Ok(process)
    }

    /// Asks, and waits for the times.
    ///
    /// # Errors
    /// It cannot, or went away.
    pub fn ask(&mut self, question: &Question) -> Result<Vec<f64>> {
        let name = self.program.name();
        let questions = self.questions.as_mut().context("it does not listen any more")?;
        let line = serde_json::to_string(question)? + "\n";
        // One that went away tells why by its silence, below.
        let _ = questions.write_all(line.as_bytes()).and_then(|()| questions.flush());
        match self.listen()? {
            Answer::Done { seconds } => Ok(seconds),
            Answer::Error { message } => bail!("{name}: {message}"),
            Answer::Hello { .. } => bail!("{name} said hello when it was asked"),
        }
    }

    fn listen(&mut self) -> Result<Answer> {
        let name = self.program.name();
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .with_context(|| format!("{name} cannot be heard"))?;
        if line.is_empty() {
            bail!("{name} went away ({})", self.child.wait()?);
        }
        serde_json::from_str(&line)
            .with_context(|| format!("{name} said {}", line.trim()))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.questions.take()); // which it takes as a goodbye, unless it is at work
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_python_that_is_not_there_is_an_error_that_says_what_to_install() {
        let arguments = Arguments::parse_from(["peers", "--python", "no-such-python"]);
        let error =
            Process::start(Program::NumPy, 1, &arguments).err().unwrap().to_string();
        for part in [
            "NumPy (no-such-python) could not be started",
            "pip install -r benches/peers/requirements.txt",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn one_that_says_something_else_or_nothing_is_named() {
        for (program, says) in
            [("echo", "candle said 1"), ("true", "candle went away (exit status: 0)")]
        {
            let arguments = Arguments::parse_from(["peers", "--candle", program]);
            let error =
                Process::start(Program::Candle, 1, &arguments).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
