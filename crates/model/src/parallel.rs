//! Texts on several threads, where the feature `train` is on.

/// Returns `f` of every item, in order.
pub fn map<I: Sync, R: Send>(items: &[I], f: impl Fn(&I) -> R + Sync + Send) -> Vec<R> {
    #[cfg(feature = "train")]
    {
        use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
        items.par_iter().map(f).collect()
    }
    #[cfg(not(feature = "train"))]
    items.iter().map(f).collect()
}
