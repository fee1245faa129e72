//! # Walk with the memory
//!
//! medium, 20 minutes
//!
//! `yesterday` multiplies two matrices, and waits for memory. Write `product`, which does the same multiplications in
//! another order, so that fewer lines are fetched.
//!
//! Memory delivers numbers in **lines** of eight neighbours. A small cache holds the lines that were used last; what
//! isn't in it is fetched. Like nalgebra, `Stored` keeps a matrix by columns.
//!
//! `a` is $(n, m)$, `b` is $(m, p)$, and `c` is $(n, p)$ and begins with zeros. Read and write through the cache:
//! `cache.read(&a, i, j)`, `cache.write(&mut c, i, j, x)`. The columns of `a` and `c` have several lines, and a row has
//! more entries than the cache has lines. Fetch at most a sixth of what `yesterday` fetches.
//!
//! # Hint
//!
//! Entry $(i, k)$ of `a` was just fetched. Which seven entries came with it? Does the innermost loop of `yesterday` use
//! them before they are pushed out?
//!
//! # Hint
//!
//! The three loops may stand in any order, since all they do is add $a_{ik} b_{kj}$ to $c_{ij}$. Which of the three
//! indices runs down columns, and in how many of the matrices?
//!
//! # Hint
//!
//! With $i$ innermost, the loop walks down a column of `a` and a column of `c`, and needs a single number of `b`, which
//! can be read before it. Now the sum lives in `c`: read it, add, write it.

use nalgebra::DMatrix;
use std::collections::VecDeque;

/// A matrix in memory, column by column.
pub struct Stored {
    /// Its numbers.
    pub numbers: DMatrix<f64>,
    first_line: usize,
}

/// A cache of 16 lines with eight numbers each, which counts the lines that it fetches.
pub struct Cache {
    lines: VecDeque<usize>,
    next_line: usize,
    /// The lines fetched so far.
    pub fetched: usize,
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Cache { lines: VecDeque::new(), next_line: 0, fetched: 0 }
    }

    /// Puts a matrix into memory.
    pub fn store(&mut self, numbers: DMatrix<f64>) -> Stored {
        let first_line = self.next_line;
        self.next_line += numbers.len().div_ceil(8);
        Stored { numbers, first_line }
    }

    /// Reads an entry.
    pub fn read(&mut self, matrix: &Stored, i: usize, j: usize) -> f64 {
        self.touch(matrix, i, j);
        matrix.numbers[(i, j)]
    }

    /// Writes an entry.
    pub fn write(&mut self, matrix: &mut Stored, i: usize, j: usize, x: f64) {
        self.touch(matrix, i, j);
        matrix.numbers[(i, j)] = x;
    }

    /// Uses a line, which is fetched if it isn't here. The line that was used longest ago makes room.
    fn touch(&mut self, matrix: &Stored, i: usize, j: usize) {
        let line = matrix.first_line + (j * matrix.numbers.nrows() + i) / 8;
        if let Some(place) = self.lines.iter().position(|held| *held == line) {
            self.lines.remove(place);
        } else {
            self.fetched += 1;
            self.lines.truncate(15);
        }
        self.lines.push_front(line);
    }
}

/// The product, an entry after the other.
pub fn yesterday(cache: &mut Cache, a: &Stored, b: &Stored, c: &mut Stored) {
    let ((n, m), p) = (a.numbers.shape(), b.numbers.ncols());
    for i in 0..n {
        for j in 0..p {
            let mut sum = 0.0;
            for k in 0..m {
                sum += cache.read(a, i, k) * cache.read(b, k, j);
            }
            cache.write(c, i, j, sum);
        }
    }
}

/// The same product with fewer lines fetched.
pub fn product(cache: &mut Cache, a: &Stored, b: &Stored, c: &mut Stored) {
    // SOLUTION
    let ((n, m), p) = (a.numbers.shape(), b.numbers.ncols());
    for j in 0..p {
        // FAULT rows-inside: does the innermost loop walk down the columns
        // > for i in 0..n {
        for k in 0..m {
            // FAULT rows-inside
            let factor = cache.read(b, k, j);
            // FAULT rows-inside
            // > for k in 0..m {
            for i in 0..n {
                // FAULT rows-inside
                // > let term = cache.read(a, i, k) * cache.read(b, k, j);
                // FAULT around-the-cache: read through the cache
                // > let term = a.numbers[(i, k)] * factor;
                let term = cache.read(a, i, k) * factor;
                // FAULT overwritten: the last term only
                // > let so_far = 0.0;
                let so_far = cache.read(c, i, j);
                cache.write(c, i, j, so_far + term);
            }
        }
    }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// Runs a program on (n, m) times (m, p), and returns its result and the lines that it fetched.
    fn run(
        program: fn(&mut Cache, &Stored, &Stored, &mut Stored),
        [n, m, p]: [usize; 3],
    ) -> (DMatrix<f64>, usize) {
        let mut cache = Cache::new();
        let (a, b) = (cache.store(draw(n, m, 0)), cache.store(draw(m, p, 1)));
        let mut c = cache.store(DMatrix::zeros(n, p));
        program(&mut cache, &a, &b, &mut c);
        (c.numbers, cache.fetched)
    }

    #[test]
    fn the_product_is_right() {
        for sizes in [[3, 4, 2], [17, 5, 9], [1, 6, 1], [8, 1, 3]] {
            let (came, _) = run(product, sizes);
            let [n, m, p] = sizes;
            let (a, b) = (draw(n, m, 0), draw(m, p, 1));
            let last = a.column(m - 1) * b.row(m - 1);
            assert!(
                m == 1 || (&came - last).amax() > 1e-12,
                "{sizes:?}: each entry is the last term only: terms have to be added to what is in c"
            );
            let off = (came - a * b).amax();
            assert!(
                off < 1e-12,
                "{sizes:?}: an entry is off by {off:.2e}: is each a(i, k) · b(k, j) added once to c(i, j)?"
            );
        }
    }

    #[test]
    fn it_fetches_a_sixth_of_yesterday() {
        for sizes in [[40, 30, 10], [48, 24, 12], [32, 32, 16]] {
            let (before, now) = (run(yesterday, sizes).1, run(product, sizes).1);
            assert!(
                6 * now <= before,
                "{sizes:?}: yesterday fetched {before} lines, and you fetch {now}: does the innermost loop walk down the columns, where the next number is already here?"
            );
        }
    }

    #[test]
    fn it_reads_what_it_multiplies() {
        let sizes = [40, 30, 10];
        let least = (40 * 30 + 30 * 10 + 40 * 10) / 8;
        let now = run(product, sizes).1;
        assert!(
            now >= least,
            "{now} lines were fetched, fewer than the {least} that the three matrices have: read through the cache"
        );
    }
}
