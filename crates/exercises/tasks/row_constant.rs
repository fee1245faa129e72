//! # One number for each row
//!
//! easy, 15 minutes
//!
//! The gradient of softmax needs a sum over a whole row of weights, and a tile has only a part of that row. Compute the
//! sum without any weights: `row_constant` returns $D$, one number for each query, from the output and its gradient,
//! both $(n_q, d_v)$.
//!
//! Then use it where only a part of the keys is at hand: `grad_scores` returns $dS$ for a tile, from its weights $A$
//! and their gradients $dA$, both $(B_q, B_k)$, and the numbers $D$ of its rows.
//!
//! # Hint
//!
//! What is the shape of $D$, and which index does it keep? The sum in $\operatorname{rowsum}(dO \odot O)$ runs over the
//! other one.
//!
//! # Hint
//!
//! For two vectors, multiplying entry by entry and then adding up is a dot product. In $dS$, what is subtracted from
//! all entries of a row?
//!
//! # Hint
//!
//! `DVector::from_fn(n_q, |i, _| …)` with `row(i).dot(…)`, and `DMatrix::from_fn(rows, keys, |i, j| …)` with `d[i]`.

use nalgebra::{DMatrix, DVector};

/// Returns D, the sum of dA ⊙ A over each row of weights.
///
/// Shapes: `grad_output`, `output` (n_q, d_v) → (n_q).
pub fn row_constant(grad_output: &DMatrix<f64>, output: &DMatrix<f64>) -> DVector<f64> {
    // SOLUTION
    // FAULT columns: one for each column
    // > DVector::from_fn(output.ncols(), |c, _| grad_output.column(c).dot(&output.column(c)))
    // FAULT mean: a sum, not a mean
    // > DVector::from_fn(output.nrows(), |i, _| grad_output.row(i).component_mul(&output.row(i)).mean())
    // FAULT two-sums: the product of two sums
    // > DVector::from_fn(output.nrows(), |i, _| grad_output.row(i).sum() * output.row(i).sum())
    DVector::from_fn(output.nrows(), |i, _| grad_output.row(i).dot(&output.row(i)))
    // END
}

/// Returns the gradient of a tile's scores.
///
/// Shapes: `weights`, `grad_weights` (B_q, B_k), `d` (B_q) → (B_q, B_k).
pub fn grad_scores(
    weights: &DMatrix<f64>,
    grad_weights: &DMatrix<f64>,
    d: &DVector<f64>,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT tile-sum: over the keys of the tile
    // > let d = DVector::from_fn(d.len(), |i, _| weights.row(i).dot(&grad_weights.row(i)));
    // > let (rows, keys) = weights.shape();
    let (rows, keys) = weights.shape();
    // FAULT not-weighted: the weight multiplies the difference
    // > DMatrix::from_fn(rows, keys, |i, j| weights[(i, j)] * grad_weights[(i, j)] - d[i])
    DMatrix::from_fn(rows, keys, |i, j| weights[(i, j)] * (grad_weights[(i, j)] - d[i]))
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention, softmax::softmax_rows_backward};
    use nalgebra::{DMatrix, DVector};

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// Output, its gradient, the weights and their gradients of a small attention.
    fn example(n_q: usize, n_k: usize, d_v: usize) -> [DMatrix<f64>; 4] {
        let v = draw(n_k, d_v, 2);
        let (output, cache) =
            attention(&draw(n_q, 3, 0), &draw(n_k, 3, 1), &v, Mask::none()).unwrap();
        let grad_output = draw(n_q, d_v, 3);
        let grad_weights = &grad_output * v.transpose();
        [output, grad_output, cache.weights, grad_weights]
    }

    #[test]
    fn there_is_one_number_for_each_query() {
        for (n_q, n_k, d_v) in [(5, 7, 3), (2, 4, 6)] {
            let [output, grad_output, ..] = example(n_q, n_k, d_v);
            let came = row_constant(&grad_output, &output).len();
            assert!(
                came == n_q,
                "D should have a number for each of {n_q} queries, and not one for each column of the output: yours has {came}"
            );
        }
    }

    #[test]
    fn it_is_the_sum_over_the_row_of_weights() {
        for (n_q, n_k, d_v) in [(5, 7, 3), (2, 4, 6), (4, 3, 4), (3, 9, 2)] {
            let [output, grad_output, weights, grad_weights] = example(n_q, n_k, d_v);
            let came = row_constant(&grad_output, &output);
            for i in 0..n_q {
                let right = weights.row(i).dot(&grad_weights.row(i));
                let is = |x: f64| (came[i] - x).abs() < 1e-12;
                assert!(
                    !is(right / d_v as f64),
                    "D of row {i} is {:.4}, {d_v} times too small: it's a sum, not a mean",
                    came[i]
                );
                let two = grad_output.row(i).sum() * output.row(i).sum();
                assert!(
                    !is(two),
                    "D of row {i} is {:.4}, the product of two sums: multiply entry by entry first",
                    came[i]
                );
                assert!(
                    is(right),
                    "the sum of dA ⊙ A over row {i} is {right:.4}, and your D is {:.4}",
                    came[i]
                );
            }
        }
    }

    #[test]
    fn a_tile_gets_its_part_of_the_gradient() {
        for (n_q, n_k, d_v) in [(5, 7, 3), (4, 9, 6)] {
            let [_, _, weights, grad_weights] = example(n_q, n_k, d_v);
            let right = softmax_rows_backward(&weights, &grad_weights).unwrap();
            let d =
                DVector::from_fn(n_q, |i, _| weights.row(i).dot(&grad_weights.row(i)));
            for keys in [0..2, 2..n_k] {
                let [a, da, ds] = [&weights, &grad_weights, &right]
                    .map(|x| x.columns_range(keys.clone()).into_owned());
                let came = grad_scores(&a, &da, &d);
                assert!(
                    came.shape() == ds.shape(),
                    "dS has the shape of the tile; yours is {:?}, expected {:?}",
                    came.shape(),
                    ds.shape()
                );
                let tile = softmax_rows_backward(&a, &da).unwrap();
                assert!(
                    (&came - tile).amax() > 1e-12,
                    "keys {keys:?} of {n_k}: this is what comes of a sum over the keys of the tile; D knows the whole row"
                );
                let outside = DMatrix::from_fn(n_q, keys.len(), |i, j| {
                    a[(i, j)] * da[(i, j)] - d[i]
                });
                assert!(
                    (&came - outside).amax() > 1e-12,
                    "keys {keys:?}: here A ∘ dA was computed first: the weight multiplies the difference"
                );
                assert!((came - ds).amax() < 1e-12, "keys {keys:?} of {n_k}: dS is off");
            }
        }
    }
}
