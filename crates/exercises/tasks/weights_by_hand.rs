//! # Attention with a pencil
//!
//! easy, 15 minutes
//!
//! If you have computed attention once by hand, you will recognise its matrices when a program goes wrong. Here are two
//! queries, three keys and three values:
//!
//! $$
//! Q = \begin{pmatrix} 1 & 0 & 2 & 1 \\ 1 & 0 & 1 & 0 \end{pmatrix}, \quad
//! K = \begin{pmatrix} 2 & 1 & 1 & 0 \\ 0 & 3 & 0 & 2 \\ -1 & 5 & 1 & -1 \end{pmatrix}, \quad
//! V = \begin{pmatrix} 4 & 0 \\ 0 & 2 \\ 2 & 6 \end{pmatrix} .
//! $$
//!
//! Return the scaled scores, the weights and the output, without a mask. Use paper and a calculator. Three digits after
//! the point are enough.
//!
//! # Hint
//!
//! What are the shapes of $S$, $A$ and $O$? And what is $d_k$ here: the number of keys, or the width in which a query
//! and a key are compared?
//!
//! # Hint
//!
//! All scaled scores are multiples of one half. For the weights, take the exponentials of one row of scores, and divide
//! them by their sum.
//!
//! # Hint
//!
//! The first row of scores comes from the query $(1, 0, 2, 1)$. Its product with the second key is
//! $1 \cdot 0 + 0 \cdot 3 + 2 \cdot 0 + 1 \cdot 2$. Write a row as `a, b, c;` inside `dmatrix![…]`.

use nalgebra::{DMatrix, dmatrix};

/// The queries (2, 4), the keys (3, 4) and the values (3, 2).
pub fn inputs() -> (DMatrix<f64>, DMatrix<f64>, DMatrix<f64>) {
    let q = dmatrix![1.0, 0.0, 2.0, 1.0; 1.0, 0.0, 1.0, 0.0];
    let k = dmatrix![2.0, 1.0, 1.0, 0.0; 0.0, 3.0, 0.0, 2.0; -1.0, 5.0, 1.0, -1.0];
    let v = dmatrix![4.0, 0.0; 0.0, 2.0; 2.0, 6.0];
    (q, k, v)
}

/// Returns the scaled scores S (2, 3).
pub fn scores() -> DMatrix<f64> {
    // SOLUTION
    // FAULT not-scaled: if the scale is left out
    // > dmatrix![4.0, 2.0, 0.0; 3.0, 0.0, 0.0]
    dmatrix![2.0, 1.0, 0.0; 1.5, 0.0, 0.0]
    // END
}

/// Returns the weights A (2, 3).
pub fn weights() -> DMatrix<f64> {
    // SOLUTION
    // FAULT columns: if softmax runs down the columns
    // > dmatrix![0.622, 0.731, 0.500; 0.378, 0.269, 0.500]
    // FAULT by-the-width: if the scores are divided by 4, not by its root
    // > dmatrix![0.506, 0.307, 0.186; 0.514, 0.243, 0.243]
    dmatrix![0.665, 0.245, 0.090; 0.691, 0.154, 0.154]
    // END
}

/// Returns the output O (2, 2).
pub fn output() -> DMatrix<f64> {
    // SOLUTION
    // FAULT plain-mean: if all values get equal weights
    // > dmatrix![2.0, 2.667; 2.0, 2.667]
    dmatrix![2.841, 1.030; 3.074, 1.234]
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{scaled_scores, softmax_rows};
    use nalgebra::DMatrix;

    /// Compares an answer with the right one row by row, and with what typical slips give.
    fn check(
        name: &str,
        answer: &DMatrix<f64>,
        right: &DMatrix<f64>,
        slips: &[(&str, DMatrix<f64>)],
    ) {
        assert!(
            answer.shape() == right.shape(),
            "{name}: a row for each query is asked for; think about the columns: yours has the shape {:?}, expected {:?}",
            answer.shape(),
            right.shape()
        );
        for i in 0..right.nrows() {
            let is = |other: &DMatrix<f64>| {
                other.shape() == right.shape()
                    && (answer.row(i) - other.row(i)).norm() < 5e-3
            };
            if is(right) {
                continue;
            }
            let slip = slips.iter().find(|(_, wrong)| is(wrong));
            let why = slip
                .map_or("compute it once more, term by term".to_owned(), |(what, _)| {
                    format!("this is what you get {what}")
                });
            panic!("{name}: row {i} isn't right: {why}");
        }
    }

    /// The scores, divided by this power of the width. The right one is ½.
    fn divided(power: f64) -> DMatrix<f64> {
        let (q, k, _) = inputs();
        scaled_scores(&q, &k).unwrap() * 4.0_f64.powf(0.5 - power)
    }

    fn softmax_of(scores: DMatrix<f64>) -> DMatrix<f64> {
        softmax_rows(&scores).unwrap()
    }

    #[test]
    fn scores_are_scaled_products() {
        let slips = [
            ("if the scale is left out", divided(0.0)),
            ("if you divide by 4, not by its root", divided(1.0)),
            (
                "if you divide by the root of the number of keys",
                divided(0.0) / 3.0_f64.sqrt(),
            ),
        ];
        check("scores", &scores(), &divided(0.5), &slips);
    }

    #[test]
    fn weights_are_shares_of_a_row() {
        let columns = softmax_of(divided(0.5).transpose()).transpose();
        let shares = DMatrix::from_fn(2, 3, |i, j| {
            divided(0.5)[(i, j)] / divided(0.5).row(i).sum()
        });
        let slips = [
            ("if softmax runs down the columns", columns),
            ("if the scale is left out", softmax_of(divided(0.0))),
            ("if the scores are divided by 4, not by its root", softmax_of(divided(1.0))),
            ("if you divide scores by their sum, without exponentials", shares),
        ];
        check("weights", &weights(), &softmax_of(divided(0.5)), &slips);
    }

    #[test]
    fn the_output_averages_values() {
        let (_, _, v) = inputs();
        let with = |a: DMatrix<f64>| a * &v;
        let slips = [
            ("if the scale is left out", with(softmax_of(divided(0.0)))),
            (
                "if the scores are divided by 4, not by its root",
                with(softmax_of(divided(1.0))),
            ),
            (
                "if softmax runs down the columns",
                with(softmax_of(divided(0.5).transpose()).transpose()),
            ),
            ("if scores are used as weights", with(divided(0.5))),
            (
                "if all values get equal weights",
                with(DMatrix::from_element(2, 3, 1.0 / 3.0)),
            ),
        ];
        check("output", &output(), &with(softmax_of(divided(0.5))), &slips);
    }
}
