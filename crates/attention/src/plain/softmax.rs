use super::Matrix;
use nalgebra::DVector;

// ANCHOR: softmax_rows
/// Turns each row of scores into weights: not negative, and 1 in sum.
pub fn softmax_rows(scores: &Matrix) -> Matrix {
    let mut weights = scores.clone();
    for (i, mut row) in weights.row_iter_mut().enumerate() {
        let max = row.max(); // without it, exp(710) would be infinite
        assert!(max != f64::NEG_INFINITY, "query {i} sees no key");
        row.apply(|score| *score = (*score - max).exp());
        row /= row.sum();
    }
    weights
}
// ANCHOR_END: softmax_rows

// ANCHOR: log_sum_exp_rows
/// The logarithm of each row's sum of exponentials: weight = exp(score − this).
pub fn log_sum_exp_rows(scores: &Matrix) -> DVector<f64> {
    DVector::from_fn(scores.nrows(), |i, _| {
        let max = scores.row(i).max();
        max + scores.row(i).map(|score| (score - max).exp()).sum().ln()
    })
}
// ANCHOR_END: log_sum_exp_rows
