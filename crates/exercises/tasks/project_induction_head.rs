//! # Project: an induction head without training
//!
//! project, 150 minutes
//!
//! The chapter trains two layers of attention until they continue “q f x b q f …”. Write their weights down
//! instead. A circuit that you can set by hand is one that you have understood.
//!
//! You build two things. `read` runs a model: embedding, two causal heads that add to the residual stream,
//! unembedding. `build` fills its matrices. Rows of the stream are as wide as you like, with columns for whatever
//! you want to write into them. There is no norm and no MLP. Positions are learned rows, added to the token's.
//!
//! What earns the marks, each line a test:
//!
//! - The stream begins with the token's row plus the position's, and both heads *add* to it.
//! - No output depends on a later token.
//! - The first head of your model puts nearly all its weight on the token before.
//! - The second head puts nearly all its weight on tokens that followed earlier copies.
//! - In random repeated texts, the right token has the largest logit at every place that is determined, for any
//!   length of the random part and of the text up to `longest`.
//! - That holds for the text's *first* token, too. What does a causal head write at position 0?
//! - Without what the first head writes, the model fails. So the answer comes from your two heads, and not from
//!   `read`.
//!
//! You may call `attention` of the crate.
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
//! above the other scores, and the scale divides by $\sqrt{d_k}$. Position 0 can only see itself, so it writes that
//! the first token stands before itself. Which key of the second head must therefore be made unattractive?
//!
//! # Hint
//!
//! Second head: $W_Q$ from the columns *token*, $W_K$ from the columns *stood before*, $W_V$ from *token*, $W_O$
//! into *answer*, and the unembedding reads *answer*. In $W_K$, let the row of position 0 hold large negative
//! numbers: whatever token asks, that key answers with a lower score. Write one helper that puts a diagonal of a
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
    // FAULT first-before-itself: who stood before the first token
    w_k.row_mut(position).fill(-2.0);
    let induction = Head {
        w_q: diagonal(w(d_model, vocabulary), (token, 0), vocabulary, sharp(vocabulary)),
        w_k,
        w_v: diagonal(w(d_model, vocabulary), (token, 0), vocabulary, 1.0),
        w_o: diagonal(w(vocabulary, d_model), (0, answer), vocabulary, 1.0),
    };
    Model {
        tokens: diagonal(w(vocabulary, d_model), (0, token), vocabulary, 1.0),
        positions: diagonal(w(longest, d_model), (0, position), longest, 1.0),
        heads: [previous, induction],
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
            "heads that write nothing leave the tokens' and positions' rows alone: a head adds to the stream"
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

    #[test]
    fn the_second_head_looks_at_what_followed_a_copy() {
        for (seed, (vocabulary, longest, period, n)) in SIZES.into_iter().enumerate() {
            let text = repeated(vocabulary, period, n, 10 + seed as u64);
            let weights = &read(&build(vocabulary, longest), &text).weights[1];
            for i in period..n {
                let sum = |after| {
                    (after..=i)
                        .filter(|&j| text[j - after] == text[i])
                        .map(|j| weights[(i, j)])
                        .sum::<f64>()
                };
                let (copies, followed) = (sum(0), sum(1));
                assert!(
                    period == 1 || copies < 0.9,
                    "query {i} of the second head finds the copy itself. What has the key after it to offer, and by which columns?"
                );
                assert!(
                    followed > 0.1,
                    "query {i} of the second head gives {followed:.2} to what followed copies of its token. What does it ask for, and which columns of a key have that?"
                );
                assert!(
                    followed > 0.9,
                    "query {i} of the second head gives {followed:.2} to what followed copies of its token, where the random part has {period} tokens. How large must a score be?"
                );
            }
        }
    }

    #[test]
    fn repeated_texts_are_continued() {
        for (seed, (vocabulary, longest, period, n)) in SIZES.into_iter().enumerate() {
            let model = build(vocabulary, longest);
            for n in [n, longest.min(n + 3)] {
                let text = repeated(vocabulary, period, n, 20 + seed as u64);
                let reading = read(&model, &text);
                let determined: Vec<usize> = (period..n - 1).collect();
                let right = determined
                    .iter()
                    .filter(|&&i| says(&reading, i, text[i + 1]))
                    .count();
                assert_eq!(
                    right,
                    determined.len(),
                    "{period} random tokens, repeated up to {n}: this many of {} determined places are right",
                    determined.len()
                );
            }
        }
    }

    #[test]
    fn the_first_token_is_no_exception() {
        let (model, text) = (build(9, 12), [7, 2, 5, 7, 2, 5, 7]);
        let reading = read(&model, &text);
        let [first, second] = [7, 2].map(|token| reading.logits[(3, token)]);
        let message =
            "after the second 7 comes a 2, as after the first, but the logit of 7";
        assert!(
            (first - second).abs() > 1e-6,
            "{message} is as large: half the weight goes to key 0. By what the first head wrote there, who stood before the first token?"
        );
        assert!(
            says(&reading, 3, 2),
            "{message} is {first:.2}, and that of 2 is {second:.2}"
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
}
