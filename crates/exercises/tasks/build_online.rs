//! # Build it yourself: softmax in one sweep
//!
//! medium, 30 minutes, without `attention::`
//!
//! A `Partial` is what is known of a row while its scores come one after the other: the largest score so far, and two sums that are relative
//! to it. With `new` nothing is known: the maximum is $-\infty$, and the sums are 0. Each key is taken up by `absorb`, which uses `rescale` to
//! make both sums relative to a new maximum. Two parts of one row become one by `merge`. At the end `finish` returns the row's output
//! $(1, d_v)$ and its log-sum-exp. A query that has seen no key at all has neither: `finish` panics.
//!
//! # Hint
//!
//! A new score of 5 arrives, and the maximum was 3. Each term of both sums has the factor $e^{s - 3}$, and should have $e^{s - 5}$. By which
//! number do you multiply both sums?
//!
//! # Hint
//!
//! `absorb` first brings the state to the larger maximum of the two, and only then adds its own term. `merge` brings *both* parts to the larger
//! of their maxima; then sums simply add up.
//!
//! # Hint
//!
//! In `rescale`, if the maximum grows: `let correction = (self.max - max).exp();`, both sums times it, and `self.max = max`. The logarithm of
//! the sum lacks the maximum, which `finish` adds again.

use attention::plain::*;

// PROGRAM online
// FAULT from-zero: does the maximum begin at −∞, and not at 0
// - Partial { max: f64::NEG_INFINITY, sum: 0.0, values: RowDVector::zeros(d_v) }
// > Partial { max: 0.0, sum: 0.0, values: RowDVector::zeros(d_v) }
// FAULT newest: is the maximum the largest score so far, and not the newest
// - self.rescale(self.max.max(score));
// > self.rescale(score); self.max = score;
// FAULT sum-not-corrected: do the terms from before still have the old maximum
// - self.sum *= correction;
// FAULT values-not-corrected: both sums need the correction
// - self.values *= correction;
// FAULT upside-down: is the correction smaller than 1
// - let correction = (self.max - max).exp(); // exp(−∞) is 0: nothing so far
// > let correction = if self.max == f64::NEG_INFINITY { 0.0 } else { (max - self.max).exp() };
// FAULT two-empty-parts: −∞ − (−∞) is NaN
// - if self.max < max {
// > if self.max <= max {
// FAULT value-alone: does each value get its own weight
// - self.values += exponential * value;
// > self.values += value;
// FAULT not-divided: does the end divide by the sum
// - (self.values / self.sum, self.max + self.sum.ln())
// > (self.values, self.max + self.sum.ln())
// FAULT maximum-left-out: add the maximum to the logarithm
// - (self.values / self.sum, self.max + self.sum.ln())
// > (self.values / self.sum, self.sum.ln())
// FAULT nothing-seen: it should panic
// - assert!(self.sum > 0.0, "the query sees no key");
// FAULT one-side: bring both parts to the larger maximum
// - other.rescale(max);
// FAULT own-maximum: the larger maximum of the two
// - let max = self.max.max(other.max);
// > let max = self.max;
// FAULT half-a-merge: add up both sums of the other part
// - Partial { max, sum: self.sum + other.sum, values: self.values + other.values }
// > Partial { max, sum: self.sum + other.sum, values: self.values }

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::RowDVector;

    fn value(j: usize) -> RowDVector<f64> {
        RowDVector::from_vec(vec![j as f64, (1.7 * j as f64).cos()])
    }

    /// The keys `from..` of a row, whose values follow from their numbers.
    fn part(scores: &[f64], from: usize) -> Partial {
        let mut partial = Partial::new(2);
        for (j, score) in scores.iter().enumerate() {
            partial.absorb(*score, &value(from + j));
        }
        partial
    }

    /// Compares with the two sums over all keys at once.
    fn compare(partial: Partial, scores: &[f64], question: &str) {
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        let mut right = RowDVector::zeros(2);
        for (j, score) in scores.iter().enumerate() {
            right += value(j) * ((score - max).exp() / sum);
        }
        let (output, lse) = partial.finish();
        assert!(
            (&output - &right).amax() < 1e-10,
            "scores {scores:?}: the output should be {:.4?} and is {:.4?}: {question}",
            right.as_slice(),
            output.as_slice()
        );
        let expected = max + sum.ln();
        assert!(
            (lse - expected).abs() < 1e-12 * expected.abs().max(1.0),
            "scores {scores:?}: the log-sum-exp should be {expected:.4} and is {lse:.4}: add the maximum to the logarithm of the sum"
        );
    }

    #[test]
    fn falling_scores_need_no_correction() {
        let scores = [2.0, 1.0, 0.5, -3.0];
        let question =
            "does each value get its own weight, and does the end divide by the sum?";
        compare(part(&scores, 0), &scores, question);
        compare(part(&[1.0], 0), &[1.0], "one key: the output is its value");
    }

    #[test]
    fn a_new_maximum_corrects_the_past() {
        let partial = part(&[0.0, 2.0_f64.ln(), 8.0_f64.ln()], 0);
        assert!(
            (partial.sum - 1.375).abs() < 1e-12,
            "scores of ln 1, ln 2 and ln 8 have the sum 1/8 + 2/8 + 1 = 1.375, and yours is {:.3}: do the terms from before still have the old maximum? A correction makes them smaller: is the correction smaller than 1?",
            partial.sum
        );
        for scores in [vec![0.1, 1.0, 1.5, 4.0, 4.5], vec![4.0, 0.3, 4.3, 7.0, -2.0]] {
            compare(part(&scores, 0), &scores, "both sums need the correction");
        }
    }

    #[test]
    fn large_scores_stay_finite() {
        for scores in [[2999.0, 3000.0, 3001.5], [-3001.5, -3000.0, -2999.0]] {
            let question = "does the maximum begin at −∞, and not at 0, and does every exponential subtract it?";
            let partial = part(&scores, 0);
            assert!(
                partial.sum > 0.0,
                "scores {scores:?} have a sum of {}: {question}",
                partial.sum
            );
            compare(partial, &scores, question);
        }
        for scores in [[2000.0, 0.0, -2000.0], [-2000.0, 2000.0, 0.0]] {
            let question = "is the maximum the largest score so far, and not the newest?";
            compare(part(&scores, 0), &scores, question);
        }
    }

    #[test]
    fn a_query_that_saw_nothing_is_refused() {
        let came = std::panic::catch_unwind(|| part(&[], 0).finish());
        assert!(
            came.is_err(),
            "a query that saw no key got an output: it should panic, since 0 / 0 is NaN"
        );
    }

    #[test]
    fn parts_merge_into_the_whole_row() {
        let scores = [1.0, -0.5, 3.0, 2.5, 0.0, 6.0, 5.0];
        for cut in 1..scores.len() {
            let (first, second) = (part(&scores[..cut], 0), part(&scores[cut..], cut));
            let question = "bring both parts to the larger maximum of the two, then add up both sums of the other part, exponentials and values";
            compare(first.merge(second), &scores, question);
            let (first, second) = (part(&scores[..cut], 0), part(&scores[cut..], cut));
            compare(second.merge(first), &scores, question);
        }
        let scores = [-2000.0, 2000.0];
        for turned in [false, true] {
            let (a, b) = (part(&scores[..1], 0), part(&scores[1..], 1));
            let merged = if turned { b.merge(a) } else { a.merge(b) };
            compare(
                merged,
                &scores,
                "parts far apart: is it the larger maximum of the two?",
            );
        }
    }

    #[test]
    fn an_empty_part_changes_nothing() {
        for turned in [false, true] {
            let (full, empty) = (part(&[-900.0, -901.0], 0), Partial::new(2));
            let merged = if turned { full.merge(empty) } else { empty.merge(full) };
            let question = "merged with a part that saw nothing, a part stays as it is";
            compare(merged, &[-900.0, -901.0], question);
        }
        let merged = Partial::new(2).merge(Partial::new(2));
        assert!(
            merged.sum == 0.0 && merged.max == f64::NEG_INFINITY,
            "two parts that saw nothing became a sum of {} and a maximum of {}: −∞ − (−∞) is NaN, and only a larger maximum asks for a correction",
            merged.sum,
            merged.max
        );
    }
}
