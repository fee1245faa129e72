//! This crate as a peer: its fast attention, and its attention as the equations write it.

use crate::question::{Kernel, Mask, Pass, Problem, Question, Task};
use crate::raw;
use anyhow::{Context, Result, bail, ensure};
use attention::engine::Engine as _;
use attention::flash::Inputs;
use attention::{AttentionGradients, Mask as Visible, attention, attention_backward};
use fast::{Flash, Instructions};
use nalgebra::DMatrix;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::collections::BTreeMap;
use std::io::{Write, stdin, stdout};
use std::path::Path;
use std::time::Instant;
use worker::Answer;

/// Answers questions until there are no more.
///
/// # Errors
/// A question cannot be understood, the number of threads is not that of the environment, or this processor has no AVX2
/// where it is to be held to that.
pub fn serve(threads: usize, avx2: bool) -> Result<()> {
    let rayon = rayon::current_num_threads();
    ensure!(rayon == threads, "RAYON_NUM_THREADS gives {rayon} threads, not {threads}");
    let mut flash = Flash::new().with_threads(threads)?;
    if avx2 {
        flash = flash.with_instructions(Instructions::Avx2)?;
    }
    say(&Answer::Hello { versions: BTreeMap::new(), threads })?;
    let mut loaded = None;
    for line in stdin().lines() {
        let question = serde_json::from_str(&line?)?;
        say(&match answer(&flash, &mut loaded, question) {
            Ok(seconds) => Answer::Done { seconds },
            Err(error) => Answer::Error { message: format!("{error:#}") },
        })?;
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<()> {
    Ok(writeln!(stdout(), "{}", serde_json::to_string(answer)?)?)
}

fn answer(
    flash: &Flash,
    loaded: &mut Option<Loaded>,
    question: Question,
) -> Result<Vec<f64>> {
    if let Question::Load { problem, file } = question {
        *loaded = None; // before there are two of them in memory
        *loaded = Some(Loaded::new(problem, &file)?);
        return Ok(vec![]);
    }
    let loaded = loaded.as_ref().context("there is no problem yet")?;
    let time = |task| -> Result<(f64, Results)> {
        let begun = Instant::now();
        let results = std::hint::black_box(loaded.compute(flash, task)?);
        Ok((begun.elapsed().as_secs_f64(), results))
    };
    match question {
        Question::Load { .. } => Ok(vec![]),
        Question::Check { task, file } => {
            let (seconds, results) = time(task)?;
            results.write(&file)?;
            Ok(vec![seconds])
        }
        Question::Time { task, warm, samples } => {
            if warm {
                loaded.compute(flash, task)?;
            }
            // What was computed is thrown away after the clock has stopped.
            (0..samples).map(|_| Ok(time(task)?.0)).collect()
        }
    }
}

/// A problem in memory.
struct Loaded {
    problem: Problem,
    /// q, k, v and the gradient of the output: (n, h · d), as the fast path takes them.
    joined: [DMatrix<f32>; 4],
    /// The same by heads: h times (n, d), as the written-out path takes them.
    heads: Vec<[DMatrix<f32>; 4]>,
}

/// The computed matrices, one after the other.
enum Results {
    /// Each (n, h · d).
    Joined(Problem, Vec<DMatrix<f32>>),
    /// Head by head: each (n, d).
    Heads(Vec<Vec<DMatrix<f32>>>),
}

fn visible(mask: Mask) -> Visible {
    match mask {
        Mask::Full => Visible::none(),
        Mask::Causal => Visible::causal(),
    }
}

/// The heads of a tensor (h, n, d) that lies in memory row by row: h times (n, d).
fn heads(problem: Problem, tensor: &[f32]) -> Vec<DMatrix<f32>> {
    let Problem { n, d, .. } = problem;
    tensor.chunks(n * d).map(|head| DMatrix::from_row_slice(n, d, head)).collect()
}

/// The tensors (h, n, d), row by row as NumPy has them, of what was computed head by head.
fn tensors_of(heads: &[Vec<DMatrix<f32>>]) -> Vec<Vec<f32>> {
    let row_major = |matrix: &DMatrix<f32>| matrix.transpose().as_slice().to_vec();
    let tensor = |i: usize| heads.iter().flat_map(|head| row_major(&head[i])).collect();
    (0..heads[0].len()).map(tensor).collect()
}

/// Heads side by side: h times (n, d) → (n, h · d).
fn join(heads: &[DMatrix<f32>]) -> DMatrix<f32> {
    DMatrix::from_columns(
        &heads.iter().flat_map(|head| head.column_iter()).collect::<Vec<_>>(),
    )
}

/// One head's output, and the gradients with respect to its q, k and v if they are asked for.
fn written(
    [q, k, v, grad_output]: &[DMatrix<f32>; 4],
    task: Task,
) -> Result<Vec<DMatrix<f32>>> {
    let (output, cache) = attention(q, k, v, visible(task.mask))?;
    if task.pass == Pass::Forward {
        return Ok(vec![output]);
    }
    let AttentionGradients { q, k, v, .. } = attention_backward(&cache, grad_output)?;
    Ok(vec![output, q, k, v])
}

impl Loaded {
    fn new(problem: Problem, file: &Path) -> Result<Self> {
        let tensors = raw::read(file, 4, problem.size())?;
        let tensors: Vec<_> =
            tensors.iter().map(|tensor| heads(problem, tensor)).collect();
        let [q, k, v, grad_output] = &tensors[..] else {
            bail!("attention takes four tensors")
        };
        let head = |h: usize| [q, k, v, grad_output].map(|tensor| tensor[h].clone());
        Ok(Self {
            problem,
            joined: [q, k, v, grad_output].map(|tensor| join(tensor)),
            heads: (0..problem.heads).map(head).collect(),
        })
    }

    fn compute(&self, flash: &Flash, task: Task) -> Result<Results> {
        Ok(match task.kernel {
            Kernel::Flash => Results::Joined(self.problem, self.flash(task, flash)?),
            Kernel::Naive => {
                let heads = self.heads.par_iter().map(|head| written(head, task));
                Results::Heads(heads.collect::<Result<_>>()?)
            }
            other => bail!("this crate does not know {other}"),
        })
    }

    /// The fast path, on heads side by side.
    fn flash(&self, task: Task, flash: &Flash) -> Result<Vec<DMatrix<f32>>> {
        let [q, k, v, grad_output] = &self.joined;
        let inputs = Inputs::new(q, k, v, visible(task.mask))?;
        let inputs = inputs.with_heads(self.problem.heads)?;
        let forward = flash.forward(&inputs)?;
        if task.pass == Pass::Forward {
            return Ok(vec![forward.output]);
        }
        let AttentionGradients { q, k, v, .. } =
            flash.backward(&inputs, &forward, grad_output.into())?;
        Ok(vec![forward.output, q, k, v])
    }
}

impl Results {
    fn write(self, file: &Path) -> Result<()> {
        match self {
            Self::Joined(Problem { heads, d, .. }, joined) => {
                let head = |h: usize| -> Vec<_> {
                    joined.iter().map(|all| all.columns(h * d, d).into_owned()).collect()
                };
                let heads: Vec<_> = (0..heads).map(head).collect();
                raw::write(file, &tensors_of(&heads))
            }
            Self::Heads(heads) => raw::write(file, &tensors_of(&heads)),
        }
    }
}
