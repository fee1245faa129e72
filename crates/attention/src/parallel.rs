//! Work on several threads, where the feature `rayon` is on.

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
