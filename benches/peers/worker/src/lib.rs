//! The language of the peers.
//!
//! Each peer is a process of its own, with its own libraries, its own threads and the compiler flags that its users
//! would give it. It reads one question a line and writes one answer a line, both in JSON; numbers in bulk go through
//! files of raw little-endian numbers. `peers.py` speaks the same language.

#![deny(missing_docs, unsafe_code)]

mod process;
mod raw;

pub use process::Process;
pub use raw::{read, write};
pub use strum::VariantArray;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;
use strum::Display;

/// A question to a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Question {
    /// Take this problem for all that follows, and forget the one before.
    Load {
        /// Its kind and sizes.
        problem: Problem,
        /// The file with its numbers.
        file: PathBuf,
    },
    /// Compute once, and leave the results in a file.
    Check {
        /// The task.
        task: Task,
        /// The file for the output, and the gradients if there are any.
        file: PathBuf,
    },
    /// Compute again and again, and tell how long each time took.
    Time {
        /// The task.
        task: Task,
        /// `true` to compute once before the first time that counts.
        warm: bool,
        /// The number of times that count.
        samples: usize,
    },
}

/// An answer of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// The first line, unasked.
    Hello {
        /// Of its libraries.
        versions: BTreeMap<String, String>,
        /// The number of threads that it will use.
        threads: usize,
    },
    /// It is done, after so many seconds for each time that it computed.
    Done {
        /// One number a time.
        seconds: Vec<f64>,
    },
    /// It cannot.
    Error {
        /// Why.
        message: String,
    },
}

/// A problem: what is in the file, by kind and sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The computation that is timed on it.
    pub kind: Kind,
    /// The number of tokens.
    pub n: usize,
    /// The number of heads.
    pub heads: usize,
    /// The width of a head.
    pub d: usize,
}

/// A computation on a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Attention, in f32. The file holds q, k, v and the gradient of the output, each (heads, n, d).
    Attention,
    /// The layer, in f64. The file holds x and the gradient of the output, each (n, d_model), then W_Q, W_K, W_V and
    /// W_O, each (d_model, d_model), then b_Q, b_K, b_V and b_O; d_model is heads · d.
    Layer,
}

/// A computation, and the way to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The way.
    pub kernel: Kernel,
    /// The mask: full or causal.
    pub mask: Mask,
    /// The pass: forward, or forward and backward.
    pub pass: Pass,
}

/// A way to compute attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Kernel {
    /// This crate's fast attention.
    Flash,
    /// PyTorch's `scaled_dot_product_attention`, in its fused form.
    PytorchFused,
    /// PyTorch: matmul, softmax, matmul.
    PytorchWritten,
    /// NumPy: matmul, softmax, matmul, and the six steps back.
    Numpy,
    /// candle's flash attention for the CPU.
    CandleFlash,
    /// candle: matmul, softmax, matmul.
    CandleWritten,
    /// This crate's attention as the equations write it, and the layer on it.
    Naive,
}

/// A mask: all keys are seen, or none that comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Mask {
    /// Queries see later keys.
    Full,
    /// Queries do not see later keys.
    Causal,
}

/// A pass: forward, or forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Pass {
    /// To the output.
    Forward,
    /// To the output, and back to the gradients.
    #[serde(rename = "forward+backward")]
    #[strum(serialize = "forward+backward")]
    ForwardBackward,
}

impl Problem {
    /// That memory could hold its tensors, so that their sizes, and the sums and products of these, fit a `usize`.
    ///
    /// # Errors
    /// They are too large together.
    pub fn check(&self) -> Result<()> {
        let Self { n, heads, d, .. } = *self;
        let width = heads.checked_mul(d);
        let largest = width.and_then(|width| width.checked_mul(n.max(width)));
        // At most 14 tensors, of numbers of at most 8 bytes.
        let fits = largest.is_some_and(|largest| largest <= isize::MAX as usize / 128);
        ensure!(fits, "no memory holds n = {n}, heads = {heads}, d = {d}");
        Ok(())
    }

    /// The sizes of the tensors in its file.
    #[must_use]
    pub fn inputs(&self) -> Vec<usize> {
        let (tokens, width) = (self.n * self.heads * self.d, self.heads * self.d);
        match self.kind {
            Kind::Attention => vec![tokens; 4],
            Kind::Layer => {
                [vec![tokens; 2], vec![width * width; 4], vec![width; 4]].concat()
            }
        }
    }

    /// The names and sizes of the tensors that a check leaves behind. The layer's biases are one tensor: the gradient
    /// of b_K is nothing but rounding, and has to be measured against the others.
    #[must_use]
    pub fn results(&self, pass: Pass) -> Vec<(&'static str, usize)> {
        let (tokens, width) = (self.n * self.heads * self.d, self.heads * self.d);
        let mut results = vec![("the output", tokens)];
        if pass == Pass::ForwardBackward {
            results.extend(match self.kind {
                Kind::Attention => ["∂q", "∂k", "∂v"].map(|name| (name, tokens)).to_vec(),
                Kind::Layer => [
                    vec![("∂x", tokens)],
                    ["∂W_Q", "∂W_K", "∂W_V", "∂W_O"]
                        .map(|name| (name, width * width))
                        .to_vec(),
                    vec![("the biases' gradients", 4 * width)],
                ]
                .concat(),
            });
        }
        results
    }
}

/// A peer that is written in Rust.
pub trait Peer {
    /// A problem, laid out as the peer likes it.
    type Loaded;
    /// The results of a computation.
    type Results;

    /// Takes a problem.
    ///
    /// # Errors
    /// The file cannot be read, or the peer does not know this kind.
    fn load(&self, problem: Problem, file: &Path) -> Result<Self::Loaded>;

    /// Computes once. This is what is timed.
    ///
    /// # Errors
    /// The peer does not know the way.
    fn compute(&mut self, problem: &Self::Loaded, task: Task) -> Result<Self::Results>;

    /// Writes what was computed.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write(&self, results: Self::Results, file: &Path) -> Result<()>;
}

/// Answers the questions on standard input until there are no more, with so many threads.
///
/// # Errors
/// A question cannot be read, or an answer cannot be written.
pub fn serve(peer: &mut impl Peer, threads: usize) -> Result<()> {
    let hello = Answer::Hello { versions: BTreeMap::new(), threads };
    answer_all(peer, &hello, stdin().lock(), stdout().lock())
}

fn answer_all<P: Peer>(
    peer: &mut P,
    hello: &Answer,
    questions: impl BufRead,
    mut answers: impl Write,
) -> Result<()> {
    let mut say = |answer: &Answer| -> Result<()> {
        serde_json::to_writer(&mut answers, answer)?;
        answers.write_all(b"\n")?;
        Ok(answers.flush()?)
    };
    say(hello)?;
    let mut loaded = None;
    for (number, line) in (1..).zip(questions.lines()) {
        let line = line.with_context(|| format!("question {number}"))?;
        let question: Question = serde_json::from_str(&line)
            .with_context(|| format!("the question {line}"))?;
        match answer(peer, &mut loaded, question) {
            Ok(seconds) => say(&Answer::Done { seconds })?,
            Err(error) => say(&Answer::Error { message: format!("{error:#}") })?,
        }
    }
    Ok(())
}

fn answer<P: Peer>(
    peer: &mut P,
    loaded: &mut Option<P::Loaded>,
    question: Question,
) -> Result<Vec<f64>> {
    let no_problem = "there is no problem yet";
    match question {
        Question::Load { problem, file } => {
            problem.check()?;
            *loaded = None; // before there are two of them in memory
            *loaded = Some(peer.load(problem, &file)?);
            Ok(vec![])
        }
        Question::Check { task, file } => {
            let (seconds, results) =
                time(peer, loaded.as_ref().context(no_problem)?, task)?;
            peer.write(results, &file)?;
            Ok(vec![seconds])
        }
        Question::Time { task, warm, samples } => {
            ensure!(samples > 0, "no samples were asked for");
            let loaded = loaded.as_ref().context(no_problem)?;
            if warm {
                peer.compute(loaded, task)?;
            }
            // What was computed is thrown away after the clock has stopped.
            (0..samples).map(|_| Ok(time(peer, loaded, task)?.0)).collect()
        }
    }
}

/// Returns the time of one computation, and its results.
fn time<P: Peer>(
    peer: &mut P,
    loaded: &P::Loaded,
    task: Task,
) -> Result<(f64, P::Results)> {
    let begun = Instant::now();
    let results = std::hint::black_box(peer.compute(loaded, task)?);
    Ok((begun.elapsed().as_secs_f64(), results))
}

#[cfg(test)]
#[path = "../../../../crates/attention/tests/mutated/mod.rs"]
#[allow(dead_code, reason = "the tests here damage bytes and no texts")]
mod mutated;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A peer that counts how often it computed, and the numbers of its problem.
    #[derive(Default)]
    struct Counter(usize);

    impl Peer for Counter {
        type Loaded = Problem;
        type Results = usize;

        fn load(&self, problem: Problem, _: &Path) -> Result<Problem> {
            ensure!(problem.n > 0, "no tokens");
            let _: usize = problem.inputs().iter().sum::<usize>() * size_of::<f64>();
            Ok(problem)
        }

        fn compute(&mut self, problem: &Problem, task: Task) -> Result<usize> {
            self.0 += 1;
            Ok(problem.results(task.pass).iter().map(|(_, size)| size).sum())
        }

        fn write(&self, _: usize, _: &Path) -> Result<()> {
            Ok(())
        }
    }

    /// Returns the end of the questions, and the answers to them.
    fn ask(peer: &mut Counter, questions: &[u8]) -> (Result<()>, Vec<Answer>) {
        let hello = Answer::Hello { versions: BTreeMap::new(), threads: 1 };
        let mut answers = vec![];
        let served = answer_all(peer, &hello, questions, &mut answers);
        let lines = String::from_utf8(answers).unwrap();
        let parsed = |line| serde_json::from_str(line).unwrap();
        let answers: Vec<_> = lines.lines().map(parsed).collect();
        assert_eq!(answers[0], hello);
        (served, answers)
    }

    const TASK: &str =
        r#"{"kernel":"pytorch-fused","mask":"causal","pass":"forward+backward"}"#;

    #[test]
    fn each_question_has_its_answer() {
        let check = format!(r#"{{"do":"check","task":{TASK},"file":"y"}}"#);
        let questions = format!(
            "{}\n{check}\n{}\n{check}\n{}\n",
            r#"{"do":"load","problem":{"kind":"attention","n":0,"heads":8,"d":64},"file":"x"}"#,
            r#"{"do":"load","problem":{"kind":"attention","n":1,"heads":8,"d":64},"file":"x"}"#,
            format_args!(r#"{{"do":"time","task":{TASK},"warm":true,"samples":3}}"#),
        );
        let mut peer = Counter::default();
        let (served, answers) = ask(&mut peer, questions.as_bytes());
        served.unwrap();
        assert_eq!(answers[1], Answer::Error { message: "no tokens".to_owned() });
        let message = "there is no problem yet".to_owned();
        assert_eq!(answers[2], Answer::Error { message });
        assert_eq!(answers[3], Answer::Done { seconds: vec![] });
        assert!(matches!(&answers[4], Answer::Done { seconds } if seconds.len() == 1));
        assert!(matches!(&answers[5], Answer::Done { seconds } if seconds.len() == 3));
        assert_eq!(peer.0, 1 + 1 + 3); // the check, the warm-up, the samples
    }

    #[test]
    fn names_are_those_of_the_protocol() {
        for kernel in Kernel::VARIANTS {
            assert_eq!(serde_json::to_value(kernel).unwrap(), kernel.to_string());
        }
        for mask in Mask::VARIANTS {
            assert_eq!(serde_json::to_value(mask).unwrap(), mask.to_string());
        }
        for pass in Pass::VARIANTS {
            assert_eq!(serde_json::to_value(pass).unwrap(), pass.to_string());
        }
    }

    const HEARD: &str = concat!(
        r#"{"do":"load","problem":{"kind":"attention","n":4,"heads":1,"d":2},"file":"f"}"#,
        "\n",
        r#"{"do":"check","task":{"kernel":"flash","mask":"causal","pass":"forward"},"file":"f"}"#,
        "\n",
        r#"{"do":"time","task":{"kernel":"naive","mask":"full","pass":"forward+backward"},"warm":true,"samples":2}"#,
        "\n",
    );

    const JSON: &[&str] = &[
        "0",
        "-1",
        "18446744073709551615",
        "4294967296",
        "1e999",
        "null",
        "[]",
        "{}",
        "\"",
        ",",
        ":",
        "\n",
        "\"layer\"",
    ];

    #[test]
    fn a_problem_that_no_memory_holds_is_answered() {
        for (n, heads, d) in
            [(1_u64 << 62, 8_u64, 64_u64), (4, 1 << 40, 1 << 40), (u64::MAX, 1, 1)]
        {
            let question = format!(
                r#"{{"do":"load","problem":{{"kind":"layer","n":{n},"heads":{heads},"d":{d}}},"file":"f"}}"#
            );
            let (served, answers) = ask(&mut Counter::default(), question.as_bytes());
            served.unwrap();
            let message = format!("no memory holds n = {n}, heads = {heads}, d = {d}");
            assert_eq!(answers[1], Answer::Error { message });
        }
    }

    proptest! {
        /// Whatever is asked: answers that are answers, then perhaps an error that says which question it was.
        #[test]
        fn damaged_questions_are_answered_or_refused_by_name(heard in mutated::bytes(HEARD.into(), JSON)) {
            let asks_for_many = |line: &str| {
                matches!(serde_json::from_str(line), Ok(Question::Time { samples, .. }) if samples > 1000)
            };
            prop_assume!(!String::from_utf8_lossy(&heard).lines().any(asks_for_many));
            let (served, answers) = ask(&mut Counter::default(), &heard);
            prop_assert!(answers.len() <= 1 + heard.split(|&byte| byte == b'\n').count());
            if let Err(error) = served {
                prop_assert!(error.to_string().contains("question"), "{:#}", error);
            }
        }

        /// Any sizes: a problem whose numbers can be counted, or an error with all of them.
        #[test]
        fn sizes_can_be_counted_or_are_refused(n: usize, heads: usize, d: usize, shift in 0_u32..64, is_layer: bool) {
            let kind = if is_layer { Kind::Layer } else { Kind::Attention };
            let problem = Problem { kind, n: n >> shift, heads: heads >> shift, d: d >> shift };
            match problem.check() {
                Ok(()) => {
                    let bytes = problem.inputs().iter().sum::<usize>() * size_of::<f64>();
                    let results = problem.results(Pass::ForwardBackward);
                    let entries: usize = results.iter().map(|result| result.1).sum();
                    prop_assert!(bytes.max(entries) <= isize::MAX as usize);
                }
                Err(error) => {
                    let says = format!("n = {}, heads = {}, d = {}", problem.n, problem.heads, problem.d);
                    prop_assert!(error.to_string().contains(&says), "{}", error);
                }
            }
        }
    }
}
