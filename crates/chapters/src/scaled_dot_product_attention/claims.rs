//! Tests of what the chapter says of its numbers.

use super::facts;
use crate::sentences::{BOAT, LEFT, RIVER, projected, unprojected};
use attention::{Mask, example};

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
fn short_queries_are_nearly_diffuse_whatever_they_match() {
    for pattern in facts::patterns().unwrap() {
        let entropy = pattern.entropy_of_short_queries;
        assert!(entropy > 0.98 * facts::largest_entropy(), "{}", pattern.name);
    }
}

#[test]
fn long_queries_show_their_pattern() {
    for pattern in facts::patterns().unwrap() {
        let is_diffuse = pattern.entropy > 0.98 * facts::largest_entropy();
        assert_eq!(is_diffuse, pattern.name == "diffuse", "{}", pattern.name);
    }
}
