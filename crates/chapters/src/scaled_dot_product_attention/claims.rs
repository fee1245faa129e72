//! Tests of what the chapter says of its numbers.

use crate::sentences::{BOAT, LEFT, RIVER, projected, unprojected};
use attention::{Mask, example, inspect::row_entropy};

#[test]
fn without_projections_left_keeps_half_of_its_attention() {
    let weights = unprojected(&example::river().x).unwrap().weights;
    assert!(weights[(LEFT, LEFT)] > 0.5);
}

#[test]
fn without_projections_boat_prefers_river_to_itself() {
    let products = unprojected(&example::river().x).unwrap().products;
    assert!(products[(BOAT, RIVER)] > products[(BOAT, BOAT)]);
}

#[test]
fn with_projections_boat_gives_most_to_itself() {
    let x = example::river().x;
    let weights = projected(&x, &x, &Mask::none()).unwrap().weights;
    assert_eq!(weights.row(BOAT).max(), weights[(BOAT, BOAT)]);
}

#[test]
fn the_row_of_left_has_a_low_entropy_and_that_of_the_nearly_the_largest() {
    let x = example::river().x;
    let weights = projected(&x, &x, &Mask::none()).unwrap().weights;
    let entropy = row_entropy(&weights).unwrap() / 6_f64.ln();
    assert!(entropy[LEFT] < 0.6 && entropy[LEFT] == entropy.min(), "{entropy}");
    assert!(entropy[0] > 0.95, "{entropy}");
}
