//! # One pass over the keys
//!
//! medium, 20 minutes
//!
//! Keys arrive one at a time, and none may be looked at twice. Keep the state $(m, \ell, o)$ of one query, and return
//! its output and its log-sum-exp at the end. This is the inner loop of every fast attention.
//!
//! The state starts empty. `absorb` takes one score and its value, a row of $d_v$ numbers. A hidden key has the score
//! $-\infty$. Its value may be anything, even NaN, and must leave no trace. Scores may be in the thousands.
//!
//! `finish` returns the output and $L$. A query that has seen nothing has an output of zeros, and $L = -\infty$.
//!
//! # Hint
//!
//! What did the terms in $\ell$ and $o$ subtract when they were added? What should they have subtracted, now that a
//! larger score is here?
//!
//! # Hint
//!
//! Compute $m'$ first, then the correction $e^{m - m'}$, then the weight $e^{s - m'}$ of the new key. Both sums need
//! the correction. Which keys can you let pass without doing anything at all?
//!
//! # Hint
//!
//! Return early if the score is $-\infty$. Then $m'$ is finite, and $e^{-\infty - m'} = 0$ is the right correction for
//! the empty state. At the end, a sum of zero is the sign that nothing was seen.

/// What is known of one query's row after some keys.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The running maximum (m).
    pub max: f64,
    /// The sum of exponentials (ℓ).
    pub sum: f64,
    /// The sum of exponentials times values (o), d_v numbers.
    pub values: Vec<f64>,
}

impl State {
    /// The state before the first key.
    pub fn new(d_v: usize) -> Self {
        State { max: f64::NEG_INFINITY, sum: 0.0, values: vec![0.0; d_v] }
    }

    /// Takes one key: its score, and its value of d_v numbers.
    pub fn absorb(&mut self, score: f64, value: &[f64]) {
        // SOLUTION
        // FAULT hidden: can skip a hidden key altogether
        if score == f64::NEG_INFINITY {
            // FAULT hidden
            return;
            // FAULT hidden
        }
        // FAULT from-zero: does m begin at −∞
        // > let max = self.max.max(score).max(0.0);
        // FAULT latest: subtract the largest score so far
        // > let max = score;
        // FAULT first: subtract the largest score so far
        // > let max = if self.sum == 0.0 { score } else { self.max };
        let max = self.max.max(score);
        // FAULT no-correction: the terms from before still have the old maximum
        // > let correction = 1.0;
        let correction = (self.max - max).exp();
        let weight = (score - max).exp();
        self.sum = correction * self.sum + weight;
        for (o, v) in self.values.iter_mut().zip(value) {
            // FAULT only-the-sum: both sums need the correction
            // > *o += weight * v;
            *o = correction * *o + weight * v;
        }
        self.max = max;
        // END
    }

    /// Returns the output, d_v numbers, and the log-sum-exp (L).
    pub fn finish(self) -> (Vec<f64>, f64) {
        // SOLUTION
        // FAULT nothing-seen: What is 0 / 0?
        // > let sum = self.sum;
        let sum = if self.sum == 0.0 { 1.0 } else { self.sum };
        // FAULT no-division: divide by ℓ at the end
        // > let output = self.values.clone();
        let output = self.values.iter().map(|o| o / sum).collect();
        // FAULT without-the-maximum: add the maximum
        // > (output, self.sum.ln())
        (output, self.max + self.sum.ln())
        // END
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{log_sum_exp, softmax};
    use nalgebra::DVector;

    const NOTHING: f64 = f64::NEG_INFINITY;

    fn run(scores: &[f64], values: &[[f64; 2]]) -> (Vec<f64>, f64) {
        let mut state = State::new(2);
        for (score, value) in scores.iter().zip(values) {
            state.absorb(*score, value);
        }
        state.finish()
    }

    fn values(n: usize) -> Vec<[f64; 2]> {
        (0..n).map(|j| [j as f64, (1.7 * j as f64).cos()]).collect()
    }

    fn compare(name: &str, scores: &[f64]) {
        let values = values(scores.len());
        let (output, lse) = run(scores, &values);
        let row = DVector::from_column_slice(scores);
        let (weights, right) = (softmax(&row).unwrap(), log_sum_exp(&row).unwrap());
        assert!(
            output.iter().all(|o| o.is_finite()),
            "{name}: the output is {output:?}: does every exponential subtract the largest score so far, and is no correction larger than 1?"
        );
        let expected =
            |c: usize| (0..values.len()).map(|j| weights[j] * values[j][c]).sum::<f64>();
        let is = |factor: f64| {
            (0..2).all(|c| (output[c] - factor * expected(c)).abs() < 1e-10)
        };
        let sum = (right - row.max()).exp();
        assert!(
            (sum - 1.0).abs() < 1e-9 || !is(sum),
            "{name}: the output is ℓ times too large: divide by ℓ at the end"
        );
        let falls = scores.windows(2).all(|pair| pair[0] >= pair[1]);
        let question = if row.max() < -700.0 && output.iter().all(|o| *o == 0.0) {
            "all exponentials became 0: does m begin at −∞, and not at 0?"
        } else if falls {
            "does each value get its own weight, and is m the largest score so far? These scores need no correction"
        } else {
            "both sums need the correction"
        };
        assert!(
            is(1.0),
            "{name}: the output should be ({:.4}, {:.4}) and is {output:.4?}: {question}",
            expected(0),
            expected(1)
        );
        assert!(
            (lse - right).abs() < 1e-12 * right.abs().max(1.0),
            "{name}: L should be {right:.4} and is {lse:.4}: add the maximum to the logarithm"
        );
    }

    #[test]
    fn falling_scores_need_no_correction() {
        compare("one key", &[-5.0]);
        compare("four scores that fall", &[2.0, 1.0, 0.5, -3.0]);
    }

    #[test]
    fn a_new_maximum_corrects_the_past() {
        let mut state = State::new(1);
        for (score, value) in [(0.0, 4.0), (2.0_f64.ln(), 1.0), (8.0_f64.ln(), 2.0)] {
            state.absorb(score, &[value]);
        }
        assert!(
            (state.sum - 1.375).abs() < 1e-12,
            "scores ln 1, ln 2, ln 8 give ℓ = 1/8 + 2/8 + 1 = 1.375, not {:.3}: do the terms from before still have the old maximum?",
            state.sum
        );
        compare("rising scores", &[0.1, 1.0, 1.5, 4.0, 4.5]);
        compare("up and down", &[4.0, 0.3, 4.3, 4.1, 7.0, -2.0]);
    }

    #[test]
    fn large_scores_stay_finite() {
        compare("scores around 3000", &[2999.0, 3000.0, 3001.5]);
        compare("scores around -3000", &[-3001.5, -3000.0, -2999.0]);
        compare("scores far apart, the first the largest", &[2000.0, 0.0, -2000.0]);
        compare("scores far apart, the first the smallest", &[-2000.0, 2000.0, 0.0]);
        compare("scores far apart, the last the largest", &[0.0, -2000.0, 2000.0]);
    }

    #[test]
    fn a_query_that_sees_nothing_gets_zeros() {
        let (output, lse) = run(&[], &[]);
        assert!(
            output == [0.0, 0.0] && lse == NOTHING,
            "nothing seen: the output should be zeros, and yours is {output:?}. L is the logarithm of an empty sum, −∞, and yours is {lse}. What is 0 / 0?"
        );
    }

    #[test]
    fn a_hidden_key_leaves_no_trace() {
        let expected = run(&[1.0, 1.5], &[[1.0, 0.0], [3.0, 0.0]]);
        let came = run(&[1.0, NOTHING, 1.5], &[[1.0, 0.0], [7.0, 7.0], [3.0, 0.0]]);
        assert!(
            came == expected,
            "a hidden key leaves no trace, but after a visible key it changes the result: yours {came:.3?}, expected {expected:.3?}"
        );
        let came = run(&[NOTHING, 1.0], &[[7.0, 7.0], [3.0, 0.0]]);
        assert!(
            came == (vec![3.0, 0.0], 1.0),
            "the first key is hidden, the second visible: yours {came:.3?}, expected the second's value, and its score for L. What is −∞ − (−∞)?"
        );
    }

    #[test]
    fn the_value_of_a_hidden_key_may_be_nan() {
        let values = [[1.0, 0.0], [f64::NAN, f64::INFINITY], [3.0, 0.0]];
        let (output, lse) = run(&[1.0, NOTHING, 1.0], &values);
        assert!(
            output == [2.0, 0.0],
            "a key is hidden, and its value is NaN: o became {output:?}. Its weight is 0, but 0 · NaN is NaN. A program that takes one key at a time can skip a hidden key altogether"
        );
        assert!((lse - 1.0 - 2.0_f64.ln()).abs() < 1e-12, "L counts visible keys only");
    }
}
