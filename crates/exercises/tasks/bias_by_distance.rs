//! # A slope for each head
//!
//! medium, 15 minutes, without `attention::`
//!
//! ALiBi makes distant keys pay. It learns nothing and is defined at any length, so you can add it to a model in two
//! small functions.
//!
//! The first returns the slopes of $h$ heads. Head $r$, counted from 1, has $m = 2^{-8r/h}$, and $h$ is a power of two.
//! The second takes one head's scores $(n_q, n_k)$ and its slope, and returns the biased scores of the same shape: each
//! loses $m$ times the distance between query and key, in either direction.
//!
//! With fewer queries than keys, the last query stands at the last key. Nothing is masked here, so some keys lie in a
//! query's future. They pay, too. Don't call the crate.
//!
//! # Hint
//!
//! A `Vec` counts from 0, and the formula's heads from 1. What is the slope of the first of two heads, by the chapter?
//!
//! # Hint
//!
//! At which position among the keys does query $i$ stand? The distance is the difference of two positions, and it has
//! no sign.
//!
//! # Hint
//!
//! Positions as `f64` avoid trouble with negative `usize`. `scores.map_with_location(|i, j, score| …)` builds the
//! matrix, with `(position - j as f64).abs()` inside.

use nalgebra::DMatrix;

/// Returns the slopes of `heads` heads, a power of two.
pub fn slopes(heads: usize) -> Vec<f64> {
    // SOLUTION
    // FAULT from-zero: the first head of the formula is number 1
    // > let slope = |r: usize| (-8.0 * r as f64 / heads as f64).exp2();
    // FAULT natural: a power of 2, not of e
    // > let slope = |r: usize| (-8.0 * (r + 1) as f64 / heads as f64).exp();
    let slope = |r: usize| (-8.0 * (r + 1) as f64 / heads as f64).exp2();
    (0..heads).map(slope).collect()
    // END
}

/// Returns scores that are lower by `slope` for each token of distance.
///
/// Shapes: `scores` (n_q, n_k) → (n_q, n_k).
pub fn biased(scores: &DMatrix<f64>, slope: f64) -> DMatrix<f64> {
    // SOLUTION
    // FAULT the-crate: this exercise asks you to do without it
    // > let (n_q, n_k) = attention::ScoreRule::slopes(&[slope]).map(|_| scores.shape()).unwrap();
    let (n_q, n_k) = scores.shape();
    scores.map_with_location(|i, j, score| {
        // FAULT corner: where among the keys does a query stand?
        // > let distance = i as f64 - j as f64;
        let distance = i as f64 + n_k as f64 - n_q as f64 - j as f64;
        // FAULT future-gains: keys of the future
        // > score - slope * distance
        // FAULT plus: should cost, and here it pays
        // > score + slope * distance.abs()
        score - slope * distance.abs()
    })
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, ScoreRule};
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    fn check(n_q: usize, n_k: usize, slope: f64, question: &str) {
        let rng = &mut ChaCha8Rng::seed_from_u64(n_k as u64);
        let scores = DMatrix::<f64>::from_fn(n_q, n_k, |_, _| StandardNormal.sample(rng));
        let mask =
            Mask::none().with_scores(ScoreRule::slopes(&[slope]).unwrap()).of_head(0);
        let right = mask.sized(n_q, n_k).unwrap().apply(scores.clone()).unwrap();
        let got = biased(&scores, slope);
        assert!(
            got.shape() == (n_q, n_k),
            "biased scores have the shape of scores; yours is {:?}, expected {:?}",
            got.shape(),
            (n_q, n_k)
        );
        for i in 0..n_q {
            for j in 0..n_k {
                let (yours, needed) =
                    (got[(i, j)] - scores[(i, j)], right[(i, j)] - scores[(i, j)]);
                assert!(
                    (yours - needed).abs() < 1e-9,
                    "{n_q} queries, {n_k} keys, slope {slope}: the score of query {i} and key {j} changed by {yours:.3}, and should by {needed:.3}. {question}"
                );
            }
        }
    }

    #[test]
    fn slopes_halve_or_fall_faster() {
        for heads in [1, 2, 4, 8, 16] {
            let got = slopes(heads);
            assert!(
                got.len() == heads,
                "there is a slope for each head: you return {}, expected {heads}",
                got.len()
            );
            assert!(
                (got[0] - 1.0).abs() > 1e-9,
                "the first of {heads} slopes is 1: the first head of the formula is number 1, not 0"
            );
            for (index, slope) in got.iter().enumerate() {
                let exponent = -8.0 * (index + 1) as f64 / heads as f64;
                assert!(
                    (slope - exponent.exp()).abs() > 1e-9,
                    "slope {index} of {heads} is {slope:.5}: the formula has a power of 2, not of e"
                );
                assert!(
                    (slope - 2.0_f64.powf(exponent)).abs() < 1e-12,
                    "slope {index} of {heads}, counted from 0, is {slope:.5}, and it should be 2 to the {exponent}"
                );
            }
        }
    }

    #[test]
    fn distance_costs() {
        let got = biased(&DMatrix::zeros(4, 4), 0.25);
        assert!(
            got[(3, 0)] < 0.0,
            "the last of four tokens sees the first one with a score that grew by {:.3}: distance should cost, and here it pays",
            got[(3, 0)]
        );
        assert!(
            got[(2, 2)] == 0.0,
            "a token is at no distance from itself: its score became {:?}, expected {:?}",
            got[(2, 2)],
            0.0
        );
    }

    #[test]
    fn as_many_queries_as_keys() {
        check(5, 5, 0.5, "Look at the keys of the future: a distance has no sign");
    }

    #[test]
    fn fewer_queries_than_keys() {
        check(
            2,
            6,
            0.5,
            "With keys before the first query, where among the keys does a query stand?",
        );
        check(
            1,
            7,
            0.125,
            "The only query is the last token: where among the keys does a query stand?",
        );
    }

    #[test]
    fn more_queries_than_keys() {
        check(
            4,
            3,
            1.0,
            "The first query stands before the first key. Mind negative numbers",
        );
    }
}
