//! # Find the head
//!
//! medium, 20 minutes
//!
//! A model has hundreds of heads, and you want two of them. Let it read an opening token, then $n$ random tokens, then the same $n$ tokens again.
//! Random tokens mean nothing, so little else is left to look for.
//!
//! You get the weights of all heads: `weights[block][head]` is $(2n + 1, 2n + 1)$, with a row for each query. No token of the first reading occurs
//! twice in it. Find two heads, each with its score:
//!
//! - `previous_token_head`: the largest mean weight on the token before. The mean is over all queries that stand behind a random token. Two queries
//!   are left out: the opening token, which has nothing before it, and the first random token, which has the opening token before it. Many heads
//!   leave the weight there that they have no use for.
//! - `induction_head`: the largest mean weight on the token that followed the earlier copy. The mean is over the $n$ queries of the second reading.
//!
//! The chapter switches such heads off. With a mistake in a score you would switch off another head, and conclude that nothing happens.
//!
//! # Hint
//!
//! Number the tokens for $n = 3$: the opening is 0, the readings are 1, 2, 3 and 4, 5, 6. Where is the earlier copy of token 5? Which token
//! followed it? How far back is that?
//!
//! # Hint
//!
//! Both scores are one mean: over all queries from some first one on, of the weight on the key a fixed distance before. Which first query, and
//! which distance, does each score have?
//!
//! # Hint
//!
//! The previous-token score is the mean of `weights[(i, i - 1)]` from query 2 on. The induction score is the mean of `weights[(i, i + 1 - n)]`
//! from query `n + 1` on, where `n` is `weights.nrows() / 2`. Go through blocks and heads with `enumerate`, and keep the best so far.

use nalgebra::DMatrix;

/// Where a head is, counted from 0, and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    pub block: usize,
    pub head: usize,
    pub score: f64,
}

// SOLUTION
/// Returns the mean weight on the key that stands `back` tokens before, over all queries from `first` on.
fn mean_weight(weights: &DMatrix<f64>, first: usize, back: usize) -> f64 {
    let queries = first..weights.nrows();
    // FAULT columns: a row for each query
    // > let sum: f64 = queries.clone().map(|i| weights[(i - back, i)]).sum();
    let sum: f64 = queries.clone().map(|i| weights[(i, i - back)]).sum();
    // FAULT largest: the mean counts, not the largest weight
    // > queries.map(|i| weights[(i, i - back)]).fold(0.0, f64::max)
    // FAULT all-rows: divided by the number of all queries
    // > sum / weights.nrows() as f64
    sum / queries.len() as f64
}

fn best(weights: &[Vec<DMatrix<f64>>], score: impl Fn(&DMatrix<f64>) -> f64) -> Found {
    let mut best = Found { block: 0, head: 0, score: f64::NEG_INFINITY };
    for (block, heads) in weights.iter().enumerate() {
        for (head, weights) in heads.iter().enumerate() {
            let score = score(weights);
            if score > best.score {
                // FAULT swapped: block and head have changed places
                // > best = Found { block: head, head: block, score };
                best = Found { block, head, score };
            }
        }
    }
    best
}

// END
/// Returns the best previous-token head. `weights[block][head]` is (2n + 1, 2n + 1), a row for each query.
pub fn previous_token_head(weights: &[Vec<DMatrix<f64>>]) -> Found {
    // SOLUTION
    // FAULT opening: the first random token has the opening token before it
    // > best(weights, |weights| mean_weight(weights, 1, 1))
    best(weights, |weights| mean_weight(weights, 2, 1))
    // END
}

/// Returns the best induction head. `weights[block][head]` is (2n + 1, 2n + 1), a row for each query.
pub fn induction_head(weights: &[Vec<DMatrix<f64>>]) -> Found {
    // SOLUTION
    best(weights, |weights| {
        let n = weights.nrows() / 2;
        // FAULT the-copy: looks at the earlier copy itself
        // > mean_weight(weights, n + 1, n)
        // FAULT too-far: looks one token too far
        // > mean_weight(weights, n + 1, n - 2)
        // FAULT one-too-many: how many queries are in the second reading
        // > mean_weight(weights, n, n - 1)
        // FAULT first-reading: only the second reading counts
        // > (0..=2 * n).map(|i| weights[(i, (i + 1).saturating_sub(n))]).sum::<f64>() / weights.nrows() as f64
        mean_weight(weights, n + 1, n - 1)
    })
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// Tokens of one reading, and of the whole text.
    const N: usize = 4;
    const ALL: usize = 2 * N + 1;

    /// What a head does, in words that fit behind "a head that", and its weights.
    type Head = (&'static str, DMatrix<f64>);

    /// A head whose queries put so much weight on a key, and the rest on themselves.
    fn looks(what: &'static str, at: impl Fn(usize) -> Option<(usize, f64)>) -> Head {
        let mut weights = DMatrix::identity(ALL, ALL);
        for query in 0..ALL {
            if let Some((key, weight)) = at(query) {
                weights[(query, query)] -= weight;
                weights[(query, key)] += weight;
            }
        }
        (what, weights)
    }

    fn second_reading(query: usize) -> bool {
        query > N
    }

    /// Asks for the best head of some blocks, and says what is wrong with the answer.
    fn check(
        kind: &str,
        find: fn(&[Vec<DMatrix<f64>>]) -> Found,
        blocks: Vec<Vec<Head>>,
        right: Found,
    ) {
        let weights: Vec<Vec<_>> = blocks
            .iter()
            .map(|heads| heads.iter().map(|(_, weights)| weights.clone()).collect())
            .collect();
        let found = find(&weights);
        let Found { block, head, score } = found;
        assert!(
            score != 0.0,
            "no {kind} head was found, since your scores are 0: the weights have a row for each query"
        );
        assert!(
            (block, head) != (right.head, right.block),
            "your {kind} head is head {head} of block {block}, and it is head {block} of block {head}: block and head have changed places"
        );
        let there = blocks.get(block).and_then(|heads| heads.get(head));
        let (what, _) = there.unwrap_or_else(|| {
            panic!("there is no head {head} of block {block}: {found:?}")
        });
        assert!(
            (block, head) == (right.block, right.head),
            "your {kind} head is head {head} of block {block}, with a score of {score:.3}. That is a head that {what}"
        );
        let queries = if kind == "induction" { N } else { ALL - 2 } as f64;
        let sum = right.score * queries;
        assert!(
            (score - sum / ALL as f64).abs() > 1e-9,
            "you found the {kind} head, but its score of {score:.3} was divided by the number of all queries"
        );
        assert!(
            (score - sum / (queries + 1.0)).abs() > 1e-9,
            "you found the {kind} head, but its score of {score:.3} is a mean of {} queries: how many queries {}?",
            queries + 1.0,
            if kind == "induction" {
                "are in the second reading"
            } else {
                "stand behind a random token"
            }
        );
        assert!(
            (score - right.score).abs() < 1e-9,
            "you found the {kind} head, and its score is {:.3}, not {score:.3}",
            right.score
        );
    }

    fn sink() -> Head {
        looks(
            "looks at the opening token from everywhere: only the second reading counts",
            |query| (query > 0).then_some((0, 0.98)),
        )
    }

    #[test]
    fn the_previous_token_head_is_found() {
        let back =
            |weight: f64| move |query: usize| (query > 1).then(|| (query - 1, weight));
        let blocks = vec![
            vec![looks("looks at its own token", |_| None), sink()],
            vec![
                looks(
                    "looks at the token before with all of its weight, but only once: the mean counts, not the largest weight",
                    |query| (query == 3).then_some((2, 1.0)),
                ),
                looks(
                    "wins by the weight of one query on the opening token: the first random token has the opening token before it, and doesn't count",
                    |query| if query == 1 { Some((0, 1.0)) } else { back(0.75)(query) },
                ),
            ],
            vec![
                looks("looks at the token before", back(0.8)),
                looks("looks two tokens back", |query| {
                    (query > 2).then(|| (query - 2, 0.9))
                }),
            ],
        ];
        check(
            "previous-token",
            previous_token_head,
            blocks,
            Found { block: 2, head: 0, score: 0.8 },
        );
    }

    #[test]
    fn the_induction_head_is_found() {
        let blocks = vec![
            vec![
                looks("looks at its own token", |_| None),
                sink(),
                looks("looks at the token before", |query| {
                    (query > 0).then(|| (query - 1, 0.9))
                }),
                looks(
                    "looks at the earlier copy itself, and not at what followed it",
                    |query| second_reading(query).then(|| (query - N, 0.9)),
                ),
            ],
            vec![
                looks("looks one token too far behind the earlier copy", |query| {
                    second_reading(query).then(|| (query + 2 - N, 0.9))
                }),
                looks(
                    "looks at what followed the earlier copy with all of its weight, but only once: the mean counts, not the largest weight",
                    |query| (query == N + 2).then_some((3, 1.0)),
                ),
                looks("looks at what followed the earlier copy", |query| {
                    second_reading(query).then(|| (query + 1 - N, 0.6))
                }),
                looks("does the same with less weight", |query| {
                    second_reading(query).then(|| (query + 1 - N, 0.5))
                }),
            ],
        ];
        check(
            "induction",
            induction_head,
            blocks,
            Found { block: 1, head: 2, score: 0.6 },
        );
    }

    #[test]
    fn random_heads_are_compared() {
        for (seed, n_blocks, n_heads, n) in [(1, 4, 3, 5), (2, 2, 6, 3), (3, 7, 1, 2)] {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let mut head = || {
                let x =
                    DMatrix::from_fn(2 * n + 1, 3, |_, _| rng.random_range(-2.0..2.0));
                attention(&x, &x, &x, Mask::causal()).unwrap().1.weights
            };
            let weights: Vec<Vec<_>> =
                (0..n_blocks).map(|_| (0..n_heads).map(|_| head()).collect()).collect();
            // The queries that count, each with its key.
            let before: Vec<_> = (1..2 * n).map(|key| (key + 1, key)).collect();
            let after: Vec<_> = (1..=n).map(|copy| (copy + n, copy + 1)).collect();
            let found = [previous_token_head(&weights), induction_head(&weights)];
            for (kind, pairs, found) in
                [("previous-token", before, found[0]), ("induction", after, found[1])]
            {
                let score = |weights: &DMatrix<f64>| {
                    let sum: f64 = pairs.iter().map(|&pair| weights[pair]).sum();
                    sum / pairs.len() as f64
                };
                let of_found = weights
                    .get(found.block)
                    .and_then(|heads| heads.get(found.head))
                    .map(score);
                let largest = weights.iter().flatten().map(score).fold(0.0_f64, f64::max);
                assert!(
                    of_found == Some(largest) && (found.score - largest).abs() < 1e-9,
                    "{n_blocks} blocks of {n_heads} heads, n = {n}: the best {kind} score is {largest:.4}, and you return {found:?}, whose score is {of_found:.4?}"
                );
            }
        }
    }
}
