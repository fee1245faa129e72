//! # Build it yourself: softmax
//!
//! easy, 20 minutes, without `attention::`
//!
//! The first file of your program. `softmax_rows` turns each row of scores into weights, $e^{s_j} / \sum_l e^{s_l}$, and `log_sum_exp_rows`
//! returns $\ln \sum_l e^{s_l}$ of each row. Scores may be as large as 1,000, whose exponential no `f64` holds, so both subtract something
//! first. A score of $-\infty$ gets the weight 0. A row with nothing else has no weights: stop with a panic that names the query.
//!
//! # Hint
//!
//! All scores of a row may be lowered by the same number without a change to the weights. Which number makes the largest exponential 1?
//!
//! # Hint
//!
//! For `log_sum_exp_rows`, take the subtracted number out of the sum: $\ln \sum_l e^{s_l} = m + \ln \sum_l e^{s_l - m}$.
//!
//! # Hint
//!
//! `for (i, mut row) in weights.row_iter_mut().enumerate()` walks the rows. Inside, `row.max()`, then `row.apply(|score| *score = …)`, then
//! `row /= row.sum()`.

use attention::plain::*;

// PROGRAM softmax
// FAULT columns: softmax runs over each row, not down the columns
// - for (i, mut row) in weights.row_iter_mut().enumerate() {
// > for (i, mut row) in weights.column_iter_mut().enumerate() {
// FAULT overflow: what is the exponential of 1,000?
// - let max = row.max(); // without it, exp(710) would be infinite
// > let max = if row.max() == f64::NEG_INFINITY { row.max() } else { 0.0 };
// FAULT first-entry: and not its first, its smallest or its mean
// - let max = row.max(); // without it, exp(710) would be infinite
// > let max = if row.max() == f64::NEG_INFINITY { row.max() } else { row[0] };
// FAULT absolute: In `softmax_rows` the largest of −1000 and −999 is −999
// - let max = row.max(); // without it, exp(710) would be infinite
// > let max = if row.max() == f64::NEG_INFINITY { row.max() } else { row.amax() };
// FAULT one-for-all: a largest score of its own
// - let max = row.max(); // without it, exp(710) would be infinite
// > let max = if row.max() == f64::NEG_INFINITY { row.max() } else { scores.max() };
// FAULT nothing-to-see: it should panic, since no weights sum to 1
// - assert!(max != f64::NEG_INFINITY, "query {i} sees no key");
// FAULT no-division: it should sum to 1
// - row /= row.sum();
// FAULT maximum-left-out: add the maximum again
// - max + scores.row(i).map(|score| (score - max).exp()).sum().ln()
// > scores.row(i).map(|score| (score - max).exp()).sum().ln()
// FAULT not-lowered: is the maximum subtracted before the exponential?
// - max + scores.row(i).map(|score| (score - max).exp()).sum().ln()
// > scores.row(i).map(|score| score.exp()).sum().ln()

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
        let (ratio, e) = (weights[1] / weights[0], 1.0_f64.exp());
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
            "the scores −1000 and −999 get the weights {:.3} and {:.3}, and 0 and 1 others. What did you subtract? In `softmax_rows` the largest of −1000 and −999 is −999",
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
            assert!(
                (&weights - right).amax() < 1e-9,
                "the scores {:?} get the weights {:?}: is it the largest score of the row that you subtract, and not its first, its smallest or its mean?",
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
    fn a_row_that_sees_nothing_is_refused() {
        const HIDDEN: f64 = f64::NEG_INFINITY;
        let weights = softmax_rows(&dmatrix![0.0, HIDDEN]);
        assert!(
            weights == dmatrix![1.0, 0.0],
            "a score of −∞ should get the weight 0, and gets {:.3}",
            weights[1]
        );
        let came = std::panic::catch_unwind(|| softmax_rows(&dmatrix![HIDDEN, HIDDEN]));
        assert!(
            came.is_err(),
            "a row of −∞ became {:?}: it should panic, since no weights sum to 1",
            came.unwrap().as_slice()
        );
    }

    #[test]
    fn weights_come_back_from_their_log_sum_exp() {
        for scores in [dmatrix![0.0, 2.0_f64.ln(); 1.0, 1.0], dmatrix![-2.0, 0.5]] {
            let lse = log_sum_exp_rows(&scores);
            let right = scores.row(0).map(f64::exp).sum().ln();
            assert!(
                (lse[0] - right).abs() < 1e-12,
                "the log-sum-exp of {:?} is {right:.4}, and yours {:.4}. If you subtracted the maximum: add the maximum again, after the logarithm",
                scores.row(0).iter().collect::<Vec<_>>(),
                lse[0]
            );
        }
        let lse = log_sum_exp_rows(&dmatrix![1000.0, 1000.0; -1000.0, -1000.0]);
        assert!(
            (lse[0] - 1000.0 - 2.0_f64.ln()).abs() < 1e-9
                && (lse[1] + 1000.0 - 2.0_f64.ln()).abs() < 1e-9,
            "two scores of 1000 have the log-sum-exp 1000 + ln 2, two of −1000 have −1000 + ln 2, and yours are {:.3} and {:.3}: is the maximum subtracted before the exponential?",
            lse[0],
            lse[1]
        );
    }
}
