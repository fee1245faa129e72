//! Work in parts: ranges cut into blocks, views copied, and calls on several threads where the feature `rayon` is on.

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

/// Returns true if the caller is a worker thread of rayon, and so has to work alone. A worker that waits for others takes up whatever else its
/// pool has to do, another round of a loop that called this crate, for example. That round would run on the same stack, and would wait
/// forever for a lock that the loop holds during the call.
pub fn on_a_worker() -> bool {
    #[cfg(feature = "rayon")]
    return rayon::current_thread_index().is_some();
    #[cfg(not(feature = "rayon"))]
    false
}

/// Returns `f` of every index below `n`, in order. A single call stays on the caller's thread, and may use the others itself.
pub(crate) fn map<R: Send>(n: usize, f: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
    #[cfg(feature = "rayon")]
    if n > 1 && !on_a_worker() {
        use rayon::iter::{IntoParallelIterator, ParallelIterator};
        return (0..n).into_par_iter().map(f).collect();
    }
    (0..n).map(f).collect()
}

/// [`map`] for calls that use several threads themselves: side by side where there is one for each thread, and else one after the other,
/// each with all threads.
pub(crate) fn map_each<R: Send>(
    n: usize,
    f: impl Fn(usize) -> R + Sync + Send,
) -> Vec<R> {
    #[cfg(feature = "rayon")]
    if n < rayon::current_num_threads() {
        return (0..n).map(f).collect();
    }
    map(n, f)
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
