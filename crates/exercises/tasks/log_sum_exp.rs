//! # The mean of tiny probabilities
//!
//! easy, 15 minutes, without `attention::`
//!
//! The probability that a model gives to a whole text is a product of many small numbers, so small that an `f64` holds zero instead.
//! So programs keep its logarithm, a number such as $-1000$. Suppose you ask several models and want the mean of their
//! probabilities. The exponentials can't be added, because all of them underflow.
//!
//! Write log-sum-exp, $\ln \sum_j e^{x_j}$, and with it the logarithm of the mean of $n$ probabilities that are given
//! by their logarithms. A model may give the text no chance at all: its logarithm is $-\infty$. Don't call the crate's function.
//!
//! # Hint
//!
//! The chapter's second form of log-sum-exp moves a common factor outside of the sum. Which factor makes the largest
//! term 1?
//!
//! # Hint
//!
//! What is the logarithm of $\frac1n \sum_j p_j$, in terms of log-sum-exp? A model that says $-\infty$ adds nothing to
//! the sum. Does it count in $n$?
//!
//! # Hint
//!
//! `x.iter().copied().fold(f64::NEG_INFINITY, f64::max)` is the largest entry $m$. If it is $-\infty$, return it before
//! you subtract anything. Otherwise the result is $m$ plus a logarithm. The mean needs one more subtraction, of a
//! logarithm of a count.

/// Returns ln Σ exp(x), of one number or more.
pub fn log_sum_exp(x: &[f64]) -> f64 {
    // SOLUTION
    // FAULT no-maximum: underflows to 0
    // > let largest = 0.0_f64;
    // FAULT the-crate: this exercise asks you to do without it
    // > let largest = attention::log_sum_exp(&nalgebra::DVector::from_row_slice(x)).unwrap();
    // FAULT first-entry: and not their first, their smallest or their mean
    // > let largest = x[0];
    // FAULT smallest: and not their first, their smallest or their mean
    // > let largest = x.iter().copied().fold(f64::INFINITY, f64::min);
    // FAULT mean: and not their first, their smallest or their mean
    // > let largest = x.iter().sum::<f64>() / x.len() as f64;
    // FAULT absolute: underflows to 0
    // > let largest = x.iter().copied().fold(0.0, |a: f64, b| if b == f64::NEG_INFINITY { a } else { a.max(b.abs()) });
    // FAULT from-zero: underflows to 0
    // > let largest = x.iter().copied().fold(0.0, f64::max);
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // FAULT nothing-to-see: −∞ − (−∞) is NaN
    // > if false {
    if largest == f64::NEG_INFINITY {
        return largest; // a sum of zeros
    }
    let sum: f64 = x.iter().map(|x| (x - largest).exp()).sum();
    // FAULT not-added-back: the largest number has to come back
    // > sum.ln()
    largest + sum.ln()
    // END
}

/// Returns the logarithm of the mean of probabilities, given the logarithm of each.
pub fn log_mean(logarithms: &[f64]) -> f64 {
    // SOLUTION
    // FAULT impossible-left-out: a model that says 0 is one of the models
    // > let n = logarithms.iter().filter(|it| it.is_finite()).count() as f64;
    let n = logarithms.len() as f64;
    // FAULT mean-of-logarithms: is the mean of the logarithms
    // > logarithms.iter().sum::<f64>() / n
    log_sum_exp(logarithms) - n.ln()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DVector;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    const NEVER: f64 = f64::NEG_INFINITY;

    #[test]
    fn it_agrees_with_the_crate() {
        let rng = &mut ChaCha8Rng::seed_from_u64(4);
        for n in [1, 2, 7] {
            let x = DVector::<f64>::from_fn(n, |_, _| {
                let draw: f64 = StandardNormal.sample(rng);
                3.0 * draw - 5.0
            });
            let (got, right) =
                (log_sum_exp(x.as_slice()), attention::log_sum_exp(&x).unwrap());
            let without = right - x.max();
            assert!(
                (got - without).abs() > 1e-9,
                "of {n} numbers you return {got:.4}: the largest number has to come back"
            );
            assert!(
                (got - right).abs() < 1e-12,
                "log-sum-exp of {n} numbers, the largest {:.4}: got {got:.4}, and it should be {right:.4}",
                x.max()
            );
        }
    }

    #[test]
    fn no_score_is_too_large_or_too_small() {
        for far in [-1000.0, 1000.0] {
            let got = log_sum_exp(&[far, far]);
            let cause = match far {
                _ if got.is_finite() => {
                    "may be right: does the largest number come back?"
                }
                ..0.0 => "underflows to 0",
                _ => "overflows to ∞",
            };
            assert!(
                (got - far - 2.0_f64.ln()).abs() < 1e-9,
                "of {far} twice: got {got}. The exponential of {far} {cause}"
            );
        }
        for x in [[-2000.0, 2000.0, 0.0], [0.0, -2000.0, 2000.0], [2000.0, 0.0, -2000.0]]
        {
            let got = log_sum_exp(&x);
            assert!(
                (got - 2000.0).abs() < 1e-9,
                "of {x:?}: got {got}, and the largest is all that counts. Is it the largest number that you subtract, and not their first, their smallest or their mean?"
            );
        }
    }

    #[test]
    fn impossible_texts_stay_impossible() {
        let got = log_sum_exp(&[NEVER, NEVER, NEVER]);
        assert!(!got.is_nan(), "log-sum-exp of nothing but −∞ is NaN: −∞ − (−∞) is NaN");
        assert!(
            got == NEVER,
            "a sum of zeros has the logarithm −∞; yours is {got:?}, expected −∞"
        );
        assert!(
            log_mean(&[NEVER, NEVER]) == NEVER,
            "the mean of two zeros is zero, whose logarithm is −∞; yours is {:?}, expected −∞",
            log_mean(&[NEVER, NEVER])
        );
        assert!(
            log_sum_exp(&[NEVER, -2.0]) == -2.0,
            "adding a zero to a sum doesn't change it; yours is {:?}, expected {:?}",
            log_sum_exp(&[NEVER, -2.0]),
            -2.0
        );
    }

    #[test]
    fn the_mean_is_of_probabilities() {
        let agreed = log_mean(&[-1000.0; 4]);
        assert!(
            (agreed + 1000.0).abs() < 1e-9,
            "four models say −1000, so their mean is −1000, not {agreed}"
        );
        for x in [[-1000.0, -1002.0, -1001.0], [-3.0, -1.0, -700.0]] {
            let got = log_mean(&x);
            let right = attention::log_sum_exp(&DVector::from_row_slice(&x)).unwrap()
                - 3.0_f64.ln();
            let of_logarithms = x.iter().sum::<f64>() / 3.0;
            assert!(
                (got - of_logarithms).abs() > 1e-9,
                "of {x:?}: {got:.4}. This is the mean of the logarithms: it belongs to a product, not to a sum"
            );
            assert!(
                (got - right).abs() < 1e-9,
                "the logarithm of the mean of the probabilities {x:?}: got {got:.4}. By what do you divide a sum whose logarithm you have?"
            );
        }
    }

    #[test]
    fn a_model_that_says_zero_counts() {
        let got = log_mean(&[-5.0, NEVER, -5.0, NEVER]);
        assert!(
            (got + 5.0).abs() > 1e-9,
            "two models of four say −5, the others 0, and your mean is that of the two: a model that says 0 is one of the models"
        );
        assert!(
            (got + 5.0 + 2.0_f64.ln()).abs() < 1e-9,
            "two models of four say −5, and the mean should be half of that probability: got {got:.4}"
        );
    }
}
