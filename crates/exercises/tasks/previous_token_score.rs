//! # Two scores of a head
//!
//! easy, 15 minutes
//!
//! A map of weights is a picture, and you have hundreds of heads. Compute the chapter's two scores, which find the interesting ones:
//!
//! - the **previous-token score**, the weight that a query puts on the token before, averaged over queries that
//!   have one;
//! - the **prefix-matching score**, the weight that a query puts on all tokens that followed earlier copies of its
//!   own, averaged over queries that have copies. The query itself counts if it is such a follower.
//!
//! If no query has such a place, the score is 0. The weights, $(n, n)$, are those of a causal head, and a text has
//! $n$ tokens.
//!
//! # Hint
//!
//! Write down the text `a b a b a`. For each of its five queries: which keys count for the second score?
//!
//! # Hint
//!
//! A mean over *some* queries needs a count of its own. In `a a`, which token followed the copy of the second `a`?
//!
//! # Hint
//!
//! For query `i`, go through all `j < i` with `tokens[j] == tokens[i]`, and add up `weights[(i, j + 1)]`. If there
//! was such a `j`, the query counts, even if its sum is 0. A helper that returns the mean of a `Vec`, or 0, serves
//! both.

use nalgebra::DMatrix;

// SOLUTION
fn mean(numbers: &[f64]) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

// END
/// Returns the mean weight on the token before. `weights` is (n, n), a row for each query.
pub fn previous_token_score(weights: &DMatrix<f64>) -> f64 {
    // SOLUTION
    let on_previous: Vec<f64> =
        (1..weights.nrows()).map(|i| weights[(i, i - 1)]).collect();
    // FAULT all-queries: the first query has no token before it
    // > on_previous.iter().sum::<f64>() / weights.nrows() as f64
    mean(&on_previous)
    // END
}

/// Returns the mean weight on tokens that followed earlier copies. `tokens` has n tokens, and `weights` is (n, n).
pub fn prefix_matching_score(tokens: &[usize], weights: &DMatrix<f64>) -> f64 {
    // SOLUTION
    let mut scores = vec![];
    for i in 0..tokens.len() {
        let copies: Vec<usize> = (0..i).filter(|&j| tokens[j] == tokens[i]).collect();
        // FAULT everyone: queries without copies
        // > {
        if !copies.is_empty() {
            // FAULT the-copy: the copy itself
            // > scores.push(copies.iter().map(|&j| weights[(i, j)]).sum());
            // FAULT last-copy: all earlier copies count
            // > scores.push(weights[(i, copies.last().unwrap() + 1)]);
            scores.push(copies.iter().map(|&j| weights[(i, j + 1)]).sum());
        }
    }
    mean(&scores)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// Weights that are 1 at one key of each query.
    fn looking_at(keys: &[usize]) -> DMatrix<f64> {
        DMatrix::from_fn(
            keys.len(),
            keys.len(),
            |i, j| if keys[i] == j { 1.0 } else { 0.0 },
        )
    }

    fn is(found: f64, right: f64) -> bool {
        (found - right).abs() < 1e-12
    }

    #[test]
    fn a_head_that_looks_one_back_has_a_score_of_one() {
        for n in [2, 5, 9] {
            let back: Vec<usize> = (0..n).map(|i: usize| i.saturating_sub(1)).collect();
            let score = previous_token_score(&looking_at(&back));
            assert!(
                is(score, 1.0),
                "every query that can look one back does so, in a text of {n}, and the score is {score:.3}: the first query has no token before it"
            );
            let itself: Vec<usize> = (0..n).collect();
            assert!(
                is(previous_token_score(&looking_at(&itself)), 0.0),
                "a head that looks at its own token has a score of 0"
            );
        }
    }

    #[test]
    fn an_induction_head_has_a_score_of_one() {
        // q f x q f x q: after the first copy, queries look at what followed the last one, or the first one.
        let tokens = [4, 2, 7, 4, 2, 7, 4];
        let score = prefix_matching_score(&tokens, &looking_at(&[0, 0, 0, 0, 1, 2, 3]));
        assert!(
            is(score, 0.0),
            "a head that finds the copy itself is no induction head, but it has a score of {score:.3}"
        );
        for keys in [[0, 0, 0, 1, 2, 3, 4], [0, 0, 0, 1, 2, 3, 1]] {
            let score = prefix_matching_score(&tokens, &looking_at(&keys));
            assert!(
                !is(score, 4.0 / 7.0),
                "{score:.3} is an average over all queries: leave out queries without copies"
            );
            assert!(
                !is(score, 3.0 / 4.0),
                "the last query looks at what followed the first copy, and all earlier copies count"
            );
            assert!(
                is(score, 1.0),
                "a head that always looks at what followed a copy has a score of 1, not {score:.3}"
            );
        }
    }

    #[test]
    fn scores_of_even_weights() {
        // Three times the same token: the second query counts one key of two, the third one two of three.
        let even =
            DMatrix::from_fn(
                3,
                3,
                |i, j| if j <= i { 1.0 / (i + 1) as f64 } else { 0.0 },
            );
        let score = prefix_matching_score(&[5, 5, 5], &even);
        assert!(
            is(score, 7.0 / 12.0),
            "in `a a a` with even weights, the score is the mean of a half and two thirds, not {score:.4}: what followed a copy may be the query itself"
        );
        assert!(
            is(previous_token_score(&even), 5.0 / 12.0),
            "with even weights of three tokens, the mean of a half and a third"
        );
    }

    #[test]
    fn a_place_that_does_not_exist_counts_nothing() {
        let scores = [
            previous_token_score(&looking_at(&[0])),
            prefix_matching_score(&[3, 1, 2], &looking_at(&[0, 1, 2])),
        ];
        assert!(
            scores[0] == 0.0,
            "a single token has no previous one, so the score is 0, not {}",
            scores[0]
        );
        assert!(scores[1] == 0.0, "without copies the score is 0, not {}", scores[1]);
    }

    #[test]
    fn random_weights_are_averaged_query_by_query() {
        for seed in 0..4 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let tokens: Vec<usize> = (0..12).map(|_| rng.random_range(0..4)).collect();
            let x = DMatrix::from_fn(12, 3, |_, _| rng.random_range(-2.0..2.0));
            let weights = attention(&x, &x, &x, Mask::causal()).unwrap().1.weights;
            let followed =
                |i: usize, j: usize| (1..=i).contains(&j) && tokens[j - 1] == tokens[i];
            let sum: f64 = (0..12)
                .flat_map(|i| (0..12).map(move |j| (i, j)))
                .filter(|&(i, j)| followed(i, j))
                .map(|at| weights[at])
                .sum();
            let counted = (0..12).filter(|&i| tokens[..i].contains(&tokens[i])).count();
            let score = prefix_matching_score(&tokens, &weights);
            assert!(
                is(score, sum / counted as f64),
                "the text {tokens:?} has {counted} queries with copies, and your score of {score:.4} isn't their mean"
            );
        }
    }
}
