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
        match next_answer(&self.name, &mut self.answers)? {
            Some(answer) => Ok(answer),
            None => bail!("{} went away ({})", self.name, self.child.wait()?),
        }
    }

    /// Its number in the system.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// The answer in the next line, or nothing after the last one.
fn next_answer(name: &str, answers: &mut impl BufRead) -> Result<Option<Answer>> {
    let mut line = String::new();
    answers.read_line(&mut line).with_context(|| format!("{name} cannot be heard"))?;
    if line.is_empty() {
        return Ok(None);
    }
    let answer: Answer = serde_json::from_str(&line)
        .with_context(|| format!("{name} said {}", line.trim()))?;
    Ok(Some(answer))
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.questions.take()); // then it ends by itself, unless it is at work
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    const SAID: &str = concat!(
        r#"{"answer":"hello","versions":{"numpy":"2.3.0"},"threads":2}"#,
        "\n",
        r#"{"answer":"done","seconds":[0.5,1e-3]}"#,
        "\n",
        r#"{"answer":"error","message":"it does not know this kernel"}"#,
        "\n",
    );

    const JSON: &[&str] = &[
        "0",
        "-1",
        "18446744073709551616",
        "1e999",
        "NaN",
        "null",
        "[]",
        "{}",
        "\"",
        ",",
        "\n",
        "\r\n",
        "\"done\"",
        "UserWarning: ",
    ];

    proptest! {
        /// Whatever a peer says: answers that are whole, at most one a line, then perhaps an error that names the peer.
        #[test]
        fn damaged_answers_are_understood_or_refused_by_name(said in mutated::bytes(SAID.into(), JSON)) {
            let lines = said.split_inclusive(|&byte| byte == b'\n').count();
            let mut answers = &said[..];
            let mut understood = 0;
            loop {
                match next_answer("PyTorch", &mut answers) {
                    Ok(Some(answer)) => {
                        understood += 1;
                        let again = serde_json::to_string(&answer).unwrap();
                        prop_assert_eq!(serde_json::from_str::<Answer>(&again).unwrap(), answer);
                    }
                    Ok(None) => {
                        prop_assert_eq!(understood, lines);
                        break;
                    }
                    Err(error) => {
                        prop_assert!(understood < lines);
                        prop_assert!(error.to_string().starts_with("PyTorch "), "{error:#}");
                        break;
                    }
                }
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_time_that_cannot_be_is_refused_by_name() {
        let ask = |seconds: &str| {
            let said = format!(
                "{}\n{{\"answer\":\"done\",\"seconds\":{seconds}}}\n",
                SAID.lines().next().unwrap()
            );
            let mut command = Command::new("printf");
            command.arg("%s").arg(said);
            Process::start("NumPy", command, "").unwrap().ask(&"a question")
        };
        assert_eq!(ask("[0.5]").unwrap(), [0.5]);
        for seconds in ["[0.5, -1.0]", "[0.0]"] {
            let error = ask(seconds).unwrap_err().to_string();
            assert_eq!(error, format!("NumPy: it says that it took {seconds} seconds"));
        }
    }
}
