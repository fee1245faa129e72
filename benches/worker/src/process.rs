//! The process of a peer, from the side that asks.

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
    /// The number of its threads.
    pub threads: usize,
}

impl Process {
    /// Starts a peer, and waits until it says hello. `advice` is added if its program is not there.
    ///
    /// # Errors
    /// It is not there, or lacks what it needs.
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
    /// It cannot, or as [`Process::answer`].
    pub fn ask(&mut self, question: &impl Serialize) -> Result<Vec<f64>> {
        let name = self.name.clone();
        self.answer(question)?.map_err(|message| anyhow!("{name}: {message}"))
    }

    /// Asks, and waits for the times, or for the reason why there are none: it cannot, or a time is not above 0.
    ///
    /// # Errors
    /// It has ended, or says something else.
    pub fn answer(
        &mut self,
        question: &impl Serialize,
    ) -> Result<Result<Vec<f64>, String>> {
        let questions = self.questions.as_mut().context("it does not listen any more")?;
        let line = serde_json::to_string(question)? + "\n";
        // A process that has ended is found out below, by the missing answer.
        let _ = questions.write_all(line.as_bytes()).and_then(|()| questions.flush());
        match self.listen()? {
            Answer::Done { seconds } if seconds.iter().all(|time| *time > 0.0) => {
                Ok(Ok(seconds))
            }
            Answer::Done { seconds } => {
                Ok(Err(format!("it says that it took {seconds:?} seconds")))
            }
            Answer::Error { message } => Ok(Err(message)),
            Answer::Hello { .. } => bail!("{} said hello when it was asked", self.name),
        }
    }

    fn listen(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| format!("{} cannot be heard", self.name))? == 0 {
            bail!("{} went away ({})", self.name, self.child.wait()?);
        }
        serde_json::from_str(&line)
            .with_context(|| format!("{} said {}", self.name, line.trim()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.questions.take()); // then it ends by itself, unless it is at work
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A peer that says these lines, whatever it is asked.
    fn saying(lines: &str) -> Result<Process> {
        let mut command = Command::new("printf");
        command.arg("%s").arg(lines);
        Process::start("NumPy", command, "")
    }

    #[test]
    fn a_time_that_cannot_be_is_refused_by_name() {
        let ask = |seconds: &str| {
            let hello = r#"{"answer":"hello","versions":{"numpy":"2.3.0"},"threads":2}"#;
            let done = format!(r#"{{"answer":"done","seconds":{seconds}}}"#);
            saying(&format!("{hello}\n{done}\n")).unwrap().ask(&"a question")
        };
        assert_eq!(ask("[0.5]").unwrap(), [0.5]);
        let error = ask("[0.5, -1.0]").unwrap_err().to_string();
        assert_eq!(error, "NumPy: it says that it took [0.5, -1.0] seconds");
    }

    #[test]
    fn one_that_says_something_else_or_nothing_is_named() {
        for (lines, says) in
            [("1\n", "NumPy said 1"), ("", "NumPy went away (exit status: 0)")]
        {
            assert_eq!(saying(lines).err().unwrap().to_string(), says);
        }
    }
}
