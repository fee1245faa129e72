//! PyTorch's values: the outputs, weights, log-sum-exps and gradients that another program computed. `golden/generate.py SEED OUT`
//! made the files in `golden/`; in them a matrix is a list of its rows. Files with another seed are read from the folder that
//! `ATTENTION_GOLDEN` names.

use super::Engines;
use crate::support::answer;
use attention::flash::{Inputs, Tiles};
use attention::{
    ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, Parameters, Rotary,
    ScoreRule, positions::RotaryPairs, score_rule::DistanceBuckets,
};
use nalgebra::{DMatrix, RowDVector};
use serde_json::Value;
use std::path::Path;

/// The largest |ours − PyTorch's| / max(1, |PyTorch's|) of all entries. Both programs round at every step, in another order; they differ by
/// 4 · 10⁻¹⁵ at most.
const TOLERANCE: f64 = 1e-12;

/// Tiles smaller than the smallest case, so that there are several.
const TILES: Option<Tiles> = Some(Tiles { queries: 2, keys: 3 });

/// The cases of a file of this name, whose text is that unless another folder was asked for.
pub fn cases(file: &str, text: &str) -> Vec<Value> {
    let golden: Value = match std::env::var_os("ATTENTION_GOLDEN") {
        None => serde_json::from_str(text).unwrap(),
        Some(folder) => {
            let file = Path::new(&folder).join(file);
            let text = std::fs::read_to_string(&file)
                .unwrap_or_else(|e| panic!("{file:?}: {e}"));
            serde_json::from_str(&text).unwrap()
        }
    };
    golden["cases"].as_array().unwrap().clone()
}

pub fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

pub fn matrix(value: &Value) -> DMatrix<f64> {
    let rows: Vec<Vec<f64>> = list(value);
    DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
}

pub fn matrices(value: &Value) -> Vec<DMatrix<f64>> {
    value.as_array().unwrap().iter().map(matrix).collect()
}

pub fn count(case: &Value, name: &str) -> usize {
    case[name].as_u64().unwrap() as usize
}

pub fn causal(case: &Value) -> Mask {
    if case["causal"].as_bool().unwrap() { Mask::causal() } else { Mask::none() }
}

#[track_caller]
pub fn compare(what: &str, ours: &DMatrix<f64>, expected: &DMatrix<f64>) {
    assert_eq!(ours.shape(), expected.shape(), "the shape of {what}");
    for (ours, expected) in ours.iter().zip(expected) {
        let off = (ours - expected).abs() / expected.abs().max(1.0);
        assert!(off < TOLERANCE, "{what}: {ours}, not {expected}"); // and not NaN
    }
}

/// Output, log-sum-exp and gradients of every engine.
fn check(
    case: &Value,
    engines: Engines<f64>,
    mask: &Mask,
    heads: usize,
    kv_heads: usize,
) {
    let named = |name: &str| matrix(&case[name]);
    let [q, k, v, grad] = ["q", "k", "v", "grad_output"].map(named);
    let inputs = Inputs::grouped(&q, &k, &v, mask, heads, kv_heads).unwrap();
    for engine in engines(TILES) {
        let (forward, gradients) = answer(&engine, &inputs, &grad);
        let what = |of: &str| format!("{}, {engine:?}: {of}", case["name"]);
        compare(&what("output"), &forward.output, &named("output"));
        match &case["log_sum_exp"] {
            Value::Null => assert!(kv_heads < heads, "{}", what("lse")),
            lse if lse[0].is_array() => {
                compare(&what("lse"), &forward.log_sum_exp, &matrix(lse));
            }
            lse => {
                let lse = DMatrix::from_vec(q.nrows(), 1, list(lse));
                compare(&what("lse"), &forward.log_sum_exp, &lse);
            }
        }
        compare(&what("∂q"), &gradients.q, &named("grad_q"));
        compare(&what("∂k"), &gradients.k, &named("grad_k"));
        compare(&what("∂v"), &gradients.v, &named("grad_v"));
        let tables = case.get("grad_tables").map_or(vec![], matrices);
        assert_eq!(gradients.tables.len(), tables.len());
        for (ours, expected) in gradients.tables.iter().zip(&tables) {
            compare(&what("∂table"), ours, expected);
        }
    }
}

pub fn mask(case: &Value) -> Mask {
    let padding = || Mask::padding(&list::<bool>(&case["key_valid"])).unwrap();
    let rows: Vec<Vec<bool>> = list(&case["allowed"]);
    let allowed = DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j]);
    let mask = match case["kind"].as_str().unwrap() {
        "none" => Mask::none(),
        "causal" => Mask::causal(),
        "padding" => padding(),
        "causal+padding" => Mask::causal().and(padding()),
        "window" => Mask::window(count(case, "window")).unwrap(),
        "dense" => Mask::dense(allowed.clone()).unwrap(),
        other => panic!("a mask of the kind {other}"),
    };
    let (n_q, n_k) = allowed.shape();
    assert_eq!(mask.sized(n_q, n_k).unwrap().allowed_matrix(), allowed);
    mask
}

pub fn attention(engines: Engines<f64>) {
    for case in cases("sdpa.json", include_str!("../../golden/sdpa.json")) {
        check(&case, engines, &mask(&case), 1, 1);
    }
}

fn rule(case: &Value, n_heads: usize) -> ScoreRule {
    let step = |step: &Value| {
        let buckets = |of: fn(usize, usize) -> attention::Result<DistanceBuckets>| {
            of(count(step, "count"), count(step, "furthest")).unwrap()
        };
        let table = |buckets| ScoreRule::table(&matrix(&step["table"]), buckets);
        match step["kind"].as_str().unwrap() {
            "alibi" => ScoreRule::alibi(n_heads),
            "soft cap" => ScoreRule::soft_cap(step["cap"].as_f64().unwrap()),
            "t5" => table(buckets(DistanceBuckets::t5)),
            "t5 causal" => table(buckets(DistanceBuckets::t5_causal)),
            other => panic!("a rule of the kind {other}"),
        }
        .unwrap()
    };
    let steps = case["rule"].as_array().unwrap().iter().map(step);
    steps.fold(ScoreRule::none(), ScoreRule::then)
}

pub fn rules_for_scores(engines: Engines<f64>) {
    for case in cases("score_rules.json", include_str!("../../golden/score_rules.json")) {
        let heads = count(&case, "heads");
        let mask = causal(&case).with_scores(rule(&case, heads));
        check(&case, engines, &mask, heads, heads);
    }
}

pub fn shared_keys(engines: Engines<f64>) {
    for case in cases("grouped.json", include_str!("../../golden/grouped.json")) {
        let (heads, kv_heads) = (count(&case, "heads"), count(&case, "kv_heads"));
        check(&case, engines, &causal(&case), heads, kv_heads);
    }
}

pub fn pairs(case: &Value) -> RotaryPairs {
    match case["pairs"].as_str().unwrap() {
        "neighbours" => RotaryPairs::Neighbours,
        "halves" => RotaryPairs::Halves,
        other => panic!("pairs of the kind {other}"),
    }
}

/// A layer whose heads share keys, perhaps with rotary positions.
fn grouped_layer(case: &Value) -> MultiHeadAttention<f64> {
    let named = |name: &str| matrix(&case[name]);
    let row = |name: &str| RowDVector::from_row_slice(named(name).as_slice());
    let [w_q, w_k, w_v, w_o] = ["w_q", "w_k", "w_v", "w_o"].map(named);
    let [b_q, b_k, b_v, b_o] = ["b_q", "b_k", "b_v", "b_o"].map(row);
    let parameters = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
    let (heads, kv_heads) = (count(case, "heads"), count(case, "kv_heads"));
    let layer = MultiHeadAttention::from_grouped_parameters(parameters, heads, kv_heads);
    if case["pairs"].is_null() {
        return layer.unwrap();
    }
    layer.unwrap().with_rotary(Rotary::new(10_000.0, pairs(case)).unwrap()).unwrap()
}

/// With shared keys and rotary positions.
pub fn layers(engines: Engines<f64>) {
    for case in cases("layers.json", include_str!("../../golden/layers.json")) {
        let (named, layer) = (|name: &str| matrix(&case[name]), grouped_layer(&case));
        for engine in engines(TILES) {
            let what = |of: &str| format!("{}, {engine:?}: {of}", case["name"]);
            let options =
                ForwardOptions::new().mask(causal(&case)).engine(engine.clone());
            let (output, cache) = layer.forward(&named("x"), options).unwrap();
            compare(&what("output"), &output, &named("output"));
            let gradients = layer.backward(&cache, &named("grad_output")).unwrap();
            compare(&what("∂x"), &gradients.x, &named("grad_x"));
            for (name, ours) in gradients.parameters.named() {
                let expected = named(&format!("grad_{name}"));
                compare(&what(&name), &ours.into_owned(), &expected);
            }
        }
    }
}

/// A cache holds what PyTorch holds, and gives its outputs.
pub fn decoding(engines: Engines<f64>) {
    for case in cases("decoding.json", include_str!("../../golden/decoding.json")) {
        let (x, layer) = (matrix(&case["x"]), grouped_layer(&case));
        let empty = KeyValueCache::new;
        for engine in engines(TILES) {
            for mut cache in [empty(), empty().with_pages(3).unwrap()] {
                let options = ForwardOptions::new().mask(Mask::causal());
                let options = options.engine(engine.clone());
                let mut output = DMatrix::zeros(x.nrows(), x.ncols());
                for n in list::<usize>(&case["chunks"]) {
                    let first = cache.tokens();
                    let rows = x.rows(first, n);
                    let new = layer.forward_cached(rows, &mut cache, options.clone());
                    output.rows_mut(first, n).copy_from(&new.unwrap());
                }
                let what = |of: &str| format!("{}, {engine:?}: {of}", case["name"]);
                compare(&what("output"), &output, &matrix(&case["output"]));
                compare(&what("keys"), &cache.keys(), &matrix(&case["keys"]));
                compare(&what("values"), &cache.values(), &matrix(&case["values"]));
            }
        }
    }
}
