//! The most bytes alive at once, beyond those that were there before.

use attention::{Mask, attention, attention_backward};
use nalgebra::{DMatrix, RealField};
use peak_alloc::PeakAlloc;

/// Runs `work` and says how far the allocated bytes rose above where they were.
pub fn peak<O>(memory: &PeakAlloc, work: impl FnOnce() -> O) -> usize {
    memory.reset_peak_usage();
    let before = memory.current_usage();
    let output = work();
    let most = memory.peak_usage();
    drop(output);
    most - before
}

/// Attention forward, with its cache.
pub fn forward<T: RealField + Copy>(
    memory: &PeakAlloc,
    [q, k, v]: &[DMatrix<T>; 3],
) -> usize {
    peak(memory, || attention(q, k, v, &Mask::none()).expect("shapes that fit"))
}

/// Attention forward and then backward.
pub fn both<T: RealField + Copy>(
    memory: &PeakAlloc,
    [q, k, v]: &[DMatrix<T>; 3],
) -> usize {
    peak(memory, || {
        let (output, cache) = attention(q, k, v, &Mask::none()).expect("shapes that fit");
        attention_backward(&cache, &output).map(|gradients| (cache, output, gradients))
    })
}
