//! This crate's kernels on a device: what they compute is checked before they are timed.

use crate::expected::{Forward, Inputs, difference, pick, rows, tolerance};
use crate::grid::{Cell, NUMBERS, Pass};
use anyhow::{Context, Result, ensure};
use attention::cuda::{Error, Gpu, NAIVE, Program, Shape, TILED, Tensor, Tensors};
use gpu::clock::{bytes, copy_bandwidth, free_memory, poisoned, time};
use gpu::{D_K, D_OUTPUT, D_Q, D_V, DECODE, Paged, Precision, TENSOR_CORES};
use itertools::izip;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::StandardNormal;
use std::rc::Rc;
use std::time::Duration;

/// A kernel that is ready: launches all of its functions, or one alone, that often to warm up, then that often on the clock, and
/// returns the seconds of each of the latter.
pub type Timed = Box<dyn FnMut(Option<&str>, usize, usize) -> Result<Vec<f64>>>;

/// A device for our kernels.
pub trait Device {
    /// Checks what a kernel computes in this cell, and makes it ready; or tells why it takes no part.
    ///
    /// # Errors
    /// It computes something else than it should, or fails.
    fn prepare(&mut self, program: Program, cell: &Cell)
    -> Result<Result<Timed, String>>;

    /// The bytes in a second of a copy from the device to itself, read and written.
    ///
    /// # Errors
    /// There is no memory for it, or the copy fails.
    fn copy_bandwidth(&mut self) -> Result<f64>;
}

/// A GPU, and numbers for it.
pub struct OwnKernels {
    pub gpu: Rc<Gpu>,
    /// q, k, v and the gradient of the output.
    numbers: [Vec<f32>; 4],
}

impl OwnKernels {
    /// # Errors
    /// There is no GPU, or not what it takes to use it.
    pub fn open() -> Result<Self> {
        let gpu = Rc::new(Gpu::open()?);
        let draw = |seed| {
            let rng = ChaCha8Rng::seed_from_u64(seed);
            rng.sample_iter::<f32, _>(StandardNormal).take(NUMBERS).collect()
        };
        Ok(Self { gpu, numbers: [0, 1, 2, 3].map(draw) })
    }

    fn inputs(&self, precision: Precision) -> Inputs<'_> {
        let [q, k, v, _] = &self.numbers;
        Inputs { q, k, v, precision }
    }

    /// The tensors of a program on the device: these inputs, queries, keys and values, and NaN in all that it writes.
    fn tensors(
        &self,
        program: Program,
        shape: Shape,
        others: &[(Tensor, &[f32])],
    ) -> Result<Tensors> {
        let [q, k, v, _] = &self.numbers;
        let own = [(Tensor::Q, &q[..]), (Tensor::K, k), (Tensor::V, v)];
        Ok(poisoned(&self.gpu, program, shape, &[&own, others].concat())?)
    }

    /// The tensors of a forward kernel that has run on them and computed what it should.
    fn forward(&self, kernel: Program, shape: Shape) -> Result<Tensors> {
        let tensors = self.tensors(kernel, shape, &[])?;
        checked(tensors, self.inputs(Precision::of(kernel)), shape)
    }

    /// The same for a step of decoding, whose keys and values are these numbers again and again.
    fn decoding(&self, shape: Shape) -> Result<Tensors> {
        let precision = Precision::of(DECODE);
        let count = shape.kv_heads * shape.n_k * shape.d;
        let [k, v] = [1, 2].map(|i| {
            let numbers = self.numbers[i].iter().copied();
            numbers.cycle().take(count).collect::<Vec<_>>()
        });
        let q = &self.numbers[0][..shape.heads * shape.n_q * shape.d];
        let paged = Paged::new(&k, &v, shape);
        let all = [&[(Tensor::Q, q)], &paged.inputs()[..]].concat();
        let tensors = poisoned(&self.gpu, DECODE, shape, &all)?;
        checked(tensors, Inputs { q, k: &k, v: &v, precision }, shape)
    }

    /// The same for the backward pass, after a forward kernel that runs wherever it does.
    fn backward(&self, program: Program, shape: Shape) -> Result<Tensors> {
        let precision = Precision::of(program);
        let before = match precision {
            Precision::F32 => TILED,
            Precision::Bf16 => TENSOR_CORES,
        };
        let forward = self.forward(before, shape);
        let forward = forward.with_context(|| format!("{before}, before it"))?;
        let (output, lse) = (forward.read(Tensor::OUTPUT)?, forward.read(Tensor::LSE)?);
        drop(forward); // its memory is needed
        let d_output = &self.numbers[3];
        let others =
            [(Tensor::OUTPUT, &output[..]), (Tensor::LSE, &lse), (D_OUTPUT, d_output)];
        let mut tensors = self.tensors(program, shape, &others)?;
        tensors.launch()?;
        let before = Forward { output: &output, lse: &lse, d_output };
        let rows = rows(shape, shape.n_q as u64);
        let expected = self.inputs(precision).backward(shape, &rows, before);
        for (name, gradient, expected) in
            izip!(["∂q", "∂k", "∂v"], [D_Q, D_K, D_V], &expected)
        {
            let gradient = tensors.read(gradient)?;
            check(name, &gradient, shape.d, &rows, expected, precision)?;
        }
        Ok(tensors)
    }
}

impl Device for OwnKernels {
    fn prepare(
        &mut self,
        program: Program,
        cell: &Cell,
    ) -> Result<Result<Timed, String>> {
        let shape = cell.shape;
        let (needed, free) = (bytes(program, shape), free_memory(&self.gpu)?);
        let writes_scores = program == NAIVE;
        if writes_scores && needed > free / 3 {
            return Ok(Err(format!(
                "it takes {:.1} GiB, more than a third of the {:.1} that are free",
                crate::gibibytes(needed),
                crate::gibibytes(free)
            )));
        }
        let prepared = match cell.pass {
            Pass::Forward => self.forward(program, shape),
            Pass::Backward => self.backward(program, shape),
            Pass::Decoding => self.decoding(shape),
        };
        let gpu = self.gpu.clone();
        match prepared {
            Ok(mut tensors) => Ok(Ok(Box::new(move |function, warm_up, launches| {
                let times = time(&gpu, warm_up, launches, || match function {
                    Some(name) => tensors.launch_function(name),
                    None => tensors.launch(),
                })?;
                Ok(times.iter().map(Duration::as_secs_f64).collect())
            }))),
            Err(error) if is_refusal(&error) => Ok(Err(format!("{error:#}"))),
            Err(error) => Err(error),
        }
    }

    fn copy_bandwidth(&mut self) -> Result<f64> {
        Ok(copy_bandwidth(&self.gpu)?)
    }
}

/// Runs a forward kernel, and returns its tensors if it computed what it should.
fn checked(mut tensors: Tensors, inputs: Inputs, shape: Shape) -> Result<Tensors> {
    tensors.launch()?;
    let (output, lse) = (tensors.read(Tensor::OUTPUT)?, tensors.read(Tensor::LSE)?);
    let rows = rows(shape, shape.n_k as u64);
    let expected = inputs.forward(shape, &rows);
    check("the output", &output, shape.d, &rows, &expected.0, inputs.precision)?;
    check("the log-sum-exps", &lse, 1, &rows, &expected.1, inputs.precision)?;
    Ok(tensors)
}

/// Returns `true` if the device is too old or too small, and nothing is wrong.
fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Device(_)))
}

/// That these rows of a tensor are what was expected, and that all of it is finite.
fn check(
    name: &str,
    tensor: &[f32],
    width: usize,
    rows: &[usize],
    expected: &[f64],
    precision: Precision,
) -> Result<()> {
    let off = difference(&pick(tensor, width, rows), expected);
    let most = tolerance(precision);
    ensure!(
        off < most, // and not NaN
        "{name} is off by {off:.1e} of its norm, where {most:.0e} is allowed"
    );
    ensure!(
        tensor.iter().all(|x| x.is_finite()),
        "{name} has entries that are infinite, or were never written"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_figures() {
        let error = |tensor: &[f32]| {
            check("the output", tensor, 2, &[1], &[3.0, 4.0], Precision::F32)
                .map_err(|e| e.to_string())
        };
        assert_eq!(error(&[0.0, 0.0, 3.0, 4.00001]), Ok(()));
        let off = "the output is off by 2.0e-1 of its norm, where 1e-5 is allowed";
        assert_eq!(error(&[0.0, 0.0, 3.0, 5.0]), Err(off.to_owned()));
        let poisoned = error(&[0.0, 0.0, f32::NAN, 4.0]).unwrap_err();
        assert!(poisoned.contains("off by NaN"), "{poisoned}");
        let elsewhere = error(&[0.0, f32::NAN, 3.0, 4.0]).unwrap_err();
        assert!(elsewhere.contains("never written"), "{elsewhere}");
    }

    #[test]
    fn what_a_device_cannot_do_is_no_fault() {
        assert!(is_refusal(&Error::Device("out of memory".to_owned()).into()));
        assert!(!is_refusal(&Error::Missing("no driver".to_owned()).into()));
        assert!(!is_refusal(&anyhow::anyhow!("the output is off")));
    }
}
