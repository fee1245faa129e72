//! A step of decoding: one query of each head against a long cache, for several numbers of heads of keys; and the time in which the largest
//! of these caches is merely read.
//!
//! `cargo bench --bench decoding` runs it, on one thread.

mod support;

use attention::Mask;
use attention::flash::{Flash, Inputs};
use criterion::{Criterion, criterion_group, criterion_main};
use nalgebra::DMatrix;
use std::hint::black_box;
use support::{briefly, normal, time};

const N: usize = 32_768;
const D: usize = 128;
const HEADS: usize = 8;

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("decoding");
    briefly(&mut group);
    let q = normal::<f32>(1, HEADS * D, 0);
    let [k, v] = [1, 2].map(|seed| normal::<f32>(N, HEADS * D, seed));
    let flash = Flash::new().with_threads(1).expect("one thread");
    for kv_heads in [8, 4, 2, 1] {
        let [k, v] = [&k, &v].map(|all| all.columns(0, kv_heads * D));
        let inputs = Inputs::grouped(&q, k, v, Mask::none(), HEADS, kv_heads);
        let inputs = inputs.expect("shapes that fit");
        let what = format!("step, f32, d = {D}, heads = {HEADS}, kv_heads = {kv_heads}");
        time(&mut group, &what, N, || flash.forward(&inputs));
    }
    let what = format!("read, f32, d = {D}, heads = {HEADS}, kv_heads = {HEADS}");
    time(&mut group, &what, N, || black_box(sum(&k) + sum(&v)));
    group.finish();
}

/// The sum of all numbers, by so many independent sums that memory alone is waited for.
fn sum(matrix: &DMatrix<f32>) -> f32 {
    let mut sums = [0.0; 128];
    for chunk in matrix.as_slice().as_chunks::<128>().0 {
        for (sum, &x) in sums.iter_mut().zip(chunk) {
            *sum += x;
        }
    }
    sums.iter().sum()
}

criterion_group!(benches, steps);
criterion_main!(benches);
