//! # Build it yourself: attention
//!
//! easy, 15 minutes, without `attention::`
//!
//! The fourth file of your program puts the first three together. `attention` gets queries $(n_q, d_k)$, keys $(n_k, d_k)$, values
//! $(n_k, d_v)$ and a mask. It returns two matrices, in this order: the output $(n_q, d_v)$, each row a mean of the values, and the weights
//! $(n_q, n_k)$ of these means.
//!
//! A hidden key has the weight 0, and the visible keys share all of the weight: each row of weights sums to 1. A query that sees no
//! key has no mean. Your `softmax_rows` panics for such a row, so `attention` does, too.
//!
//! # Hint
//!
//! Which of scores, mask and softmax comes first, which second, which last? What does a row of weights sum to if you hide a weight and not a
//! score?
//!
//! # Hint
//!
//! Three functions of your own stand in the line `use super::…`. Each takes what another returns. The scale is in `scores` already.
//!
//! # Hint
//!
//! `softmax_rows(&hide(&…, sees))` are the weights. The output is a product of two matrices, $(n_q, n_k)$ and $(n_k, d_v)$. Return a pair
//! in parentheses, and borrow the weights in the product, so that you can still return them.

use attention::plain::*;

// PROGRAM softmax scores masks attention
// FAULT mask-after: Hide the scores, before softmax shares out the weight
// - let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
// > let mut weights = softmax_rows(&scores(q, k));
// > for (i, j) in (0..q.nrows()).flat_map(|i| (0..k.nrows()).map(move |j| (i, j))) {
// >     if !sees(i, j) { weights[(i, j)] = 0.0 }
// > }
// FAULT no-mask: Does `sees` stand anywhere in your function?
// - let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
// > let weights = softmax_rows(&scores(q, k));
// FAULT mask-swapped: Which number does the mask want first?
// - let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
// > let weights = softmax_rows(&hide(&scores(q, k), |i, j| sees(j, i)));
// FAULT scaled-twice: Your `scores` has divided by √d_k already
// - let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
// > let weights = softmax_rows(&hide(&(scores(q, k) / (q.ncols() as f64).sqrt()), sees));
// FAULT columns: the weights of a key, over all queries, sum to 1
// - let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
// > let weights = softmax_rows(&hide(&scores(q, k), sees).transpose()).transpose();
// FAULT values-compared: Are queries compared with keys, or with values?
// - let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
// > let weights = softmax_rows(&hide(&scores(q, v), sees));
// FAULT keys-averaged: The output averages values, and yours averages keys
// - (&weights * v, weights) // (n_q, d_v)
// > (&weights * k, weights)
// FAULT weights-first: The output comes first, and then its weights
// - (&weights * v, weights) // (n_q, d_v)
// > (weights.clone(), &weights * v)
// FAULT transposed: Here a column of weights averages the values
// - (&weights * v, weights) // (n_q, d_v)
// > (weights.transpose() * v, weights)
// FAULT other-weights: They should be the weights that made the output
// - (&weights * v, weights) // (n_q, d_v)
// > (&weights * v, softmax_rows(&scores(q, k)))

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Numbers between −2 and 2 that look random.
    fn numbers(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| {
            let at = (100 * seed + 10 * i + j + 1) as f64;
            (at * at * 0.754_877_666).fract() * 4.0 - 2.0
        })
    }

    fn near(a: &Matrix, b: &Matrix) -> bool {
        a.shape() == b.shape() && (a - b).norm() < 1e-9 // false for NaN
    }

    /// Output and weights, by loops.
    fn right(
        q: &Matrix,
        k: &Matrix,
        v: &Matrix,
        sees: impl Fn(usize, usize) -> bool,
    ) -> (Matrix, Matrix) {
        let mut output = Matrix::zeros(q.nrows(), v.ncols());
        let mut weights = Matrix::zeros(q.nrows(), k.nrows());
        for i in 0..q.nrows() {
            let mut sum = 0.0;
            for j in (0..k.nrows()).filter(|&j| sees(i, j)) {
                let score = q.row(i).dot(&k.row(j)) / (q.ncols() as f64).sqrt();
                weights[(i, j)] = score.exp();
                sum += score.exp();
            }
            for j in 0..k.nrows() {
                weights[(i, j)] /= sum;
                for c in 0..v.ncols() {
                    output[(i, c)] += weights[(i, j)] * v[(j, c)];
                }
            }
        }
        (output, weights)
    }

    /// Two queries, keys and values, so that the scores are ln 3 and 0, and 0 and 0.
    fn two_tokens() -> [Matrix; 3] {
        let large = 3.0_f64.ln() * 2.0_f64.sqrt();
        let q = dmatrix![large, 0.0; 0.0, 0.0];
        [q, dmatrix![1.0, 0.0; 0.0, 2.0], dmatrix![4.0, 0.0; 0.0, 8.0]]
    }

    #[test]
    fn two_tokens_by_hand() {
        // e^(ln 3) = 3 and e⁰ = 1, so the first query has the weights 3/4 and 1/4: ¾·4 = 3, ¼·8 = 2.
        let [q, k, v] = two_tokens();
        let (right_output, right_weights) =
            (dmatrix![3.0, 2.0; 2.0, 4.0], dmatrix![0.75, 0.25; 0.5, 0.5]);
        let (output, weights) = attention(&q, &k, &v, |_, _| true);
        let said = "without a mask, for the scores ln 3, 0 and 0, 0 and the values (4, 0) and (0, 8),";
        assert!(
            !near(&output, &right_weights),
            "{said} the first matrix that you return has the weights. The output comes first, and then its weights"
        );
        let columns = dmatrix![0.75, 0.5; 0.25, 0.5];
        assert!(
            !near(&weights, &columns),
            "{said} the weights of a key, over all queries, sum to 1, and those of a query should"
        );
        let root = 3.0_f64.powf(0.5_f64.sqrt());
        assert!(
            (weights[0] - root / (root + 1.0)).abs() > 1e-9,
            "{said} the scores were divided by √2 once more. Your `scores` has divided by √d_k already"
        );
        let by_values = 3.0_f64.powf(4.0);
        assert!(
            (weights[0] - by_values / (by_values + 1.0)).abs() > 1e-9,
            "{said} the first query has the weights {:.4} and {:.4}, not 3/4 and 1/4. Are queries compared with keys, or with values?",
            weights[(0, 0)],
            weights[(0, 1)]
        );
        assert!(
            near(&weights, &right_weights),
            "{said} the weights are{weights}and should be{right_weights}"
        );
        assert!(
            !near(&output, &(&right_weights * &k)),
            "{said} the output equals weights times keys. The output averages values, and yours averages keys"
        );
        assert!(
            !near(&output, &(right_weights.transpose() * &v)),
            "{said} the output is{output}Here a column of weights averages the values, and a row should"
        );
        assert!(
            near(&output, &right_output),
            "{said} the weights are right, but the output is{output}and should be{right_output}"
        );
    }

    #[test]
    fn what_is_hidden_has_no_weight() {
        let [q, k, v] = two_tokens();
        let (output, weights) = attention(&q, &k, &v, |query, key| key <= query);
        let said = "the first of two tokens doesn't see the second,";
        let (seen, hidden) = (weights[(0, 0)], weights[(0, 1)]);
        assert!(
            hidden != 0.0 || (seen - 0.75).abs() > 1e-9 || weights[(1, 0)] != 0.5,
            "{said} and its weights are {seen:.3} and {hidden:.3}, which don't sum to 1. Hide the scores, before softmax shares out the weight"
        );
        assert!(
            !near(&output, &dmatrix![4.0, 0.0; 2.0, 4.0]) || hidden == 0.0,
            "{said} and its output is right, but its weights come back as {seen:.3} and {hidden:.3}. They should be the weights that made the output"
        );
        assert!(
            weights[(1, 0)] != 0.0 || hidden == 0.0,
            "{said} but it was the second that didn't see the first. Which number does the mask want first?"
        );
        assert!(
            hidden == 0.0,
            "{said} and gives it the weight {hidden:.3}. Does `sees` stand anywhere in your function?"
        );
        assert!(
            near(&output.rows(0, 1).into_owned(), &dmatrix![4.0, 0.0]),
            "{said} so its output is the first value, (4, 0), and yours is{}",
            output.row(0)
        );
    }

    #[test]
    fn any_shape_and_any_mask() {
        for [n_q, n_k, d_k, d_v] in [[3, 5, 4, 2], [5, 2, 3, 6], [1, 7, 2, 1]] {
            let q = numbers(n_q, d_k, 1);
            let (k, v) = (numbers(n_k, d_k, 2), numbers(n_k, d_v, 3));
            let sees = |i: usize, j: usize| j == 0 || (2 * i + j) % 3 != 1;
            let sizes = format!("n_q, n_k, d_k, d_v = {n_q}, {n_k}, {d_k}, {d_v}");
            let (output, weights) = attention(&q, &k, &v, sees);
            let (right_output, right_weights) = right(&q, &k, &v, sees);
            for (what, got, right) in
                [("output", output, right_output), ("weights", weights, right_weights)]
            {
                assert!(
                    got.shape() == right.shape(),
                    "{sizes}: the {what} should have the shape {:?}, and yours has {:?}",
                    right.shape(),
                    got.shape()
                );
                assert!(
                    near(&got, &right),
                    "{sizes}, with a mask that leaves gaps: the {what} should be{right:.4}and yours:{got:.4}"
                );
            }
        }
    }

    #[test]
    fn hidden_tokens_move_nothing() {
        let (q, k, v) = (numbers(4, 3, 4), numbers(6, 3, 5), numbers(6, 2, 6));
        let sees = |_: usize, key: usize| key != 2;
        let before = attention(&q, &k, &v, sees).0;
        let (mut other_k, mut other_v) = (k.clone(), v.clone());
        other_k.row_mut(2).fill(50.0);
        other_v.row_mut(2).fill(-9.0);
        let moved = (attention(&q, &other_k, &other_v, sees).0 - &before).amax();
        assert!(
            moved < 1e-12,
            "key and value 2 are hidden from all queries, and changing them moves an output by {moved:.3}. Through which step could they get in?"
        );
        other_v.row_mut(1).fill(-9.0);
        let moved = (attention(&q, &k, &other_v, sees).0 - &before).amax();
        assert!(
            moved > 1e-3,
            "changing value 1, which every query sees, moves no output. Is something else averaged?"
        );
    }

    #[test]
    fn a_query_that_sees_nothing_is_refused() {
        let [q, k, v] = two_tokens();
        let ask = || attention(&q, &k, &v, |query, _| query == 0);
        let came = catch_unwind(AssertUnwindSafe(ask));
        assert!(
            came.is_err(),
            "the second query sees no key, and gets the output{}It should panic, since there is nothing to average: does each row go through your `softmax_rows`?",
            came.unwrap().0.row(1)
        );
    }
}
