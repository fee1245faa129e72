//! Tests of what the chapter says of its numbers.

use super::facts::{self, InputGradient};
use super::learning;
use attention::{AttentionCache, attention};
use std::sync::LazyLock;

static LAYERS: LazyLock<Vec<InputGradient>> =
    LazyLock::new(|| facts::fresh_layers().unwrap());

#[test]
fn the_row_sums_are_those_of_the_output_and_its_gradient() {
    let example = facts::worked_example().unwrap();
    let AttentionCache { q, k, v, mask, .. } = &example.cache;
    let (output, _) = attention(q, k, v, mask).unwrap();
    let by_output = example.grad_output.component_mul(&output).column_sum();
    assert!((example.row_sums() - by_output).amax() < 1e-14);
}

#[test]
fn each_row_of_the_gradient_of_the_scores_sums_to_zero() {
    let example = facts::worked_example().unwrap();
    assert!(example.grad_scores.column_sum().amax() < 1e-14);
}

#[test]
fn three_paths_make_the_gradient_of_x() {
    for InputGradient { whole, paths: [queries, keys, values] } in LAYERS.iter() {
        let sum = queries + keys + values;
        assert!((sum - whole).amax() < 1e-13 * whole.amax().max(1.0));
    }
}

#[test]
fn without_queries_the_direction_is_nearly_the_same_and_points_downhill() {
    assert!(facts::cosine_without_queries(&LAYERS) > 0.9);
    assert!(LAYERS.iter().all(|layer| layer.cosine_without_queries() > 0.0));
}

#[test]
fn the_weights_are_the_smaller_part_of_a_short_cache_and_nearly_all_of_a_long_one() {
    let kept = facts::kept().unwrap();
    assert!(kept[0].share_of_weights() < 0.5);
    assert!(kept[2].share_of_weights() > 0.9);
}

#[test]
fn the_layer_learns_if_all_is_trained() {
    assert!(learning::with_all_trained().unwrap().loss_at_end(20) < 0.01);
}

#[test]
fn values_alone_learn_the_mean() {
    let held = learning::with_queries_and_keys_held().unwrap();
    // The wanted number less the mean of all six has a variance of 5/6.
    assert!((held.loss_at_end(400) - 0.5 * 5.0 / 6.0).abs() < 0.02);
}
