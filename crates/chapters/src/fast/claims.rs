//! Tests of what the chapter says of its polynomial.

use super::facts::{ROUNDING, error_of_taylor};

#[test]
fn the_polynomial_needs_eight_terms_for_f32() {
    let [single, _] = ROUNDING;
    assert!(error_of_taylor(8) < single && error_of_taylor(7) > single);
}

#[test]
fn fourteen_terms_are_enough_for_f64_and_twelve_are_not() {
    let [_, double] = ROUNDING;
    assert!(error_of_taylor(14) < double && error_of_taylor(12) > double);
}
