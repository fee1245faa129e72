//! Checks that the peers compute the same.

use crate::grid::Cell;
use crate::question::Kernel;
use crate::raw;
use anyhow::{Result, ensure};
use itertools::izip;
use std::path::Path;

/// The results of a peer: tensors, in the order of [`Pass::results`](crate::question::Pass::results).
pub type Results = Vec<Vec<f32>>;

/// The largest error that is allowed, as a part of the largest entry.
const TOLERANCE: f64 = 1e-5;

/// Returns the results that a peer left in a file.
///
/// # Errors
/// The file cannot be read, or has another size.
pub fn read(Cell { problem, pass, .. }: &Cell, file: &Path) -> Result<Results> {
    raw::read(file, pass.results().len(), problem.size())
}

/// The largest difference of any tensor, as a part of the largest entry of that tensor.
///
/// # Errors
/// It is beyond the tolerance; the message names the peer, the cell and the difference.
pub fn compare(
    cell: &Cell,
    kernel: Kernel,
    found: &Results,
    expected: &Results,
) -> Result<f64> {
    let mut worst = 0.0_f64;
    for (name, found, expected) in izip!(cell.pass.results(), found, expected) {
        let difference = difference(found, expected);
        ensure!(
            difference <= TOLERANCE,
            "{kernel} computes something else: {cell}: {name} is off by {difference:.1e} of its largest entry, \
             where {TOLERANCE:.0e} is allowed"
        );
        worst = worst.max(difference);
    }
    Ok(worst)
}

/// The largest difference, as a part of the largest expected entry. NaN is as far away as can be.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let pairs = found.iter().zip(expected);
    let differences = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    let far = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
    differences.map(far).fold(0.0, f64::max) / f64::from(largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::cell;
    use crate::question::{Mask, Pass};

    #[test]
    fn differences_are_parts_of_the_largest_entry() {
        assert_eq!(difference(&[1.0, -3.5], &[1.0, -4.0]), 0.125);
        assert_eq!(difference(&[f32::NAN, 1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0, f32::NAN, 1.0], &[1.0, 1.0, 1.0]), f64::INFINITY);
    }

    #[test]
    fn a_peer_that_computes_something_else_is_named_with_cell_and_difference() {
        let cell = cell(256, Mask::Causal, Pass::Forward);
        let expected = vec![vec![1.0, 2.0]];
        let close = vec![vec![1.0, 2.0 + 1e-6]];
        let far = vec![vec![1.0, 2.0 + 1e-3]];
        assert!(compare(&cell, Kernel::Numpy, &close, &expected).unwrap() < 1e-6);
        let error =
            compare(&cell, Kernel::Numpy, &far, &expected).unwrap_err().to_string();
        assert_eq!(
            error,
            "numpy computes something else: n = 256, d = 64, causal, forward, 1 thread: the output is off by 5.0e-4 \
             of its largest entry, where 1e-5 is allowed"
        );
    }
}
