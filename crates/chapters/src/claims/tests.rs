//! Tests of what the chapter says of its numbers.

use super::counts::{
    MULTIPLY_ADDS, SAID_PROJECTIONS, backward_products, core_and_projections,
    forward_backward_frozen, layer_in_numbers, products,
};
use super::draws::{
    LargestWeight, Reach, SAID_SCORE, SmallGradients, deviation, largest_weights,
    range_as_said, reach, small_gradients,
};
use super::examples::{ROUNDING, SAID_DIVIDED, SAID_OUTPUT, scores, three_queries};
use super::flash::{difference, inputs, lengths_as_said, tiled_and_plain, work};
use super::formats::{FORMATS, SCORES, leaks, plain_softmax, softmax_in};
use super::roofline::{
    LENGTHS, RIDGE_BF16, SAID_RIDGE, compute_bound_length, intensity, kinds, narrow_core,
    tiled_layer, unfused_layer, wide_core,
};
use super::traffic::{
    FUSED_CROSSINGS, NAIVE_CROSSINGS, STEPS, TILES, WIDTHS, growth_with_width, slope,
    tiled, untiled,
};
use super::verdict::{about, to_two_decimals};
use super::{counts, flash, numbers};
use crate::counting::alive;
use crate::sentences::example_b;
use crate::tiles_backward::Kept;
use crate::tiles_traffic::facts::{N, Program};
use crate::why_sqrt_d_k::{FAINT, rows, share};
use attention::{AttentionShape, Mask, attention};
use figures::format::fixed;
use half::bf16;
use laboratory::hardware::A100;
use nalgebra::DMatrix;
use record::statistics::quantile;
use std::f64::consts::TAU;
use std::sync::LazyLock;

/// Returns the interval of divisors c that give the claimed ratio p_i / p_3 = e^((x_i − x_3) / c) to two decimals.
fn divisors(i: usize) -> (f64, f64) {
    let x = scores();
    let divisor = |p: f64, p_3: f64| (x[2] - x[i]) / (p_3 / p).ln();
    let (p, p_3) = (SAID_DIVIDED[i], SAID_DIVIDED[2]);
    (divisor(p - 0.005, p_3 + 0.005), divisor(p + 0.005, p_3 - 0.005))
}

#[test]
fn eight_fits_the_first_claimed_ratio_and_no_divisor_fits_all() {
    assert!(SAID_DIVIDED.iter().sum::<f64>() < 0.9);
    let [first, second, fourth] = [0, 1, 3].map(divisors);
    assert!(first.0 < 8.0 && 8.0 < first.1);
    assert!(first.1 < second.0 && first.1 < fourth.0);
}

#[test]
fn which_of_three_keys_tie_and_which_lead_is_claimed_rightly() {
    let facts = three_queries().unwrap();
    for (right, said) in facts.weights.row_iter().zip(facts.said_weights.row_iter()) {
        let order =
            |a: f64, b: f64| if (a - b).abs() < 1e-9 { 0.0 } else { (a - b).signum() };
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            assert_eq!(order(right[i], right[j]), order(said[i], said[j]), "{i}, {j}");
        }
    }
}

#[test]
fn the_claimed_output_follows_from_the_claimed_weights_which_are_wrong() {
    let facts = three_queries().unwrap();
    let [_, _, v] = example_b();
    let follows = facts.said_weights.row(0) * v;
    assert!(to_two_decimals(&follows, &SAID_OUTPUT));
    assert_eq!(facts.right_rows(), [false; 3]);
    assert!((facts.output[(0, 0)] - 1.0).abs() < 1e-14);
}

#[test]
fn rounding_does_not_explain_the_sums_of_the_claimed_weights() {
    let facts = three_queries().unwrap();
    assert!(facts.off > ROUNDING);
    assert_eq!(facts.said_weights.row(2).sum(), facts.said_weights.row(0).sum());
}

#[test]
fn products_are_to_projections_as_n_to_twice_d_model() {
    for d_model in [2, 64, 512, 2048] {
        let flops = core_and_projections(d_model).unwrap();
        let ratio = products(&flops) / flops.projections as f64;
        assert_eq!(ratio, 4096.0 / (2.0 * d_model as f64));
    }
}

#[test]
fn the_claimed_flops_of_the_projections_are_those_of_a_model_of_width_two() {
    let narrowest = core_and_projections(2).unwrap();
    assert!(about(narrowest.projections as f64, SAID_PROJECTIONS));
}

#[test]
fn the_claimed_flops_of_a_layer_are_multiply_adds_of_one_product() {
    assert!(about(MULTIPLY_ADDS, 34e9));
}

#[test]
fn eight_heads_have_as_many_flops_and_eight_times_the_weights() {
    let [one, eight] = [1, 8].map(layer_in_numbers);
    let [flops, eight_flops] = [one, eight].map(|layer| layer.flops().unwrap());
    assert_eq!(eight_flops.projections, flops.projections);
    assert_eq!(eight_flops.scores, flops.scores);
    let [bytes, eight_bytes] = [one, eight].map(|layer| layer.bytes(4).unwrap());
    assert_eq!(eight_bytes.weights, 8 * bytes.weights);
}

#[test]
fn sixty_one_and_sixty_three_are_intensities_and_156_a_ridge() {
    assert_eq!(fixed(kinds().unwrap()[0].intensities[0], 0), "61");
    assert_eq!(fixed(intensity(4, 2, 1).unwrap(), 0), "63");
    assert_eq!(SAID_RIDGE, 156.0);
    // In the quick questions: the rates of bf16 against f32.
    assert_eq!(A100.bf16 / A100.f32, 16.0);
}

/// With each matrix moved once, the tensor cores wait and the plain units don't. With every pass all wait, and in tiles none.
#[test]
fn who_waits_for_memory_depends_on_the_rate_and_on_the_passes() {
    let waits: Vec<_> =
        kinds().unwrap().iter().map(|kind| kind.waits_for_memory()).collect();
    assert_eq!(waits, [[false, true, false], [true, true, false], [true, true, false]]);
}

#[test]
fn the_intensity_of_the_core_rises_through_the_ridge_and_flattens() {
    let core = LENGTHS.map(|n| wide_core(n).unwrap());
    assert!(core.windows(2).all(|pair| pair[0] < pair[1]));
    let core = |n| wide_core(n).unwrap();
    assert!(core(512) < RIDGE_BF16 && core(1024) > RIDGE_BF16);
    assert!(core(65_536) / core(32_768) < 1.01);
}

/// A tiled core tends to as many FLOP/byte as a tile has queries: 128 are too few.
#[test]
fn a_layer_in_wide_tiles_stays_above_the_ridge() {
    let layer = |n, queries| tiled_layer(n, queries).unwrap();
    let above =
        LENGTHS.map(|n| layer(n, 256)).into_iter().skip_while(|x| *x < RIDGE_BF16);
    assert!(above.clone().count() > 5 && above.clone().all(|x| x > RIDGE_BF16));
    assert!(layer(1024, 128) > RIDGE_BF16 && layer(65_536, 128) < RIDGE_BF16);
}

#[test]
fn an_unfused_layer_crosses_the_ridge_twice() {
    assert!(compute_bound_length().unwrap() > 16);
    assert!(unfused_layer(65_536).unwrap() < RIDGE_BF16);
}

#[test]
fn the_core_in_f32_has_its_limit() {
    let limit = 64.0 + 5.0 / 4.0; // d + 5/4
    let longest = narrow_core(65_536).unwrap();
    assert!(longest < limit && limit - longest < 1.0);
}

static REACH: LazyLock<Reach> = LazyLock::new(|| reach().unwrap());

#[test]
fn unscaled_weights_fall_dozens_of_powers_of_ten_and_scaled_ones_two_or_three() {
    let facts = &*REACH;
    assert!(facts.scores.iter().chain(&facts.weights).all(|x| x.is_finite()));
    assert!(quantile(&facts.weights, 0.05) > 24.0);
    assert!(quantile(&facts.scaled_weights, 0.05) > 1.5);
    assert!(quantile(&facts.scaled_weights, 0.95) < 3.5);
}

#[test]
fn no_draw_reaches_as_far_as_is_said() {
    let most = |x| quantile(x, 1.0);
    assert!(most(&REACH.weights) < 78.0 && most(&REACH.scores) < 180.0);
    assert!(most(&REACH.scaled_scores) < 8.0 && most(&REACH.scaled_weights) < 4.0);
}

/// The probability that a normal number exceeds x, for large x: the first terms of the asymptotic series.
fn normal_tail(x: f64) -> f64 {
    let y = 1.0 / (x * x);
    (-x * x / 2.0).exp() / (TAU.sqrt() * x) * (1.0 - y + 3.0 * y * y - 15.0 * y * y * y)
}

/// The probability that the dot product of two vectors of `d` independent standard normal entries exceeds x, by the
/// formula of Lugannani and Rice (1980). One product's cumulant generating function is −ln(1 − t²) / 2.
fn product_tail(x: f64, d: f64) -> f64 {
    let t = ((d * d + 4.0 * x * x).sqrt() - d) / (2.0 * x); // where K'(t) = d t / (1 − t²) = x
    let free = 1.0 - t * t;
    let w = (2.0 * (t * x + d / 2.0 * free.ln())).sqrt();
    let u = t * (d * (1.0 + t * t)).sqrt() / free;
    normal_tail(w) + (-w * w / 2.0).exp() / TAU.sqrt() * (1.0 / u - 1.0 / w)
}

#[test]
fn a_score_reaches_so_far_less_often_than_the_page_says_but_more_often_than_normal() {
    let beyond = 2.0 * product_tail(SAID_SCORE, 512.0);
    let normal = 2.0 * normal_tail(SAID_SCORE / deviation());
    assert!(beyond < 1e-14 && beyond > normal, "{beyond:e}");
}

static LARGEST: LazyLock<Vec<LargestWeight>> =
    LazyLock::new(|| largest_weights().unwrap());

#[test]
fn the_largest_weight_is_as_said_from_some_number_of_keys_to_another() {
    let (from, to) = range_as_said(&LARGEST).unwrap();
    for at in &*LARGEST {
        assert_eq!(at.is_as_said(), (from.n..=to.n).contains(&at.n), "{}", at.n);
    }
    // The number before the first one was tried.
    assert!(from.n > 2 && LARGEST.iter().any(|at| at.n == from.n - 1));
}

/// The weights of a row that sees nothing, in each format.
fn hidden_rows(mask: f64) -> [Vec<f64>; 4] {
    FORMATS.map(|(_, round)| softmax_in(round, &SCORES, &[mask; 3]))
}

#[test]
fn a_finite_mask_leaves_a_hidden_row_unmasked_in_f64_and_uniform_in_f32_and_bf16() {
    let rows = hidden_rows(-1e9);
    let close =
        |row: &[f64], to: &[f64]| row.iter().zip(to).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close(&rows[0], &hidden_rows(0.0)[0]));
    assert!(close(&rows[1], &[1.0 / 3.0; 3]));
    assert!(rows[2].iter().all(|p| *p == bf16::from_f64(1.0 / 3.0).to_f64()));
}

#[test]
fn a_finite_number_in_the_place_of_scores_makes_the_row_uniform_but_in_f16() {
    for (name, round) in FORMATS {
        let replaced = plain_softmax(round, &[round(-1e9); 3]);
        let uniform = replaced.iter().all(|p| *p == round(1.0 / 3.0));
        assert_eq!(uniform, name != "f16", "{name}: {replaced:?}");
    }
}

#[test]
fn infinity_leaks_nothing_and_ten_leaks_in_every_format() {
    assert_eq!(leaks(f64::NEG_INFINITY), [0.0; 4]);
    assert!(leaks(-10.0).iter().all(|weight| *weight > 0.0));
}

#[test]
fn the_crossings_of_the_steps_are_those_that_are_counted_on() {
    assert_eq!(STEPS.iter().map(|step| step.1.len()).sum::<usize>(), NAIVE_CROSSINGS);
    assert_eq!(STEPS.iter().map(|step| step.2.len()).sum::<usize>(), FUSED_CROSSINGS);
    // The same from the machine that counts, where a row fits fast memory.
    for (program, crossings) in
        [(Program::Naive, NAIVE_CROSSINGS), (Program::Fused, FUSED_CROSSINGS)]
    {
        let (_, memory) = program.run(N, &Mask::none(), 1 << 15).unwrap();
        let all = (crossings * N * N) as u128;
        assert_eq!(memory.report().matrix("scores").all(), all);
    }
}

#[test]
fn the_forward_pass_in_tiles_is_nearly_free_and_wide_tiles_save_work() {
    assert!(work().iter().all(|(_, extra)| extra.abs() < 0.02));
    assert!(work()[3].1 < 0.0);
}

#[test]
fn the_memory_saved_grows_with_n_and_is_as_said_at_two_lengths() {
    assert!(flash::LENGTHS.is_sorted_by_key(|n| Kept::new(*n).ratio()));
    assert_eq!(lengths_as_said(), [512, 1024]);
}

#[test]
fn each_gradient_costs_as_much_as_its_product() {
    let products = backward_products();
    for product in &products {
        assert_eq!(product.for_left, product.forward, "{}", product.name);
        assert_eq!(product.for_right, product.forward, "{}", product.name);
    }
    let [forward, backward, frozen] = forward_backward_frozen(&products);
    assert_eq!(backward, 2 * forward);
    assert!(frozen > forward && frozen < backward);
    // The products are those of the crate's count.
    let flops = AttentionShape::self_attention(1, 1024, 512, 512, 1).flops().unwrap();
    assert_eq!(flops.total() - flops.softmax, forward as u128);
}

static SMALL: LazyLock<[SmallGradients; 6]> = LazyLock::new(small_gradients);

#[test]
fn no_scaled_row_has_a_faint_gradient_nor_is_an_unscaled_median_near_it() {
    for of in &*SMALL {
        let scaled = &rows(of.n, of.d).scaled;
        let faint = share(scaled, |row| row.grad_query < FAINT);
        assert!(faint == 0.0, "n = {}, d = {}", of.n, of.d);
        assert!(of.median > 100.0 * FAINT, "n = {}, d = {}", of.n, of.d);
    }
}

#[test]
fn faint_rows_are_most_frequent_for_few_keys_and_wide_queries() {
    let most = SMALL.iter().map(|of| of.rows).fold(0.0, f64::max);
    let wide = SMALL.iter().find(|of| (of.n, of.d) == (8, 512)).unwrap();
    assert_eq!(wide.rows, most);
}

#[test]
fn most_scores_have_a_faint_gradient_but_for_few_keys_and_narrow_queries() {
    for of in &*SMALL {
        assert_eq!(
            of.scores > 0.5,
            (of.n, of.d) != (8, 64),
            "n = {}, d = {}",
            of.n,
            of.d
        );
    }
}

/// A wider head leaves room for fewer queries, and each block of queries reads wider keys and values.
#[test]
fn traffic_grows_with_the_square_of_the_width_as_well() {
    for (growth, d) in growth_with_width().unwrap().iter().zip(WIDTHS).skip(1) {
        assert!((3.6..4.2).contains(growth), "{d}: {growth}");
    }
}

#[test]
fn traffic_grows_with_the_square_of_n_with_tiles_and_without() {
    assert!((slope(|n| untiled(n, NAIVE_CROSSINGS)) - 2.0).abs() < 0.01);
    for queries in TILES {
        assert!(tiled(32_768, queries) / tiled(16_384, queries) > 3.8, "{queries}");
    }
}

#[test]
fn traffic_is_linear_if_all_queries_are_one_tile() {
    assert_eq!(tiled(32_768, 32_768) / tiled(16_384, 16_384), 2.0);
}

/// A power of ten with room above what was measured, since another system's `exp` rounds otherwise.
fn is_just_below(error: f64, bound: f64) -> bool {
    error < bound / 1.5 && error > bound / 100.0
}

#[test]
fn tiled_and_plain_attention_differ_by_rounding_in_f64() {
    assert!(is_just_below(difference().unwrap(), 1e-14));
    let [tiled, plain] = tiled_and_plain(&inputs()).unwrap();
    assert!(tiled.iter().zip(&plain).any(|(a, b)| a != b));
}

/// Both in `f32`, against `f64` on the same rounded inputs.
#[test]
fn in_f32_tiled_attention_is_about_as_exact_as_plain_attention() {
    let rounded = inputs().map(|x| x.map(|x| x as f32));
    let [q, k, v] = rounded.each_ref().map(|x| x.map(f64::from));
    let (exact, _) = attention(&q, &k, &v, Mask::none()).unwrap();
    let [tiled, plain] = tiled_and_plain(&rounded).unwrap();
    let error = |output: DMatrix<f32>| (output.map(f64::from) - &exact).amax();
    let (tiled, plain) = (error(tiled), error(plain));
    assert!(is_just_below(tiled, 1e-6) && is_just_below(plain, 1e-6));
    assert!(tiled < 2.0 * plain, "{tiled:e} against {plain:e}");
}

#[test]
fn products_do_not_notice_the_number_of_heads_and_weights_do() {
    let [one, many] =
        [1, 16].map(|heads| counts::layer_with_heads(heads).flops().unwrap());
    assert_eq!(one.projections, many.projections);
    assert_eq!(one.scores + one.values, many.scores + many.values);
    assert_eq!(16 * one.softmax, many.softmax);
}

#[test]
fn the_backward_pass_doubles_the_peak_of_long_sequences() {
    let [forward, both] = alive(16_384);
    assert!((1.99..2.0).contains(&(both as f64 / forward as f64)));
}

#[test]
fn three_measurements_are_no_power_but_a_constant_and_a_square() {
    let [first, second] = numbers::exponents();
    assert!((1.2..1.3).contains(&first) && (1.9..1.95).contains(&second));
    let [first, second] = numbers::bytes_per_square();
    assert!((first / second - 1.0).abs() < 0.005, "{first}, {second}");
    assert!((16.0..20.0).contains(&first), "four or five matrices of four bytes");
    assert!(numbers::constant_megabytes() > 10.0);
}

#[test]
fn the_longest_of_three_measurements_is_half_a_teraflop_per_second() {
    assert!((numbers::speed() / 0.5e12 - 1.0).abs() < 0.05);
}

#[test]
fn a_spread_of_ten_is_not_one_hot_and_a_gap_of_ten_is_for_a_thousand_keys() {
    assert!(numbers::largest_of_even_scores().unwrap() < 0.8);
    assert!(numbers::largest_with_gap(1000, 10.0) > 0.95);
    assert!(numbers::largest_with_gap(100_000, 10.0) < 0.2);
}
