//! What the benchmarks share: random matrices, and how something is timed.
//!
//! The book's `cargo xtask bench --record` reads names in a fixed form, `GROUP/WHAT, TYPE, SIZE = NUMBER, …/N`: the number after
//! the last slash is n, and says how large the problem was.

use attention::Float;
use criterion::{BenchmarkGroup, BenchmarkId, measurement::WallTime};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use record::SAMPLES;
use std::time::Duration;

/// A matrix of normal numbers, which is roughly what a layer sees.
pub fn normal<T: Float>(rows: usize, columns: usize, seed: u64) -> DMatrix<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| {
        let z: f64 = StandardNormal.sample(rng);
        nalgebra::convert(z)
    })
}

/// Queries, keys and values (n, d).
pub fn inputs<T: Float>(n: usize, d: usize) -> [DMatrix<T>; 3] {
    [normal(n, d, 0), normal(n, d, 1), normal(n, d, 2)]
}

/// Times `routine` under this name, for the size n.
pub fn time<O>(
    group: &mut BenchmarkGroup<WallTime>,
    what: &str,
    n: usize,
    mut routine: impl FnMut() -> O,
) {
    group.bench_function(BenchmarkId::new(what, n), |bencher| bencher.iter(&mut routine));
}

/// For what runs for long and many times: few samples of it are enough.
pub fn briefly(group: &mut BenchmarkGroup<WallTime>) {
    group
        .sample_size(SAMPLES)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
}
