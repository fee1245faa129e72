//! The input of a kernel, and the result of the equations.

use super::{Choices, Failure, OnCpu, Sizes};
use crate::{Precision, is_backward};
use attention::cuda::Program;
use attention::{Mask, attention, attention_backward};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::StandardNormal;

/// Queries, keys, values, and the gradient of the output, (heads, n, d), rounded to what the kernel reads.
pub struct Data {
    /// Heads, queries and keys.
    pub sizes: Sizes,
    /// The width of a head.
    pub d: usize,
    tensors: [Vec<f32>; 4],
}

/// Everything that can be asked of attention, (heads, n, …).
#[derive(Default)]
struct Answer {
    output: Vec<f64>,
    log_sum_exp: Vec<f64>,
    gradients: [Vec<f64>; 3],
}

impl Data {
    /// Returns random numbers, the same each time.
    pub fn new(sizes: Sizes, d: usize, precision: Precision) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut tensor = |n: usize, size: f32| -> Vec<f32> {
            let mut entry =
                || precision.round(size * rng.sample::<f32, _>(StandardNormal));
            (0..sizes.heads * n * d).map(|_| entry()).collect()
        };
        let Sizes { n_q, n_k, .. } = sizes;
        // Scores of a few times their usual size: rows that are nearly decided, and some that are not.
        let tensors =
            [tensor(n_q, 2.0), tensor(n_k, 2.0), tensor(n_k, 1.0), tensor(n_q, 1.0)];
        Data { sizes, d, tensors }
    }

    fn inputs(&self) -> [&[f32]; 3] {
        [0, 1, 2].map(|i| self.tensors[i].as_slice())
    }

    /// By the equations, in `f64`, head by head.
    fn naive(&self, causal: bool) -> Answer {
        let mask = if causal { Mask::causal() } else { Mask::none() };
        let mut answer = Answer::default();
        for h in 0..self.sizes.heads {
            let head = |tensor: &Vec<f32>| {
                let entries = tensor.len() / self.sizes.heads;
                let numbers =
                    tensor[h * entries..][..entries].iter().map(|&x| f64::from(x));
                DMatrix::from_row_iterator(entries / self.d, self.d, numbers)
            };
            let [q, k, v, d_output] = [0, 1, 2, 3].map(|i| head(&self.tensors[i]));
            let of_right_shapes = "the sizes belong together";
            let (output, cache) = attention(&q, &k, &v, &mask).expect(of_right_shapes);
            let gradients = attention_backward(&cache, &d_output).expect(of_right_shapes);
            answer.output.extend(output.transpose().iter());
            answer.log_sum_exp.extend(cache.log_sum_exp.iter());
            let [q, k, v] = [gradients.q, gradients.k, gradients.v];
            for (all, one) in answer.gradients.iter_mut().zip([q, k, v]) {
                all.extend(one.transpose().iter());
            }
        }
        answer
    }

    /// Returns ‖given − right‖ / ‖right‖ of each result, and the largest absolute error of the log-sum-exp.
    ///
    /// # Errors
    /// The kernel has no result.
    pub fn errors(
        &self,
        on_cpu: &OnCpu,
        program: Program,
        causal: bool,
        choices: Choices,
    ) -> Result<Vec<f64>, Failure> {
        let right = self.naive(causal);
        if is_backward(program) {
            let [output, lse] = [&right.output, &right.log_sum_exp].map(|x| narrow(x));
            let [q, k, v] = self.inputs();
            let arguments = [q, k, v, &output, &self.tensors[3], &lse];
            let gradients = on_cpu.backward(self.sizes, arguments, choices)?;
            return Ok(gradients
                .iter()
                .zip(&right.gradients)
                .map(|(g, r)| relative(g, r, &self.tensors[3]))
                .collect());
        }
        let (output, lse) = on_cpu.forward(self.sizes, self.inputs(), choices)?;
        let off = lse.iter().zip(&right.log_sum_exp).map(|(&given, &right)| {
            if f64::from(given) == right { 0.0 } else { (f64::from(given) - right).abs() }
        });
        Ok(vec![relative(&output, &right.output, &self.tensors[2]), off.fold(0.0, worse)])
    }
}

fn narrow(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&x| x as f32).collect()
}

/// ‖given − right‖ / ‖right‖; NaN stays NaN. Where nothing is to come out, as of one key, whose weight is 1 whatever its
/// score, what does come out is rounding of sums of the size of `summed`.
fn relative(given: &[f32], right: &[f64], summed: &[f32]) -> f64 {
    assert_eq!(given.len(), right.len());
    let norm = |numbers: &mut dyn Iterator<Item = f64>| {
        numbers.map(|x| x * x).sum::<f64>().sqrt()
    };
    let off = norm(&mut given.iter().zip(right).map(|(&g, r)| f64::from(g) - r));
    let (size, summed) = (
        norm(&mut right.iter().copied()),
        norm(&mut summed.iter().map(|&x| f64::from(x))),
    );
    off / if size > 1e-9 * summed { size } else { summed }
}

/// The larger, where NaN is the largest of all.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Returns the largest error that is allowed: rounding of the numbers, times what a sum of some hundreds of them makes of it.
pub fn bound(program: Program) -> f64 {
    match Precision::of(program) {
        Precision::F32 => 1e-5,
        Precision::Bf16 => 1e-2,
    }
}
