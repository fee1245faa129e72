//! # Entries that are not standard
//!
//! easy, 20 minutes
//!
//! The chapter's $\sqrt{d_k}$ relies on entries of mean 0 and variance 1. Real layers have others. Let each entry of a
//! query have mean 0 and standard deviation $s_q$. Let each entry of a key have mean $\mu$ and standard deviation
//! $s_k$. All entries are independent.
//!
//! Write two functions. The first measures the standard deviation of $\langle q, k \rangle$ over random pairs, each a
//! new query and a new key with normal entries. The second says, without any random numbers, by what the scores must be
//! divided so that their standard deviation is 1. Use paper for the second, and the first to check it.
//!
//! # Hint
//!
//! Go through the chapter's derivation again. Where did it use that a mean is zero, and where that a variance is 1?
//!
//! # Hint
//!
//! The mean of a score is still 0, because the query's entries have mean 0. So the variance of one term is
//! $\operatorname{E}[q_c^2]\,\operatorname{E}[k_c^2]$. For the key, a mean square is the variance plus the square of
//! the mean.
//!
//! # Hint
//!
//! To draw a number with mean $m$ and standard deviation $s$, take `let z: f64 = StandardNormal.sample(rng);` and then
//! `m + s * z`. With mean 0, a standard deviation is the root of the mean square: add up the squares of all scores,
//! divide by their number, take the root.

use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// How the entries of queries and keys are spread.
#[derive(Debug, Clone, Copy)]
pub struct Entries {
    /// The standard deviation of a query's entries, whose mean is 0.
    pub s_q: f64,
    /// The mean of a key's entries.
    pub mean_k: f64,
    /// The standard deviation of a key's entries.
    pub s_k: f64,
}

/// Returns the measured standard deviation of the products of `pairs` random queries and keys, `d` entries wide.
pub fn measured_spread(
    d: usize,
    entries: Entries,
    pairs: usize,
    rng: &mut ChaCha8Rng,
) -> f64 {
    // SOLUTION
    let mut normal = |mean: f64, spread: f64| {
        let z: f64 = StandardNormal.sample(rng);
        mean + spread * z
    };
    let Entries { s_q, mean_k, s_k } = entries;
    let mut squares = 0.0;
    // FAULT one-query: is each pair a new query and a new key?
    // > let q: Vec<f64> = (0..d).map(|_| normal(0.0, s_q)).collect();
    // > for _ in 0..pairs {
    for _ in 0..pairs {
        // FAULT one-query
        // > let score: f64 = q.iter().map(|q| q * normal(mean_k, s_k)).sum();
        let score: f64 = (0..d).map(|_| normal(0.0, s_q) * normal(mean_k, s_k)).sum();
        squares += score * score;
    }
    // FAULT variance: this is the variance
    // > squares / pairs as f64
    (squares / pairs as f64).sqrt() // the mean of a score is 0
    // END
}

/// Returns the number by which scores are divided so that their standard deviation is 1.
pub fn divisor(d: usize, entries: Entries) -> f64 {
    // SOLUTION
    let Entries { s_q, mean_k, s_k } = entries;
    // FAULT mean-left-out: if the mean of the keys is left out
    // > let mean_square_k = s_k * s_k;
    let mean_square_k = s_k * s_k + mean_k * mean_k;
    // FAULT no-root: this is the variance, whose root is asked for
    // > d as f64 * s_q * s_q * mean_square_k
    (d as f64 * s_q * s_q * mean_square_k).sqrt()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    const CASES: [(usize, Entries); 5] = [
        (16, Entries { s_q: 1.0, mean_k: 0.0, s_k: 1.0 }),
        (9, Entries { s_q: 2.0, mean_k: 0.0, s_k: 2.0 }),
        (25, Entries { s_q: 3.0, mean_k: 0.0, s_k: 0.5 }),
        (4, Entries { s_q: 0.5, mean_k: -3.0, s_k: 1.5 }),
        (100, Entries { s_q: 1.0, mean_k: 2.0, s_k: 0.0 }),
    ];

    /// Whether two numbers agree, up to this share of the second.
    fn near(a: f64, b: f64, share: f64) -> bool {
        (a - b).abs() <= share * b.abs()
    }

    /// The right standard deviation, in four parts.
    fn spread((d, Entries { s_q, mean_k, s_k }): (usize, Entries)) -> f64 {
        (d as f64).sqrt() * s_q * s_k.hypot(mean_k)
    }

    #[test]
    fn the_measured_spread_is_that_of_scores() {
        for (seed, case @ (d, entries)) in CASES.into_iter().enumerate() {
            let got = measured_spread(
                d,
                entries,
                4000,
                &mut ChaCha8Rng::seed_from_u64(seed as u64),
            );
            let right = spread(case);
            if near(got, right, 0.06) {
                continue;
            }
            assert!(
                !near(got, right * right, 0.12),
                "d = {d}, {entries:?}: measured {got:.3}: this is the variance, whose root is the standard deviation"
            );
            panic!(
                "d = {d}, {entries:?}: measured {got:.3}, which is not within chance of the right one"
            );
        }
    }

    #[test]
    fn every_pair_is_drawn_anew() {
        for seed in 10..14 {
            let entries = Entries { s_q: 1.0, mean_k: 0.0, s_k: 1.0 };
            let got =
                measured_spread(1, entries, 4000, &mut ChaCha8Rng::seed_from_u64(seed));
            assert!(
                near(got, 1.0, 0.1),
                "d = 1, standard entries, seed {seed}: measured {got:.3}, and it should be about 1. In each pair, is each pair a new query and a new key?"
            );
        }
    }

    #[test]
    fn another_seed_measures_another_number() {
        let measure = |seed| {
            measured_spread(3, CASES[0].1, 50, &mut ChaCha8Rng::seed_from_u64(seed))
        };
        assert!(
            measure(1) != measure(2),
            "two seeds measure the same: do you draw from `rng`?"
        );
        assert!(
            (measure(1) - measure(2)).abs() < 1.5,
            "two samples of 50 pairs differ by more than chance allows"
        );
    }

    #[test]
    fn the_divisor_makes_the_spread_one() {
        for case @ (d, Entries { s_q, mean_k, s_k }) in CASES {
            let (got, right) = (divisor(d, case.1), spread(case));
            if near(got, right, 1e-9) {
                continue;
            }
            let root = (d as f64).sqrt();
            let slips = [
                (
                    root * s_q * s_k,
                    "this is what you get if the mean of the keys is left out",
                ),
                (right * right, "this is the variance, whose root is asked for"),
                (root, "this suits entries of mean 0 and variance 1"),
                (root * root * s_q * s_k.hypot(mean_k), "the width counts by its root"),
                (
                    root * s_q * (s_k + mean_k.abs()),
                    "a mean square is the *variance* plus the *square* of the mean",
                ),
            ];
            let slip = slips.iter().find(|(wrong, _)| near(got, *wrong, 1e-9));
            let why =
                slip.map_or("derive the variance of one term first", |(_, what)| what);
            panic!("d = {d}, {:?}: {got:.4} isn't the divisor: {why}", case.1);
        }
    }
}
