//! # A lookup that answers between its keys
//!
//! easy, 10 minutes
//!
//! A thermometer was read at a few hours of a day. How warm was it in between? A soft lookup can say: it averages all
//! values, and gives more weight to keys that are near the query. The chapter compares by dot product. Here you compare
//! by distance, which also works when keys are places or times.
//!
//! The weight of key $k_j$ for the query $q_i$ is proportional to $e^{-|q_i - k_j|^2 / (2 b^2)}$. The width $b$ says
//! how far a query looks. As always, the weights of one query sum to one.
//!
//! Queries are $(n_q, d)$, keys $(n_k, d)$, values $(n_k, d_v)$, answers $(n_q, d_v)$. No query in the tests is far
//! from all keys.
//!
//! # Hint
//!
//! Which matrix holds a number for each query and each key? What are its shape and its entries before anything is
//! divided?
//!
//! # Hint
//!
//! Build the $(n_q, n_k)$ matrix of exponentials. Then each *row* has to sum to one, since a row belongs to a query.
//! The answers are the product of this matrix with the values.
//!
//! # Hint
//!
//! `DMatrix::from_fn(n_q, n_k, |i, j| …)` with `(queries.row(i) - keys.row(j)).norm_squared()` inside. Then
//! `for mut row in weights.row_iter_mut()`, and divide the row by `row.sum()`.

use nalgebra::DMatrix;

/// Returns an answer for each query: the average of the values, weighted by how near their keys are.
///
/// Shapes: `queries` (n_q, d), `keys` (n_k, d), `values` (n_k, d_v) → (n_q, d_v). `width` is the $b$ of the formula.
pub fn soft_lookup(
    queries: &DMatrix<f64>,
    keys: &DMatrix<f64>,
    values: &DMatrix<f64>,
    width: f64,
) -> DMatrix<f64> {
    // SOLUTION
    // (n_q, n_k): how near each key is to each query
    let mut weights = DMatrix::from_fn(queries.nrows(), keys.nrows(), |i, j| {
        // FAULT not-squared: this is what you get if the distance is not squared
        // > let squared = (queries.row(i) - keys.row(j)).norm();
        let squared = (queries.row(i) - keys.row(j)).norm_squared();
        // FAULT far-wins: does the weight fall with the distance?
        // > (squared / (2.0 * width * width)).exp()
        (-squared / (2.0 * width * width)).exp()
    });
    // FAULT columns: did the sum run over the queries?
    // > for mut row in weights.column_iter_mut() {
    for mut row in weights.row_iter_mut() {
        // FAULT no-division: do the weights of a query sum to one?
        let sum = row.sum();
        // FAULT no-division
        row /= sum;
    }
    weights * values
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{DMatrix, dmatrix};

    /// Five readings, at hours of the day.
    fn readings() -> (DMatrix<f64>, DMatrix<f64>) {
        (dmatrix![6.0; 9.0; 12.0; 15.0; 21.0], dmatrix![4.0; 9.0; 17.0; 19.0; 8.0])
    }

    #[test]
    fn equal_values_give_the_same_answer_everywhere() {
        let (hours, _) = readings();
        let always = DMatrix::from_element(5, 2, 7.0);
        let answers = soft_lookup(&dmatrix![8.0; 13.5], &hours, &always, 2.0);
        assert!(
            answers.shape() == (2, 2),
            "an answer has a row for each query, as wide as a value: yours has the shape {:?}, expected {:?}",
            answers.shape(),
            (2, 2)
        );
        for answer in answers.iter() {
            assert!(
                (answer - 7.0).abs() < 1e-12,
                "all values are 7, but an answer is {answer:.3}: do the weights of a query sum to one?"
            );
        }
    }

    #[test]
    fn other_queries_dont_matter() {
        let (hours, warmth) = readings();
        let alone = soft_lookup(&dmatrix![10.0], &hours, &warmth, 2.0)[0];
        let beside = soft_lookup(&dmatrix![10.0; 11.0; 20.0], &hours, &warmth, 2.0)[0];
        assert!(
            (alone - beside).abs() < 1e-12,
            "10 o'clock gets {alone:.3} alone and {beside:.3} with other queries beside it: did the sum run over the queries?"
        );
    }

    #[test]
    fn a_narrow_lookup_answers_like_a_table() {
        let (hours, warmth) = readings();
        let answers = soft_lookup(&hours, &hours, &warmth, 0.4);
        for (i, (answer, value)) in answers.iter().zip(warmth.iter()).enumerate() {
            assert!(
                (answer - value).abs() < 1e-2,
                "query {i} equals key {i}, and no other key is near, but the answer is {answer:.3}, not {value}: does the weight fall with the distance?"
            );
        }
    }

    #[test]
    fn distance_counts_squared() {
        let keys = dmatrix![3.0, 4.0; 0.0, 1.0];
        for width in [2.0_f64, 4.0] {
            let first =
                soft_lookup(&dmatrix![0.0, 0.0], &keys, &dmatrix![1.0; 0.0], width)[0];
            // The first key's share, if one exponent is larger than the other by this much.
            let share = |more: f64| 1.0 / (1.0 + more.exp());
            let b2 = width * width;
            let slip = [
                (share((5.0 - 1.0) / (2.0 * b2)), "the distance is not squared"),
                (share((25.0 - 1.0) / b2), "the exponent lacks its 2"),
                (share((25.0 - 1.0) / (2.0 * width)), "the width is not squared"),
            ];
            let slip = slip.iter().find(|(wrong, _)| (wrong - first).abs() < 1e-9);
            if let Some((_, what)) = slip {
                panic!(
                    "keys at distances 5 and 1, width {width}: the first weighs {first:.4}; this is what you get if {what}"
                );
            }
            assert!(
                (first - share((25.0 - 1.0) / (2.0 * b2))).abs() < 1e-12,
                "keys at distances 5 and 1, width {width}: the first weighs {first:.4}; the two exponents should differ by 24 / (2·{b2})"
            );
        }
    }
}
