//! Fresh parameters.

use attention::Float;
use nalgebra::DMatrix;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

/// Returns numbers drawn from a normal distribution.
pub fn normal<T: Float, R: Rng + ?Sized>(
    rows: usize,
    columns: usize,
    deviation: f64,
    rng: &mut R,
) -> DMatrix<T> {
    DMatrix::from_fn(rows, columns, |_, _| {
        let z: f64 = StandardNormal.sample(rng);
        nalgebra::convert(deviation * z)
    })
}
