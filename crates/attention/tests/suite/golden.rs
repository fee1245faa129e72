//! PyTorch's values: the outputs, weights, log-sum-exps and gradients that another program computed. `golden/generate.py SEED OUT`
//! made the files in `golden/`; in them a matrix is a list of its rows. Files with another seed are read from the folder that
//! `ATTENTION_GOLDEN` names.

use crate::layer::Layer;
use attention::flash::{Flash, Inputs, Tiles, tiled_attention, tiled_attention_backward};
use attention::testing::one_problem::{fast, naive, tiled};
use attention::{
    DistanceBuckets, ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, Parameters,
    Rotary, RotaryPairs, ScoreRule, SingleHeadAttention, attention, attention_backward,
};
use nalgebra::{DMatrix, RowDVector};
use serde_json::Value;
use std::path::PathBuf;

/// The largest |ours − PyTorch's| / max(1, |PyTorch's|) of all entries. Both programs round at every step, in another order; they differ by
/// 4 · 10⁻¹⁵ at most.
const TOLERANCE: f64 = 1e-12;

pub fn cases(file: &str) -> Vec<Value> {
    let here = || concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden").into();
    let folder: PathBuf =
        std::env::var_os("ATTENTION_GOLDEN").map_or_else(here, Into::into);
    let file = folder.join(file);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file:?}: {e}"));
    let golden: Value = serde_json::from_str(&text).unwrap();
    golden["cases"].as_array().unwrap().clone()
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

pub fn matrix(value: &Value) -> DMatrix<f64> {
    let rows: Vec<Vec<f64>> = list(value);
    DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
}

pub fn matrices(value: &Value) -> Vec<DMatrix<f64>> {
    value.as_array().unwrap().iter().map(matrix).collect()
}

/// The bias of this name, or none.
fn bias(case: &Value, name: &str) -> RowDVector<f64> {
    case.get(name).map_or(RowDVector::zeros(0), |bias| list(bias).into())
}

fn count(case: &Value, name: &str) -> usize {
    case[name].as_u64().unwrap() as usize
}

fn causal(case: &Value) -> Mask {
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

// ---------------------------------------------------------------------------------------------------- attention

fn mask(case: &Value) -> Mask {
    let padding = || Mask::padding(&list::<bool>(&case["key_valid"])).unwrap();
    let rows: Vec<Vec<bool>> = list(&case["allowed"]);
    let allowed = DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j]);
    let mask = match case["kind"].as_str().unwrap() {
        "none" => Mask::none(),
        "causal" => Mask::causal(),
        "padding" => padding(),
        "causal+padding" => Mask::causal().and(padding()),
        "window" => Mask::window(case["window"].as_u64().unwrap() as usize).unwrap(),
        "dense" => Mask::dense(allowed.clone()).unwrap(),
        other => panic!("a mask of the kind {other}"),
    };
    let (n_q, n_k) = allowed.shape();
    assert_eq!(mask.sized(n_q, n_k).unwrap().allowed_matrix(), allowed);
    mask
}

#[test]
fn attention_computes_what_pytorch_computes_and_so_do_tiles() {
    for case in cases("sdpa.json") {
        let [q, k, v, grad] =
            ["q", "k", "v", "grad_output"].map(|name| matrix(&case[name]));
        let mask = mask(&case);
        let (output, cache) = attention(&q, &k, &v, &mask).unwrap();
        compare("weights", &cache.weights, &matrix(&case["weights"]));
        let naive = attention_backward(&cache, &grad).unwrap();
        let column = |x: &[f64]| DMatrix::from_column_slice(x.len(), 1, x);

        // Tiles smaller than the smallest case, so that there are several.
        let tiles = Tiles { queries: 2, keys: 3 };
        let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
        let tiled = tiled_attention(&inputs, tiles).unwrap();
        let by_tiles = tiled_attention_backward(&inputs, &tiled, &grad, tiles).unwrap();
        let flash = Flash::new().with_tiles(tiles).unwrap();
        let fast = flash.forward(&inputs);
        let by_flash = flash.backward(&inputs, &fast, &grad).unwrap();
        for (program, output, lse, gradients) in [
            ("naive", output, column(cache.log_sum_exp.as_slice()), naive),
            ("tiled", tiled.output, tiled.log_sum_exp, by_tiles),
            ("flash", fast.output, fast.log_sum_exp, by_flash),
        ] {
            let what = |of: &str| format!("{}, {program}: {of}", case["name"]);
            compare(&what("output"), &output, &matrix(&case["output"]));
            compare(&what("lse"), &lse, &column(&list::<f64>(&case["log_sum_exp"])));
            compare(&what("∂q"), &gradients.q, &matrix(&case["grad_q"]));
            compare(&what("∂k"), &gradients.k, &matrix(&case["grad_k"]));
            compare(&what("∂v"), &gradients.v, &matrix(&case["grad_v"]));
        }
    }
}

// ---------------------------------------------------------------------------------------------------- rules for scores

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

#[test]
fn rules_for_scores_do_what_pytorch_does() {
    for case in cases("score_rules.json") {
        let [q, k, v, grad] =
            ["q", "k", "v", "grad_output"].map(|name| matrix(&case[name]));
        let n_heads = count(&case, "heads");
        let mask = causal(&case).with_scores(rule(&case, n_heads));
        let inputs = Inputs::new(&q, &k, &v, &mask).unwrap().with_heads(n_heads).unwrap();
        let tiles = Tiles { queries: 2, keys: 3 };
        let flash = Flash::new().with_tiles(tiles).unwrap();
        for (program, (forward, gradients)) in [
            ("naive", naive(&inputs, &mask, &grad)),
            ("tiled", tiled(&inputs, &grad, tiles)),
            ("flash", fast(&inputs, &grad, &flash)),
        ] {
            let what = |of: &str| format!("{}, {program}: {of}", case["name"]);
            compare(&what("output"), &forward.output, &matrix(&case["output"]));
            compare(&what("lse"), &forward.log_sum_exp, &matrix(&case["log_sum_exp"]));
            compare(&what("∂q"), &gradients.q, &matrix(&case["grad_q"]));
            compare(&what("∂k"), &gradients.k, &matrix(&case["grad_k"]));
            compare(&what("∂v"), &gradients.v, &matrix(&case["grad_v"]));
            let tables = matrices(&case["grad_tables"]);
            assert_eq!(gradients.tables.len(), tables.len());
            for (ours, expected) in gradients.tables.iter().zip(&tables) {
                compare(&what("∂table"), ours, expected);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------- rotary positions

fn pairs(case: &Value) -> RotaryPairs {
    match case["pairs"].as_str().unwrap() {
        "neighbours" => RotaryPairs::Neighbours,
        "halves" => RotaryPairs::Halves,
        other => panic!("pairs of the kind {other}"),
    }
}

#[test]
fn rotary_positions_turn_as_in_pytorch() {
    for case in cases("rotary.json") {
        let (base, first) =
            (case["base"].as_f64().unwrap(), case["first"].as_i64().unwrap());
        let rotary = Rotary::new(base, pairs(&case)).unwrap();
        let (n_heads, first) = (count(&case, "heads"), first as isize);
        let turned = rotary.turn(&matrix(&case["x"]), n_heads, first).unwrap();
        compare(&format!("{}", case["name"]), &turned, &matrix(&case["turned"]));
        let back = rotary.turn_back(&matrix(&case["grad"]), n_heads, first).unwrap();
        compare(&format!("{}: ∂x", case["name"]), &back, &matrix(&case["grad_x"]));
    }
}

// ---------------------------------------------------------------------------------------------------- shared keys

#[test]
fn heads_share_keys_as_in_pytorch() {
    for case in cases("grouped.json") {
        let [q, k, v, grad] =
            ["q", "k", "v", "grad_output"].map(|name| matrix(&case[name]));
        let mask = causal(&case);
        let (heads, kv_heads) = (count(&case, "heads"), count(&case, "kv_heads"));
        let inputs = Inputs::grouped(&q, &k, &v, &mask, heads, kv_heads).unwrap();
        let tiles = Tiles { queries: 2, keys: 3 };
        let flash = Flash::new().with_tiles(tiles).unwrap();
        for (program, (forward, gradients)) in [
            ("naive", naive(&inputs, &mask, &grad)),
            ("tiled", tiled(&inputs, &grad, tiles)),
            ("flash", fast(&inputs, &grad, &flash)),
        ] {
            let what = |of: &str| format!("{}, {program}: {of}", case["name"]);
            compare(&what("output"), &forward.output, &matrix(&case["output"]));
            compare(&what("∂q"), &gradients.q, &matrix(&case["grad_q"]));
            compare(&what("∂k"), &gradients.k, &matrix(&case["grad_k"]));
            compare(&what("∂v"), &gradients.v, &matrix(&case["grad_v"]));
        }
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

#[test]
fn layers_with_shared_keys_and_rotary_positions_are_those_of_pytorch() {
    for case in cases("layers.json") {
        let (named, layer) = (|name: &str| matrix(&case[name]), grouped_layer(&case));
        let options = ForwardOptions::new().mask(causal(&case));
        for (engine, options) in [("naive", options.clone()), ("flash", options.flash())]
        {
            let what = |of: &str| format!("{}, {engine}: {of}", case["name"]);
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

// ---------------------------------------------------------------------------------------------------- decoding

#[test]
fn a_cache_holds_what_pytorch_holds_and_gives_its_outputs() {
    for case in cases("decoding.json") {
        let (x, layer) = (matrix(&case["x"]), grouped_layer(&case));
        for (memory, mut cache) in [
            ("one matrix", KeyValueCache::new()),
            ("pages", KeyValueCache::new().with_pages(3).unwrap()),
        ] {
            let mut output = DMatrix::zeros(x.nrows(), x.ncols());
            for n in list::<usize>(&case["chunks"]) {
                let first = cache.tokens();
                let new =
                    layer.forward_cached(x.rows(first, n), &mut cache, Mask::causal());
                output.rows_mut(first, n).copy_from(&new.unwrap());
            }
            let what = |of: &str| format!("{}, {memory}: {of}", case["name"]);
            compare(&what("output"), &output, &matrix(&case["output"]));
            compare(&what("keys"), &cache.keys(), &matrix(&case["keys"]));
            compare(&what("values"), &cache.values(), &matrix(&case["values"]));
        }
    }
}

// ---------------------------------------------------------------------------------------------------- layers

/// A batch of two sequences, as through `torch.nn.MultiheadAttention`.
fn check<L: Layer<f64>>(layer: &L, case: &Value) {
    let (xs, grads) = (matrices(&case["x"]), matrices(&case["grad_output"]));
    let contexts = case.get("context").map(matrices);
    let mask = causal(case);
    let options = (0..xs.len()).map(|b| {
        let options = ForwardOptions::new().mask(&mask);
        match &contexts {
            Some(contexts) => options.context(&contexts[b]),
            None => options,
        }
    });
    let (outputs, caches) =
        layer.forward_batch(&xs, options.collect::<Vec<_>>()).unwrap();
    let gradients = layer.backward_batch(&caches, &grads).unwrap();
    let what = |of: &str| format!("{}: {of}", case["name"]);
    for b in 0..xs.len() {
        let weights = matrices(&case["weights"][b]);
        assert_eq!(L::heads(&caches[b]).len(), weights.len());
        for (head, weights) in L::heads(&caches[b]).iter().zip(&weights) {
            compare(&what("weights"), &head.weights, weights);
        }
        compare(&what("output"), &outputs[b], &matrix(&case["output"][b]));
        compare(&what("∂x"), &gradients.xs[b], &matrix(&case["grad_x"][b]));
        if let Some(by_context) = &gradients.contexts[b] {
            compare(&what("∂context"), by_context, &matrix(&case["grad_context"][b]));
        }
    }
    for (name, ours) in gradients.parameters.named() {
        let expected = &case[format!("grad_{name}")];
        let expected = match name.starts_with('b') {
            true => DMatrix::from_row_slice(1, ours.len(), &list::<f64>(expected)),
            false => matrix(expected),
        };
        compare(&what(&name), &ours.into_owned(), &expected);
    }
}

#[test]
fn layers_compute_what_pytorch_computes() {
    for case in cases("multi_head.json") {
        let [w_q, w_k, w_v, w_o] =
            ["w_q", "w_k", "w_v", "w_o"].map(|name| matrix(&case[name]));
        let [b_q, b_k, b_v, b_o] =
            ["b_q", "b_k", "b_v", "b_o"].map(|name| bias(&case, name));
        let parameters = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
        let n_heads = count(&case, "n_heads");
        if n_heads == 1 {
            check(&SingleHeadAttention::from(parameters.clone()), &case);
        }
        check(&MultiHeadAttention::from_parameters(parameters, n_heads).unwrap(), &case);
    }
}
