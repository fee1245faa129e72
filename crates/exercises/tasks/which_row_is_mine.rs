//! # Which score is mine?
//!
//! easy, 10 minutes
//!
//! A thread knows two numbers: which block it is in, and its place in the block. From these it has to work out its share. In the chapter a
//! block was one row of scores. Now let there be a thread for each *score*, in a grid of one dimension: the first block has the first
//! scores, the next block goes on where it ended. The scores lie as $(h, n_q, n_k)$, row by row.
//!
//! Write how many blocks it takes, none of them without work, and which score a thread computes. Neighbouring threads write neighbouring
//! places. Rows needn't fill whole blocks, and the last block may have threads to spare.
//!
//! # Hint
//!
//! Number all threads of the grid, from 0. What is the number of thread $t$ in block $b$? And if each block has 128 threads, how many blocks do
//! 129 scores take?
//!
//! # Hint
//!
//! The number of a score in memory is $(\text{head} \cdot n_q + i) \cdot n_k + j$. To undo it, divide, and keep the remainders. Which index is the
//! remainder of the first division?
//!
//! # Hint
//!
//! `scores.div_ceil(threads)` rounds up. Then `let place = block * threads + thread;`, a comparison of `place` with the number of all
//! scores, and `place % n_k`, `place / n_k % …`, `place / …`.

/// How many heads, queries and keys there are. Scores are (heads, n_q, n_k), row by row.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub heads: usize,
    pub n_q: usize,
    pub n_k: usize,
}

/// A score: of this head, query i and key j.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    pub head: usize,
    pub i: usize,
    pub j: usize,
}

/// Returns how many blocks of so many threads it takes to have a thread for every score.
pub fn blocks(shape: Shape, threads: usize) -> usize {
    // SOLUTION
    let scores = shape.heads * shape.n_q * shape.n_k;
    // FAULT rounded-down: no thread computes
    // > scores / threads
    // FAULT always-one-more: a block without work
    // > scores / threads + 1
    scores.div_ceil(threads)
    // END
}

/// Returns the score of a thread in a block of `threads` threads, or `None` if there is none left for it.
pub fn score_of(
    shape: Shape,
    block: usize,
    thread: usize,
    threads: usize,
) -> Option<Score> {
    // SOLUTION
    let Shape { heads, n_q, n_k } = shape;
    let place = block * threads + thread;
    // FAULT no-guard: which is past the end
    // > if false {
    if place >= heads * n_q * n_k {
        return None;
    }
    // FAULT wrong-divisor: was a length of queries used where one of keys belongs
    // > Some(Score { head: place / (n_q * n_k), i: place / n_q % n_q, j: place % n_q })
    // FAULT down-the-columns: do neighbouring threads go down a column
    // > Some(Score { head: place / (n_q * n_k), i: place % n_q, j: place / n_q % n_k })
    Some(Score { head: place / (n_q * n_k), i: place / n_k % n_q, j: place % n_k })
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [(Shape, usize); 4] = [
        (Shape { heads: 2, n_q: 3, n_k: 5 }, 4),
        (Shape { heads: 2, n_q: 5, n_k: 3 }, 4),
        (Shape { heads: 3, n_q: 4, n_k: 8 }, 32),
        (Shape { heads: 1, n_q: 7, n_k: 19 }, 128),
    ];

    #[test]
    fn every_score_has_a_thread() {
        for (shape, threads) in SHAPES {
            let all: Vec<_> = (0..blocks(shape, threads))
                .flat_map(|block| {
                    (0..threads)
                        .map(move |thread| score_of(shape, block, thread, threads))
                })
                .flatten()
                .collect();
            for (head, i, j) in (0..shape.heads).flat_map(|head| {
                (0..shape.n_q)
                    .flat_map(move |i| (0..shape.n_k).map(move |j| (head, i, j)))
            }) {
                let count =
                    all.iter().filter(|score| **score == Score { head, i, j }).count();
                let hint = "was a length of queries used where one of keys belongs, or is the last block missing?";
                assert!(
                    count > 0,
                    "{shape:?} with {threads} threads a block: no thread computes head {head}, query {i}, key {j}: {hint}"
                );
                assert!(
                    count == 1,
                    "{shape:?}: {count} threads compute head {head}, query {i}, key {j}: {hint}"
                );
            }
        }
    }

    #[test]
    fn threads_to_spare_have_nothing() {
        for (shape, threads) in SHAPES {
            for (block, thread) in (0..blocks(shape, threads))
                .flat_map(|b| (0..threads).map(move |t| (b, t)))
            {
                let Some(Score { head, i, j }) = score_of(shape, block, thread, threads)
                else {
                    continue;
                };
                assert!(
                    head < shape.heads && i < shape.n_q && j < shape.n_k,
                    "{shape:?}, block {block}, thread {thread}: got head {head}, query {i}, key {j}, which is past the end"
                );
            }
        }
    }

    #[test]
    fn neighbouring_threads_have_neighbouring_keys() {
        for (shape, threads) in SHAPES {
            let [Some(first), Some(second)] =
                [0, 1].map(|thread| score_of(shape, 0, thread, threads))
            else {
                panic!("threads 0 and 1 of block 0 have scores, too")
            };
            assert!(
                (first.i, first.j, second.i, second.j) == (0, 0, 0, 1),
                "{shape:?}: threads 0 and 1 got {first:?} and {second:?}: do neighbouring threads go down a column?"
            );
        }
    }

    #[test]
    fn no_block_is_idle() {
        for (shape, threads) in SHAPES {
            let last = blocks(shape, threads).saturating_sub(1);
            let first = last * threads;
            assert!(
                first < shape.heads * shape.n_q * shape.n_k,
                "{shape:?} with {threads} threads a block: block {last} is a block without work"
            );
        }
    }
}
