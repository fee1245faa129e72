//! # Attention from scratch
//!
//! medium, 20 minutes, without `attention::`
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
//! `q * k.transpose()` has the shape (n_q, n_k). In a loop over `weights.row_iter_mut()`, say `let largest = row.max();`,
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
    // FAULT the-crate: this exercise asks you to do without it
    // > let scale = attention::scaled_scores(q, k).unwrap()[0] / q.row(0).dot(&k.row(0));
    // FAULT width-of-values: by the root of the values' width
    // > let scale = 1.0 / (v.ncols() as f64).sqrt();
    // FAULT integer-root: rounded down
    // > let scale = 1.0 / q.ncols().isqrt() as f64;
    // FAULT by-the-width: by the width, not by its root
    // > let scale = 1.0 / (q.ncols() as f64);
    // FAULT not-scaled: if the scale is left out
    // > let scale = 1.0;
    let scale = 1.0 / (q.ncols() as f64).sqrt();
    let mut weights = q * k.transpose() * scale; // scores (n_q, n_k)
    // FAULT columns: did softmax run down the columns?
    // > for mut row in weights.column_iter_mut() {
    for mut row in weights.row_iter_mut() {
        // FAULT overflow: What is the exponential of a score this large?
        // > let largest = 0.0;
        // FAULT whole-matrix: Which number did you subtract from this row?
        // > let largest = (q * k.transpose() * scale).max();
        // FAULT absolute: are all near −2,000
        // > let largest = row.amax();
        // FAULT first-entry: and not its first, its smallest or its mean
        // > let largest = row[0];
        // FAULT smallest: and not its first, its smallest or its mean
        // > let largest = row.min();
        // FAULT mean: and not its first, its smallest or its mean
        // > let largest = row.mean();
        // FAULT from-zero: are all near −2,000
        // > let largest = row.max().max(0.0);
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
    use attention::{scaled_scores, softmax_rows};
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
        [[3, 5, 6, 2], [6, 2, 3, 7], [1, 9, 16, 5], [4, 1, 2, 3]];

    fn problem([n_q, n_k, d_k, d_v]: [usize; 4]) -> [DMatrix<f64>; 3] {
        let rng = &mut ChaCha8Rng::seed_from_u64(n_q as u64);
        [draw(n_q, d_k, rng), draw(n_k, d_k, rng), draw(n_k, d_v, rng)]
    }

    #[test]
    fn weights_are_softmax_of_scaled_scores() {
        for shape @ [n_q, n_k, d_k, d_v] in SHAPES {
            let [q, k, v] = problem(shape);
            let (weights, _) = attention_from_scratch(&q, &k, &v);
            let sizes = format!("n_q, n_k, d_k, d_v = {shape:?}");
            assert!(
                weights.shape() == (n_q, n_k),
                "{sizes}: your weights have the shape {:?}, and there should be a row for each query and a column for each key",
                weights.shape()
            );
            let scores = scaled_scores(&q, &k).unwrap();
            if same(&weights, &softmax_rows(&scores).unwrap()) {
                continue;
            }
            let columns = softmax_rows(&scores.transpose()).unwrap().transpose();
            assert!(
                !same(&weights, &columns),
                "{sizes}: did softmax run down the columns? A row belongs to a query"
            );
            let root = (d_k as f64).sqrt();
            for (divisor, what) in [
                (1.0, "if the scale is left out"),
                (d_k as f64, "if you divide by the width, not by its root"),
                (d_k.isqrt() as f64, "if the root of the width is rounded down"),
                ((d_v as f64).sqrt(), "if you divide by the root of the values' width"),
                ((n_k as f64).sqrt(), "if you divide by the root of the number of keys"),
            ] {
                let wrong = softmax_rows(&(&scores * (root / divisor))).unwrap();
                assert!(!same(&weights, &wrong), "{sizes}: these are the weights {what}");
            }
            let sums: Vec<_> = weights.row_iter().map(|row| row.sum()).collect();
            panic!("{sizes}: the weights are wrong. Their rows sum to {sums:.3?}");
        }
    }

    #[test]
    fn the_output_averages_values() {
        for shape @ [n_q, _, _, d_v] in SHAPES {
            let [q, k, v] = problem(shape);
            let (weights, output) = attention_from_scratch(&q, &k, &v);
            let sizes = format!("n_q, n_k, d_k, d_v = {shape:?}");
            assert!(
                output.shape() == (n_q, d_v),
                "{sizes}: your output has the shape {:?}, and there should be a row for each query, as wide as the values",
                output.shape()
            );
            assert!(
                same(&output, &(weights * &v)),
                "{sizes}: the output isn't the product of your own weights with the values"
            );
        }
    }

    #[test]
    fn large_scores_are_no_trouble() {
        // The scores of row 0 are all near 2,000, and those of row 1 near −2,000.
        let q = dmatrix![100.0, 0.0; -100.0, 0.0];
        let k = dmatrix![29.0, 0.0; 28.99, 0.0; 28.98, 1.0];
        let (weights, _) = attention_from_scratch(&q, &k, &dmatrix![1.0; 2.0; 3.0]);
        let right = softmax_rows(&scaled_scores(&q, &k).unwrap()).unwrap();
        for (i, question) in [
            "row 0 is NaN: its scores are all near 2,000. What is the exponential of a score this large?",
            "row 1 is NaN: its scores are all near −2,000. Which number did you subtract from this row?",
        ]
        .into_iter()
        .enumerate()
        {
            let [row, right] = [&weights, &right]
                .map(|m| m.row(i).iter().copied().collect::<Vec<_>>());
            assert!(!row.iter().any(|weight| weight.is_nan()), "{question}");
            let near = row.iter().zip(&right).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(
                near,
                "large scores, row {i}: the weights are {row:.3?}, and should be {right:.3?}"
            );
        }
        // Scores from −2,000 to 2,000, in three orders.
        let k = dmatrix![-29.0, 0.0; 29.0, 0.0; 0.0, 1.0];
        for turn in 0..3 {
            let k = DMatrix::from_fn(3, 2, |j, c| k[((j + turn) % 3, c)]);
            let (weights, _) = attention_from_scratch(&q, &k, &dmatrix![1.0; 2.0; 3.0]);
            let scores = scaled_scores(&q, &k).unwrap();
            assert!(
                same(&weights, &softmax_rows(&scores).unwrap()),
                "two rows with the scores{scores:.0}get the weights{weights:.3}Is it the largest score of a row that you subtract, and not its first, its smallest or its mean?"
            );
        }
    }
}
