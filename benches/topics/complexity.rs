//! The growth of attention's time with the number of tokens.
//!
//! `cargo bench --bench complexity` runs it here. Compare within one run: the numbers are those of the machine at hand.

use attention::{Float, Mask, MultiHeadAttention, attention, attention_backward, linear};
use criterion::{Criterion, criterion_group, criterion_main};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use std::hint::black_box;
use topics::{briefly, inputs, normal, time};

const D: usize = 64;
const LENGTHS: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// Scaled dot-product attention without projections, forward and backward.
fn core<T: Float>(criterion: &mut Criterion, dtype: &str, mask: (&str, Mask)) {
    let mut group = criterion.benchmark_group("attention");
    briefly(&mut group);
    let (how, mask) = mask;
    for n in LENGTHS {
        let [q, k, v] = inputs::<T>(n, D);
        time(&mut group, &format!("forward{how}, {dtype}, d = {D}"), n, || {
            attention(black_box(&q), &k, &v, &mask)
        });
        if how.is_empty() {
            let (output, cache) = attention(&q, &k, &v, &mask).expect("shapes that fit");
            time(&mut group, &format!("backward, {dtype}, d = {D}"), n, || {
                attention_backward(black_box(&cache), &output)
            });
        }
    }
}

fn cores(criterion: &mut Criterion) {
    core::<f32>(criterion, "f32", ("", Mask::none()));
    core::<f64>(criterion, "f64", ("", Mask::none()));
    core::<f32>(criterion, "f32", (" causal", Mask::causal()));
}

const D_MODEL: usize = 512;
const HEADS: usize = D_MODEL / D;

/// A whole layer, its four projections alone, and the cores of its heads alone.
fn layer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("layer");
    briefly(&mut group);
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer =
        MultiHeadAttention::<f32>::xavier(D_MODEL, HEADS, rng).expect("a divisor");
    let sizes = format!("f32, d_model = {D_MODEL}, heads = {HEADS}");
    for &n in LENGTHS.iter().filter(|n| **n <= 2048) {
        let x = normal::<f32>(n, D_MODEL, 0);
        time(&mut group, &format!("forward, {sizes}"), n, || {
            layer.forward(black_box(&x), Mask::none())
        });
        let heads: Vec<_> = (0..HEADS).map(|_| inputs::<f32>(n, D)).collect();
        time(&mut group, &format!("cores, {sizes}"), n, || {
            heads.iter().try_for_each(|[q, k, v]| {
                attention(black_box(q), k, v, Mask::none()).map(drop)
            })
        });
        let p = &layer.parameters;
        time(&mut group, &format!("projections, {sizes}"), n, || {
            let all =
                [(&p.w_q, &p.b_q), (&p.w_k, &p.b_k), (&p.w_v, &p.b_v), (&p.w_o, &p.b_o)];
            all.map(|(w, b)| linear(black_box(&x), w, b)) // (n, d_model), four times
        });
    }
}

criterion_group!(all, cores, layer);
criterion_main!(all);
