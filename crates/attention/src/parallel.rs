//! Work on several threads, where the feature `rayon` is on.

/// `f` of every index below `n`, in order.
pub(crate) fn map<R: Send>(n: usize, f: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
    #[cfg(feature = "rayon")]
    {
        use rayon::iter::{IntoParallelIterator, ParallelIterator};
        (0..n).into_par_iter().map(f).collect()
    }
    #[cfg(not(feature = "rayon"))]
    (0..n).map(f).collect()
}
