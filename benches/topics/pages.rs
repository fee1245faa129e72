//! Softmax alone, where the system's allocator is told to keep its pages, so that the new matrix of weights lies in memory that was
//! there before. `roofline` times it with the allocator as it is.
//!
//! `cargo bench --bench pages` runs it here. The setting is glibc's.

use attention::softmax_rows;
use criterion::{Criterion, criterion_group};
use std::env;
use std::hint::black_box;
use std::process::Command;
use topics::{briefly, normal, time};

/// Tells glibc to serve large matrices from its heap and to give nothing back to the system.
const KEEP: [(&str, &str); 2] =
    [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];

fn softmax(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kept");
    briefly(&mut group);
    let n = 4096;
    let scores = normal::<f32>(n, n, 3);
    time(&mut group, "softmax, f32", n, || softmax_rows(black_box(&scores)));
}

criterion_group!(kept, softmax);

fn main() {
    if env::var_os(KEEP[0].0).is_some() {
        return kept();
    }
    // The allocator reads its setting when a process starts.
    let this = env::current_exe().expect("this program has a path");
    let status = Command::new(this).args(env::args_os().skip(1)).envs(KEEP).status();
    assert!(status.expect("this program starts again").success());
}
