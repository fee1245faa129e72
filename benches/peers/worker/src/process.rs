//! A peer, as whoever asks it sees it.

use crate::Answer;
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A peer at work, until it is dropped.
pub struct Process {
    name: String,
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Of its libraries.
    pub versions: BTreeMap<String, String>,
    /// How many threads it uses.
    pub threads: usize,
}

impl Process {
    /// Starts a peer, and waits until it says hello. `advice` is added if its program is not there.
    ///
    /// # Errors
    /// It is not there, or has not what it needs.
    pub fn start(name: &str, mut command: Command, advice: &str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let missing = if error.kind() == ErrorKind::NotFound { advice } else { "" };
            let path = Path::new(command.get_program()).display();
            anyhow!("{name} ({path}) could not be started: {error}{missing}")
        })?;
        let mut process = Self {
            name: name.to_owned(),
            questions: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().context("it has no output")?),
            child,
            versions: BTreeMap::new(),
            threads: 0,
        };
        match process.listen()? {
            Answer::Hello { versions, threads } => {
                (process.versions, process.threads) = (versions, threads);
            }
            Answer::Done { .. } => bail!("{name} said no hello"),
            Answer::Error { message } => bail!("{name}: {message}"),
        }
        Ok(process)
    }

    /// Asks, and waits for the times.
    ///
    /// # Errors
    /// It cannot, or went away.
    pub fn ask(&mut self, question: &impl Serialize) -> Result<Vec<f64>> {
        match self.answer(question)? {
            Ok(seconds) => Ok(seconds),
            Err(message) => bail!("{}: {message}", self.name),
        }
    }

    /// Asks, and waits for the times, or for the reason why there are none.
    ///
    /// # Errors
    /// It went away, or says something else.
    pub fn answer(
        &mut self,
        question: &impl Serialize,
    ) -> Result<Result<Vec<f64>, String>> {
        let questions = self.questions.as_mut().context("it does not listen any more")?;
        let line = serde_json::to_string(question)? + "\n";
        // One that went away tells why by its silence, below.
        let _ = questions.write_all(line.as_bytes()).and_then(|()| questions.flush());
        match self.listen()? {
            Answer::Done { seconds } => Ok(Ok(seconds)),
            Answer::Error { message } => Ok(Err(message)),
            Answer::Hello { .. } => bail!("{} said hello when it was asked", self.name),
        }
    }

    fn listen(&mut self) -> Result<Answer> {
        let name = &self.name;
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

    /// Its number in the system.
    #[must_use]
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
