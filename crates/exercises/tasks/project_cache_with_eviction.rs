//! # A cache with a budget
//!
//! project, 150 minutes
//!
//! A server gives each text a fixed number of bytes, and the text may be longer than that. Build a key-value cache for
//! one head that never exceeds its budget. It always holds the first $s$ tokens, the sinks. The other places belong to
//! the last $w$ tokens, where $w$ is as large as the budget allows. Numbers are `f64`, so a token takes $8\,(d + d_v)$
//! bytes.
//!
//! `attend` takes the queries, keys and values of a chunk of any size, not yet turned. It turns queries and keys by the
//! `Rotary` that the cache has, to their positions *in the text*, which don't start again when tokens are forgotten.
//! Token $i$ sees what the cache holds once token $i$ is in it: itself, the $w - 1$ tokens before it, and the sinks
//! among the tokens up to itself. So the output doesn't depend on how the text is cut into chunks.
//!
//! What earns the marks:
//!
//! - A budget without room for the sinks and one token more is refused.
//! - While everything fits, the output is that of full causal attention.
//! - Later it is that of a window with sinks, at positions of the text.
//! - Cuts into chunks change nothing, even a chunk longer than the cache.
//! - The tokens that are held are the right ones, and their bytes stay within the budget.
//! - Scores in the thousands are no trouble.
//! - Memory doesn't grow with the text, as an allocator sees it.
//! - A NaN among the values is gone when its token is forgotten.
//!
//! # Hint
//!
//! Attention doesn't care in which order keys come. So a new token may take the place of the token that leaves. Which
//! place is that?
//!
//! # Hint
//!
//! Keep two matrices with as many rows as tokens fit, and a count of the tokens so far. Work through a chunk token by
//! token: turn its key, write it into its place, then attend with its query to all places that are in use.
//!
//! # Hint
//!
//! Token $t$ has place $t$ while places are free, and place $s + (t - s) \bmod w$ in general. A key is turned when it
//! is stored, by its own position, so it never has to be turned again. `Rotary::turn` takes a matrix, the number of its
//! heads, and the position of its first row.

use attention::Rotary;
use nalgebra::DMatrix;

/// Keys and values of one head, within a budget.
pub struct BudgetCache {
    // SOLUTION: // your fields
    sinks: usize,
    rotary: Rotary,
    /// (places, d), turned
    keys: DMatrix<f64>,
    /// (places, d_v)
    values: DMatrix<f64>,
    /// Tokens of the text so far.
    tokens: usize,
    // END
}

impl BudgetCache {
    /// An empty cache for keys of width `d` and values of width `d_v`, with at most `budget` bytes of keys and values.
    ///
    /// Returns `None` if there is no room for the sinks and one token more.
    pub fn new(
        budget: usize,
        sinks: usize,
        d: usize,
        d_v: usize,
        rotary: Rotary,
    ) -> Option<Self> {
        // SOLUTION
        // FAULT keys-only: exceed the budget
        // > let places = budget / (8 * d);
        let places = budget / (8 * (d + d_v));
        // FAULT no-window: leaves no place for a token beside the sinks
        // > if places < sinks {
        if places <= sinks {
            return None;
        }
        let (keys, values) = (DMatrix::zeros(places, d), DMatrix::zeros(places, d_v));
        Some(BudgetCache { sinks, rotary, keys, values, tokens: 0 })
        // END
    }

    /// Appends a chunk, and attends with it.
    ///
    /// Shapes: `q`, `k` (c, d), `v` (c, d_v) → (c, d_v).
    pub fn attend(
        &mut self,
        q: &DMatrix<f64>,
        k: &DMatrix<f64>,
        v: &DMatrix<f64>,
    ) -> DMatrix<f64> {
        // SOLUTION
        let mut output = DMatrix::zeros(q.nrows(), v.ncols());
        // FAULT all-before: see what it sees token by token
        // > (0..q.nrows()).for_each(|i| self.store(k, v, i));
        // > for i in 0..q.nrows() {
        for i in 0..q.nrows() {
            // FAULT all-before
            self.store(k, v, i);
            // FAULT all-before
            // > let query = self.turned(q, i, self.tokens - q.nrows() + i);
            let query = self.turned(q, i, self.tokens - 1);
            let row = self.attend_one(&query);
            output.set_row(i, &row.row(0));
        }
        output
        // END
    }

    /// The bytes of the keys and values that are stored now.
    pub fn bytes(&self) -> usize {
        // SOLUTION
        8 * (self.keys.len() + self.values.len())
        // END
    }

    /// The positions in the text of the tokens that are held, sorted.
    pub fn held(&self) -> Vec<usize> {
        // SOLUTION
        let window = self.keys.nrows() - self.sinks;
        let first_recent = self.tokens.saturating_sub(window);
        (0..self.tokens).filter(|t| *t < self.sinks || *t >= first_recent).collect()
        // END
    }

    // SOLUTION: // your helpers
    /// Row `i`, turned to its position in the text.
    fn turned(&self, x: &DMatrix<f64>, i: usize, position: usize) -> DMatrix<f64> {
        self.rotary.turn(x.rows(i, 1), 1, position as isize).expect("rows come in pairs")
    }

    /// Stores row `i` of a chunk as the next token, in place of the token that leaves.
    fn store(&mut self, k: &DMatrix<f64>, v: &DMatrix<f64>, i: usize) {
        let (t, s) = (self.tokens, self.sinks);
        let w = self.keys.nrows() - s;
        // FAULT sinks-leave: the first tokens have to stay
        // > let place = t % (s + w);
        let place = if t < s { t } else { s + (t - s) % w };
        // FAULT place-for-position: are positions those of the text
        // > let key = self.turned(k, i, place);
        let key = self.turned(k, i, t);
        self.keys.set_row(place, &key.row(0));
        self.values.set_row(place, &v.row(i));
        self.tokens += 1;
    }

    /// Attention of one query over all places in use.
    fn attend_one(&self, query: &DMatrix<f64>) -> DMatrix<f64> {
        // FAULT empty-places: are empty places among the keys
        // > let used = self.keys.nrows();
        let used = self.tokens.min(self.keys.nrows());
        let keys = self.keys.rows(0, used);
        let mut weights = query * keys.transpose() / (query.ncols() as f64).sqrt();
        // FAULT no-maximum: is the largest score of the row subtracted
        // > let largest = 0.0;
        // FAULT first-entry: is the largest score of the row subtracted
        // > let largest = weights[0];
        // FAULT mean: is the largest score of the row subtracted
        // > let largest = weights.mean();
        // FAULT from-zero: does the maximum begin at −∞
        // > let largest = weights.max().max(0.0);
        let largest = weights.max();
        weights.apply(|weight| *weight = (*weight - largest).exp());
        let sum = weights.sum();
        weights * self.values.rows(0, used) / sum
    }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, Rotary, attention, positions::RotaryPairs};
    use nalgebra::DMatrix;

    const TOKEN: usize = 8 * (4 + 3);

    fn rotary() -> Rotary {
        Rotary::new(100.0, RotaryPairs::Halves).unwrap()
    }

    fn draw(n: usize) -> [DMatrix<f64>; 3] {
        [(4, 0.0), (4, 1.0), (3, 2.0)].map(|(columns, seed)| {
            DMatrix::from_fn(n, columns, |i, j| {
                1.5 * (seed + 5.3 * i as f64 + 3.1 * (j * j) as f64).sin()
            })
        })
    }

    /// A cache with so many places, and what it returns for a text in these chunks.
    fn run(places: usize, sinks: usize, chunks: &[usize]) -> (BudgetCache, DMatrix<f64>) {
        let n = chunks.iter().sum();
        let x = draw(n);
        let budget = places * TOKEN + TOKEN - 1;
        let mut cache = BudgetCache::new(budget, sinks, 4, 3, rotary())
            .expect("there is room, and you refuse");
        let (mut first, mut output) = (0, DMatrix::zeros(n, 3));
        for c in chunks {
            let [q, k, v] = x.clone().map(|x| x.rows(first, *c).into_owned());
            output.rows_mut(first, *c).copy_from(&cache.attend(&q, &k, &v));
            assert!(
                cache.bytes() <= budget,
                "{} bytes of keys and values exceed the budget of {budget}: are values counted?",
                cache.bytes()
            );
            first += c;
        }
        (cache, output)
    }

    /// The number of the first row that is off.
    fn wrong_row(n: usize, mask: Mask, came: &DMatrix<f64>) -> Option<usize> {
        let [q, k, v] = draw(n);
        let (q, k) = (rotary().turn(&q, 1, 0).unwrap(), rotary().turn(&k, 1, 0).unwrap());
        let (right, _) = attention(&q, &k, &v, mask).unwrap();
        (0..n).find(|i| !((came.row(*i) - right.row(*i)).amax() < 1e-12))
    }

    #[test]
    fn a_budget_that_is_too_small_is_refused() {
        for sinks in [0, 3] {
            for (bytes, fits) in [
                (TOKEN * (sinks + 1) - 1, false),
                (TOKEN * (sinks + 1), true),
                (0, false),
            ] {
                let came = BudgetCache::new(bytes, sinks, 4, 3, rotary()).is_some();
                assert!(
                    came == fits,
                    "{bytes} bytes, {sinks} sinks, {TOKEN} bytes a token: accepted is {came}; refuse what leaves no place for a token beside the sinks"
                );
            }
        }
    }

    #[test]
    fn while_it_fits_it_is_full_attention() {
        let (_, output) = run(20, 2, &[1; 20]);
        let wrong = wrong_row(20, Mask::causal(), &output);
        assert!(
            wrong.is_none(),
            "20 tokens, 20 places: row {} is the first that is wrong: are empty places among the keys?",
            wrong.unwrap_or(0)
        );
    }

    #[test]
    fn large_scores_are_no_trouble() {
        let [x, _, v] = draw(20);
        let (q, k) = (100.0 * &x, -100.0 * &x); // a token's score with itself is far below 0
        let mut cache = BudgetCache::new(20 * TOKEN, 2, 4, 3, rotary())
            .expect("there is room, and you refuse");
        let output = cache.attend(&q, &k, &v);
        let question = if output.row(0).iter().any(|x| x.is_nan()) {
            "does the maximum begin at −∞, and not at 0? And is the largest score of the row subtracted?"
        } else {
            "is there another key, or an empty place, among those that it sees?"
        };
        assert!(
            (output.row(0) - v.row(0)).amax() < 1e-9,
            "the first token sees itself alone, with a score below −1000, and its output isn't its value: {question}"
        );
        let (q, k) = (rotary().turn(&q, 1, 0).unwrap(), rotary().turn(&k, 1, 0).unwrap());
        let (right, _) = attention(&q, &k, &v, Mask::causal()).unwrap();
        let wrong = (0..20).find(|i| !((output.row(*i) - right.row(*i)).amax() < 1e-9));
        assert!(
            wrong.is_none(),
            "scores are in the thousands, of either sign: row {} is the first that is wrong: is the largest score of the row subtracted?",
            wrong.unwrap_or(0)
        );
    }

    #[test]
    fn later_it_is_a_window_with_sinks() {
        for (places, sinks) in [(8, 2), (5, 4), (6, 0)] {
            let (_, output) = run(places, sinks, &[1; 30]);
            let mask = |sinks| Mask::window_with_sinks(places - sinks, sinks).unwrap();
            if sinks > 0
                && wrong_row(30, Mask::window(places).unwrap(), &output).is_none()
            {
                panic!(
                    "{places} places, {sinks} sinks: this is a plain window; the first tokens have to stay"
                );
            }
            let wrong = wrong_row(30, mask(sinks), &output);
            assert!(
                wrong.is_none(),
                "{places} places, {sinks} sinks: row {} is the first that is wrong: are positions those of the text?",
                wrong.unwrap_or(0)
            );
        }
    }

    #[test]
    fn cuts_change_nothing() {
        for chunks in [vec![4; 6], vec![7, 1, 16], vec![24], vec![3, 5, 2, 9, 5]] {
            let (_, output) = run(8, 2, &chunks);
            let wrong = wrong_row(24, Mask::window_with_sinks(6, 2).unwrap(), &output);
            assert!(
                wrong.is_none(),
                "chunks {chunks:?}: row {} is the first that is wrong; a token should see what it sees token by token",
                wrong.unwrap_or(0)
            );
        }
    }

    #[test]
    fn the_first_and_the_last_are_held() {
        for (tokens, right) in [
            (3, vec![0, 1, 2]),
            (7, vec![0, 1, 3, 4, 5, 6]),
            (20, vec![0, 1, 16, 17, 18, 19]),
        ] {
            assert!(
                run(6, 2, &[tokens]).0.held() == right,
                "6 places, 2 sinks, {tokens} tokens: the positions that are held; yours is {:?}, expected {right:?}",
                run(6, 2, &[tokens]).0.held()
            );
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_text() {
        let peak = |tokens: usize| {
            let [q, k, v] = draw(1);
            let counts = allocation_counter::measure(|| {
                let mut cache = BudgetCache::new(16 * TOKEN, 2, 4, 3, rotary()).unwrap();
                (0..tokens).for_each(|_| drop(cache.attend(&q, &k, &v)));
            });
            counts.bytes_max
        };
        let (short, long) = (peak(50), peak(500));
        assert!(
            long <= short,
            "50 tokens take {short} bytes at once and 500 take {long}: what else grows with the text?"
        );
    }

    #[test]
    fn a_nan_leaves_with_its_token() {
        let [q, k, mut v] = draw(30);
        v[(4, 0)] = f64::NAN;
        let mut cache = BudgetCache::new(8 * TOKEN, 2, 4, 3, rotary()).unwrap();
        let output = cache.attend(&q, &k, &v);
        let wrong = (10..30).find(|i| output.row(*i).iter().any(|x| x.is_nan()));
        assert!(
            wrong.is_none(),
            "token 4 has a NaN and was forgotten with token 10, but row {} still has it: is 0 · NaN zero?",
            wrong.unwrap_or(0)
        );
    }
}
