//! Random matrices.

use nalgebra::DMatrix;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Independent entries with mean 0 and variance 1, from a normal distribution.
pub fn normal(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}

/// Independent entries between −1 and 1, each as likely as any other.
pub fn uniform(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
}
