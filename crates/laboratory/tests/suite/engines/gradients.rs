//! Every engine's gradients against the slopes that are measured.

use super::{Engines, Named};
use crate::support::{answer, masks, parameters, random};
use attention::engine::Engine;
use attention::flash::{Inputs, Tiles};
use attention::{
    ForwardOptions, Mask, MultiHeadAttention, Result, Rotary, ScoreRule,
    gradient_check::{GradientCheck, gradient_check, gradient_check_parameters},
    positions::RotaryPairs,
    score_rule::DistanceBuckets,
};
use nalgebra::{DMatrix, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};

const EPSILON: f64 = 1e-5;

#[track_caller]
fn assert_agrees(check: Result<GradientCheck<f64>>, what: &str) {
    let check = check.unwrap();
    assert!(check.max_relative_error < 1e-5, "{what}: {check:?}");
}

/// With respect to queries, keys and values, under every mask, in tiles that no length is a multiple of, of one query and one key, and
/// larger than all there is.
pub fn of_attention(engines: Engines<f64>) {
    let (n_heads, d_k, d_v) = (2, 4, 3);
    let sizes = [(2, 3), (1, 1), (3, 2), (64, 64)];
    let tiles = sizes.map(|(queries, keys)| Tiles { queries, keys });
    let engines = tiles.map(|tiles| (tiles, engines(Some(tiles))));
    for (n_q, n_k) in [(5, 5), (3, 7), (7, 3), (1, 4), (1, 1)] {
        let [q, k] = [(n_q, 70), (n_k, 71)].map(|(n, s)| random(n, n_heads * d_k, s));
        let [v, r] = [(n_k, 72), (n_q, 73)].map(|(n, s)| random(n, n_heads * d_v, s));
        for (kind, mask) in masks(n_q, n_k) {
            for (tiles, engine) in engines
                .iter()
                .flat_map(|(tiles, all)| all.iter().map(move |e| (tiles, e)))
            {
                let output = |q: &_, k: &_, v: &_| -> Result<DMatrix<f64>> {
                    let inputs = Inputs::new(q, k, v, &mask)?.with_heads(n_heads)?;
                    Ok(engine.forward(&inputs)?.output)
                };
                let here = output(&q, &k, &v).unwrap();
                let grad_output = here.map(f64::cos).component_mul(&r);
                let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
                let inputs = inputs.with_heads(n_heads).unwrap();
                let (_, d) = answer(engine, &inputs, &grad_output);
                let loss = |q: &_, k: &_, v: &_| {
                    Ok((output(q, k, v)?.map(f64::sin) - here.map(f64::sin)).dot(&r))
                };
                let what =
                    |x| format!("{x}, {kind}, ({n_q}, {n_k}), {engine:?}, {tiles:?}");
                let by_q = gradient_check(&q, &d.q, EPSILON, |q| loss(q, &k, &v));
                assert_agrees(by_q, &what("q"));
                let by_k = gradient_check(&k, &d.k, EPSILON, |k| loss(&q, k, &v));
                assert_agrees(by_k, &what("k"));
                let by_v = gradient_check(&v, &d.v, EPSILON, |v| loss(&q, &k, v));
                assert_agrees(by_v, &what("v"));
            }
        }
    }
}

/// A table's gradient, through a rule that comes after it.
pub fn of_tables(engines: Engines<f64>) {
    let (n_q, n_k, n_heads) = (9, 12, 2);
    let (q, r) = (random(n_q, n_heads * 4, 20), random(n_q, n_heads * 4, 23));
    let [k, v] = [21, 22].map(|seed| random(n_k, n_heads * 4, seed));
    let mask = |table: &DMatrix<f64>| -> Result<Mask> {
        let table = ScoreRule::table(table, DistanceBuckets::t5_causal(6, 8)?)?;
        Ok(Mask::causal().with_scores(table.then(ScoreRule::soft_cap(2.0)?)))
    };
    let learned = random(6, n_heads, 24);
    let inputs = Inputs::new(&q, &k, &v, mask(&learned).unwrap()).unwrap();
    assert_eq!(inputs.n_heads(), n_heads); // as many as the table has
    for engine in engines(Some(Tiles { queries: 4, keys: 5 })) {
        let (_, gradients) = answer(&engine, &inputs, &r);
        let check = gradient_check(&learned, &gradients.tables[0], EPSILON, |table| {
            let inputs = Inputs::new(&q, &k, &v, mask(table)?)?;
            Ok(engine.forward(&inputs)?.output.dot(&r))
        });
        assert_agrees(check, &format!("{engine:?}"));
    }
}

/// With respect to parameters, input and context: of a layer with shared keys and rotary positions, and of one with heads of other widths
/// than their share and without a bias; with and without dropout, which drops the same weights in each run.
pub fn of_layers(engines: Engines<f64>) {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let rotary = Rotary::new(100.0, RotaryPairs::Neighbours).unwrap();
    let grouped = MultiHeadAttention::xavier_grouped(8, 4, 2, rng).unwrap();
    let mut p = parameters(8, 6, 10, 31);
    p.b_v = RowDVector::zeros(0);
    let layers = [
        grouped.with_rotary(rotary).unwrap(),
        MultiHeadAttention::from_parameters(p, 2).unwrap(),
    ];
    let context = random(7, 8, 2);
    for engine in engines(Some(Tiles { queries: 2, keys: 3 })) {
        let options = || ForwardOptions::new().engine(engine.clone());
        let dropping = options().dropout(0.3, &mut ChaCha8Rng::seed_from_u64(5));
        for (what, options) in [
            ("causal", options().mask(Mask::causal())),
            ("context", options().context(&context)),
            ("dropout", dropping.mask(Mask::window(3).unwrap())),
        ] {
            layers.iter().for_each(|layer| of_layer(layer, &engine, &options, what));
        }
    }
}

fn of_layer(
    layer: &MultiHeadAttention<f64>,
    engine: &Named<f64>,
    options: &ForwardOptions<f64>,
    what: &str,
) {
    let (x, r) = (random(5, 8, 1), random(5, 8, 3));
    let (here, cache) = layer.forward(&x, options.clone()).unwrap();
    let gradients = layer.backward(&cache, &r).unwrap();
    // The loss less its value here: the slope is the same, and a small number is rounded less than a large one.
    let loss = |layer: &MultiHeadAttention<f64>, x: &_, options: &ForwardOptions<f64>| {
        Ok((layer.forward(x, options.clone())?.0 - &here).dot(&r))
    };
    let what = |of: &str| format!("{of}, {what}, {engine:?}");
    let by_x = gradient_check(&x, &gradients.x, EPSILON, |x| loss(layer, x, options));
    assert_agrees(by_x, &what("x"));
    if let Some(grad_context) = &gradients.context {
        let context = random(7, 8, 2);
        let by_context = gradient_check(&context, grad_context, EPSILON, |context| {
            loss(layer, &x, &options.clone().context(context))
        });
        assert_agrees(by_context, &what("context"));
    }
    let checks = gradient_check_parameters(layer, &gradients, EPSILON, |layer| {
        loss(layer, &x, options)
    });
    for (name, check) in checks.unwrap() {
        assert_agrees(Ok(check), &what(&name));
    }
}
