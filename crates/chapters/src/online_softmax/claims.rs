//! Tests of what the chapter says of its numbers.

use super::facts::{self, CHANGES_N, TILE, harmonic};
use attention::softmax_rows;
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// The answer to the first question says so.
#[test]
fn an_exponential_overflows_just_above_the_largest_exponent() {
    let largest = facts::largest_exponent_f64();
    assert!(largest.exp().is_finite(), "not yet");
    assert!((largest + 1.0).exp().is_infinite(), "and now");
}

#[test]
fn a_row_is_swept_four_times_twice_or_once() {
    let (scores, values) = facts::long_row();
    let expected =
        (softmax_rows(&scores).unwrap() * DMatrix::from_vec(values.len(), 1, values))[0];
    let sweeps = facts::sweeps().unwrap();
    for (average, _) in &sweeps {
        assert!((average - expected).abs() < 1e-14, "{average}, not {expected}");
    }
    let n = facts::LONG as u128;
    let counts = sweeps.map(|(_, counts)| (counts.read, counts.written));
    assert_eq!(counts, [(4 * n, n), (2 * n, 0), (n, 0)]);
}

#[test]
fn by_hand_the_first_and_the_third_key_change_the_maximum() {
    let (steps, _) = facts::by_hand().unwrap();
    let changes: Vec<_> =
        steps.iter().map(|step| step.after.max != step.before.max).collect();
    assert_eq!(changes, [true, false, true, false]);
}

#[test]
fn by_hand_comes_what_attention_says() {
    let (steps, output) = facts::by_hand().unwrap();
    let row = steps.last().unwrap().after;
    assert!((row.output() - output).abs() < 1e-14, "not the output");
    let sum: f64 = steps.iter().map(|step| step.score.exp()).sum();
    assert!((row.log_sum_exp() - sum.ln()).abs() < 1e-14, "not log-sum-exp");
}

#[test]
fn log_sum_exp_grows_with_every_key_and_most_in_the_beginning() {
    let states = facts::staircase().states;
    let log_sum_exp: Vec<f64> = states.iter().map(|row| row.log_sum_exp()).collect();
    assert!(log_sum_exp.is_sorted_by(|before, after| before < after));
    let gain = |from: usize, to: usize| log_sum_exp[to] - log_sum_exp[from];
    let n = states.len();
    assert!(gain(0, n / 4) > gain(n / 4, n - 1), "most of all in the beginning");
}

#[test]
fn the_staircase_has_a_few_steps_and_goes_on_after_the_last() {
    let staircase = facts::staircase();
    let steps = staircase.steps();
    assert!((4..=7).contains(&steps.len()), "{steps:?}: another seed");
    assert!(
        steps[steps.len() - 1] < staircase.scores.len(),
        "the last one is at the end"
    );
}

// ------------------------------------------------------------------------------------------------ cost

#[test]
fn random_scores_change_the_maximum_as_often_as_expected() {
    const ROWS: usize = 1000;
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let mut changes = 0;
    for _ in 0..ROWS {
        let mut max = f64::NEG_INFINITY;
        for score in facts::normal(CHANGES_N, rng) {
            changes += usize::from(score > max);
            max = max.max(score);
        }
    }
    let mean = changes as f64 / ROWS as f64;
    assert!((mean - harmonic(CHANGES_N)).abs() < 0.3, "{mean}");
}

#[test]
fn the_maximum_of_4096_scores_changes_nine_times() {
    assert_eq!(harmonic(CHANGES_N).round(), 9.0);
}

#[test]
fn in_tiles_of_64_the_corrections_are_next_to_nothing() {
    let costs = facts::costs();
    let cost = costs.iter().find(|cost| cost.tile == TILE).unwrap();
    assert!(cost.exponentials < 0.02 && cost.share < 0.01);
}

#[test]
fn one_key_at_a_time_doubles_the_exponentials_and_adds_a_quarter() {
    let cost = &facts::costs()[0];
    assert_eq!((cost.tile, cost.exponentials), (1, 1.0));
    assert!((0.24..0.26).contains(&cost.share), "{}", cost.share);
}
