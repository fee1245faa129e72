//! # Softmax over rows
//!
//! easy, 10 minutes, without `attention::`
//!
//! Turn a matrix of scores into weights: each row becomes numbers that sum to 1, none of them negative. A row's weights are
//! $e^{s_j} / \sum_l e^{s_l}$. Scores may be as large as 1,000, whose exponential no `f64` can hold, so subtract something first. A score of
//! $-\infty$ gets the weight 0, and a row with nothing else gets weights of 0. Don't call the crate.
//!
//! # Hint
//!
//! All scores of a row may be lowered by the same number without a change to the weights. Which number makes the largest
//! exponential 1?
//!
//! # Hint
//!
//! What is $-\infty - (-\infty)$? A row whose largest score is $-\infty$ needs a branch of its own, before anything is subtracted.
//!
//! # Hint
//!
//! `for mut row in weights.row_iter_mut()` walks the rows. Inside, `row.max()`, then `row.apply(|x| *x = …)`, then `row /= row.sum()`.

use nalgebra::DMatrix;

/// Returns the weights of scores, both (n_q, n_k): softmax of each row.
pub fn softmax_rows(scores: &DMatrix<f64>) -> DMatrix<f64> {
    // SOLUTION
    // FAULT the-crate: this exercise asks you to do without it
    // > return attention::softmax_rows(scores).unwrap();
    // > let mut weights = scores.clone();
    let mut weights = scores.clone();
    // FAULT columns: softmax runs over each row, not down the columns
    // > for mut row in weights.column_iter_mut() {
    for mut row in weights.row_iter_mut() {
        // FAULT overflow: what is the exponential of 1,000?
        // > let largest = if row.max() == f64::NEG_INFINITY { row.max() } else { 0.0 };
        // FAULT first-entry: and not its first, its smallest or its mean
        // > let largest = if row.max() == f64::NEG_INFINITY { row.max() } else { row[0] };
        // FAULT smallest: and not its first, its smallest or its mean
        // > let largest = row.min();
        // FAULT mean: and not its first, its smallest or its mean
        // > let largest = row.mean();
        // FAULT absolute: The largest of −1000 and −999 is −999
        // > let largest = if row.max() == f64::NEG_INFINITY { row.max() } else { row.amax() };
        // FAULT from-zero: The largest of −1000 and −999 is −999
        // > let largest = if row.max() == f64::NEG_INFINITY { row.max() } else { row.max().max(0.0) };
        // FAULT one-for-all: a largest score of its own
        // > let largest = if row.max() == f64::NEG_INFINITY { row.max() } else { scores.max() };
        let largest = row.max();
        // FAULT nothing-to-see: −∞ − (−∞) is NaN
        // > if false {
        if largest == f64::NEG_INFINITY {
            row.fill(0.0);
        } else {
            row.apply(|score| *score = (*score - largest).exp());
            // FAULT no-division: it should sum to 1
            let sum = row.sum();
            // FAULT no-division
            row /= sum;
        }
    }
    weights
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    #[test]
    fn every_row_sums_to_one() {
        let weights = softmax_rows(&dmatrix![1.0, 2.0, 3.0; 0.0, 0.0, 5.0]);
        for (index, row) in weights.row_iter().enumerate() {
            let sum = row.sum();
            assert!(
                (sum - 1.0).abs() < 1e-12,
                "row {index} sums to {sum:.3}: it should sum to 1, since softmax runs over each row, not down the columns"
            );
        }
    }

    #[test]
    fn weights_are_ratios_of_exponentials() {
        let weights = softmax_rows(&dmatrix![0.0, 1.0]);
        let ratio = weights[1] / weights[0];
        let e = 1.0_f64.exp();
        assert!(
            (ratio - e).abs() < 1e-12,
            "a score that is larger by 1 gets a weight larger by e = {e:.4}, not by {ratio:.4}"
        );
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let weights = softmax_rows(&dmatrix![1000.0, 999.0]);
        assert!(
            weights.iter().all(|weight| weight.is_finite()),
            "the scores 1000 and 999 get the weights {:.3} and {:.3}: what is the exponential of 1,000?",
            weights[0],
            weights[1],
        );
        let right = softmax_rows(&dmatrix![0.0, 1.0]);
        let weights = softmax_rows(&dmatrix![-1000.0, -999.0]);
        assert!(
            (&weights - right).amax() < 1e-9,
            "the scores −1000 and −999 get the weights {:.3} and {:.3}, and 0 and 1 others. What did you subtract? The largest of −1000 and −999 is −999",
            weights[0],
            weights[1],
        );
    }

    #[test]
    fn the_largest_of_a_row_is_subtracted() {
        for scores in [
            dmatrix![-2000.0, 2000.0, 0.0],
            dmatrix![0.0, -2000.0, 2000.0],
            dmatrix![2000.0, 0.0, -2000.0],
        ] {
            let weights = softmax_rows(&scores);
            let right = scores.map(|score| if score > 0.0 { 1.0 } else { 0.0 });
            let question = if weights.iter().any(|weight| weight.is_nan()) {
                "is it the largest score of the row that you subtract, and not its first, its smallest or its mean?"
            } else {
                "2000 is so far ahead that it takes all"
            };
            assert!(
                (&weights - right).amax() < 1e-9,
                "the scores {:?} get the weights {:?}: {question}",
                scores.as_slice(),
                weights.as_slice()
            );
        }
        let weights =
            softmax_rows(&dmatrix![1000.0, 0.0; -1000.0, 0.0; -1000.0, -2000.0]);
        assert!(
            (weights - dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, 0.0]).amax() < 1e-9,
            "three rows lie far apart, and their weights are wrong. Does each row subtract a largest score of its own?"
        );
    }

    #[test]
    fn a_row_that_sees_nothing_has_no_weights() {
        let hidden = f64::NEG_INFINITY;
        let weights = softmax_rows(&dmatrix![hidden, hidden; 0.0, hidden]);
        assert!(
            weights.iter().all(|weight| !weight.is_nan()),
            "a row of −∞ gets NaN: −∞ − (−∞) is NaN"
        );
        assert!(
            weights == dmatrix![0.0, 0.0; 1.0, 0.0],
            "a score of −∞ gets the weight 0, and a row of them no weights"
        );
    }
}
