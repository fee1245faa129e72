//! Ranges, cut into blocks, and views, copied.

use nalgebra::{DMatrix, DMatrixView, Scalar};
use std::ops::Range;

/// Returns the ranges that cut `0..n` into blocks of `size`, the last of which may be shorter. A size of 0 counts as 1.
pub fn blocks(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let size = size.max(1);
    (0..n).step_by(size).map(move |start| start..n.min(start.saturating_add(size)))
}

/// Returns `range` in pieces of at most `size`.
pub fn tiles_between(
    range: Range<usize>,
    size: usize,
) -> impl Iterator<Item = Range<usize>> {
    blocks(range.len(), size)
        .map(move |block| range.start + block.start..range.start + block.end)
}

/// Returns a matrix with the entries of a view, which is copied a column at a time: nalgebra copies entry by entry.
pub fn copy_of<T: Scalar + Copy>(view: DMatrixView<T>) -> DMatrix<T> {
    let mut entries = Vec::with_capacity(view.len());
    view.column_iter().for_each(|column| entries.extend_from_slice(column.as_slice()));
    DMatrix::from_vec(view.nrows(), view.ncols(), entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_everything_once() {
        for (n, size) in [(7, 3), (6, 3), (1, 5), (4, 0), (5, usize::MAX)] {
            let all: Vec<usize> = blocks(n, size).flatten().collect();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
        assert_eq!(blocks(0, 3).count(), 0);
    }
}
