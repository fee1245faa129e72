//! # Learn from a teacher
//!
//! medium, 20 minutes
//!
//! A small model can learn from a large one: its target isn't one token but the large model's probabilities $t$ of
//! all tokens. The loss of a row of logits $s$ is then the cross-entropy $-\sum_c t_c \log p_c$, where $p$ is the
//! softmax of $s$.
//!
//! Write the loss, summed over rows, and its gradient with respect to the logits. A row of $t$ sums to 1, or is all
//! zeros: this position has no target, and adds neither loss nor gradient. Logits may be as large as 1,000, in any
//! direction, so never compute $\log p$ from $p$.
//!
//! Shapes: logits, probabilities and gradient $(n, \text{vocabulary})$.
//!
//! # Hint
//!
//! With $t$ all on one token, your loss must be that of the chapter. Which of its two terms changes if $t$ is
//! spread?
//!
//! # Hint
//!
//! $\log p_c = s_c - \operatorname{lse}(s)$, and a log-sum-exp is safe if the largest logit is subtracted first.
//! The sum of a row of $t$ appears in front of the log-sum-exp, and its gradient.
//!
//! # Hint
//!
//! For each row: `max`, then `lse = max + sum of exp(s − max), logarithm of it`. The loss grows by
//! $\sum_c t_c (\operatorname{lse} - s_c)$. The gradient is $p_c \sum_b t_b - t_c$, with
//! $p_c = e^{s_c - \operatorname{lse}}$.

use nalgebra::DMatrix;

/// Returns the sum of the rows' losses, and its gradient with respect to `logits`. All matrices are (n, vocabulary).
pub fn cross_entropy(
    logits: &DMatrix<f64>,
    targets: &DMatrix<f64>,
) -> (f64, DMatrix<f64>) {
    // SOLUTION
    let mut loss = 0.0;
    let mut gradient = DMatrix::zeros(logits.nrows(), logits.ncols());
    for (i, (s, t)) in logits.row_iter().zip(targets.row_iter()).enumerate() {
        // FAULT overflow: the largest exponential should be 1
        // > let max = 0.0;
        // FAULT first-entry: not the first, the smallest or the mean
        // > let max = s[0];
        // FAULT smallest: the largest exponential should be 1
        // > let max = s.min();
        // FAULT mean: not the first, the smallest or the mean
        // > let max = s.mean();
        // FAULT absolute: however small they are
        // > let max = s.amax();
        // FAULT from-zero: however small they are
        // > let max = s.max().max(0.0);
        // FAULT one-for-all: a largest logit of its own
        // > let max = logits.max();
        let max = s.max();
        let lse = max + s.map(|s| (s - max).exp()).sum().ln();
        let total = t.sum(); // 1, or 0 where there is no target
        for c in 0..s.len() {
            // FAULT log-of-p: an unlikely token has a finite loss
            // > let log_p = (s[c] - lse).exp().ln();
            let log_p = s[c] - lse;
            loss -= t[c] * log_p;
            // FAULT untargeted: a row without a target has no gradient
            // > gradient[(i, c)] = (s[c] - lse).exp() - t[c];
            // FAULT only-wished-for: sum to zero
            // > gradient[(i, c)] = t[c] * ((s[c] - lse).exp() - 1.0);
            gradient[(i, c)] = (s[c] - lse).exp() * total - t[c];
        }
    }
    (loss, gradient)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{gradient_check::numerical_gradient, softmax_rows};
    use nalgebra::{DMatrix, dmatrix};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-2.0..2.0))
    }

    #[test]
    fn one_token_costs_the_logarithm_of_its_probability() {
        let logits = dmatrix![3.0_f64.ln(), 2.0_f64.ln(), 0.0]; // 3 : 2 : 1
        let (loss, gradient) = cross_entropy(&logits, &dmatrix![0.0, 1.0, 0.0]);
        assert!(
            (loss - 3.0_f64.ln()).abs() < 1e-12,
            "a token with a probability of a third costs ln 3, not {loss:.4}"
        );
        let sum = gradient.sum();
        assert!(
            sum.abs() < 1e-12,
            "a row's gradient should sum to zero, since raising all logits changes nothing. Yours sums to {sum:.3}"
        );
        assert!(
            (6.0 * gradient - dmatrix![3.0, -4.0, 1.0]).amax() < 1e-12,
            "the gradient for probabilities 3 : 2 : 1 and the second token"
        );
    }

    #[test]
    fn gradients_are_slopes() {
        for seed in 0..3 {
            let (logits, targets) =
                (random(4, 5, seed), softmax_rows(&random(4, 5, seed + 10)).unwrap());
            let (_, gradient) = cross_entropy(&logits, &targets);
            let slopes =
                numerical_gradient(&logits, 1e-5, |s| Ok(cross_entropy(s, &targets).0))
                    .unwrap();
            for (i, (row, slope)) in
                gradient.row_iter().zip(slopes.row_iter()).enumerate()
            {
                assert!(
                    row.sum().abs() < 1e-12,
                    "row {i} of the gradient should sum to zero, and sums to {:.3}",
                    row.sum()
                );
                assert!(
                    (row - slope).amax() < 1e-7,
                    "row {i} of the gradient isn't the slope of your loss"
                );
            }
        }
    }

    #[test]
    fn a_student_that_agrees_pays_the_entropy_and_has_nothing_to_learn() {
        let logits = random(3, 6, 7);
        let p = softmax_rows(&logits).unwrap();
        let (loss, gradient) = cross_entropy(&logits, &p);
        let entropy = -p.map(|p| p * p.ln()).sum();
        assert!(
            (loss - entropy).abs() < 1e-12,
            "the cross-entropy of p with itself is its entropy, {entropy:.4}, not {loss:.4}"
        );
        assert!(gradient.amax() < 1e-12, "where p = t, the gradient is zero");
    }

    #[test]
    fn a_row_without_a_target_adds_nothing() {
        let (logits, mut targets) = (random(2, 4, 8), DMatrix::zeros(2, 4));
        targets[(1, 2)] = 1.0;
        let (loss, gradient) = cross_entropy(&logits, &targets);
        let alone = cross_entropy(
            &logits.rows(1, 1).into_owned(),
            &targets.rows(1, 1).into_owned(),
        )
        .0;
        assert!((loss - alone).abs() < 1e-12, "a row without a target adds no loss");
        assert!(
            gradient.row(0).amax() < 1e-12,
            "a row without a target has no gradient, but an entry of yours is {:.3}",
            gradient.row(0).amax()
        );
    }

    #[test]
    fn large_logits_are_no_trouble() {
        let (loss, gradient) =
            cross_entropy(&dmatrix![1000.0, 0.0, 999.0], &dmatrix![0.0, 0.0, 1.0]);
        let right = (1.0 + 1.0_f64.exp()).ln();
        assert!(
            (loss - right).abs() < 1e-9 && gradient.iter().all(|g| g.is_finite()),
            "logits of 1000, 0 and 999 make a loss of {loss}, not {right:.4}: the largest exponential should be 1"
        );
        let (loss, _) = cross_entropy(&dmatrix![-1000.0, -1000.0], &dmatrix![0.5, 0.5]);
        assert!(
            (loss - 2.0_f64.ln()).abs() < 1e-9,
            "two equal logits cost ln 2, however small they are, not {loss}: the largest exponential should be 1"
        );
        for s in [[-2000.0, 2000.0, 0.0], [0.0, -2000.0, 2000.0], [2000.0, 0.0, -2000.0]]
        {
            let logits = DMatrix::from_row_slice(1, 3, &s);
            let (loss, _) = cross_entropy(&logits, &dmatrix![0.0, 1.0, 0.0]);
            assert!(
                (loss - (2000.0 - s[1])).abs() < 1e-9,
                "logits {s:?} and the second token cost {} and not {loss}. The largest logit is subtracted, not the first, the smallest or the mean",
                2000.0 - s[1]
            );
        }
        let far = dmatrix![1000.0, 1000.0; -1000.0, -1000.0];
        let (loss, _) = cross_entropy(&far, &dmatrix![1.0, 0.0; 1.0, 0.0]);
        assert!(
            (loss - 2.0 * 2.0_f64.ln()).abs() < 1e-9,
            "two rows, near 1000 and near −1000, cost ln 2 each, not {loss} together: does each row subtract a largest logit of its own?"
        );
    }

    #[test]
    fn an_unlikely_token_has_a_price() {
        let (loss, _) =
            cross_entropy(&dmatrix![1000.0, 0.0, -1000.0], &dmatrix![0.5, 0.0, 0.5]);
        assert!(
            (loss - 1000.0).abs() < 1e-9,
            "an unlikely token has a finite loss: half of 2000 here, not {loss}"
        );
    }
}
