//! # Attend, then forget
//!
//! hard, 30 minutes
//!
//! With a window of $w$, each token sees itself and the $w - 1$ tokens before it. So a cache need not grow with the
//! text. Write a cache that takes chunks of any size, longer than the window too, and returns just what the same window
//! would give over the whole text.
//!
//! `attend` takes a chunk's `q`, `k` and `v`, each with $c$ rows, and returns $(c, d_v)$. You may call `attention`,
//! with any mask.
//!
//! Between two calls, the cache holds only what a later token can see, and all of that. With $w = 1$ that isn't much.
//!
//! # Hint
//!
//! Draw a window of three, and a chunk of two tokens at the positions 5 and 6. Which keys does each of them see?
//!
//! # Hint
//!
//! First append the whole chunk. Then attend under a mask that gives each token its own window. Only then drop rows
//! from the top. The next token sees itself, so how many older ones does it see?
//!
//! # Hint
//!
//! `Mask::window(w)` puts the last query at the last key, so it fits as it is. Afterwards keep the last
//! `(w - 1).min(n)` of `n` rows: `self.keys.rows(n - kept, kept).into_owned()`.

use attention::{Mask, attention};
use nalgebra::DMatrix;

/// Keys and values of the tokens that a later token can see.
#[derive(Debug, Clone)]
pub struct WindowCache {
    /// The window (w): how many tokens a token sees, with itself.
    pub width: usize,
    /// The keys that are held, the oldest first, (rows, d).
    pub keys: DMatrix<f64>,
    /// Their values, (rows, d_v).
    pub values: DMatrix<f64>,
}

/// Puts rows below others.
pub fn stack(upper: &DMatrix<f64>, lower: &DMatrix<f64>) -> DMatrix<f64> {
    let mut all = upper.clone().resize_vertically(upper.nrows() + lower.nrows(), 0.0);
    all.rows_mut(upper.nrows(), lower.nrows()).copy_from(lower);
    all
}

impl WindowCache {
    /// An empty cache for keys of width `d` and values of width `d_v`.
    pub fn new(width: usize, d: usize, d_v: usize) -> Self {
        WindowCache { width, keys: DMatrix::zeros(0, d), values: DMatrix::zeros(0, d_v) }
    }

    /// Attends with a chunk of new tokens, to itself and to what is held.
    ///
    /// Shapes: `q`, `k` (c, d), `v` (c, d_v) → (c, d_v).
    pub fn attend(
        &mut self,
        q: &DMatrix<f64>,
        k: &DMatrix<f64>,
        v: &DMatrix<f64>,
    ) -> DMatrix<f64> {
        // SOLUTION
        self.keys = stack(&self.keys, k);
        self.values = stack(&self.values, v);
        // FAULT forget-first: was a key dropped before
        // > self.forget(self.width.max(q.nrows()));
        // FAULT no-window: a token sees only its own window
        // > let (output, _) = attention(q, &self.keys, &self.values, Mask::causal()).unwrap();
        let output = self.under_mask(q);
        // FAULT forget-first
        // > let output = self.under_mask(q);
        // FAULT one-too-many: no later token can see
        // > self.forget(self.width);
        // FAULT one-too-few: that the next token can still see
        // > self.forget(self.width.saturating_sub(2));
        self.forget(self.width - 1);
        output
    }

    /// Attention of the last queries over all that is held.
    fn under_mask(&self, q: &DMatrix<f64>) -> DMatrix<f64> {
        let mask = Mask::window(self.width).unwrap();
        attention(q, &self.keys, &self.values, mask).unwrap().0
    }

    /// Keeps the last rows, at most as many as said.
    fn forget(&mut self, most: usize) {
        let n = self.keys.nrows();
        let kept = most.min(n);
        self.keys = self.keys.rows(n - kept, kept).into_owned();
        self.values = self.values.rows(n - kept, kept).into_owned();
        // END
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// The cache after a text in these chunks. If asked for, the output of each chunk is compared.
    fn run(width: usize, chunks: &[usize], compare: bool) -> WindowCache {
        let n = chunks.iter().sum();
        let (q, k, v) = (draw(n, 4, 0), draw(n, 4, 1), draw(n, 3, 2));
        let (whole, _) = attention(&q, &k, &v, Mask::window(width).unwrap()).unwrap();
        let mut cache = WindowCache::new(width, 4, 3);
        let mut first = 0;
        for c in chunks {
            let [q, k, v] = [&q, &k, &v].map(|x| x.rows(first, *c).into_owned());
            let output = cache.attend(&q, &k, &v);
            assert!(
                output.shape() == (*c, 3),
                "a chunk of {c} tokens has {c} rows of output; yours is {:?}, expected {:?}",
                output.shape(),
                (*c, 3)
            );
            for i in (0..*c).filter(|_| compare) {
                let off = (output.row(i) - whole.row(first + i)).amax();
                assert!(
                    off < 1e-12,
                    "window of {width}, chunks {chunks:?}: row {i} of the chunk that begins at token {first} is off by {off:.2e}: {}",
                    match i {
                        0 => "was a key dropped before this row had seen it?",
                        _ => "a token sees only its own window, also within a chunk",
                    }
                );
            }
            first += c;
        }
        cache
    }

    #[test]
    fn a_chunk_of_the_whole_text_is_attention_under_a_window() {
        for width in [1, 3, 20] {
            run(width, &[12], true);
        }
    }

    #[test]
    fn the_cache_holds_what_a_later_token_sees() {
        for (width, chunks) in
            [(4, vec![1; 9]), (4, vec![3, 6, 1]), (1, vec![2, 2]), (5, vec![2, 1])]
        {
            let k = draw(chunks.iter().sum(), 4, 1);
            let n = chunks.iter().sum::<usize>();
            let held = run(width, &chunks, false).keys;
            let right = n.min(width - 1);
            assert!(
                held.nrows() <= right,
                "window of {width}, after {n} tokens: {} keys are held, and no later token can see more than {right}",
                held.nrows()
            );
            assert!(
                held.nrows() == right,
                "window of {width}, after {n} tokens: the cache lacks a key that the next token can still see: it holds {} keys, expected {right}",
                held.nrows()
            );
            assert!(
                held == k.rows(n - right, right),
                "it should hold the keys of the last {right} tokens"
            );
        }
    }

    #[test]
    fn single_tokens_see_their_window() {
        run(4, &[1; 12], true);
        run(1, &[1; 4], true);
    }

    #[test]
    fn chunks_of_any_size_see_their_window() {
        for chunks in
            [vec![4, 4, 4, 4], vec![2, 9, 1, 3], vec![10, 2, 2], vec![5, 1, 1, 6]]
        {
            for width in [1, 2, 4, 7] {
                run(width, &chunks, true);
            }
        }
    }
}
