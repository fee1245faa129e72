//! The memory of attention, counted: one matrix of n² forward, two forward and backward, and little else.

#[path = "common/peak.rs"]
mod peak;

use nalgebra::DMatrix;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const D: usize = 16;
const ELEMENT: usize = size_of::<f64>();

fn inputs(n: usize) -> [DMatrix<f64>; 3] {
    let numbers = |seed: usize| {
        DMatrix::from_fn(n, D, |i, j| ((seed + 7 * i + 3 * j) as f64).sin())
    };
    [numbers(0), numbers(1), numbers(2)]
}

/// A program of its own, since the allocator counts what all threads do: those of the test harness would be counted, too.
fn main() {
    for n in [1024, 2048] {
        let inputs = inputs(n);
        let square = n * n * ELEMENT;
        // Queries, keys, values, output, gradients, and the blocks of factors that the product packs, for each thread.
        let little = 10 * n * D * ELEMENT + 256 * 1024 * ELEMENT;
        let forward = peak::forward(&MEMORY, &inputs);
        assert!((square..square + little).contains(&forward), "{n}: {forward}");
        let both = peak::both(&MEMORY, &inputs);
        assert!((2 * square..2 * square + little).contains(&both), "{n}: {both}");
    }
}
