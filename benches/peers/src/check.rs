//! Checks that the peers compute the same: against this crate's written-out path in f64, or against one another.

use crate::data;
use crate::grid::Cell;
use crate::own_peer::{heads, tensors_of, written};
use crate::question::{Kernel, Kind, Task};
use crate::raw;
use anyhow::{Result, ensure};
use itertools::izip;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::path::Path;

/// The longest sequence for which there is a reference in f64. Beyond, peers are compared with this crate's fast path,
/// which was compared with the reference on shorter ones.
pub const REFERENCE_UP_TO: usize = 1024;

/// The results of a peer: tensors, in the order of [`Problem::results`].
pub type Results = Vec<Vec<f64>>;

/// The largest error that is allowed, as a part of the largest entry.
pub fn tolerance(kind: Kind) -> f64 {
    match kind {
        Kind::Attention => 1e-5, // f32
        Kind::Layer => 1e-12,    // f64
    }
}

/// Returns the expected results of a cell, in f64, if it is one of attention and short enough.
///
/// # Errors
/// The crate refuses to compute it.
pub fn reference(cell: &Cell) -> Result<Option<Results>> {
    let Cell { problem, mask, pass, .. } = *cell;
    if problem.kind != Kind::Attention || problem.n > REFERENCE_UP_TO {
        return Ok(None);
    }
    let task = Task { kernel: Kernel::Naive, mask, pass };
    let rounded = |x: &f64| f64::from(*x as f32); // what the peers were given
    let tensors = data::draw(problem).into_iter();
    let inputs: Vec<_> = tensors
        .map(|tensor| heads(problem, &tensor.iter().map(rounded).collect::<Vec<_>>()))
        .collect();
    let by_head: Vec<_> = (0..problem.heads)
        .into_par_iter()
        .map(|h| written(&[0, 1, 2, 3].map(|i: usize| inputs[i][h].clone()), task))
        .collect::<Result<_>>()?;
    Ok(Some(tensors_of(&by_head)))
}

/// Returns the results that a peer left in a file.
///
/// # Errors
/// The file cannot be read, or has another size.
pub fn read(Cell { problem, pass, .. }: &Cell, file: &Path) -> Result<Results> {
    let sizes: Vec<_> = problem.results(*pass).iter().map(|(_, size)| *size).collect();
    Ok(match problem.kind {
        Kind::Layer => raw::read::<f64>(file, &sizes)?,
        Kind::Attention => {
            let tensors = raw::read::<f32>(file, &sizes)?.into_iter();
            tensors.map(|tensor| tensor.into_iter().map(f64::from).collect()).collect()
        }
    })
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
    let names = cell.problem.results(cell.pass);
    for ((name, _), found, expected) in izip!(names, found, expected) {
        let difference = difference(found, expected);
        let tolerance = tolerance(cell.problem.kind);
        ensure!(
            difference <= tolerance,
            "{kernel} computes something else: {cell}: {name} is off by {difference:.1e} of its largest entry, \
             where {tolerance:.0e} is allowed"
        );
        worst = worst.max(difference);
    }
    Ok(worst)
}

/// The largest difference, as a part of the largest expected entry. NaN is as far away as can be.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    let far = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
    differences.map(far).fold(0.0, f64::max) / largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::tests::cell;
    use crate::question::{Mask, Pass, Problem};

    #[test]
    fn differences_are_parts_of_the_largest_entry() {
        assert_eq!(difference(&[1.0, -3.5], &[1.0, -4.0]), 0.125);
        assert_eq!(difference(&[f64::NAN, 1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0, f64::NAN, 1.0], &[1.0, 1.0, 1.0]), f64::INFINITY);
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

    /// The reference is attention: one query that sees one key takes its value.
    #[test]
    fn the_reference_is_attention_with_its_gradients() {
        let problem = Problem { kind: Kind::Attention, n: 3, heads: 2, d: 4 };
        let values = data::draw(problem).remove(2);
        let cell = Cell { problem, ..cell(3, Mask::Causal, Pass::ForwardBackward) };
        let reference = reference(&cell).unwrap().unwrap();
        let sizes: Vec<_> = reference.iter().map(Vec::len).collect();
        assert_eq!(sizes, [24; 4]); // the output, ∂q, ∂k, ∂v
        for head in 0..2 {
            for column in 0..4 {
                let at = head * 12 + column; // the first token of the head
                assert!((reference[0][at] - values[at]).abs() < 1e-6);
            }
        }
    }
}
