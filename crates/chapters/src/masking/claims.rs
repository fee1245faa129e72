//! Tests of what the chapter says of its numbers.

use super::facts::{self, SCORES, everything_hidden, masked_after_softmax};
use crate::sentences::{BANK, BOAT, LEFT, Steps};
use attention::{example, softmax};
use half::f16;
use nalgebra::{DVector, dvector};

#[test]
fn the_first_token_sees_itself_alone() {
    assert_eq!(facts::causal_and_free().unwrap()[0].weights[(0, 0)], 1.0);
}

#[test]
fn the_last_token_sees_everything_with_and_without_a_causal_mask() {
    let [causal, free] = facts::causal_and_free().unwrap();
    let difference = causal.weights.row(BANK) - free.weights.row(BANK);
    assert!(difference.amax() < 1e-14);
}

#[test]
fn a_mask_keeps_the_ratio_of_two_visible_weights() {
    let [causal, free] = facts::causal_and_free().unwrap();
    let ratio = |steps: Steps| steps.weights[(LEFT, BOAT)] / steps.weights[(LEFT, LEFT)];
    assert!((ratio(causal) / ratio(free) - 1.0).abs() < 1e-12);
}

#[test]
fn masked_after_softmax_only_the_last_row_sums_to_one() {
    let sums = masked_after_softmax(&example::river().x).unwrap().column_sum();
    assert!((sums[5] - 1.0).abs() < 1e-12);
    assert!(sums.iter().take(5).all(|&sum| sum < 0.9));
}

#[test]
fn masked_after_softmax_rows_are_right_once_divided_by_their_sums() {
    let mut weights = masked_after_softmax(&example::river().x).unwrap();
    for mut row in weights.row_iter_mut() {
        let sum = row.sum();
        row /= sum;
    }
    let [causal, _] = facts::causal_and_free().unwrap();
    assert!((weights - causal.weights).amax() < 1e-14);
}

#[test]
fn masked_after_softmax_a_hidden_token_leaks() {
    let boat = |x| masked_after_softmax(x).unwrap()[(BOAT, BOAT)];
    let leak = boat(&example::river().x) - boat(&facts::with_a_longer_last_word());
    assert!(leak.abs() > 0.1, "too small to show: {leak}");
}

#[test]
fn while_one_key_is_left_a_finite_mask_hides_the_others_to_the_bit() {
    let masked = DVector::from(SCORES.to_vec()) + dvector![0.0, -1e9, -1e9];
    assert_eq!(softmax(&masked).unwrap().as_slice(), [1.0, 0.0, 0.0]);
    let masked = masked.map(|s| s as f32);
    assert_eq!(softmax(&masked).unwrap().as_slice(), [1.0, 0.0, 0.0]);
}

#[test]
fn with_everything_hidden_a_finite_mask_gives_the_free_row_in_f64_and_even_shares_in_f32()
{
    let (_, free) = everything_hidden(0.0).unwrap();
    let (_, double) = everything_hidden(-1e9_f64).unwrap();
    assert!((double - free).amax() < 1e-7);
    let (_, single) = everything_hidden(-1e9_f32).unwrap();
    assert!(single.iter().all(|&p| p == 1.0 / 3.0));
}

#[test]
fn with_everything_hidden_a_finite_mask_gives_nan_in_f16() {
    let hidden = SCORES.map(|s| f16::from_f64(s) + f16::from_f64(-1e9));
    assert!(hidden.iter().all(|&s| s == f16::NEG_INFINITY), "f16 holds −10⁹");
    let largest = hidden.iter().copied().fold(f16::NEG_INFINITY, f16::max);
    assert!(hidden.iter().all(|&s| (s - largest).is_nan()), "−∞ − (−∞) is a number");
}

#[test]
fn with_everything_hidden_by_infinity_all_weights_are_zero() {
    let (_, weights) = everything_hidden(f64::NEG_INFINITY).unwrap();
    assert!(weights.iter().all(|&p| p == 0.0));
}
