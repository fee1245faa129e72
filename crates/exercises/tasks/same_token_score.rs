//! # One more score
//!
//! easy, 15 minutes
//!
//! Some heads look at neither the token before nor the one after a copy, but at **the copy itself**. They are called
//! [duplicate-token heads](https://arxiv.org/abs/2211.00593), and tell later blocks that a name was said before. Write the score that finds them.
//!
//! For each query whose token occurs earlier in the text, add up its weights on *all* earlier copies. The query itself is no copy. The score
//! is the mean of these sums, over the queries that have an earlier copy. `weights` is $(n, n)$, with a row for each query.
//!
//! A text may have no token twice. Then there is no mean, and the score is `None`. A score of 0 would say that the head looks away, and NaN
//! would turn the mean over many texts into NaN.
//!
//! # Hint
//!
//! Write down the text `a b a a`. Which queries count? On which keys does the last query's weight count?
//!
//! # Hint
//!
//! Keep a list with one sum for each query that counts. A sum may be 0, and its query still counts. What does an empty list return?
//!
//! # Hint
//!
//! For query `i`, the copies are all `j < i` with `tokens[j] == tokens[i]`. If there are any, push the sum of `weights[(i, j)]`. At the end,
//! `(!sums.is_empty()).then(|| …)` divides the total by `sums.len()`.

use nalgebra::DMatrix;

/// Returns the mean weight on all earlier copies of a query's token. `tokens` has n tokens, and `weights` is (n, n), a row for each query.
pub fn duplicate_token_score(tokens: &[usize], weights: &DMatrix<f64>) -> Option<f64> {
    // SOLUTION
    let mut sums: Vec<f64> = vec![];
    for i in 0..tokens.len() {
        let copies: Vec<usize> = (0..i).filter(|&j| tokens[j] == tokens[i]).collect();
        if !copies.is_empty() {
            // FAULT itself: the query itself is no copy
            // > sums.push(copies.iter().chain([&i]).map(|&j| weights[(i, j)]).sum());
            // FAULT last-copy: all earlier copies count
            // > sums.push(weights[(i, copies[copies.len() - 1])]);
            // FAULT first-copy: all earlier copies count
            // > sums.push(weights[(i, copies[0])]);
            // FAULT after-copy: what followed a copy
            // > sums.push(copies.iter().map(|&j| weights[(i, j + 1)]).sum());
            // FAULT columns: a row for each query
            // > sums.push(copies.iter().map(|&j| weights[(j, i)]).sum());
            sums.push(copies.iter().map(|&j| weights[(i, j)]).sum());
        }
    }
    // FAULT all-queries: only queries with an earlier copy
    // > (!sums.is_empty()).then(|| sums.iter().sum::<f64>() / tokens.len() as f64)
    // FAULT not-a-number: NaN
    // > Some(sums.iter().sum::<f64>() / sums.len() as f64)
    // FAULT zero: looks away
    // > Some(sums.iter().sum::<f64>() / sums.len().max(1) as f64)
    (!sums.is_empty()).then(|| sums.iter().sum::<f64>() / sums.len() as f64)
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

    fn score(tokens: &[usize], weights: &DMatrix<f64>) -> f64 {
        let score = duplicate_token_score(tokens, weights);
        score.unwrap_or_else(|| {
            panic!(
                "the text {tokens:?} has tokens with an earlier copy, and you return None"
            )
        })
    }

    fn is(found: f64, right: f64) -> bool {
        (found - right).abs() < 1e-12
    }

    #[test]
    fn a_head_that_looks_at_the_copy_has_a_score_of_one() {
        let tokens = [4, 2, 7, 4, 2, 7];
        let at_copies = score(&tokens, &looking_at(&[0, 1, 2, 0, 1, 2]));
        assert!(
            !is(at_copies, 0.0),
            "every query that has an earlier copy looks at it, and the score is 0: the weights have a row for each query, and the key is the copy, not what followed a copy"
        );
        assert!(
            !is(at_copies, 0.5),
            "the score is {at_copies}, a mean over all queries: only queries with an earlier copy count"
        );
        assert!(
            is(at_copies, 1.0),
            "every query that has an earlier copy looks at it, so the score is 1, not {at_copies:.3}"
        );
    }

    #[test]
    fn other_heads_have_a_score_of_zero() {
        let tokens = [4, 2, 7, 4, 2, 7];
        let itself = score(&tokens, &looking_at(&[0, 1, 2, 3, 4, 5]));
        assert!(
            is(itself, 0.0),
            "a head that looks at its own token has a score of 0, not {itself:.3}: the query itself is no copy"
        );
        let induction = score(&tokens, &looking_at(&[0, 0, 0, 1, 2, 3]));
        assert!(
            is(induction, 0.0),
            "a head that looks at what followed a copy is an induction head, and its score here is 0, not {induction:.3}"
        );
    }

    #[test]
    fn weights_on_several_copies_add_up() {
        // The second `a` puts a half on its copy, the third one a third on each of two.
        let even =
            DMatrix::from_fn(
                3,
                3,
                |i, j| if j <= i { 1.0 / (i + 1) as f64 } else { 0.0 },
            );
        let found = score(&[5, 5, 5], &even);
        assert!(
            !is(found, 5.0 / 12.0),
            "in `a a a` with even weights, the third `a` has two copies, and all earlier copies count"
        );
        assert!(
            is(found, 7.0 / 12.0),
            "in `a a a` with even weights, the score is the mean of a half and two thirds, not {found:.4}"
        );
    }

    #[test]
    fn without_copies_there_is_no_score() {
        for tokens in [vec![3, 1, 2], vec![8]] {
            let keys: Vec<usize> = (0..tokens.len()).collect();
            let found = duplicate_token_score(&tokens, &looking_at(&keys));
            assert!(
                !found.is_some_and(f64::is_nan),
                "no token of {tokens:?} occurs twice, and you return NaN, the mean of nothing: return None"
            );
            assert!(
                found.is_none(),
                "no token of {tokens:?} occurs twice, and you return {found:?}: that says that the head looks away from copies, and there are none"
            );
        }
    }

    #[test]
    fn random_weights_are_averaged_query_by_query() {
        for seed in 0..4 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let tokens: Vec<usize> = (0..12).map(|_| rng.random_range(0..4)).collect();
            let x = DMatrix::from_fn(12, 3, |_, _| rng.random_range(-2.0..2.0));
            let weights = attention(&x, &x, &x, Mask::causal()).unwrap().1.weights;
            let sum: f64 = (0..12)
                .flat_map(|i| (0..i).map(move |j| (i, j)))
                .filter(|&(i, j)| tokens[i] == tokens[j])
                .map(|pair| weights[pair])
                .sum();
            let counted = (0..12).filter(|&i| tokens[..i].contains(&tokens[i])).count();
            let found = score(&tokens, &weights);
            assert!(
                is(found, sum / counted as f64),
                "the text {tokens:?} has {counted} queries with an earlier copy, and your score of {found:.4} isn't their mean"
            );
        }
    }
}
