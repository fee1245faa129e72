//! The memory that attention needs beyond its inputs, by an allocator that counts every byte.
//!
//! `cargo bench --bench memory` runs it here. Nothing is timed here; the counts hardly depend on the machine.

use attention::{Float, Mask, attention, attention_backward};
use nalgebra::DMatrix;
use peak_alloc::PeakAlloc;
use topics::inputs;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const D: usize = 64;

/// Runs `work` and returns how far the allocated bytes rose above those that were there before.
fn peak<O>(work: impl FnOnce() -> O) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let output = work();
    let most = MEMORY.peak_usage();
    drop(output);
    most - before
}

fn forward<T: Float>([q, k, v]: &[DMatrix<T>; 3]) -> usize {
    peak(|| attention(q, k, v, Mask::none()).expect("shapes that fit"))
}

fn both<T: Float>([q, k, v]: &[DMatrix<T>; 3]) -> usize {
    peak(|| {
        let (output, cache) = attention(q, k, v, Mask::none()).expect("shapes that fit");
        attention_backward(&cache, &output).map(|gradients| (cache, output, gradients))
    })
}

fn report<T: Float>(dtype: &str, filter: &str) {
    for n in [64, 128, 256, 512, 1024, 2048, 4096] {
        let inputs = inputs::<T>(n, D);
        let count = |what: &str, count: fn(&[DMatrix<T>; 3]) -> usize| {
            let name = format!("memory/{what}, {dtype}, d = {D}/{n}");
            if name.contains(filter) {
                println!("{name}: {} bytes", count(&inputs));
            }
        };
        count("forward", forward);
        count("forward and backward", both);
    }
}

fn main() {
    // As with the other benchmarks, a word is a filter. Their options mean nothing here.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    report::<f32>("f32", &filter);
    report::<f64>("f64", &filter);
}
