//! The program that the book builds gives what the library gives, function by function, on random numbers.

use crate::support::{length, random};
use approx::{assert_abs_diff_eq, assert_relative_eq};
use attention::engine::{Engine, Tiled};
use attention::flash::{Inputs, OnlineSoftmax, Tiles};
use attention::plain::{self, Heads, Layer, Matrix};
use attention::{
    Adam, KeyValueCache, Mask, MultiHeadAttention, Parameters, Rotary, ScoreRule,
    attention, attention_backward,
    gradient_check::numerical_gradient,
    positions::RotaryPairs,
    scaled_scores,
    softmax::{log_sum_exp_rows, softmax_rows, softmax_rows_backward},
};
use nalgebra::{DMatrix, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};

const NEAR: f64 = 1e-12;

#[test]
fn softmax_and_its_gradient() {
    let (scores, grad) = (10.0 * random(5, 7, 0), random(5, 7, 1));
    let weights = plain::softmax_rows(&scores);
    assert_abs_diff_eq!(weights, softmax_rows(&scores).unwrap(), epsilon = NEAR);
    let lse = plain::log_sum_exp_rows(&scores);
    assert_abs_diff_eq!(lse, log_sum_exp_rows(&scores).unwrap(), epsilon = NEAR);
    let right = softmax_rows_backward(&weights, &grad).unwrap();
    let given = plain::softmax_backward(&weights, &grad);
    assert_abs_diff_eq!(given, right, epsilon = NEAR);
    let loss = |scores: &Matrix| plain::softmax_rows(scores).dot(&grad);
    let measured = plain::numerical_gradient(loss, &scores);
    let right = numerical_gradient(&scores, 1e-5, |scores| Ok(loss(scores))).unwrap();
    assert_abs_diff_eq!(measured, right, epsilon = 1e-9);
}

/// Every mask of the book, at once and in tiles, forward and backward.
#[test]
fn attention_and_its_gradients() {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    for seed in 0..30 {
        let (n, tile) = (length(rng), length(rng));
        let (q, k) = (random(n, 4, seed), random(n, 4, seed + 1));
        let (v, grad) = (random(n, 3, seed + 2), random(n, 3, seed + 3));
        let valid: Vec<bool> = (0..n).map(|j| j % 3 != 1).collect();
        type Sees<'a> = Box<dyn Fn(usize, usize) -> bool + 'a>;
        let all: [(Mask, Sees); 4] = [
            (Mask::none(), Box::new(|_, _| true)),
            (Mask::causal(), Box::new(plain::causal)),
            (Mask::window(3).unwrap(), Box::new(plain::window(3))),
            (Mask::padding(&valid).unwrap(), Box::new(plain::padding(&valid))),
        ];
        for (mask, sees) in all {
            let (output, weights) = plain::attention(&q, &k, &v, &sees);
            let gradients = plain::attention_backward(&q, &k, &v, &weights, &grad);
            let (right, cache) = attention(&q, &k, &v, &mask).unwrap();
            let right_gradients = attention_backward(&cache, &grad).unwrap();
            let [grad_q, grad_k, grad_v] = gradients;
            assert_abs_diff_eq!(output, right, epsilon = NEAR);
            assert_abs_diff_eq!(weights, cache.weights, epsilon = NEAR);
            assert_abs_diff_eq!(grad_q, right_gradients.q, epsilon = NEAR);
            assert_abs_diff_eq!(grad_k, right_gradients.k, epsilon = NEAR);
            assert_abs_diff_eq!(grad_v, right_gradients.v, epsilon = NEAR);
            let scores = plain::hide(&plain::scores(&q, &k), &sees);
            let sized = mask.sized(n, n).unwrap();
            let right = sized.apply(scaled_scores(&q, &k).unwrap()).unwrap();
            assert_relative_eq!(scores, right, epsilon = NEAR); // which takes −∞ for −∞

            let engine = Tiled(Tiles { queries: tile, keys: tile });
            let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
            let right = engine.forward(&inputs).unwrap();
            let (output, lse) = plain::tiled([&q, &k, &v], &sees, tile);
            assert_abs_diff_eq!(output, right.output, epsilon = NEAR);
            let right_lse = right.log_sum_exp.column(0).into_owned();
            assert_abs_diff_eq!(lse, right_lse, epsilon = NEAR);
            let forward = (&output, &lse);
            let [grad_q, grad_k, grad_v] =
                plain::tiled_backward([&q, &k, &v], forward, &grad, &sees, tile);
            let right = engine.backward(&inputs, &right, grad.as_view()).unwrap();
            assert_abs_diff_eq!(grad_q, right.q, epsilon = NEAR);
            assert_abs_diff_eq!(grad_k, right.k, epsilon = NEAR);
            assert_abs_diff_eq!(grad_v, right.v, epsilon = NEAR);
        }
    }
}

/// The state of a row, absorbed and merged.
#[test]
fn an_online_softmax() {
    let (scores, values) = (10.0 * random(1, 9, 0), random(9, 3, 1));
    let mut parts = [plain::Partial::new(3), plain::Partial::new(3)];
    let mut states = [(); 2].map(|()| OnlineSoftmax::new(1, 3).unwrap());
    for j in 0..9 {
        parts[j % 2].absorb(scores[j], &values.row(j).into_owned());
        states[j % 2].absorb(scores.columns(j, 1), values.rows(j, 1)).unwrap();
    }
    let ([a, b], [c, d]) = (parts, states);
    let (output, lse) = a.merge(b).finish();
    let (right, right_lse) = c.merge(d).unwrap().finish();
    assert_abs_diff_eq!(output, right.row(0).into_owned(), epsilon = NEAR);
    assert_abs_diff_eq!(lse, right_lse[0], epsilon = NEAR);
}

#[test]
fn positions() {
    let x = random(5, 6, 0);
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves).unwrap();
    let turned = plain::rotate(&x, 7, 1.0);
    assert_abs_diff_eq!(turned, rotary.turn(&x, 1, 7).unwrap(), epsilon = NEAR);
    let back = plain::rotate(&x, 7, -1.0);
    assert_abs_diff_eq!(back, rotary.turn_back(&x, 1, 7).unwrap(), epsilon = NEAR);
    for heads in [1, 2, 8] {
        let slopes = plain::slopes(heads);
        assert_eq!(ScoreRule::slopes(&slopes), ScoreRule::alibi(heads));
        for (head, &slope) in slopes.iter().enumerate() {
            let mask = Mask::from(ScoreRule::alibi(heads).unwrap()).of_head(head);
            let scores = random(4, 4, 1);
            let biased = plain::bias_by_distance(&scores, slope);
            let right = mask.sized(4, 4).unwrap().apply(scores).unwrap();
            assert_abs_diff_eq!(biased, right, epsilon = NEAR);
        }
    }
}

/// A layer of the book, and the same in the library.
fn both(rotary: bool, seed: u64) -> (Heads, MultiHeadAttention<f64>) {
    let [w_q, w_k, w_v, w_o] = [0, 1, 2, 3].map(|w| random(8, 8, 4 * seed + w));
    let [b_q, b_k, b_v, b_o] = [(); 4].map(|()| RowDVector::zeros(0));
    let p = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
    let [w_q, w_k, w_v, w_o] = [&p.w_q, &p.w_k, &p.w_v, &p.w_o].map(Clone::clone);
    let heads = Heads {
        layer: Layer { w_q, w_k, w_v, w_o },
        n_heads: 2,
        turn: rotary.then_some(plain::rotate as plain::Turn),
    };
    let mut layer = MultiHeadAttention::from_parameters(p, 2).unwrap();
    if rotary {
        let rotary = Rotary::new(10_000.0, RotaryPairs::Halves).unwrap();
        layer = layer.with_rotary(rotary).unwrap();
    }
    (heads, layer)
}

#[test]
fn layers_and_their_gradients() {
    for (rotary, seed) in [(false, 0), (true, 1)] {
        let (heads, layer) = both(rotary, seed);
        let (x, grad) = (random(7, 8, 8), random(7, 8, 9));
        let (output, kept) = heads.forward(&x, plain::causal);
        let (right, cache) = layer.forward(&x, Mask::causal()).unwrap();
        assert_abs_diff_eq!(output, right, epsilon = NEAR);
        let (grad_x, grads) = heads.backward(&kept, &grad);
        let right = layer.backward(&cache, &grad).unwrap();
        assert_abs_diff_eq!(grad_x, right.x, epsilon = NEAR);
        let Layer { w_q, w_k, w_v, w_o } = grads;
        let p = right.parameters;
        for (given, right) in [(w_q, p.w_q), (w_k, p.w_k), (w_v, p.w_v), (w_o, p.w_o)] {
            assert_abs_diff_eq!(given, right, epsilon = NEAR);
        }
        if !rotary {
            let single = MultiHeadAttention::from_parameters(
                layer.parameters.clone().into_inner(),
                1,
            );
            let (right, _) = single.unwrap().forward(&x, Mask::causal()).unwrap();
            let given = heads.layer.forward(&x, plain::causal);
            assert_abs_diff_eq!(given, right, epsilon = NEAR);
        }

        let mut ours = plain::Cache::new(&heads);
        let mut theirs = KeyValueCache::new();
        for i in 0..7 {
            let token = x.rows(i, 1).into_owned();
            let given = ours.step(&heads, &token);
            let right = layer.forward_cached(&token, &mut theirs, Mask::causal());
            assert_abs_diff_eq!(given, right.unwrap(), epsilon = NEAR);
        }
        assert_abs_diff_eq!(plain::join(&ours.k), theirs.keys(), epsilon = NEAR);
        assert_abs_diff_eq!(plain::join(&ours.v), theirs.values(), epsilon = NEAR);
    }
}

#[test]
fn adam() {
    let (mut ours, mut theirs) = (random(3, 4, 0), random(3, 4, 0));
    let (mut our_adam, mut adam) = (plain::Adam::new(0.05), Adam::new(0.05));
    for step in 0..20 {
        let mut gradient: DMatrix<f64> = random(3, 4, step + 1);
        adam.step(&mut theirs, &gradient).unwrap();
        our_adam.step(vec![&mut ours], vec![&mut gradient]);
    }
    assert_abs_diff_eq!(ours, theirs, epsilon = NEAR);
    assert_ne!(ours, random(3, 4, 0));
}
