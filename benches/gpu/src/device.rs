//! This crate's kernels on a device: what they compute is checked before they are timed.

use crate::expected::{Forward, Inputs, difference, pick, rows, tolerance};
use crate::grid::{Cell, NUMBERS, Pass};
use anyhow::{Context, Result, anyhow, ensure};
use attention::cuda::{Error, Gpu, Kernel, Precision, Program, Shape, Tensors};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::StandardNormal;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::time::Duration;

/// A kernel that is ready: launches it that often to warm up, then that often on the clock, and returns the seconds of each of
/// the latter.
pub type Timed = Box<dyn FnMut(usize, usize) -> Result<Vec<f64>>>;

/// What our kernels run on.
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
    pub gpu: Gpu,
    /// q, k, v and the gradient of the output.
    numbers: [Vec<f32>; 4],
}

impl OwnKernels {
    /// # Errors
    /// There is no GPU, or not what it takes to use it.
    pub fn open() -> Result<Self> {
        let gpu = Gpu::open()?;
        let draw = |seed| {
            let rng = ChaCha8Rng::seed_from_u64(seed);
            rng.sample_iter::<f32, _>(StandardNormal).take(NUMBERS).collect()
        };
        let numbers: Vec<Vec<f32>> = (0..4u64).into_par_iter().map(draw).collect();
        let numbers =
            numbers.try_into().map_err(|_| anyhow!("four tensors were drawn"))?;
        Ok(Self { gpu, numbers })
    }

    fn inputs(&self, precision: Precision) -> Inputs<'_> {
        let [q, k, v, _] = &self.numbers;
        Inputs { q, k, v, precision }
    }

    /// Queries, keys and values on the device, with a kernel that has run on them and computed what it should.
    fn forward(&self, kernel: Kernel, shape: Shape) -> Result<Tensors> {
        let [q, k, v, _] = &self.numbers;
        let mut tensors = self.gpu.tensors(kernel, shape, q, k, v)?;
        tensors.poison()?;
        tensors.launch()?;
        let (output, lse) = (tensors.output()?, tensors.lse()?);
        let precision = kernel.source().precision;
        let rows = rows(shape, shape.n_q as u64);
        let expected = self.inputs(precision).forward(shape, &rows);
        for (name, found, width, expected) in [
            ("the output", &output, shape.d, &expected.0),
            ("the log-sum-exps", &lse, 1, &expected.1),
        ] {
            let picked = pick(found, width, &rows);
            check(name, is_finite(found), &picked, expected, precision)?;
        }
        Ok(tensors)
    }

    /// The same for the backward pass, after the fastest forward kernel that goes with it.
    fn backward(&self, shape: Shape) -> Result<Tensors> {
        let precision = Program::Backward.source().precision;
        let goes_with = |kernel: &Kernel| {
            kernel.source().precision == precision
                && kernel.source().widths.contains(&shape.d)
        };
        let mut forward = None;
        for kernel in Kernel::ALL.into_iter().rev().filter(goes_with) {
            match self.forward(kernel, shape) {
                Ok(tensors) => forward = Some(tensors),
                Err(error) if is_refusal(&error) => continue, // an older one may run here
                Err(error) => return Err(error.context(format!("{kernel}, before it"))),
            }
            break;
        }
        let forward = forward.context("no forward kernel goes with it")?;
        let (output, lse) = (forward.output()?, forward.lse()?);
        let d_output = &self.numbers[3];
        let mut tensors = self.gpu.backward_tensors(forward, d_output)?;
        tensors.poison()?;
        tensors.launch()?;
        let gradients = tensors.gradients()?;
        let before = Forward { output: &output, lse: &lse, d_output };
        let rows = rows(shape, shape.n_q as u64);
        let expected = self.inputs(precision).backward(shape, &rows, before);
        for ((name, gradient), expected) in
            ["∂q", "∂k", "∂v"].into_iter().zip(&gradients).zip(&expected)
        {
            let found = pick(gradient, shape.d, &rows);
            check(name, is_finite(gradient), &found, expected, precision)?;
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
        let (needed, free) = (shape.bytes(program), self.gpu.free_memory()?);
        let writes_scores = program == Program::Forward(Kernel::Naive);
        if writes_scores && needed > free / 3 {
            return Ok(Err(format!(
                "it takes {:.1} GiB, more than a third of the {:.1} that are free",
                crate::gibibytes(needed),
                crate::gibibytes(free)
            )));
        }
        let prepared = match program {
            Program::Forward(kernel) => self.forward(kernel, shape),
            Program::Backward => self.backward(shape),
        };
        debug_assert_eq!(cell.pass == Pass::Backward, program == Program::Backward);
        match prepared {
            Ok(mut tensors) => Ok(Ok(Box::new(move |warm_up, launches| {
                let times = tensors.time(warm_up, launches)?;
                Ok(times.iter().map(Duration::as_secs_f64).collect())
            }))),
            Err(error) if is_refusal(&error) => Ok(Err(format!("{error:#}"))),
            Err(error) => Err(error),
        }
    }

    fn copy_bandwidth(&mut self) -> Result<f64> {
        Ok(self.gpu.copy_bandwidth()?)
    }
}

/// Whether the device is too old, or too small, rather than something being wrong.
fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            Error::Capability { .. }
                | Error::Memory { .. }
                | Error::OutOfMemory { .. }
                | Error::SharedMemory { .. }
        )
    )
}

fn is_finite(tensor: &[f32]) -> bool {
    tensor.iter().all(|x| x.is_finite())
}

/// That a tensor is what was expected.
fn check(
    name: &str,
    is_whole: bool,
    found: &[f64],
    expected: &[f64],
    precision: Precision,
) -> Result<()> {
    let (off, most) = (difference(found, expected), tolerance(precision));
    ensure!(
        off < most, // and not NaN
        "{name} is off by {off:.1e} of its norm, where {most:.0e} is allowed"
    );
    ensure!(is_whole, "{name} has entries that are infinite, or were never written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_figures() {
        let error = |found: &[f64], is_whole| {
            check("the output", is_whole, found, &[3.0, 4.0], Precision::F32)
                .map_err(|e| e.to_string())
        };
        assert_eq!(error(&[3.0, 4.00001], true), Ok(()));
        let off = "the output is off by 2.0e-1 of its norm, where 1e-5 is allowed";
        assert_eq!(error(&[3.0, 5.0], true), Err(off.to_owned()));
        let poisoned = error(&[f64::NAN, 4.0], false).unwrap_err();
        assert!(poisoned.contains("off by NaN"), "{poisoned}");
        let elsewhere = error(&[3.0, 4.0], false).unwrap_err();
        assert!(elsewhere.contains("never written"), "{elsewhere}");
    }

    #[test]
    fn what_a_device_cannot_do_is_no_fault() {
        let tried = "allocate device memory".to_owned();
        for refused in
            [Error::Memory { needed: 2, free: 1 }, Error::OutOfMemory { tried }]
        {
            assert!(is_refusal(&refused.into()));
        }
        assert!(!is_refusal(&Error::NoDriver.into()));
        assert!(!is_refusal(&anyhow!("the output is off")));
    }
}
