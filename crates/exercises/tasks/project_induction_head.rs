//! # Project: an induction head without training
//!
//! project, 150 minutes
//!
//! The chapter trains two layers of attention until they continue “q f x b q f …”. Write their weights down instead.
//!
//! `read` runs a model: two causal heads add to the stream, and an unembedding turns it into logits. `build` fills the
//! matrices; the stream is as wide as you like. Positions are rows of a table (the chapter's model is rotary). There
//! is no norm and no MLP. You may call `attention`, which divides by $\sqrt{d_k}$.
//!
//! Each token occurs at most once in the random part. The tests ask:
//!
//! - Do heads add to the stream, and see nothing later?
//! - Does the first head look at the token before?
//! - Does the second look at followers of earlier copies?
//! - Is the text's *first* token no exception?
//! - Does it take both heads?
//! - Has the right token the largest logit wherever it's determined?
//!
//! # Hint
//!
//! Give the stream four groups of columns: which token, which position, which token stood before, and the answer.
//! Which group does each head read, by queries, keys and values, and into which does it write?
//!
//! # Hint
//!
//! A query's column says what it wants, a key's column what it has. Let $W_Q$ of the first head send position $i$
//! to the column $i - 1$, and $W_K$ position $j$ to the column $j$. For nearly all the weight, a match must be far
//! above the other scores. Position 0 can only see itself. What does the first head write there?
//!
//! # Hint
//!
//! Second head: $W_Q$ from the columns *token*, $W_K$ from *stood before*, $W_V$ from *token*, $W_O$ into *answer*,
//! and the unembedding reads *answer*. At position 0, the first head writes that the first token stands before itself.
//! So in $W_K$, let the row of position 0 hold large negative numbers. Write one helper that puts a diagonal of a
//! given number into a matrix, from a first row and a first column.

use attention::{Mask, attention};
use nalgebra::DMatrix;

/// One head. Its output, (n, d_v) times `w_o`, is added to the stream.
#[derive(Debug, Clone)]
pub struct Head {
    /// (d_model, d_k)
    pub w_q: DMatrix<f64>,
    /// (d_model, d_k)
    pub w_k: DMatrix<f64>,
    /// (d_model, d_v)
    pub w_v: DMatrix<f64>,
    /// (d_v, d_model)
    pub w_o: DMatrix<f64>,
}

/// A model with one head in each of two layers.
#[derive(Debug, Clone)]
pub struct Model {
    /// A row for each token, (vocabulary, d_model).
    pub tokens: DMatrix<f64>,
    /// A row for each position, (longest, d_model).
    pub positions: DMatrix<f64>,
    /// The heads of the first and of the second layer.
    pub heads: [Head; 2],
    /// (d_model, vocabulary)
    pub unembedding: DMatrix<f64>,
}

/// What a model makes of a text of n tokens.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Row i says which token may follow token i, (n, vocabulary).
    pub logits: DMatrix<f64>,
    /// The weights of both heads, (n, n).
    pub weights: [DMatrix<f64>; 2],
}

/// Runs a model, yours or another one, on a text.
pub fn read(model: &Model, text: &[usize]) -> Reading {
    // SOLUTION
    let d_model = model.tokens.ncols();
    let mut stream = DMatrix::from_fn(text.len(), d_model, |i, c| {
        model.tokens[(text[i], c)] + model.positions[(i, c)]
    });
    let weights = model.heads.each_ref().map(|head| {
        let [q, k, v] = [&head.w_q, &head.w_k, &head.w_v].map(|w| &stream * w);
        // FAULT no-mask: depends on a later token
        // > let mask = Mask::none();
        let mask = Mask::causal();
        let (output, cache) = attention(&q, &k, &v, mask).expect("the shapes fit");
        // FAULT replaced: adds to the stream
        // > stream = output * &head.w_o;
        stream += output * &head.w_o;
        cache.weights
    });
    Reading { logits: stream * &model.unembedding, weights }
    // END
}

/// Returns a model that continues repeated texts of up to `longest` tokens, each less than `vocabulary`.
pub fn build(vocabulary: usize, longest: usize) -> Model {
    // SOLUTION
    // The columns of the stream.
    let (token, position) = (0, vocabulary);
    let before = position + longest;
    let answer = before + vocabulary;
    let d_model = answer + vocabulary;

    let w = DMatrix::zeros;
    // FAULT too-soft: How large must a score be
    // > let sharp = |_d_k: usize| 1.0;
    let sharp = |d_k: usize| 30.0 * (d_k as f64).sqrt(); // a match scores 30
    // Position i wants the column i − 1.
    // FAULT looks-at-itself: looks at another token than the one before
    // > let (from, wanted) = (position, longest);
    let (from, wanted) = (position + 1, longest - 1);
    let previous = Head {
        w_q: diagonal(w(d_model, longest), (from, 0), wanted, sharp(longest)),
        w_k: diagonal(w(d_model, longest), (position, 0), longest, 1.0),
        w_v: diagonal(w(d_model, vocabulary), (token, 0), vocabulary, 1.0),
        w_o: diagonal(w(vocabulary, d_model), (0, before), vocabulary, 1.0),
    };
    // FAULT finds-the-copy: finds the copy itself
    // > let mut w_k = diagonal(w(d_model, vocabulary), (token, 0), vocabulary, 1.0);
    let mut w_k = diagonal(w(d_model, vocabulary), (before, 0), vocabulary, 1.0);
    // The first position wrote itself into `before`.
    // FAULT first-before-itself: What did the first head write there?
    w_k.row_mut(position).fill(-2.0);
    let induction = Head {
        // FAULT asks-nothing: do query and key have a column in common?
        // > w_q: w(d_model, vocabulary),
        w_q: diagonal(w(d_model, vocabulary), (token, 0), vocabulary, sharp(vocabulary)),
        w_k,
        w_v: diagonal(w(d_model, vocabulary), (token, 0), vocabulary, 1.0),
        w_o: diagonal(w(vocabulary, d_model), (0, answer), vocabulary, 1.0),
    };
    Model {
        tokens: diagonal(w(vocabulary, d_model), (0, token), vocabulary, 1.0),
        positions: diagonal(w(longest, d_model), (0, position), longest, 1.0),
        heads: [previous, induction],
        // FAULT answer-lost: the answer doesn't reach the logits
        // > unembedding: diagonal(w(d_model, vocabulary), (before, 0), vocabulary, 1.0),
        unembedding: diagonal(w(d_model, vocabulary), (answer, 0), vocabulary, 1.0),
    }
    // END
}

// SOLUTION
/// Puts a diagonal of `length` equal numbers into a matrix, from a first row and column.
fn diagonal(
    mut w: DMatrix<f64>,
    (row, column): (usize, usize),
    length: usize,
    number: f64,
) -> DMatrix<f64> {
    for i in 0..length {
        w[(row + i, column + i)] = number;
    }
    w
}
// END

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// A text of n tokens: `period` different ones, over and over.
    fn repeated(vocabulary: usize, period: usize, n: usize, seed: u64) -> Vec<usize> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut tokens: Vec<usize> = (0..vocabulary).collect();
        for i in 0..period {
            tokens.swap(i, rng.random_range(i..vocabulary));
        }
        (0..n).map(|i| tokens[i % period]).collect()
    }

    /// Vocabulary, longest, period, length of a text.
    const SIZES: [(usize, usize, usize, usize); 6] = [
        (10, 24, 5, 16),
        (10, 24, 10, 24),
        (10, 24, 1, 7),
        (7, 30, 2, 29),
        (12, 20, 11, 19),
        (20, 40, 13, 40),
    ];

    /// A model of random numbers.
    fn random_model(seed: u64) -> Model {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut random = |rows, columns| {
            DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
        };
        let mut head = || Head {
            w_q: random(6, 3),
            w_k: random(6, 3),
            w_v: random(6, 2),
            w_o: random(2, 6),
        };
        let heads = [head(), head()];
        Model {
            tokens: random(5, 6),
            positions: random(8, 6),
            heads,
            unembedding: random(6, 5),
        }
    }

    /// Whether the logit of the right token is the largest, by far, at a place.
    fn says(reading: &Reading, i: usize, token: usize) -> bool {
        let logits = reading.logits.row(i);
        (0..logits.len())
            .all(|other| other == token || logits[other] < logits[token] - 1e-6)
    }

    #[test]
    fn both_heads_add_to_the_stream() {
        let (model, text) = (random_model(1), [3, 1, 4, 1, 0]);
        let mut silent = model.clone();
        silent.heads.iter_mut().for_each(|head| head.w_o.fill(0.0));
        let x = DMatrix::from_fn(5, 6, |i, c| {
            model.tokens[(text[i], c)] + model.positions[(i, c)]
        });
        let off = (read(&silent, &text).logits - &x * &model.unembedding).amax();
        assert!(
            off < 1e-12,
            "with silent heads, the stream should be the token's row plus the position's: a head adds to the stream"
        );
        silent.heads[0].w_o = model.heads[0].w_o.clone();
        let [q, k, v] = [&model.heads[0].w_q, &model.heads[0].w_k, &model.heads[0].w_v]
            .map(|w| &x * w);
        let o = attention(&q, &k, &v, Mask::causal()).unwrap().0;
        let off = (read(&silent, &text).logits
            - (x + o * &model.heads[0].w_o) * &model.unembedding)
            .amax();
        assert!(
            off < 1e-12,
            "with a second head that writes nothing, the logits are off by {off:.3}: what does the first head add to the stream, with which mask and scale?"
        );
    }

    #[test]
    fn no_output_depends_on_a_later_token() {
        for model in [random_model(2), {
            let mut wide = random_model(3);
            wide.tokens *= 4.0;
            wide
        }] {
            let (text, changed) = ([3, 1, 4, 1, 0, 2], [3, 1, 4, 1, 0, 4]);
            let moved = (read(&model, &text).logits - read(&model, &changed).logits)
                .rows(0, 5)
                .amax();
            assert!(
                moved < 1e-12,
                "the last token was changed, and an earlier output moved by {moved:.3}: it depends on a later token"
            );
        }
    }

    #[test]
    fn the_first_head_looks_at_the_token_before() {
        for (seed, (vocabulary, longest, period, n)) in SIZES.into_iter().enumerate() {
            let weights = &read(
                &build(vocabulary, longest),
                &repeated(vocabulary, period, n, seed as u64),
            )
            .weights[0];
            for i in 1..n {
                let (most, _) = weights.row(i).transpose().argmax();
                assert!(
                    most == i - 1,
                    "query {i} of the first head looks at another token than the one before: most of its weight is on key {most}"
                );
                let weight = weights[(i, i - 1)];
                assert!(
                    weight > 0.9,
                    "query {i} of the first head gives the token before only {weight:.2}. Does this query ask for anything? How large must a score be so that nearly all weight goes to one key?"
                );
            }
        }
    }

    /// The weight of a query on keys that followed copies of its token (`after` is 1), or on the copies (0).
    fn on_copies(weights: &DMatrix<f64>, text: &[usize], i: usize, after: usize) -> f64 {
        let is_copy = |j: &usize| text[j - after] == text[i];
        (after..=i).filter(is_copy).map(|j| weights[(i, j)]).sum()
    }

    #[test]
    fn the_second_head_looks_at_what_followed_a_copy() {
        for (seed, (vocabulary, longest, period, n)) in SIZES.into_iter().enumerate() {
            let text = repeated(vocabulary, period, n, 10 + seed as u64);
            let weights = &read(&build(vocabulary, longest), &text).weights[1];
            for i in period..n {
                let [copies, followed] =
                    [0, 1].map(|after| on_copies(weights, &text, i, after));
                let even = 1.0 / (i + 1) as f64;
                let question = if (0..=i).all(|j| (weights[(i, j)] - even).abs() < 1e-6) {
                    "and as much to every key: do query and key have a column in common?"
                } else if period > 1 && copies > 0.9 {
                    "and finds the copy itself. What has the key after it to offer, and by which columns?"
                } else if weights[(i, 0)] > 0.2 {
                    &format!(
                        "and {:.2} to key 0. What did the first head write there?",
                        weights[(i, 0)]
                    )
                } else if followed > 0.1 {
                    "and that isn't nearly all. How large must a score be?"
                } else {
                    "and more to others. What does it ask for, and which columns of a key have that?"
                };
                assert!(
                    followed > 0.9,
                    "query {i} of the second head gives {followed:.2} to what followed copies of its token, {question}"
                );
            }
        }
    }

    #[test]
    fn the_first_token_is_no_exception() {
        let (model, text) = (build(9, 12), [7, 2, 5, 7, 2, 5, 7]);
        let reading = read(&model, &text);
        let [first, second] = [7, 2].map(|token| reading.logits[(3, token)]);
        let on_first = reading.weights[1][(3, 0)];
        let why = if on_first > 0.3 {
            format!(
                ": the second head gives {on_first:.2} to key 0. What did the first head write there?"
            )
        } else {
            String::new()
        };
        assert!(
            says(&reading, 3, 2),
            "after the second 7 comes a 2, as after the first, but the logit of 7 is {first:.2}, and that of 2 is {second:.2}{why}"
        );
    }

    #[test]
    fn it_takes_both_heads() {
        for which in 0..2 {
            let mut model = build(10, 30);
            model.heads[which].w_o.fill(0.0);
            let text = repeated(10, 8, 30, 40);
            let reading = read(&model, &text);
            let right = (8..29).filter(|&i| says(&reading, i, text[i + 1])).count();
            assert!(
                right < 11,
                "without what head {} writes, {right} of 21 places are still right: what else knows the answer?",
                which + 1
            );
        }
    }
    #[test]
    fn repeated_texts_are_continued() {
        for (seed, (vocabulary, longest, period, n)) in SIZES.into_iter().enumerate() {
            let model = build(vocabulary, longest);
            for n in [n, longest.min(n + 3)] {
                let text = repeated(vocabulary, period, n, 20 + seed as u64);
                let reading = read(&model, &text);
                let determined = period..n - 1;
                let right = determined
                    .clone()
                    .filter(|&i| says(&reading, i, text[i + 1]))
                    .count();
                let Some(i) =
                    determined.clone().find(|&i| !says(&reading, i, text[i + 1]))
                else {
                    continue;
                };
                let token = text[i + 1];
                let logits = reading.logits.row(i);
                let said = (0..vocabulary)
                    .filter(|&other| other != token)
                    .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
                    .unwrap_or(token);
                let [first, second] = &reading.weights;
                let look =
                    first[(i, i - 1)] > 0.9 && on_copies(second, &text, i, 1) > 0.9;
                let why = if look {
                    ". Both heads look where they should, but the answer doesn't reach the logits: which columns does W_V of the second head read, W_O write, and the unembedding read?"
                } else {
                    ""
                };
                panic!(
                    "{period} random tokens, repeated up to {n}: first wrong at place {i}, which should say {token} and says {said} ({right} of {} are right){why}",
                    determined.len()
                );
            }
        }
    }
}
