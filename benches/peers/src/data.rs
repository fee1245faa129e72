//! The numbers that all peers are given.

use crate::question::Problem;
use crate::raw;
use anyhow::Result;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::StandardNormal;
use std::array;
use std::path::Path;

/// Draws the numbers of a problem: the same on every run.
fn draw(problem: Problem) -> [Vec<f32>; 4] {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    array::from_fn(|_| (0..problem.size()).map(|_| rng.sample(StandardNormal)).collect())
}

/// Writes the numbers of a problem.
///
/// # Errors
/// The file cannot be written.
pub fn write(problem: Problem, file: &Path) -> Result<()> {
    raw::write(file, &draw(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_numbers_come_every_time_and_no_tensor_repeats_another() {
        let problem = Problem { n: 40, heads: 2, d: 50 };
        let tensors = draw(problem);
        assert_eq!(tensors, draw(problem));
        assert_eq!(tensors.each_ref().map(Vec::len), [4000; 4]);
        assert!(tensors[0] != tensors[1] && tensors[1] != tensors[2]);
        let mean_square = tensors[0].iter().map(|x| x * x).sum::<f32>() / 4000.0;
        assert!((mean_square - 1.0).abs() < 0.1, "{mean_square}");
    }
}
