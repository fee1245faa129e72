//! # The traffic of strips
//!
//! medium, 25 minutes
//!
//! The obvious program writes its scores to slow memory and reads them back. Complete rows of scores can stay in fast
//! memory instead: take $r$ queries at a time, and let all keys and values come by. How much do you gain, and what do
//! you pay?
//!
//! Matrices in slow memory are `SlowMatrix`es, which count. What you load is an ordinary matrix in fast memory, where
//! arithmetic is free. Here it has room for a strip of $(r, n_k)$ scores beside all that you load for it.
//!
//! Write attention in strips, without a mask, into `output`. Load nothing twice for one strip. Then predict the numbers
//! read and the numbers written, without running it. $r$ need not divide $n_q$.
//!
//! # Hint
//!
//! What does a strip need from slow memory, and what can it share with the next strip? Fast memory is for one strip
//! only.
//!
//! # Hint
//!
//! Every query is read once, every output row is written once. Keys and values are read once for each strip. How many
//! strips are there if $r$ doesn't divide $n_q$?
//!
//! # Hint
//!
//! `for start in (0..n_q).step_by(r)`, with `rows = start..n_q.min(start + r)`. Load those queries, all keys and all
//! values, call `softmax_rows` on the scaled scores, multiply, and `output.store_rows(start, &…)`.

use nalgebra::DMatrix;
use std::cell::Cell;
use std::ops::Range;

/// A matrix in slow memory.
pub struct SlowMatrix {
    numbers: DMatrix<f64>,
    read: Cell<usize>,
    written: usize,
}

impl SlowMatrix {
    /// Puts a matrix into slow memory, which isn't counted.
    pub fn new(numbers: DMatrix<f64>) -> Self {
        SlowMatrix { numbers, read: Cell::new(0), written: 0 }
    }

    /// Its rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        self.numbers.shape()
    }

    /// Reads these rows into fast memory.
    pub fn load_rows(&self, rows: Range<usize>) -> DMatrix<f64> {
        self.read.set(self.read.get() + rows.len() * self.numbers.ncols());
        self.numbers.rows_range(rows).into_owned()
    }

    /// Writes rows, the first of them to row `start`.
    pub fn store_rows(&mut self, start: usize, rows: &DMatrix<f64>) {
        self.written += rows.len();
        self.numbers.rows_mut(start, rows.nrows()).copy_from(rows);
    }

    /// How many numbers were read, and how many written.
    pub fn traffic(&self) -> (usize, usize) {
        (self.read.get(), self.written)
    }

    /// Takes the matrix out of slow memory, which isn't counted.
    pub fn into_matrix(self) -> DMatrix<f64> {
        self.numbers
    }
}

/// The weights of scores, both (rows, n_k): softmax of each row.
pub fn softmax_rows(scores: &DMatrix<f64>) -> DMatrix<f64> {
    attention::softmax_rows(scores).expect("scores are not empty")
}

/// Attention in strips of `r` queries.
///
/// Shapes: `q` (n_q, d), `k` (n_k, d), `v` (n_k, d_v), `output` (n_q, d_v).
pub fn attention_in_strips(
    q: &SlowMatrix,
    k: &SlowMatrix,
    v: &SlowMatrix,
    output: &mut SlowMatrix,
    r: usize,
) {
    // SOLUTION
    let ((n_q, d), (n_k, _)) = (q.shape(), k.shape());
    // FAULT last-strip: the last strip may be shorter
    // > for start in (0..n_q / r * r).step_by(r) {
    for start in (0..n_q).step_by(r) {
        let queries = q.load_rows(start..n_q.min(start + r));
        // FAULT row-by-row-keys: the whole strip can share one reading
        // > let keys = queries.row_iter().map(|_| k.load_rows(0..n_k)).last().unwrap();
        let keys = k.load_rows(0..n_k);
        let scores = queries * keys.transpose() / (d as f64).sqrt();
        let weights = softmax_rows(&scores);
        let rows = weights * v.load_rows(0..n_k);
        // FAULT row-by-row: should be written once
        // > rows.row_iter().for_each(|_| output.store_rows(start, &rows));
        output.store_rows(start, &rows);
    }
    // END
}

/// Predicts the numbers that `attention_in_strips` reads and those that it writes.
pub fn predicted_traffic(
    n_q: usize,
    n_k: usize,
    d: usize,
    d_v: usize,
    r: usize,
) -> (usize, usize) {
    // SOLUTION
    // FAULT full-strips: the last strip has fewer than
    // > let keys_and_values = n_q.div_ceil(r) * (r * d + n_k * (d + d_v)) - n_q * d;
    // FAULT part-of-a-strip: a part of a strip reads all keys
    // > let keys_and_values = n_q * n_k * (d + d_v) / r;
    let keys_and_values = n_q.div_ceil(r) * n_k * (d + d_v);
    (n_q * d + keys_and_values, n_q * d_v)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;

    const SIZES: [(usize, usize, usize, usize, usize); 5] = [
        (12, 12, 4, 4, 4),
        (10, 7, 3, 5, 4),
        (5, 9, 2, 3, 1),
        (7, 6, 4, 2, 100),
        (11, 8, 2, 3, 3),
    ];

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// Runs the program and returns by how much each row is off, and the traffic of Q, K, V and the output.
    fn run(
        n_q: usize,
        n_k: usize,
        d: usize,
        d_v: usize,
        r: usize,
    ) -> (Vec<f64>, [(usize, usize); 4]) {
        let [q, k, v] = [draw(n_q, d, 0), draw(n_k, d, 1), draw(n_k, d_v, 2)];
        let (expected, _) = attention(&q, &k, &v, Mask::none()).unwrap();
        let [q, k, v] = [q, k, v].map(SlowMatrix::new);
        let mut output = SlowMatrix::new(DMatrix::from_element(n_q, d_v, 77.0));
        attention_in_strips(&q, &k, &v, &mut output, r);
        let traffic = [q.traffic(), k.traffic(), v.traffic(), output.traffic()];
        let output = output.into_matrix();
        let off = |i| (output.row(i) - expected.row(i)).amax();
        ((0..n_q).map(off).collect(), traffic)
    }

    #[test]
    fn the_output_is_that_of_attention() {
        for (n_q, n_k, d, d_v, r) in SIZES {
            for (i, off) in run(n_q, n_k, d, d_v, r).0.into_iter().enumerate() {
                let last =
                    if i >= n_q / r * r { ": the last strip may be shorter" } else { "" };
                assert!(
                    off < 1e-12,
                    "{n_q} queries in strips of {r}: row {i} is off by {off:.2e}{last}"
                );
            }
        }
    }

    #[test]
    fn a_strip_loads_nothing_twice() {
        for (n_q, n_k, d, d_v, r) in SIZES {
            let (_, [q, k, v, output]) = run(n_q, n_k, d, d_v, r);
            let strips = n_q.div_ceil(r);
            let place = format!("{n_q} queries in strips of {r}");
            assert!(
                q.0 == n_q * d,
                "{place}: {} numbers of Q were read, expected {}: each should be read once",
                q.0,
                n_q * d
            );
            assert!(
                output == (0, n_q * d_v),
                "{place}: {} numbers of the output were read and {} written, expected 0 and {}: it should be written once and never read",
                output.0,
                output.1,
                n_q * d_v
            );
            for (name, came, right) in
                [("K", k.0, strips * n_k * d), ("V", v.0, strips * n_k * d_v)]
            {
                assert!(
                    came == right,
                    "{place}: {came} numbers of {name} were read, expected {right}: the whole strip can share one reading"
                );
            }
        }
    }

    #[test]
    fn the_prediction_is_what_the_program_moves() {
        for (n_q, n_k, d, d_v, r) in SIZES {
            let (_, traffic) = run(n_q, n_k, d, d_v, r);
            let read = traffic.iter().map(|counts| counts.0).sum::<usize>();
            let written = traffic.iter().map(|counts| counts.1).sum::<usize>();
            let came = predicted_traffic(n_q, n_k, d, d_v, r);
            let place = format!("{n_q} queries, {n_k} keys, strips of {r}");
            let keys_and_values = n_q.div_ceil(r) * n_k * (d + d_v);
            assert!(
                n_q % r == 0 || came.0 != n_q.div_ceil(r) * r * d + keys_and_values,
                "{place}: you predict {} numbers read, and {read} are: keys and values are right, but the last strip has fewer than {r} queries",
                came.0
            );
            assert!(
                came.0 == read,
                "{place}: you predict {} numbers read, and {read} are; even a part of a strip reads all keys",
                came.0
            );
            assert!(
                came.1 == written,
                "{place}: you predict {} numbers written, and {written} are",
                came.1
            );
        }
    }
}
