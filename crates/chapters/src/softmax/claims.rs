//! Tests of what the chapter says of its numbers.

use super::facts;

#[test]
fn the_gradient_is_that_of_the_jacobian() {
    let example = facts::example().unwrap();
    let by_jacobian = &example.jacobian * &example.grad_weights;
    assert!((example.grad_scores - by_jacobian).amax() < 1e-14);
}

#[test]
fn the_first_of_three_scores_gets_about_seven_tenths() {
    let weights = facts::example().unwrap().weights;
    assert!((weights[0] - 0.7).abs() < 0.02, "{weights}");
}

#[test]
fn the_first_score_is_pushed_down_and_the_others_up() {
    let gradient = facts::example().unwrap().grad_scores;
    assert!(gradient[0] > 0.0 && gradient[1] < 0.0 && gradient[2] < 0.0, "{gradient}");
}

/// With ln(1 + eˣ) in the place of eˣ.
#[test]
fn with_another_function_that_grows_large_scores_get_nearly_equal_weights() {
    let weights = |shift: f64| {
        let f = facts::scores().map(|x| (x + shift).exp().ln_1p());
        let sum = f.sum();
        f / sum
    };
    assert!(weights(0.0)[0] > 6.0 * weights(0.0)[2], "{}", weights(0.0));
    assert!(weights(100.0).max() - weights(100.0).min() < 0.02, "{}", weights(100.0));
}
