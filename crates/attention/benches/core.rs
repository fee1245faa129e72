//! What the core costs, each beside the way that it replaces.
//!
//! `cargo xtask bench` runs it. Compare within one run: the numbers are those of the machine at hand.

use attention::{
    Mask, MultiHeadAttention, attention, attention_backward, softmax, softmax_backward,
    softmax_jacobian, softmax_rows,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use nalgebra::{DMatrix, DVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use std::hint::black_box;

fn numbers(rows: usize, columns: usize) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |i, j| ((7 * i + 3 * j) as f64).sin())
}

/// The gradient through softmax directly, against building the Jacobian and multiplying.
fn softmax_gradient(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("softmax gradient");
    for n in [64, 512] {
        let p =
            softmax(&DVector::from_fn(n, |i, _| (i as f64).sin())).expect("not empty");
        let grad_p = DVector::from_fn(n, |i, _| (i as f64).cos());
        let direct = softmax_backward(&p, &grad_p).expect("one length");
        let jacobian = softmax_jacobian(&p).expect("not empty");
        assert!((direct - jacobian * &grad_p).amax() < 1e-14, "the two ways differ");
        group.bench_with_input(BenchmarkId::new("direct", n), &n, |bencher, _| {
            bencher.iter(|| softmax_backward(black_box(&p), black_box(&grad_p)));
        });
        group.bench_with_input(BenchmarkId::new("Jacobian", n), &n, |bencher, _| {
            bencher.iter(|| {
                softmax_jacobian(black_box(&p)).map(|jacobian| jacobian * &grad_p)
            });
        });
    }
}

/// Softmax of all rows column by column, as memory lies, against row by row.
fn softmax_of_rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("softmax of rows");
    for n in [128, 1024] {
        let scores = numbers(n, n);
        let down = softmax_rows(&scores).expect("not empty");
        assert!((down - along_the_rows(&scores)).amax() < 1e-14, "the two ways differ");
        group.bench_with_input(
            BenchmarkId::new("down the columns", n),
            &n,
            |bencher, _| {
                bencher.iter(|| softmax_rows(black_box(&scores)));
            },
        );
        group.bench_with_input(
            BenchmarkId::new("along the rows", n),
            &n,
            |bencher, _| {
                bencher.iter(|| along_the_rows(black_box(&scores)));
            },
        );
    }
}

fn along_the_rows(scores: &DMatrix<f64>) -> DMatrix<f64> {
    let mut weights = scores.clone();
    for mut row in weights.row_iter_mut() {
        let max = row.max();
        row.apply(|x| *x = (*x - max).exp());
        let sum = row.sum();
        row /= sum;
    }
    weights
}

/// Scaled dot-product attention, forward and backward.
fn dot_product(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention, d = 64");
    for n in [128, 512] {
        let x = numbers(n, 64);
        for (name, mask) in [("full", Mask::none()), ("causal", Mask::causal())] {
            group.bench_with_input(
                BenchmarkId::new(format!("forward, {name}"), n),
                &n,
                |bencher, _| bencher.iter(|| attention(black_box(&x), &x, &x, &mask)),
            );
            let (output, cache) = attention(&x, &x, &x, &mask).expect("shapes that fit");
            group.bench_with_input(
                BenchmarkId::new(format!("backward, {name}"), n),
                &n,
                |bencher, _| {
                    bencher.iter(|| attention_backward(black_box(&cache), &output))
                },
            );
        }
    }
}

/// A whole layer with one head and with eight.
fn multi_head(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("layer, n = 256, d_model = 256");
    let x = numbers(256, 256);
    for n_heads in [1, 8] {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let layer = MultiHeadAttention::xavier(256, n_heads, rng).expect("a divisor");
        group.bench_function(BenchmarkId::new("forward, heads", n_heads), |bencher| {
            bencher.iter(|| layer.forward(black_box(&x), &Mask::causal()));
        });
    }
}

criterion_group!(core, softmax_gradient, softmax_of_rows, dot_product, multi_head);
criterion_main!(core);
