//! The loss of a model that says what comes next.

use attention::{Result, log_sum_exp_rows, softmax_rows};
use fast::Float;
use nalgebra::DMatrix;

/// Returns the sum of −log p over the rows that have a target, where p is the probability that softmax of the row's scores gives its target;
/// and its gradient with respect to the scores, `p − onehot`.
///
/// Shapes: `scores` (n, vocabulary), `targets` n numbers below vocabulary, or none → gradient (n, vocabulary).
///
/// # Errors
/// `scores` is empty.
///
/// # Panics
/// There are not n targets, or one is not in the vocabulary.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let (loss, gradient) = model::cross_entropy(&dmatrix![0.0_f64, 0.0; 9.0, 1.0], &[Some(1), None])?;
/// assert!((loss - 2.0_f64.ln()).abs() < 1e-15);
/// assert_eq!(gradient, dmatrix![0.5, -0.5; 0.0, 0.0]);
/// # Ok::<(), attention::Error>(())
/// ```
// ANCHOR: cross_entropy
pub fn cross_entropy<T: Float>(
    scores: &DMatrix<T>,
    targets: &[Option<usize>],
) -> Result<(T, DMatrix<T>)> {
    assert_eq!(
        targets.len(),
        scores.nrows(),
        "a target, or none, for each row of scores"
    );
    let log_sums = log_sum_exp_rows(scores)?;
    let mut gradient = softmax_rows(scores)?;
    let mut loss = T::zero();
    for (i, target) in targets.iter().enumerate() {
        match *target {
            Some(target) => {
                loss += log_sums[i] - scores[(i, target)];
                gradient[(i, target)] -= T::one();
            }
            None => gradient.row_mut(i).fill(T::zero()),
        }
    }
    Ok((loss, gradient))
}
// ANCHOR_END: cross_entropy
