//! How much memory attention needs beyond its inputs, by an allocator that counts every byte.
//!
//! `cargo bench` runs it. Nothing is timed here; the counts hardly depend on the machine.

mod support;

use nalgebra::{DMatrix, RealField};
use peak_alloc::PeakAlloc;
use support::inputs;

#[path = "../../attention/tests/common/peak.rs"]
mod peak;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const D: usize = 64;

fn report<T: RealField + Copy>(dtype: &str, filter: &str) {
    for n in [64, 128, 256, 512, 1024, 2048, 4096] {
        let inputs = inputs::<T>(n, D);
        let count = |what: &str, count: fn(&PeakAlloc, &[DMatrix<T>; 3]) -> usize| {
            let name = format!("memory/{what}, {dtype}, d = {D}/{n}");
            if name.contains(filter) {
                println!("{name}: {} bytes", count(&MEMORY, &inputs));
            }
        };
        count("forward", peak::forward);
        count("forward and backward", peak::both);
    }
}

fn main() {
    // As with the other benchmarks, a word is a filter. Their options mean nothing here.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    report::<f32>("f32", &filter);
    report::<f64>("f64", &filter);
}
