//! Tests of what the chapter says of its numbers.

use super::facts::{
    self, Bytes, CAPACITY, CAPACITY_N, D, ELEMENT, MIDDLE, N, Runs, crossings, intensity,
    operations,
};
use crate::tiles_traffic::claims::runs_as_predicted;
use crate::tiles_traffic::facts::Program;
use crate::tiles_traffic::facts::shape;
use attention::Mask;
use laboratory::hardware::H100;
use std::sync::LazyLock;

static RUNS: LazyLock<Vec<Runs>> = LazyLock::new(|| facts::runs().unwrap());

fn run() -> &'static Runs {
    RUNS.last().unwrap()
}

#[test]
fn the_programs_compute_attention_and_the_formulas_predict_every_count() {
    for n in RUNS.iter().map(|run| run.n) {
        for program in [Program::Naive, Program::Fused, Program::NaiveBackward] {
            runs_as_predicted(program, n, &Mask::causal(), CAPACITY);
        }
    }
}

#[test]
fn each_part_of_the_traffic_is_that_of_the_formula() {
    for run in &*RUNS {
        let Bytes { matrix, fused_matrix, keys_and_values, .. } =
            Bytes::predicted(run.n, CAPACITY);
        assert_eq!(run.bytes(), [matrix, fused_matrix, keys_and_values], "n = {}", run.n);
    }
}

#[test]
fn the_total_is_that_of_the_chapters_formula() {
    let strips = N.div_ceil(facts::strip(CAPACITY));
    let total = run().naive.total().all() as usize;
    assert_eq!(total, 8 * N * N + 2 * N * D * (1 + strips));
}

#[test]
fn naive_attention_stands_left_of_a_gpus_ridge_and_of_the_ideal() {
    let naive = &run().naive;
    let operations = facts::all_operations(naive.passes()).unwrap();
    let counted = intensity(operations, naive.total());
    assert!(counted < H100.ridge_f32());
    assert!(counted < shape(N).intensity(ELEMENT).unwrap());
}

#[test]
fn on_the_gpu_the_middle_waits_and_products_do_not_until_they_have_tensor_cores() {
    let naive = &run().naive;
    let per_byte = |pass| intensity(operations(pass).unwrap(), naive.pass(pass));
    let (softmax, product) = (per_byte("softmax"), per_byte("scores"));
    let ridge = H100.ridge_f32();
    assert!(softmax < ridge && ridge < product);
    // In two bytes per number.
    assert!(2.0 * product < H100.ridge_bf16());
}

#[test]
fn the_middle_moves_two_thirds_of_the_numbers_for_six_operations_a_score() {
    let naive = &run().naive;
    let (moved, work) = facts::middle(naive).unwrap();
    assert!(moved > 0.66);
    let all = facts::all_operations(naive.passes()).unwrap() as f64;
    assert!((all * work - (6 * N * N) as f64).abs() < 1e-3);
    assert_eq!(work, 6.0 / (4 * D + 6) as f64);
    assert_eq!(facts::all_operations(&MIDDLE).unwrap(), 6 * N * N);
}

#[test]
fn fusing_leaves_four_of_eight_crossings_and_saves_nearly_half() {
    let Runs { naive, fused, .. } = run();
    assert_eq!(crossings(naive.matrix("scores").all()).unwrap(), 8);
    assert_eq!(crossings(fused.matrix("scores").all()).unwrap(), 4);
    let saved = facts::saved_by_fusing(run());
    assert!(saved > 0.45 && saved < 0.5, "{saved}");
}

#[test]
fn the_matrix_is_most_of_the_traffic_and_fusing_halves_it() {
    for (n, bytes) in facts::over_tokens() {
        let Bytes { matrix, fused_matrix, keys_and_values, inputs_and_output } = bytes;
        assert_eq!(matrix, 2.0 * fused_matrix, "n = {n}: half as much");
        let is_most = matrix > keys_and_values && fused_matrix > keys_and_values;
        assert!(is_most || n <= 128, "n = {n}: the matrix is most");
        assert!(matrix > inputs_and_output, "n = {n}: more than the inputs");
    }
}

#[test]
fn the_traffic_of_the_matrix_has_one_step_where_a_row_fits() {
    for (m, bytes) in facts::over_capacity() {
        let times = if m < CAPACITY_N { 10 } else { 8 };
        let expected = (times * CAPACITY_N * CAPACITY_N * ELEMENT) as f64;
        assert_eq!(bytes.matrix, expected, "M = {m}");
    }
}

#[test]
fn the_traffic_of_keys_and_values_falls_with_the_capacity_until_each_is_read_once() {
    let capacities = facts::over_capacity();
    let keys = |i: usize| capacities[i].1.keys_and_values;
    for (i, (m, bytes)) in capacities.iter().enumerate() {
        assert!(i == 0 || keys(i) <= keys(i - 1), "M = {m}");
        let about = (2 * CAPACITY_N * CAPACITY_N * D * D * ELEMENT) as f64 / *m as f64;
        let is_about = (bytes.keys_and_values / about - 1.0).abs() < 0.2;
        assert!(is_about || !(1024..=32_768).contains(m), "M = {m}: by the formula");
    }
    let (_, last) = capacities.last().unwrap();
    assert_eq!(last.keys_and_values, last.inputs_and_output / 2.0);
}

#[test]
fn keys_and_values_cost_more_than_the_matrix_at_first_and_only_then() {
    let capacities = facts::over_capacity();
    let costs_more = |(_, bytes): &(usize, Bytes)| bytes.keys_and_values > bytes.matrix;
    assert!(costs_more(&capacities[0]));
    assert!(capacities.is_sorted_by_key(|capacity| !costs_more(capacity)));
}

#[test]
fn the_backward_pass_keeps_the_weights() {
    let backward = facts::backward().unwrap();
    for pass in backward.passes() {
        assert_eq!(backward.of(pass, "scores").written, 0, "{pass}");
    }
}
