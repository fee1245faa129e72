//! The numbers that all peers are given.

use crate::question::{Kind, Problem};
use crate::raw;
use anyhow::Result;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::StandardNormal;
use std::path::Path;

/// Draws the numbers of a problem: the same on every run.
pub fn draw(problem: Problem) -> Vec<Vec<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let width = (problem.heads * problem.d) as f64;
    let sizes = problem.inputs().into_iter().enumerate();
    sizes
        .map(|(i, size)| {
            // The layer's parameters are such that what they project has a standard deviation near 1.
            let parameters = problem.kind == Kind::Layer && i >= 2;
            let deviation = if parameters { 1.0 / width.sqrt() } else { 1.0 };
            (0..size).map(|_| deviation * rng.sample::<f64, _>(StandardNormal)).collect()
        })
        .collect()
}

/// Writes the numbers of a problem, in the type in which it is computed.
///
/// # Errors
/// The file cannot be written.
pub fn write(problem: Problem, file: &Path) -> Result<()> {
    let tensors = draw(problem);
    match problem.kind {
        Kind::Layer => raw::write(file, &tensors),
        Kind::Attention => {
            let short = |tensor: &Vec<f64>| tensor.iter().map(|x| *x as f32).collect();
            raw::write(file, &tensors.iter().map(short).collect::<Vec<Vec<f32>>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_numbers_come_every_time_and_no_tensor_repeats_another() {
        let problem = Problem { kind: Kind::Attention, n: 40, heads: 2, d: 50 };
        let tensors = draw(problem);
        assert_eq!(tensors, draw(problem));
        assert_eq!(tensors.iter().map(Vec::len).collect::<Vec<_>>(), problem.inputs());
        assert!(tensors[0] != tensors[1] && tensors[1] != tensors[2]);
        let mean_square = tensors[0].iter().map(|x| x * x).sum::<f64>() / 4000.0;
        assert!((mean_square - 1.0).abs() < 0.1, "{mean_square}");
    }
}
