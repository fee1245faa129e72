//! Random matrices.

use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Independent entries with mean 0 and variance 1, from a normal distribution.
pub fn normal(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}
