//! The two ceilings of this machine, for one thread and `f32`, and where the steps of attention stand below them.
//!
//! `cargo bench --bench roofline` runs it here. Compare within one run: the numbers are those of the machine at hand.

use attention::{Mask, attention_weights, softmax_rows};
use criterion::{Criterion, criterion_group, criterion_main};
use fast::{Flash, Part, TileProducts};
use nalgebra::DMatrix;
use std::hint::black_box;
use topics::{briefly, inputs, normal, time};

/// The speed of multiplications and additions: in registers alone, and in nalgebra's product of square matrices.
fn arithmetic(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("arithmetic");
    briefly(&mut group);
    let products = TileProducts::<f32>::new(Flash::new().instructions(), 512, 512);
    let mut products = products.expect("sizes above 0");
    // n is the number of multiply-adds, which depends on how many numbers a register holds.
    let n = products.operations(Part::Registers) / 2;
    time(&mut group, "registers, f32", n, || {
        black_box(&mut products).run(Part::Registers)
    });
    for n in [256, 512, 1024, 2048] {
        let (a, b) = (normal::<f32>(n, n, 0), normal::<f32>(n, n, 1));
        time(&mut group, "product, f32", n, || black_box(&a) * &b);
    }
}

/// The speed of memory, read and written: arrays far larger than any cache.
fn bandwidth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bandwidth");
    briefly(&mut group);
    const N: usize = 1 << 26; // 256 MiB
    let (b, c) = (vec![1.0_f32; N], vec![2.0_f32; N]);
    time(&mut group, "read, f32", N, || sum(black_box(&b)));
    let mut a = vec![0.0_f32; N];
    time(&mut group, "update, f32", N, || {
        for a in black_box(&mut a).iter_mut() {
            *a = 0.5 * *a + 1.0;
        }
    });
    time(&mut group, "triad, f32", N, || {
        for ((a, b), c) in black_box(&mut a).iter_mut().zip(&b).zip(&c) {
            *a = b + 3.0 * c;
        }
    });
}

/// With many partial sums, so that the processor waits for memory and not for additions.
fn sum(numbers: &[f32]) -> f32 {
    let mut partial = [0.0; 32];
    for chunk in numbers.chunks_exact(32) {
        for (sum, x) in partial.iter_mut().zip(chunk) {
            *sum += x;
        }
    }
    partial.iter().sum()
}

const D: usize = 64;

/// The steps of attention one by one. All of it is timed in `complexity`, once.
fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("steps");
    briefly(&mut group);
    for n in [512, 4096] {
        let [q, k, v] = inputs::<f32>(n, D);
        let name = |step: &str| format!("{step}, f32, d = {D}");
        time(&mut group, &name("scores"), n, || black_box(&q) * k.transpose());
        let mut scores = &q * k.transpose(); // (n, n)
        time(&mut group, &name("scale"), n, || {
            *black_box(&mut scores) *= black_box(1.0); // a factor of 1, so that they do not fade away
        });
        let mask = Mask::causal().sized(n, n).expect("any size will do");
        let mut masked = scores.clone();
        time(&mut group, &name("causal mask"), n, || {
            let all = std::mem::replace(&mut masked, DMatrix::zeros(0, 0));
            masked = mask.apply(black_box(all)).expect("one shape");
        });
        scores *= 1.0 / (D as f32).sqrt();
        time(&mut group, &name("softmax"), n, || softmax_rows(black_box(&scores)));
        let (weights, _) = attention_weights(&q, &k, Mask::none()).expect("one width");
        time(&mut group, &name("values"), n, || black_box(&weights) * &v);
    }
}

/// The cost of a matrix before anything is computed with it: filled when it is new, and when it has been there before; and
/// the cost of transposing one, for powers of two and for a length beside one.
fn matrices(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matrix");
    briefly(&mut group);
    for n in [512, 1024, 2048, 2896, 4096] {
        time(&mut group, "new, f32", n, || {
            DMatrix::from_element(n, n, black_box(1.0_f32))
        });
        let mut old = DMatrix::<f32>::zeros(n, n);
        time(&mut group, "old, f32", n, || {
            black_box(&mut old).as_mut_slice().fill(black_box(1.0)) // as fast as a new one is filled
        });
    }
}

criterion_group!(all, arithmetic, bandwidth, steps, matrices);
criterion_main!(all);
