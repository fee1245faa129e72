//! # As sharp as you like
//!
//! medium, 25 minutes, without `row_entropy`
//!
//! The divisor of the scores decides how evenly a row spreads its weight. In a model that writes text it's called the
//! **temperature**. Find the divisor $a$ at which the weights $A = \operatorname{softmax}(s / a)$ have a given entropy.
//!
//! The entropy $H = -\sum_j A_j \ln A_j$ grows with $a$, so you can search by bisection: start with one $a$ that is too
//! small and one that is too large, and halve the interval. Scores may be of any size, so let them decide where the
//! interval begins and ends. The target can be reached. Find $a$ up to a relative error
//! of $10^{-9}$.
//!
//! First write `entropy`. The crate's `row_entropy` does that; don't use it. You may use `attention::softmax`. It
//! returns a `Result`, an error only for an empty row.
//!
//! # Hint
//!
//! What are the weights when $a$ is very large, and when it is very small? Which of the two has the larger entropy? And
//! what should a term $p \ln p$ be when $p$ underflows to 0?
//!
//! # Hint
//!
//! Start with the interval from 1 to 1. Halve its lower end until the entropy there is too small, and double its upper
//! end until the entropy there is too large. Then look at the middle, and keep the half in which the target lies.
//!
//! # Hint
//!
//! If the entropy in the middle is less than the target, the middle is too small, so it becomes the lower end.
//! Otherwise it becomes the upper end. A hundred halvings are plenty, and cost little.

use attention::softmax;
use nalgebra::DVector;

/// Returns the entropy of weights. A weight of 0 adds nothing.
pub fn entropy(weights: &DVector<f64>) -> f64 {
    // SOLUTION
    // FAULT the-crate: this exercise asks you to do without it
    // > let term = |p: &f64| attention::inspect::row_entropy(&nalgebra::dmatrix![*p]).unwrap()[0];
    // FAULT zero: 0 · ln 0 is NaN
    // > let term = |p: &f64| -p * p.ln();
    // FAULT sign: is a minus missing?
    // > let term = |p: &f64| if *p == 0.0 { 0.0 } else { p * p.ln() };
    // FAULT bits: with the logarithm to the base 2
    // > let term = |p: &f64| if *p == 0.0 { 0.0 } else { -p * p.log2() };
    let term = |p: &f64| if *p == 0.0 { 0.0 } else { -p * p.ln() };
    weights.iter().map(term).sum()
    // END
}

/// Returns the divisor of the scores at which their weights have the target entropy.
pub fn temperature(scores: &DVector<f64>, target: f64) -> f64 {
    // SOLUTION
    // FAULT multiplied: or multiplied
    // > let entropy_at = |a: f64| softmax(&(scores * a)).map_or(f64::NAN, |p| entropy(&p));
    let entropy_at = |a: f64| softmax(&(scores / a)).map_or(f64::NAN, |p| entropy(&p));
    // FAULT fixed-interval: is it inside the interval that you search?
    // > let (mut low, mut high) = (0.01, 100.0);
    let (mut low, mut high) = (1.0, 1.0);
    // FAULT fixed-interval
    // > while false {
    // FAULT multiplied
    // > for _ in 0..60 {
    while entropy_at(low) > target {
        low /= 2.0;
    }
    // FAULT fixed-interval
    // > while false {
    // FAULT multiplied
    // > for _ in 0..60 {
    while entropy_at(high) < target {
        high *= 2.0;
    }
    // FAULT few-steps: When do you stop?
    // > for _ in 0..12 {
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        // FAULT wrong-half: which half do you keep
        // > if entropy_at(middle) > target {
        if entropy_at(middle) < target {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{DVector, dvector};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    #[test]
    fn equal_weights_have_the_largest_entropy() {
        for n in [2, 3, 8] {
            let got = entropy(&DVector::from_element(n, 1.0 / n as f64));
            let nats = (n as f64).ln();
            assert!(
                (got - (n as f64).log2()).abs() > 1e-9,
                "{n} equal weights have the entropy {got:.4}: this is what you get with the logarithm to the base 2"
            );
            assert!(
                (got + nats).abs() > 1e-9,
                "{n} equal weights have the entropy {got:.4}: is a minus missing?"
            );
            assert!(
                (got - nats).abs() < 1e-12,
                "{n} equal weights have the entropy ln {n} = {nats:.4}, not {got:.4}"
            );
        }
        let got = entropy(&dvector![0.5, 0.0, 0.25, 0.25]);
        assert!(!got.is_nan(), "a weight of 0 makes the entropy NaN: 0 · ln 0 is NaN");
        assert!(
            (got - 1.5 * 2.0_f64.ln()).abs() < 1e-12,
            "½, 0, ¼ and ¼ have the entropy 1.5 ln 2, not {got:.4}"
        );
    }

    /// Scores, a divisor, and the entropy that their weights have, by the crate.
    fn check(scores: &DVector<f64>, a: f64) {
        let p = attention::softmax(&(scores / a)).unwrap();
        let target = attention::inspect::row_entropy(&nalgebra::DMatrix::from_row_slice(
            1,
            p.len(),
            p.as_slice(),
        ))
        .unwrap()[0];
        assert!(
            entropy(&dvector![0.5, 0.5]) > 0.0,
            "½ and ½ have a negative entropy, so that no search ends: is a minus missing?"
        );
        let yours = entropy(&p);
        assert!(
            (yours - target).abs() < 1e-9,
            "weights with the entropy {target:.4} have {yours:.4} by yours: get `entropy` right first"
        );
        let got = temperature(scores, target);
        let off = (got / a - 1.0).abs();
        let about = format!(
            "{} scores that span {:.0e}, target entropy {target:.4}: the right divisor is {a:e}, yours is {got:.3e}",
            scores.len(),
            scores.max() - scores.min()
        );
        let question = if got <= 0.0 || got.is_nan() {
            "a divisor is positive".to_owned()
        } else if off < 0.02 {
            format!(
                "near, but off by {off:.0e}: an absolute size is too coarse for small divisors, and an entropy near the target isn't a divisor near the right one. When do you stop?"
            )
        } else if (got * a - 1.0).abs() < 1e-6 {
            "that is a factor, and a divisor was asked for".to_owned()
        } else if !(0.005..200.0).contains(&a) {
            "is it inside the interval that you search? If a test with ordinary scores fails, too, begin there".to_owned()
        } else {
            "is it an end of your interval? Then: are the scores divided by the middle, or multiplied by it? And which half do you keep when the entropy in the middle is too small?"
                .to_owned()
        };
        assert!(off < 1e-8, "{about}: {question}");
    }

    fn draw(n: usize, size: f64) -> DVector<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(n as u64);
        DVector::from_fn(n, |_, _| {
            let z: f64 = StandardNormal.sample(rng);
            size * z
        })
    }

    #[test]
    fn it_finds_the_divisor() {
        for (n, a) in [(3, 0.5), (5, 2.5), (12, 1.0), (40, 0.7)] {
            check(&draw(n, 1.0), a);
        }
    }

    #[test]
    fn scores_may_be_large_or_small() {
        check(&draw(6, 1e4), 7e3);
        check(&draw(6, 1e-4), 5e-5);
        check(&draw(6, 1e20), 7e19);
        check(&draw(6, 1e-20), 5e-21);
    }

    #[test]
    fn nearly_all_weight_on_one_key() {
        check(&dvector![0.0, 900.0, 905.0, 905.5], 0.4);
        check(&(dvector![2.0, 1.0, -1.0].add_scalar(1e3)), 0.2);
    }
}
