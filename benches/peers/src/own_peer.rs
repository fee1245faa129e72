//! This crate as a peer: its fast attention, its attention as the equations write it, and the layer on that.

use anyhow::{Result, bail, ensure};
use attention::flash::{Flash, Inputs, Instructions};
use attention::{
    AttentionGradients, Float, Mask as Visible, MultiHeadAttention, Parameters,
    attention, attention_backward,
};
use nalgebra::{DMatrix, RowDVector};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::path::Path;
use worker::{Kernel, Kind, Mask, Pass, Peer, Problem, Task};

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
    worker::serve(&mut OwnPeer(flash), threads)
}

struct OwnPeer(Flash);

enum Loaded {
    Attention(Box<Attention>),
    Layer(Box<Layer>),
}

struct Attention {
    problem: Problem,
    /// q, k, v and the gradient of the output: (n, h · d), as the fast path takes them.
    joined: [DMatrix<f32>; 4],
    /// The same by heads: h times (n, d), as the written-out path takes them.
    heads: Vec<[DMatrix<f32>; 4]>,
}

struct Layer {
    layer: MultiHeadAttention<f64>,
    x: DMatrix<f64>,
    grad_output: DMatrix<f64>,
}

/// The computed matrices, one after the other.
pub enum Results {
    /// Each (n, h · d).
    Joined(Problem, Vec<DMatrix<f32>>),
    /// Head by head: each (n, d).
    Heads(Vec<Vec<DMatrix<f32>>>),
    Layer(Vec<DMatrix<f64>>),
}

fn visible(mask: Mask) -> Visible {
    match mask {
        Mask::Full => Visible::none(),
        Mask::Causal => Visible::causal(),
    }
}

/// The heads of a tensor (h, n, d) that lies in memory row by row: h times (n, d).
pub fn heads<T: Float>(problem: Problem, tensor: &[T]) -> Vec<DMatrix<T>> {
    let Problem { n, d, .. } = problem;
    tensor.chunks(n * d).map(|head| DMatrix::from_row_slice(n, d, head)).collect()
}

/// The tensors (h, n, d), row by row as NumPy has them, of what was computed head by head.
pub fn tensors_of<T: Float>(heads: &[Vec<DMatrix<T>>]) -> Vec<Vec<T>> {
    let row_major = |matrix: &DMatrix<T>| matrix.transpose().as_slice().to_vec();
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
pub fn written<T: Float>(
    [q, k, v, grad_output]: &[DMatrix<T>; 4],
    task: Task,
) -> Result<Vec<DMatrix<T>>> {
    let (output, cache) = attention(q, k, v, visible(task.mask))?;
    if task.pass == Pass::Forward {
        return Ok(vec![output]);
    }
    let AttentionGradients { q, k, v } = attention_backward(&cache, grad_output)?;
    Ok(vec![output, q, k, v])
}

impl Attention {
    fn new(problem: Problem, file: &Path) -> Result<Self> {
        let tensors = worker::read::<f32>(file, &problem.inputs())?;
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

    /// The fast path, on heads side by side.
    fn flash(&self, task: Task, flash: &Flash) -> Result<Vec<DMatrix<f32>>> {
        let [q, k, v, grad_output] = &self.joined;
        let inputs = Inputs::new(q, k, v, visible(task.mask))?;
        let inputs = inputs.with_heads(self.problem.heads)?;
        let forward = flash.forward(&inputs);
        if task.pass == Pass::Forward {
            return Ok(vec![forward.output]);
        }
        let AttentionGradients { q, k, v } =
            flash.backward(&inputs, &forward, grad_output)?;
        Ok(vec![forward.output, q, k, v])
    }
}

impl Layer {
    fn new(problem: Problem, file: &Path) -> Result<Self> {
        let (n, width) = (problem.n, problem.heads * problem.d);
        let tensors = worker::read::<f64>(file, &problem.inputs())?;
        let matrix = |i: usize, rows| DMatrix::from_row_slice(rows, width, &tensors[i]);
        let bias = |i: usize| RowDVector::from_row_slice(&tensors[i]);
        let parameters = Parameters {
            w_q: matrix(2, width),
            w_k: matrix(3, width),
            w_v: matrix(4, width),
            w_o: matrix(5, width),
            b_q: bias(6),
            b_k: bias(7),
            b_v: bias(8),
            b_o: bias(9),
        };
        let layer = MultiHeadAttention::from_parameters(parameters, problem.heads)?;
        Ok(Self { layer, x: matrix(0, n), grad_output: matrix(1, n) })
    }

    fn compute(&self, task: Task) -> Result<Vec<DMatrix<f64>>> {
        let (output, cache) = self.layer.forward(&self.x, visible(task.mask))?;
        if task.pass == Pass::Forward {
            return Ok(vec![output]);
        }
        let gradients = self.layer.backward(&cache, &self.grad_output)?;
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = gradients.parameters;
        let biases = [b_q, b_k, b_v, b_o].map(|bias| bias.as_slice().to_vec()).concat();
        let biases = DMatrix::from_row_slice(1, biases.len(), &biases);
        Ok(vec![output, gradients.x, w_q, w_k, w_v, w_o, biases])
    }
}

impl Peer for OwnPeer {
    type Loaded = Loaded;
    type Results = Results;

    fn load(&self, problem: Problem, file: &Path) -> Result<Loaded> {
        Ok(match problem.kind {
            Kind::Attention => {
                Loaded::Attention(Box::new(Attention::new(problem, file)?))
            }
            Kind::Layer => Loaded::Layer(Box::new(Layer::new(problem, file)?)),
        })
    }

    fn compute(&mut self, loaded: &Loaded, task: Task) -> Result<Results> {
        match (loaded, task.kernel) {
            (Loaded::Attention(inputs), Kernel::Flash) => {
                Ok(Results::Joined(inputs.problem, inputs.flash(task, &self.0)?))
            }
            (Loaded::Attention(inputs), Kernel::Naive) => {
                let heads = inputs.heads.par_iter().map(|head| written(head, task));
                Ok(Results::Heads(heads.collect::<Result<_>>()?))
            }
            (Loaded::Layer(layer), Kernel::Naive) => {
                Ok(Results::Layer(layer.compute(task)?))
            }
            (_, other) => bail!("this crate does not know {other} here"),
        }
    }

    fn write(&self, results: Results, file: &Path) -> Result<()> {
        match results {
            Results::Joined(Problem { heads, d, .. }, joined) => {
                let head = |h: usize| -> Vec<_> {
                    joined.iter().map(|all| all.columns(h * d, d).into_owned()).collect()
                };
                let heads: Vec<_> = (0..heads).map(head).collect();
                worker::write(file, &tensors_of(&heads))
            }
            Results::Heads(heads) => worker::write(file, &tensors_of(&heads)),
            Results::Layer(matrices) => worker::write(file, &tensors_of(&[matrices])),
        }
    }
}
