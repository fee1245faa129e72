//! PyTorch's values for what no engine computes, or not an engine alone: weights, rotary positions, and layers in batches.

use crate::engines::pytorch::{
    cases, causal, compare, count, list, mask, matrices, matrix, pairs,
};
use crate::support::Layer;
use attention::{
    ForwardOptions, MultiHeadAttention, MultiHeadCache, Parameters, Rotary,
    SingleHeadAttention, SingleHeadCache, attention, attention_backward,
};
use nalgebra::{DMatrix, RowDVector};
use serde_json::Value;

#[test]
fn attention_computes_what_pytorch_computes() {
    for case in cases("sdpa.json", include_str!("../golden/sdpa.json")) {
        let named = |name: &str| matrix(&case[name]);
        let [q, k, v] = ["q", "k", "v"].map(named);
        let (output, cache) = attention(&q, &k, &v, mask(&case)).unwrap();
        let what = |of: &str| format!("{}: {of}", case["name"]);
        compare(&what("output"), &output, &named("output"));
        compare(&what("weights"), &cache.weights, &named("weights"));
        let gradients = attention_backward(&cache, &named("grad_output")).unwrap();
        compare(&what("∂q"), &gradients.q, &named("grad_q"));
        compare(&what("∂k"), &gradients.k, &named("grad_k"));
        compare(&what("∂v"), &gradients.v, &named("grad_v"));
    }
}

#[test]
fn rotary_positions_turn_as_in_pytorch() {
    for case in cases("rotary.json", include_str!("../golden/rotary.json")) {
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

/// The bias of this name, or none.
fn bias(case: &Value, name: &str) -> RowDVector<f64> {
    case.get(name).map_or(RowDVector::zeros(0), |bias| list(bias).into())
}

/// A batch of two sequences, as through `torch.nn.MultiheadAttention`.
fn check<L: Layer<f64>>(
    layer: &L,
    weights: fn(&L::Cache) -> &[DMatrix<f64>],
    case: &Value,
) {
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
        let (given, right) = (weights(&caches[b]), matrices(&case["weights"][b]));
        assert_eq!(given.len(), right.len());
        for (given, right) in given.iter().zip(&right) {
            compare(&what("weights"), given, right);
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
    for case in cases("multi_head.json", include_str!("../golden/multi_head.json")) {
        let [w_q, w_k, w_v, w_o] =
            ["w_q", "w_k", "w_v", "w_o"].map(|name| matrix(&case[name]));
        let [b_q, b_k, b_v, b_o] =
            ["b_q", "b_k", "b_v", "b_o"].map(|name| bias(&case, name));
        let parameters = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
        let n_heads = count(&case, "n_heads");
        if n_heads == 1 {
            fn weights(cache: &SingleHeadCache<f64>) -> &[DMatrix<f64>] {
                std::slice::from_ref(&cache.attention.weights)
            }
            check(&SingleHeadAttention::from(parameters.clone()), weights, &case);
        }
        let layer = MultiHeadAttention::from_parameters(parameters, n_heads).unwrap();
        check(&layer, MultiHeadCache::weights, &case);
    }
}
