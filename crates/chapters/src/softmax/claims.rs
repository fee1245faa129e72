//! What the chapter says of its numbers.

use super::facts;

#[test]
fn the_gradient_is_that_of_the_jacobian() {
    let example = facts::example().unwrap();
    let by_jacobian = &example.jacobian * &example.grad_weights;
    assert!((example.grad_scores - by_jacobian).amax() < 1e-14);
}

#[test]
fn the_first_of_three_scores_gets_about_two_thirds() {
    let weights = facts::example().unwrap().weights;
    assert!((weights[0] - 2.0 / 3.0).abs() < 0.02, "{weights}");
}
