//! # Flash attention from an empty file
//!
//! project, 180 minutes, without `attention::`
//!
//! Write the program of this chapter yourself: attention in tiles, exact, without a matrix of weights. Once you have
//! written it, you will recognise it in every fast attention.
//!
//! `q` is $(n_q, d)$, `k` is $(n_k, d)$ and `v` is $(n_k, d_v)$. A tile has `tile_q` queries and `tile_k` keys; they need not divide $n_q$ or $n_k$. If `causal` is true, the last query stands at the last key, and each query sees its own
//! key and earlier ones. Return the output $(n_q, d_v)$ and the log-sum-exp of each row. You may use nalgebra, but nothing from the crate.
//!
//! What earns the marks:
//!
//! - With one tile for everything, the output and the log-sum-exps are those of `attention`.
//! - Tiles of any size change nothing.
//! - Rising scores, whose maximum grows from tile to tile, and scores in the thousands are right.
//! - A causal mask is right with fewer queries than keys, and with more. A query that sees nothing gets zeros and
//!   $-\infty$.
//! - A NaN in a hidden key or value leaves no trace, even in a partial tile.
//! - Besides its result, the program holds the same amount of memory for any length.
//!
//! One thing no test can see: a program that takes one key at a time gives the same numbers. Read yours once more: does it
//! work on a tile before it goes to the next?
//!
//! # Hint
//!
//! Write it for one query and one key at a time first, without a mask. That is online softmax. Then make the block of
//! keys larger, then the block of queries. Run the tests after each step.
//!
//! # Hint
//!
//! For each block of queries, keep a maximum, a sum and an unfinished output for each row. In a tile, treat row by row:
//! find the largest visible score, correct, add. What do you do with a row that sees nothing in this tile?
//!
//! # Hint
//!
//! A row that sees nothing in a tile can skip it: `continue`. Then its new maximum is finite, and no
//! $-\infty - (-\infty)$ can happen. Loop over visible keys only, so that no hidden value is ever multiplied. After the
//! last tile, divide rows whose sum isn't 0.

use nalgebra::{DMatrix, DVector};

// SOLUTION
use nalgebra::DMatrixView;

/// What is known of the rows of one block of queries.
struct Block {
    max: DVector<f64>,
    sum: DVector<f64>,
    output: DMatrix<f64>, // (rows, d_v), not yet divided
}

impl Block {
    fn new(rows: usize, d_v: usize) -> Self {
        Block {
            // FAULT from-zero: does the running maximum begin at −∞, and not at 0
            // > max: DVector::zeros(rows),
            max: DVector::from_element(rows, f64::NEG_INFINITY),
            sum: DVector::zeros(rows),
            output: DMatrix::zeros(rows, d_v),
        }
    }

    /// Takes scores of row `i` with the first keys of a tile, and those keys' values.
    fn absorb(&mut self, i: usize, scores: &[f64], v: DMatrixView<f64>) {
        // FAULT max-of-the-tile: is the maximum over all tiles so far
        // > let max = scores.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        // FAULT first-of-the-tile: is the maximum the largest score
        // > let max = self.max[i].max(scores[0]);
        // FAULT smallest: is the maximum the largest score
        // > let max = scores.iter().fold(f64::INFINITY, |a, b| a.min(*b)).max(self.max[i]);
        let max = scores.iter().fold(self.max[i], |a, b| a.max(*b));
        // FAULT no-correction: does a new maximum correct
        // > let correction = 1.0;
        let correction = (self.max[i] - max).exp();
        self.max[i] = max;
        self.sum[i] *= correction;
        self.output.row_mut(i).scale_mut(correction);
        for (j, score) in scores.iter().enumerate() {
            let weight = (score - max).exp();
            self.sum[i] += weight;
            for c in 0..v.ncols() {
                self.output[(i, c)] += weight * v[(j, c)];
            }
        }
    }
}
// END

/// Attention in tiles: the output, and the log-sum-exp of each row.
///
/// Shapes: `q` (n_q, d), `k` (n_k, d), `v` (n_k, d_v) → (n_q, d_v), (n_q).
pub fn flash_attention(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
    tile_q: usize,
    tile_k: usize,
    causal: bool,
) -> (DMatrix<f64>, DVector<f64>) {
    // SOLUTION
    // FAULT the-crate: this exercise asks you to do without it
    // > let (n_q, n_k, d_v) = attention::attention(q, k, v, attention::Mask::none()).map(|_| (q.nrows(), k.nrows(), v.ncols())).unwrap();
    let (n_q, n_k, d_v) = (q.nrows(), k.nrows(), v.ncols());
    let scale = 1.0 / (q.ncols() as f64).sqrt();
    let mut output = DMatrix::zeros(n_q, d_v);
    let mut log_sum_exp = DVector::from_element(n_q, f64::NEG_INFINITY);
    // FAULT whole-matrix: is there a matrix of all scores
    // > let mut scores = DMatrix::<f64>::zeros(n_q, n_k);
    let mut scores = DVector::<f64>::zeros(tile_k.min(n_k));
    for first in (0..n_q).step_by(tile_q) {
        let rows = tile_q.min(n_q - first);
        let mut block = Block::new(rows, d_v);
        // FAULT last-tile: Here, is the last tile shorter, and is it there
        // > for start in (0..n_k / tile_k * tile_k).step_by(tile_k) {
        for start in (0..n_k).step_by(tile_k) {
            let keys = tile_k.min(n_k - start);
            for i in 0..rows {
                // The keys that this row sees, of all and of this tile.
                // FAULT first-corner: the last query stands at the last key
                // > let seen = if causal { first + i + 1 } else { n_k };
                let seen =
                    if causal { (first + i + 1 + n_k).saturating_sub(n_q) } else { n_k };
                // FAULT hidden-nan: don't multiply what is hidden
                // > let (visible, shown) = (keys, keys.min(seen.saturating_sub(start)));
                let visible = keys.min(seen.saturating_sub(start));
                if visible == 0 {
                    continue;
                }
                for j in 0..visible {
                    scores[j] = q.row(first + i).dot(&k.row(start + j)) * scale;
                }
                // FAULT hidden-nan
                // > (shown..keys).for_each(|j| scores[j] = f64::NEG_INFINITY);
                // > block.absorb(i, &scores.as_slice()[..visible], v.rows(start, visible));
                block.absorb(i, &scores.as_slice()[..visible], v.rows(start, visible));
            }
        }
        for i in 0..rows {
            if block.sum[i] > 0.0 {
                output.set_row(first + i, &(block.output.row(i) / block.sum[i]));
                log_sum_exp[first + i] = block.max[i] + block.sum[i].ln();
            }
        }
    }
    (output, log_sum_exp)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;

    fn draw(n_q: usize, n_k: usize) -> [DMatrix<f64>; 3] {
        [(n_q, 4, 0), (n_k, 4, 1), (n_k, 3, 2)].map(|(rows, columns, seed)| {
            DMatrix::from_fn(rows, columns, |i, j| {
                2.0 * ((seed + 5 * i + 3 * j * j) as f64).sin()
            })
        })
    }

    /// Compares rows with those of the crate.
    fn compare(
        [q, k, v]: &[DMatrix<f64>; 3],
        tiles: (usize, usize),
        causal: bool,
        question: &str,
    ) {
        let mask = if causal { Mask::causal() } else { Mask::none() };
        let (right, cache) = attention(q, k, v, mask).unwrap();
        let (output, lse) = flash_attention(q, k, v, tiles.0, tiles.1, causal);
        assert!(
            (output.shape(), lse.len()) == (right.shape(), right.nrows()),
            "shapes of the output and of the log-sum-exps: yours are {:?}, expected {:?}",
            (output.shape(), lse.len()),
            (right.shape(), right.nrows())
        );
        let what = format!(
            "{} queries, {} keys, tiles {tiles:?}, causal {causal}",
            q.nrows(),
            k.nrows()
        );
        for i in 0..q.nrows() {
            let off = (output.row(i) - right.row(i)).amax();
            assert!(
                off < 1e-11,
                "{what}: row {i} of the output is off by {off:.2e}: {question}"
            );
            let (came, l) = (lse[i], cache.log_sum_exp[i]);
            assert!(
                came == l || (came - l).abs() < 1e-11 * l.abs().max(1.0),
                "{what}: log-sum-exp {i} should be {l:.4} and is {came:.4}: {question}"
            );
        }
    }

    #[test]
    fn one_tile_is_attention() {
        compare(
            &draw(6, 9),
            (6, 9),
            false,
            "are the scores scaled, and is each row divided at its end?",
        );
        compare(&draw(7, 7), (7, 7), true, "does each query see its own key?");
    }

    #[test]
    fn tiles_change_nothing() {
        for tiles in [(12, 4), (4, 12), (1, 1), (4, 4), (3, 6)] {
            for causal in [false, true] {
                let question = "does a new maximum correct what was summed before, and does each block of queries begin anew?";
                compare(&draw(12, 12), tiles, causal, question);
            }
        }
    }

    #[test]
    fn tiles_need_not_divide_the_lengths() {
        for tiles in [(12, 5), (5, 12), (5, 2), (3, 5), (100, 1), (1, 100), (100, 100)] {
            for causal in [false, true] {
                let question = "tiles that divide 12 are for the test before this one. Here, is the last tile shorter, and is it there?";
                compare(&draw(12, 12), tiles, causal, question);
            }
        }
    }

    #[test]
    fn scores_rise_and_are_large() {
        let q = DMatrix::from_element(12, 4, 1.0);
        let with = |keys: usize, score: &dyn Fn(f64) -> f64| {
            let k = DMatrix::from_fn(keys, 4, |j, _| 0.5 * score(j as f64));
            [q.clone(), k, draw(12, keys)[2].clone()]
        };
        let question = "scores rise: does a new maximum correct what was summed before?";
        compare(&with(12, &|j| 0.6 * j), (2, 3), false, question);
        let question = "a tile has scores from −2000 to 2000: is the maximum the largest score, not the first or the smallest of its tile?";
        for turn in [0.0, 1.0, 2.0] {
            let far = with(9, &|j| 2000.0 * ((turn + j) % 3.0 - 1.0));
            compare(&far, (2, 3), false, question);
        }
        let question = "scores rise by thousands: does a new maximum correct what was summed before?";
        compare(&with(12, &|j| 480.0 * j), (2, 3), false, question);
        let question = "scores fall by thousands: is the maximum over all tiles so far, and not that of the last tile?";
        compare(&with(12, &|j| -480.0 * j), (2, 3), true, question);
        let question = "all scores are −2000 and less: does the running maximum begin at −∞, and not at 0?";
        for causal in [false, true] {
            compare(&with(12, &|j| -2000.0 - j), (2, 3), causal, question);
        }
    }

    #[test]
    fn the_last_query_stands_beside_the_last_key() {
        for (n_q, n_k) in [(3, 10), (1, 7), (9, 4)] {
            for tiles in [(1, 1), (2, 3), (4, 4)] {
                let question = if tiles == (1, 1) {
                    "the last query stands at the last key, and a query that sees nothing gets zeros: −∞ − (−∞) is NaN"
                } else {
                    "with tiles of one query and one key this is right. Is the last tile shorter, is it there, and at which key does its first query stand?"
                };
                compare(&draw(n_q, n_k), tiles, true, question);
            }
        }
    }

    #[test]
    fn a_hidden_nan_leaves_no_trace() {
        let [q, mut k, mut v] = draw(8, 8);
        let (right, _) = flash_attention(&q, &k, &v, 3, 3, true);
        (k[(7, 1)], v[(7, 0)], v[(6, 2)]) = (f64::NAN, f64::NAN, f64::INFINITY);
        let (output, _) = flash_attention(&q, &k, &v, 3, 3, true);
        assert!(
            output.rows(0, 6) == right.rows(0, 6),
            "the last two keys are hidden from these rows: 0 · NaN is NaN, so don't multiply what is hidden"
        );
    }

    #[test]
    fn memory_is_that_of_a_few_tiles() {
        let beside_the_result = |n: usize| {
            let [q, k, v] = draw(n, n);
            let counts = allocation_counter::measure(|| {
                drop(flash_attention(&q, &k, &v, 8, 16, true))
            });
            counts.bytes_max - 8 * 4 * n as u64
        };
        let (short, long) = (beside_the_result(32), beside_the_result(128));
        assert!(
            long <= short + 64,
            "beside the result, 32 tokens take {short} bytes and 128 take {long}: is there a matrix of all scores, or a copy of K?"
        );
    }
}
