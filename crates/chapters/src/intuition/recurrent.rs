//! The gradient's path: through a recurrent network, token by token, and through attention in one step.

use crate::random::normal;
use crate::records::log_log_slope;
use anyhow::{Result, ensure};
use attention::{Mask, SingleHeadAttention};
use nalgebra::{DMatrix, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rayon::prelude::*;
use record::statistics::geometric_mean;

/// A recurrent net as small as it can be: one vector `h` carries all that was read.
///
/// Shapes: `w_x` and `w_h` (d, d); a token and the state are rows (1, d).
struct TanhRnn {
    w_x: DMatrix<f64>,
    w_h: DMatrix<f64>,
}

impl TanhRnn {
    /// The states after each token of `x` (n, d): `h_t = tanh(x_t W_x + h_{t−1} W_h)`.
    fn states(&self, x: &DMatrix<f64>) -> Vec<RowDVector<f64>> {
        let mut states: Vec<RowDVector<f64>> = vec![];
        for x_t in x.row_iter() {
            let mut a = x_t * &self.w_x;
            if let Some(h) = states.last() {
                a += h * &self.w_h; // all that is known of the past
            }
            states.push(a.map(f64::tanh));
        }
        states
    }

    /// Returns the gradient at the first token, from that of the last state, `grad_h`.
    fn gradient_of_first_token(
        &self,
        x: &DMatrix<f64>,
        grad_h: &RowDVector<f64>,
    ) -> RowDVector<f64> {
        let mut grad_h = grad_h.clone();
        for (t, h) in self.states(x).iter().enumerate().rev() {
            // h = tanh(a), and tanh' = 1 − tanh²
            let grad_a = grad_h.component_mul(&h.map(|h| 1.0 - h * h));
            // a = x_t W_x + h_{t−1} W_h
            grad_h = if t == 0 {
                grad_a * self.w_x.transpose()
            } else {
                grad_a * self.w_h.transpose()
            };
        }
        grad_h
    }
}

/// Width of both networks.
pub const WIDTH: usize = 64;
/// The number of networks over which a mean is taken.
pub const DRAWS: u64 = 40;
/// The number of tokens that the gradient passes.
pub const LENGTHS: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

/// The norms of the gradient that reaches the first token from the last output, for each length.
pub type Norms = [f64; LENGTHS.len()];

/// Returns for each length the geometric mean over draws.
fn mean_norms(
    norm: impl Fn(usize, &mut ChaCha8Rng) -> Result<f64> + Sync,
) -> Result<Norms> {
    let mut means = Norms::default();
    for (mean, n) in means.iter_mut().zip(LENGTHS) {
        let norm = |seed| norm(n, &mut ChaCha8Rng::seed_from_u64(seed));
        let norms = (0..DRAWS).into_par_iter().map(norm).collect::<Result<Vec<_>>>()?;
        let have_logarithms = norms.iter().all(|norm| *norm > 0.0);
        ensure!(have_logarithms, "{n} tokens: a gradient of zero has no logarithm");
        *mean = geometric_mean(&norms);
    }
    Ok(means)
}

/// Through a recurrent network whose matrix of the state has entries with a standard deviation of `gain` / √d.
pub fn through_recurrence(gain: f64) -> Result<Norms> {
    let deviation = 1.0 / (WIDTH as f64).sqrt();
    mean_norms(|n, rng| {
        let rnn = TanhRnn {
            w_x: normal(WIDTH, WIDTH, rng) * deviation,
            w_h: normal(WIDTH, WIDTH, rng) * (gain * deviation),
        };
        let grad_h = (normal(1, WIDTH, rng) * deviation).row(0).into_owned();
        let x = normal(n, WIDTH, rng);
        Ok(rnn.gradient_of_first_token(&x, &grad_h).norm())
    })
}

/// Through a layer of causal attention.
pub fn through_attention() -> Result<Norms> {
    mean_norms(|n, rng| {
        let layer = SingleHeadAttention::xavier(WIDTH, WIDTH, WIDTH, rng)?;
        let grad_last = normal(1, WIDTH, rng) / (WIDTH as f64).sqrt();
        let x = normal(n, WIDTH, rng);
        let (_, cache) = layer.forward(&x, Mask::causal())?;
        let mut grad_output = DMatrix::zeros(n, WIDTH);
        grad_output.row_mut(n - 1).copy_from(&grad_last);
        Ok(layer.backward(&cache, &grad_output)?.x.row(0).norm())
    })
}

/// The power of the length that the norms follow, without the first two, which are not yet on the straight line.
pub fn power(norms: &Norms) -> f64 {
    let points = LENGTHS.iter().map(|&n| n as f64).zip(norms.iter().copied());
    log_log_slope(&points.skip(2).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::gradient_check;

    #[test]
    fn the_recurrent_gradient_is_the_measured_one() {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let [w_x, w_h] = [(); 2].map(|()| normal(3, 3, rng) * 0.5);
        let rnn = TanhRnn { w_x, w_h };
        let (x, grad_h) = (normal(5, 3, rng), normal(1, 3, rng).row(0).into_owned());
        let first = x.rows(0, 1).into_owned();
        let analytic = DMatrix::from_rows(&[rnn.gradient_of_first_token(&x, &grad_h)]);
        let check = gradient_check(&first, &analytic, 1e-5, |first| {
            let mut x = x.clone();
            x.row_mut(0).copy_from(&first.row(0));
            Ok(rnn.states(&x)[4].dot(&grad_h))
        });
        assert!(check.unwrap().max_relative_error < 1e-7);
    }
}
