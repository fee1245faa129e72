//! Tests of what the page says of its numbers.

use super::facts::{self, SmallGradients};
use crate::figures::format::fixed;
use crate::random::normal;
use crate::records::tests::committed;
use crate::tiles_traffic::facts::{N, Program};
use attention::{Mask, attention};
use laboratory::hardware::A100;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use std::sync::LazyLock;

static SMALL: LazyLock<[SmallGradients; 6]> = LazyLock::new(facts::small_gradients);

#[test]
fn no_scaled_row_has_a_faint_gradient() {
    for of in &*SMALL {
        assert!(of.scaled_rows == 0.0, "n = {}, d = {}", of.n, of.d);
    }
}

/// With a mask on both sides tiles gain nearly what the chart says, and without one about half of it.
#[test]
fn tiles_gain_as_much_as_the_page_says() {
    let times = facts::times(&committed()).unwrap();
    let [none, causal] = [0, 1].map(|i| times.naive[i] / times.tiled[i]);
    let chart = times.naive[0] / times.tiled[1];
    assert!((0.85..1.0).contains(&(causal / chart)), "{causal} of {chart}");
    assert!((0.45..0.6).contains(&(none / chart)), "{none} of {chart}");
}

#[test]
fn faint_rows_are_most_frequent_for_few_keys_and_wide_queries() {
    let most = SMALL.iter().map(|of| of.rows).fold(0.0, f64::max);
    let wide = SMALL.iter().find(|of| (of.n, of.d) == (8, 512)).unwrap();
    assert_eq!(wide.rows, most);
}

#[test]
fn weights_are_larger_for_wider_vectors() {
    for pair in SMALL.chunks(2) {
        assert!(pair[0].largest < pair[1].largest, "n = {}", pair[0].n);
    }
}

#[test]
fn most_scores_have_a_faint_gradient_but_for_few_keys_and_narrow_queries() {
    for of in &*SMALL {
        let most = (of.n, of.d) != (8, 64);
        assert_eq!(of.scores > 0.5, most, "n = {}, d = {}", of.n, of.d);
    }
}

/// The machine that counts agrees, where a row fits fast memory.
#[test]
fn the_matrix_crosses_slow_memory_eight_times() {
    let (_, memory) = Program::Naive.run(N, &Mask::none(), 1 << 15).unwrap();
    let all = (facts::NAIVE_CROSSINGS * N * N) as u128;
    assert_eq!(memory.report().matrix("scores").all(), all);
}

#[test]
fn a_causal_mask_leaves_half_the_tiles_and_those_on_the_diagonal() {
    let blocks = (facts::FASTER_N / facts::FASTER_TILE) as f64;
    assert_eq!(facts::causal_share().unwrap(), (1.0 + 1.0 / blocks) / 2.0);
}

#[test]
fn without_and_with_a_causal_mask_only_the_last_row_agrees() {
    let rng = &mut ChaCha8Rng::seed_from_u64(15);
    let [q, k, v] = [(); 3].map(|()| normal(N, 64, rng));
    let [(all, _), (causal, _)] =
        [Mask::none(), Mask::causal()].map(|mask| attention(&q, &k, &v, mask).unwrap());
    let differs = |i: usize| (all.row(i) - causal.row(i)).amax() > 1e-6;
    assert!(!differs(N - 1) && (0..N - 1).all(differs));
}

#[test]
fn sixty_one_is_an_intensity_and_156_a_ridge() {
    assert_eq!(fixed(facts::kinds().unwrap()[0].intensities[0], 0), "61");
    assert_eq!(facts::SAID_RIDGE, 156.0);
    // In the quick questions: the rates of bf16 against f32.
    assert_eq!(A100.bf16 / A100.f32, 16.0);
}

/// With each matrix moved once, the tensor cores wait and the plain units don't. With every sweep all wait, and in tiles none.
#[test]
fn who_waits_for_memory_depends_on_the_rate_and_on_the_sweeps() {
    let kinds = facts::kinds().unwrap();
    let waits: Vec<_> = kinds.iter().map(|kind| kind.waits_for_memory()).collect();
    assert_eq!(waits, [[false, true, false], [true, true, false], [true, true, false]]);
}

#[test]
fn three_measurements_are_no_power_but_a_constant_and_a_square() {
    let [first, second] = facts::exponents();
    assert!((1.2..1.3).contains(&first) && (1.9..1.95).contains(&second));
    let [first, second] = facts::bytes_per_square();
    assert!((first / second - 1.0).abs() < 0.005, "{first}, {second}");
    assert!((16.0..20.0).contains(&first), "four or five matrices of four bytes");
    assert!(facts::constant_megabytes() > 10.0);
}

#[test]
fn the_longest_of_three_measurements_is_half_a_teraflop_per_second() {
    assert!((facts::speed() / 0.5e12 - 1.0).abs() < 0.05);
}

#[test]
fn only_two_causal_layers_tell_the_order_of_what_came_before() {
    let none = facts::moved_by_a_swap(&Mask::none()).unwrap();
    let causal = facts::moved_by_a_swap(&Mask::causal()).unwrap();
    assert!(none[0] < 1e-12 && none[1] < 1e-12 && causal[0] < 1e-12);
    assert!(causal[1] > 0.01, "{causal:?}");
}

#[test]
fn scores_of_equal_rows_fall_unsteadily_and_those_of_random_rows_do_not() {
    let falls = facts::falls().unwrap();
    assert!(falls.is_sorted_by(|a, b| a.equal > b.equal), "{falls:?}");
    assert!((100..412).contains(&facts::rises().unwrap()));
    assert!(falls.iter().all(|fall| (fall.random - 1.0).abs() < 0.03), "{falls:?}");
}

#[test]
fn eight_tokens_of_width_512_have_scores_of_about_53_and_never_of_180() {
    let [narrow, said, wide] = facts::reaches();
    assert!((52.0..55.0).contains(&said.mean), "{}", said.mean);
    assert!(said.most < 0.75 * facts::SAID_SCORE, "{}", said.most);
    for of in [narrow, said, wide] {
        assert!((2.3..2.5).contains(&of.scaled()), "{}: {}", of.d, of.scaled());
    }
}
