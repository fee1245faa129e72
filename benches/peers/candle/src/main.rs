//! candle's attention as a peer, in a program of its own, so that its threads are its own.

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::ops::{softmax, softmax_last_dim};
use mimalloc::MiMalloc;
use std::path::Path;
use worker::{Kernel, Kind, Mask, Pass, Peer, Problem, Task, serve};

/// As this crate's process has it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().context("how many threads?")?.parse()?;
    // candle reads the number of its threads from the environment, once.
    let set = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    ensure!(set == Some(threads), "RAYON_NUM_THREADS is not {threads}");
    serve(&mut Candle, candle_core::utils::get_num_threads())
}

struct Candle;

/// A problem in the layouts that candle likes.
struct Loaded {
    /// For products: three times (1, h, n, d).
    by_heads: [Var; 3],
    /// For its flash attention: three times (1, n, h, d).
    by_tokens: [Tensor; 3],
    grad_output: Tensor, // (1, h, n, d)
    scale: f64,
    hidden: Tensor,         // (n, n), 1 where the causal mask hides
    minus_infinity: Tensor, // (1, h, n, n), without any memory of its own
}

impl Loaded {
    fn new(problem: Problem, file: &Path) -> Result<Self> {
        ensure!(problem.kind == Kind::Attention, "candle has no layer here");
        let Problem { n, heads, d, .. } = problem;
        let mut tensors = worker::read::<f32>(file, &problem.inputs())?.into_iter();
        let mut next = || -> Result<Tensor> {
            let numbers = tensors.next().context("the problem has too few tensors")?;
            Ok(Tensor::from_vec(numbers, (1, heads, n, d), &Device::Cpu)?)
        };
        let by_heads = [next()?, next()?, next()?];
        let grad_output = next()?;
        let by_tokens = |tensor: &Tensor| tensor.transpose(1, 2)?.contiguous();
        let [q, k, v] = &by_heads;
        Ok(Self {
            by_tokens: [by_tokens(q)?, by_tokens(k)?, by_tokens(v)?],
            by_heads: [Var::from_tensor(q)?, Var::from_tensor(k)?, Var::from_tensor(v)?],
            grad_output,
            scale: 1.0 / (d as f64).sqrt(),
            hidden: hidden(n)?,
            minus_infinity: Tensor::new(f32::NEG_INFINITY, &Device::Cpu)?
                .broadcast_as((1, heads, n, n))?,
        })
    }

    fn flash(&self, task: Task) -> Result<Vec<Tensor>> {
        ensure!(
            task.pass == Pass::Forward,
            "candle's flash attention has no backward pass"
        );
        let mask = match task.mask {
            Mask::Full => AttnMask::None,
            Mask::Causal => AttnMask::causal(),
        };
        let [q, k, v] = &self.by_tokens;
        Ok(vec![flash_attn::<f32>(q, k, v, self.scale as f32, mask, None, None)?])
    }

    /// Matmul, softmax, matmul. Only the slower one of candle's two softmaxes can be differentiated.
    fn written(&self, task: Task) -> Result<Vec<Tensor>> {
        let backward = task.pass == Pass::ForwardBackward;
        let [q, k, v] = self.by_heads.each_ref().map(|var| {
            if backward { var.as_tensor().clone() } else { var.as_tensor().detach() }
        });
        let scores = (q.matmul(&k.t()?)? * self.scale)?; // (1, h, n, n)
        let scores = match task.mask {
            Mask::Full => scores,
            Mask::Causal => self
                .hidden
                .broadcast_as(scores.shape())?
                .where_cond(&self.minus_infinity, &scores)?,
        };
        let weights =
            if backward { softmax(&scores, 3)? } else { softmax_last_dim(&scores)? };
        let output = weights.matmul(&v)?; // (1, h, n, d)
        if !backward {
            return Ok(vec![output]);
        }
        // candle's backward begins at a number: the one whose gradient with respect to the output is `grad_output`.
        let gradients = (&output * &self.grad_output)?.sum_all()?.backward()?;
        let mut results = vec![output];
        for var in &self.by_heads {
            results.push(gradients.get(var).context("candle gave no gradient")?.clone());
        }
        Ok(results)
    }
}

/// 1 where a query must not see a key: (n, n).
fn hidden(n: usize) -> Result<Tensor> {
    let positions = Tensor::arange(0_u32, u32::try_from(n)?, &Device::Cpu)?;
    let (queries, keys) = (positions.reshape((n, 1))?, positions.reshape((1, n))?);
    Ok(keys.broadcast_gt(&queries)?.to_dtype(DType::U8)?)
}

impl Peer for Candle {
    type Loaded = Loaded;
    type Results = Vec<Tensor>;

    fn load(&self, problem: Problem, file: &Path) -> Result<Loaded> {
        Loaded::new(problem, file)
    }

    fn compute(&mut self, loaded: &Loaded, task: Task) -> Result<Vec<Tensor>> {
        match task.kernel {
            Kernel::CandleFlash => loaded.flash(task),
            Kernel::CandleWritten => loaded.written(task),
            other => bail!("candle does not know {other}"),
        }
    }

    fn write(&self, results: Vec<Tensor>, file: &Path) -> Result<()> {
        let numbers = |tensor: &Tensor| tensor.flatten_all()?.to_vec1();
        let tensors: Vec<Vec<f32>> =
            results.iter().map(numbers).collect::<candle_core::Result<_>>()?;
        worker::write(file, &tensors)
    }
}
