//! Tests of what the chapter says of its numbers.

use super::facts::{self, Kept, Steps};
use super::rounding::{self, ORDERS, Sums, UNIT, Varied, Weights};
use crate::random::normal;
use crate::tiles_traffic::claims::runs_as_predicted;
use crate::tiles_traffic::facts::{
    CAPACITY, D, LONG, N, Pass, Program, RUN, lengths, naive_backward, tiled_backward,
};
use attention::flash::{FlashOutput, Inputs, Tiles, tiled_attention};
use attention::{Mask, attention, softmax::log_sum_exp_rows};
use laboratory::cost::{AttentionShape, Flops};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Its naive cache holds the log-sum-exp as well, and not the output; the layer does.
#[test]
fn the_crate_keeps_what_is_counted() {
    let n = 48;
    let x = normal(n, D, &mut ChaCha8Rng::seed_from_u64(0));
    let mask = Mask::none();
    let (output, cache) = attention(&x, &x, &x, &mask).unwrap();
    let kept = Kept::new(n);
    let linear = cache.q.len() + cache.k.len() + cache.v.len() + output.len();
    assert_eq!((linear, cache.weights.len()), (kept.linear, kept.weights), "naive");
    let inputs = Inputs::new(&x, &x, &x, &mask).unwrap();
    let FlashOutput { output, log_sum_exp, log_sum_exp_low, .. } =
        tiled_attention(&inputs, Tiles::default()).unwrap();
    assert_eq!(3 * x.len() + output.len(), kept.linear, "tiled");
    assert_eq!(log_sum_exp.len(), kept.log_sum_exp, "tiled: log-sum-exp");
    // The chapter says in a sentence that the crate keeps this second number, and counts without it.
    assert_eq!(
        log_sum_exp_low.len(),
        kept.log_sum_exp,
        "tiled: the second number per row"
    );
}

#[test]
fn products_backward_are_twice_those_forward() {
    for n in facts::LENGTHS {
        let shape = AttentionShape::self_attention(1, n, D, D, 1);
        let products = |flops: Flops| flops.scores + flops.values;
        let (forward, back) = (shape.flops().unwrap(), shape.backward_flops().unwrap());
        assert_eq!(products(back), 2 * products(forward), "n = {n}");
    }
}

#[test]
fn what_computing_again_adds_hardly_depends_on_the_length() {
    let usual = Steps::new(LONG).unwrap();
    for n in facts::LENGTHS {
        let steps = Steps::new(n).unwrap();
        assert!((steps.more() - usual.more()).abs() < 0.002, "n = {n}");
    }
}

/// The ridges of the GPU are those of the data sheet. That of a thread is measured.
#[test]
fn an_h100_computes_a_weight_about_as_fast_as_it_fetches_it_and_faster_with_tensor_cores()
{
    let [single, half] = facts::of_h100();
    assert!(single.ratio() > 1.0 && single.ratio() < 1.5, "nearly even");
    assert!(half.ratio() > 8.0 && half.ratio() < 10.0, "nine times as long");
}

#[test]
fn the_formula_leaves_out_one_tile_of_keys_and_two_numbers_a_row() {
    let exact = tiled_backward(LONG, CAPACITY).unwrap();
    let tiles = LONG * 4 * D / CAPACITY;
    let (_, b_k) = Pass::Backward.chosen().unwrap();
    assert_eq!(LONG.div_ceil(b_k), tiles + 1);
    let left_out = LONG + 4 * LONG * D + 2 * LONG * (tiles + 1);
    assert_eq!(exact - facts::by_formula(LONG, CAPACITY), left_out as f64);
}

// ---------------------------------------------------------------------------------------------------- rounding

#[test]
fn weights_computed_again_are_off_by_the_rounding_of_the_log_sum_exp() {
    for weights in rounding::weights().unwrap() {
        let largest = weights.largest_log_sum_exp();
        let error = weights.again_error();
        assert!(error < 2.0 * UNIT * largest + 16.0 * UNIT, "{largest}: {error}");
    }
}

/// The rounding of its log-sum-exp makes the factor; or nearly all of it.
#[test]
fn all_weights_of_a_row_are_off_by_one_factor() {
    for Weights { scores, log_sum_exp, again, exact } in rounding::weights().unwrap() {
        let exact_log_sum_exp = log_sum_exp_rows(&scores.map(f64::from)).unwrap();
        let predicted = exact_log_sum_exp
            .zip_map(&log_sum_exp, |exact, rounded| (exact - f64::from(rounded)).exp());
        let left = again.map_with_location(|i, j, a| {
            (f64::from(a) / exact[(i, j)] / predicted[i] - 1.0).abs()
        });
        let left = left.max();
        assert!(left < 16.0 * UNIT, "a factor for the row leaves {left}");
    }
}

#[test]
fn softmax_is_exact_at_any_size_of_scores_and_the_log_sum_exp_is_not() {
    let weights = rounding::weights().unwrap();
    let errors: Vec<(f64, f64)> = weights
        .iter()
        .map(|weights| (weights.softmax_error().unwrap(), weights.again_error()))
        .collect();
    assert!(errors.iter().all(|(by_softmax, _)| *by_softmax < 32.0 * UNIT), "{errors:?}");
    assert!(errors[3].1 > 50.0 * errors[3].0, "the log-sum-exp is not worse: {errors:?}");
    assert!(errors[0].1 < 4.0 * errors[0].0, "and it is, of small scores: {errors:?}");
}

static SUMS: LazyLock<[Sums; 3]> = LazyLock::new(|| rounding::sums().unwrap());

#[test]
fn no_two_orders_of_many_tiles_give_the_same_bits() {
    for sums in SUMS.iter().filter(|sums| sums.tiles != 4) {
        let bits =
            |sum: &DMatrix<f32>| sum.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let different: BTreeSet<_> = sums.shuffled.iter().map(bits).collect();
        assert_eq!(different.len(), ORDERS, "{} tiles", sums.tiles);
    }
}

#[test]
fn most_entries_vary_a_little_and_more_so_with_more_tiles() {
    let varied = SUMS.each_ref().map(Varied::of);
    for Varied { share, spread, .. } in &varied {
        assert!(*share > 0.5, "most entries do not vary: {share}");
        assert!(*spread < 5e-6, "{spread}");
    }
    assert!(varied.is_sorted_by(|a, b| a.mean < b.mean), "more tiles, more values");
}

// ---------------------------------------------------------------------------------------------------- traffic

#[test]
fn tiles_move_more_than_each_matrix_once_and_less_than_the_naive_program() {
    for n in lengths() {
        let [naive, tiled] =
            [naive_backward, tiled_backward].map(|program| program(n, CAPACITY).unwrap());
        assert!(Pass::Backward.each_once(n) < tiled && tiled < naive, "n = {n}");
    }
}

#[test]
fn the_backward_pass_runs_as_predicted() {
    let chosen = Program::TiledBackward(Pass::Backward.chosen().unwrap());
    for n in RUN {
        runs_as_predicted(chosen, n, &Mask::none(), CAPACITY);
    }
    let tiles = Program::TiledBackward((32, 64));
    runs_as_predicted(tiles, N, &Mask::causal(), CAPACITY);
}
