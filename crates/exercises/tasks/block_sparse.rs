//! # Only these blocks
//!
//! medium, 25 minutes
//!
//! If a table says which block of queries sees which block of keys, a program can leave the other blocks alone: not
//! mask them, but never read them. Write that attention. Its work and its memory should follow the visible blocks.
//!
//! `q` and `k` are $(n, d)$ and `v` is $(n, d_v)$. Cut the tokens into blocks of `size`; the last block may be shorter.
//! `allowed` has an entry for each block of queries and each block of keys. No token sees a later one, whatever the
//! table says.
//!
//! A query that sees nothing gets zeros. Keys and values in blocks that aren't allowed may be NaN. You may call
//! `attention`.
//!
//! # Hint
//!
//! Over which keys does the softmax of one query run? If you run a softmax for each block alone, by what would you have
//! to weigh the results?
//!
//! # Hint
//!
//! Work through the blocks of queries. Gather the keys and the values of all blocks that one of them sees into two
//! small matrices. Attention doesn't care where its keys came from, but the mask does: which gathered keys are later
//! than a query?
//!
//! # Hint
//!
//! `visible` is a vector of the key numbers that are allowed, up to the end of the block of queries.
//! `k.select_rows(&visible)` gathers. The mask is `Mask::dense` of `visible[c] <= start + i`. If `visible` is empty, go
//! on to the next block.

use attention::{Mask, attention};
use nalgebra::DMatrix;

/// Causal attention over the blocks that a table allows.
///
/// Shapes: `q`, `k` (n, d), `v` (n, d_v), `allowed` (blocks, blocks) → (n, d_v).
pub fn block_sparse(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
    size: usize,
    allowed: &DMatrix<bool>,
) -> DMatrix<f64> {
    // SOLUTION
    let n = q.nrows();
    let mut output = DMatrix::zeros(n, v.ncols());
    // FAULT last-block: the last block may be shorter
    // > for block in 0..n / size {
    for block in 0..n.div_ceil(size) {
        let (start, end) = (block * size, n.min((block + 1) * size));
        // FAULT table-transposed: rows of the table are blocks of queries
        // > let sees = |j: &usize| allowed[(j / size, block)];
        let sees = |j: &usize| allowed[(block, j / size)];
        let visible: Vec<usize> = (0..end).filter(sees).collect();
        // FAULT nothing-visible: sees no key at all
        // > if visible.len() > n {
        if visible.is_empty() {
            continue;
        }
        let causal = DMatrix::from_fn(end - start, visible.len(), |i, c| {
            // FAULT later-keys: no token sees a later one
            // > visible[c] < end || i > end
            visible[c] <= start + i
        });
        let (k, v) = (k.select_rows(&visible), v.select_rows(&visible));
        let queries = q.rows_range(start..end);
        let (rows, _) = attention(queries, &k, &v, Mask::dense(causal).unwrap()).unwrap();
        output.rows_range_mut(start..end).copy_from(&rows);
    }
    // FAULT whole-matrix: the memory of all pairs
    // > let mask = Mask::causal().and(Mask::blocks(size, allowed.clone()).unwrap());
    // > attention(q, k, v, mask).unwrap().0
    output
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;

    fn draw(n: usize) -> [DMatrix<f64>; 3] {
        [(4, 0), (4, 1), (3, 2)].map(|(columns, seed)| {
            DMatrix::from_fn(n, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
        })
    }

    /// A table in which each block sees itself, the one before if it is odd, and the first.
    fn table(n: usize, size: usize) -> DMatrix<bool> {
        let blocks = n.div_ceil(size);
        DMatrix::from_fn(blocks, blocks, |i, j| {
            j == i || j == 0 || (i % 2 == 1 && j + 1 == i)
        })
    }

    fn compare(n: usize, size: usize, allowed: &DMatrix<bool>, question: &str) {
        let [q, k, v] = draw(n);
        let mask = Mask::causal().and(Mask::blocks(size, allowed.clone()).unwrap());
        let (right, _) = attention(&q, &k, &v, mask).unwrap();
        let came = block_sparse(&q, &k, &v, size, allowed);
        assert!(
            came.shape() == right.shape(),
            "the output has a row for each token: yours has the shape {:?}, expected {:?}",
            came.shape(),
            right.shape()
        );
        for i in 0..n {
            let off = (came.row(i) - right.row(i)).amax();
            assert!(
                off < 1e-12,
                "{n} tokens in blocks of {size}: row {i} is off by {off:.2e}: {question}"
            );
        }
    }

    #[test]
    fn one_block_is_causal_attention() {
        compare(6, 6, &table(6, 6), "no token sees a later one, also within a block");
    }

    #[test]
    fn it_equals_attention_under_the_mask() {
        for size in [1, 3, 4] {
            compare(
                12,
                size,
                &table(12, size),
                "one softmax runs over all visible blocks; and rows of the table are blocks of queries",
            );
        }
    }

    #[test]
    fn the_last_block_may_be_shorter() {
        for (n, size) in [(11, 4), (13, 5), (7, 100)] {
            compare(n, size, &table(n, size), "the last block may be shorter");
        }
    }

    #[test]
    fn a_block_may_see_nothing() {
        let later_only = DMatrix::from_fn(3, 3, |i, j| j > i || (i, j) == (2, 1));
        let [q, k, v] = draw(9);
        let came = std::panic::catch_unwind(|| block_sparse(&q, &k, &v, 3, &later_only));
        let Ok(came) = came else {
            panic!("it panics for a block of queries that sees no key at all")
        };
        assert!(
            came.rows(0, 6) == DMatrix::zeros(6, 3),
            "a query that sees no key at all gets zeros"
        );
        compare(9, 3, &later_only, "no token sees a later one, whatever the table says");
    }

    #[test]
    fn what_is_not_allowed_is_never_read() {
        let [q, k, v] = draw(9);
        let allowed = DMatrix::from_fn(3, 3, |i, j| i == j);
        let right = block_sparse(&q, &k, &v, 3, &allowed);
        let [mut k, mut v] = [k, v];
        k.rows_mut(0, 3).fill(f64::NAN);
        v.rows_mut(0, 3).fill(f64::NAN);
        let came = block_sparse(&q, &k, &v, 3, &allowed);
        assert!(
            came.rows(3, 6) == right.rows(3, 6),
            "the first block is NaN, and only its own queries may see it"
        );
    }

    #[test]
    fn memory_follows_the_visible_blocks() {
        let n = 120;
        let ([q, k, v], allowed) = (draw(n), table(n, 6));
        let counts =
            allocation_counter::measure(|| drop(block_sparse(&q, &k, &v, 6, &allowed)));
        let all = 8 * (n * n) as u64;
        assert!(
            counts.bytes_max < all / 4,
            "it holds {} bytes at once; the memory of all pairs is {all}, and few are visible",
            counts.bytes_max
        );
    }
}
