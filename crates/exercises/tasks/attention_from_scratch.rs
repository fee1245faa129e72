//! # Attention from scratch
//!
//! medium, 30 minutes
//!
//! Write attention with nothing but nalgebra: no function of the crate, not even its softmax. This is the function that
//! the rest of the book takes apart, so it's worth having written it once.
//!
//! Queries are $(n_q, d_k)$, keys $(n_k, d_k)$, values $(n_k, d_v)$. Return the weights $(n_q, n_k)$ and the output
//! $(n_q, d_v)$:
//!
//! $$ A = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right), \qquad O = A V . $$
//!
//! There is no mask. Inputs are finite, and scores may be in the thousands.
//!
//! # Hint
//!
//! Write the shape of each intermediate matrix on paper. Which of the given widths stands under the root, and along
//! which axis do the weights sum to one?
//!
//! # Hint
//!
//! Four steps: products, scale, softmax of each row, average. The exponential of 1,000 overflows, but softmax doesn't
//! change when all scores of a row move together.
//!
//! # Hint
//!
//! `q * k.transpose()` has the shape (n_q, n_k). In a loop over `weights.row_iter_mut()`, lower the row by `row.max()`,
//! take exponentials with `row.apply(|x| *x = …)`, and divide by `row.sum()`. The average is one more product.

use nalgebra::DMatrix;

/// Returns the weights and the output of attention.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → (n_q, n_k) and (n_q, d_v).
pub fn attention_from_scratch(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
) -> (DMatrix<f64>, DMatrix<f64>) {
    // SOLUTION
    // FAULT width-of-values: by the root of the values' width
    // > let scale = 1.0 / (v.ncols() as f64).sqrt();
    // FAULT by-the-width: by the width, not by its root
    // > let scale = 1.0 / (q.ncols() as f64);
    // FAULT not-scaled: if the scale is left out
    // > let scale = 1.0;
    let scale = 1.0 / (q.ncols() as f64).sqrt();
    let mut weights = q * k.transpose() * scale; // scores (n_q, n_k)
    // FAULT columns: did softmax run down the columns?
    // > for mut row in weights.column_iter_mut() {
    for mut row in weights.row_iter_mut() {
        // FAULT overflow: what is the exponential of a score this large?
        // > let largest = 0.0;
        let largest = row.max();
        row.apply(|score| *score = (*score - largest).exp());
        let sum = row.sum();
        row /= sum;
    }
    let output = &weights * v; // (n_q, d_v)
    (weights, output)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention, scaled_scores, softmax_rows};
    use nalgebra::{DMatrix, dmatrix};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    fn same(a: &DMatrix<f64>, b: &DMatrix<f64>) -> bool {
        (a - b).norm() < 1e-9 // false for NaN
    }

    fn draw(n: usize, d: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
        DMatrix::from_fn(n, d, |_, _| StandardNormal.sample(rng))
    }

    /// (n_q, n_k, d_k, d_v)
    const SHAPES: [[usize; 4]; 4] =
        [[3, 5, 4, 2], [6, 2, 3, 7], [1, 9, 16, 5], [4, 1, 2, 3]];

    fn problem([n_q, n_k, d_k, d_v]: [usize; 4]) -> [DMatrix<f64>; 3] {
        let rng = &mut ChaCha8Rng::seed_from_u64(n_q as u64);
        [draw(n_q, d_k, rng), draw(n_k, d_k, rng), draw(n_k, d_v, rng)]
    }

    #[test]
    fn shapes_are_right() {
        for shape @ [n_q, n_k, _, d_v] in SHAPES {
            let [q, k, v] = problem(shape);
            let (weights, output) = attention_from_scratch(&q, &k, &v);
            assert_eq!(weights.shape(), (n_q, n_k), "weights: a row for each query");
            assert_eq!(output.shape(), (n_q, d_v), "output: a row for each query");
        }
    }

    #[test]
    fn weights_are_those_of_the_crate() {
        for shape @ [_, n_k, d_k, d_v] in SHAPES {
            let [q, k, v] = problem(shape);
            let (weights, _) = attention_from_scratch(&q, &k, &v);
            let scores = scaled_scores(&q, &k).unwrap();
            let right = softmax_rows(&scores).unwrap();
            if same(&weights, &right) {
                continue;
            }
            let columns = softmax_rows(&scores.transpose()).unwrap().transpose();
            assert!(
                !same(&weights, &columns),
                "n_q, n_k, d_k, d_v = {shape:?}: did softmax run down the columns? A row belongs to a query"
            );
            let root = (d_k as f64).sqrt();
            for (divisor, what) in [
                (1.0, "if the scale is left out"),
                (d_k as f64, "if you divide by the width, not by its root"),
                ((d_v as f64).sqrt(), "if you divide by the root of the values' width"),
                ((n_k as f64).sqrt(), "if you divide by the root of the number of keys"),
            ] {
                let wrong = softmax_rows(&(&scores * (root / divisor))).unwrap();
                assert!(
                    !same(&weights, &wrong),
                    "n_q, n_k, d_k, d_v = {shape:?}: these are the weights {what}"
                );
            }
            let sums: Vec<_> = weights.row_iter().map(|row| row.sum()).collect();
            panic!(
                "n_q, n_k, d_k, d_v = {shape:?}: the weights are wrong. Their rows sum to {sums:.3?}"
            );
        }
    }

    #[test]
    fn the_output_averages_values() {
        for shape in SHAPES {
            let [q, k, v] = problem(shape);
            let (weights, output) = attention_from_scratch(&q, &k, &v);
            assert!(
                same(&output, &(weights * &v)),
                "the output isn't the product of your own weights with the values"
            );
            let (right, _) = attention(&q, &k, &v, Mask::none()).unwrap();
            assert!(same(&output, &right), "{shape:?}: the crate has another output");
        }
    }

    #[test]
    fn large_scores_are_no_trouble() {
        let (q, k, v) = (
            dmatrix![100.0, 0.0],
            dmatrix![30.0, 0.0; 29.99, 0.0; -30.0, 1.0],
            dmatrix![1.0; 2.0; 3.0],
        );
        let (weights, output) = attention_from_scratch(&q, &k, &v);
        assert!(
            weights.iter().all(|it| it.is_finite()),
            "scores up to 2,000 give the weights {:.3?}: what is the exponential of a score this large?",
            weights.as_slice()
        );
        let (right, _) = attention(&q, &k, &v, Mask::none()).unwrap();
        assert!(same(&output, &right), "large scores: the crate has another output");
    }
}
