//! Softmax, each way beside the way that it replaces.
//!
//! `cargo bench --bench softmax` runs it here. Compare within one run: the numbers are those of the machine at hand.

use attention::{
    Float,
    softmax::{softmax, softmax_backward, softmax_jacobian, softmax_rows},
};
use criterion::{Criterion, criterion_group, criterion_main};
use nalgebra::{DMatrix, DVector};
use std::hint::black_box;
use topics::{briefly, normal, time};

/// Softmax of all rows column by column, as memory lies, against row by row.
fn rows<T: Float>(criterion: &mut Criterion, dtype: &str) {
    let mut group = criterion.benchmark_group("softmax of rows");
    briefly(&mut group);
    // Powers of two, and two lengths beside them: strides of a power of two crowd into few lines of a cache.
    for n in [128, 256, 512, 1000, 1024, 2000, 2048] {
        let scores = normal::<T>(n, n, 0);
        let right = softmax_rows(&scores).expect("not empty");
        for weights in [down_the_columns(&scores), along_the_rows(&scores)] {
            let difference = (&right - weights).amax();
            assert!(difference < nalgebra::convert(1e-5), "the ways differ");
        }
        time(&mut group, &format!("down the columns, {dtype}"), n, || {
            down_the_columns(black_box(&scores))
        });
        time(&mut group, &format!("along the rows, {dtype}"), n, || {
            along_the_rows(black_box(&scores))
        });
    }
}

/// As `softmax_rows`, with the same exponential as [`along_the_rows`]: only the order of the loops differs.
fn down_the_columns<T: Float>(scores: &DMatrix<T>) -> DMatrix<T> {
    let mut weights = scores.clone();
    let mut max = weights.column(0).into_owned();
    for column in weights.column_iter() {
        max.zip_apply(&column, |max, x| *max = max.max(x));
    }
    let mut sum = DVector::zeros(weights.nrows());
    for mut column in weights.column_iter_mut() {
        column.zip_apply(&max, |x, max| *x = (*x - max).exp());
        sum += &column;
    }
    for mut column in weights.column_iter_mut() {
        column.component_div_assign(&sum);
    }
    weights
}

fn along_the_rows<T: Float>(scores: &DMatrix<T>) -> DMatrix<T> {
    let mut weights = scores.clone();
    for mut row in weights.row_iter_mut() {
        let max = row.max();
        row.apply(|x| *x = (*x - max).exp());
        let sum = row.sum();
        row /= sum;
    }
    weights
}

/// The gradient through softmax directly, against building the Jacobian and multiplying.
fn gradient(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("softmax gradient");
    briefly(&mut group);
    for n in [64, 512] {
        let p =
            softmax(&DVector::from_fn(n, |i, _| (i as f64).sin())).expect("not empty");
        let grad_p = DVector::from_fn(n, |i, _| (i as f64).cos());
        let direct = softmax_backward(&p, &grad_p).expect("one length");
        let jacobian = softmax_jacobian(&p).expect("not empty");
        assert!((direct - jacobian * &grad_p).amax() < 1e-14, "the two ways differ");
        time(&mut group, "direct, f64", n, || {
            softmax_backward(black_box(&p), black_box(&grad_p))
        });
        time(&mut group, "Jacobian, f64", n, || {
            softmax_jacobian(black_box(&p)).map(|jacobian| jacobian * &grad_p)
        });
    }
}

fn softmax_of_rows(criterion: &mut Criterion) {
    rows::<f32>(criterion, "f32");
    rows::<f64>(criterion, "f64");
}

criterion_group!(all, softmax_of_rows, gradient);
criterion_main!(all);
