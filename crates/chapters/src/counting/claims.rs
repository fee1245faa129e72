//! Tests of what the chapter says of its counts.

use super::facts::{
    D, backward_flops_limit, backward_flops_ratio, intensity, intensity_limit, layer,
};
use super::roofline::{Ceilings, Parts, steps};
use crate::records::tests::committed;

#[test]
fn core_and_projections_are_even_at_the_crossover() {
    assert_eq!(layer(1).crossover(), 4096, "the table's crossover");
    let even = layer(4096).flops().unwrap();
    assert_eq!(even.projections, even.scores + even.values);
}

#[test]
fn at_the_shortest_length_the_core_is_under_a_twentieth() {
    let shortest = layer(128).flops().unwrap();
    assert!(20 * shortest.core() < shortest.total());
}

#[test]
fn backward_has_twice_the_operations_and_hardly_less() {
    for n in [128, 8192] {
        let ratio = backward_flops_ratio(n).unwrap();
        assert!((1.95..2.0).contains(&ratio), "n = {n}: {ratio}");
    }
}

#[test]
fn backward_has_a_smaller_factor_the_longer_the_sequence_and_stays_above_a_limit() {
    let ratios = [128, 8192, 16_384, 1 << 40].map(|n| backward_flops_ratio(n).unwrap());
    assert!(ratios.is_sorted_by(|before, after| before > after), "{ratios:?}");
    let limit = backward_flops_limit();
    assert!(ratios[3] > limit && ratios[3] - limit < 1e-6);
}

#[test]
fn the_intensity_grows_with_n() {
    let intensities = [64, 256, 1024, 4096, 16_384].map(|n| intensity(n, D).unwrap());
    assert!(intensities[0] > 0.0);
    assert!(intensities.is_sorted_by(|before, after| before < after), "{intensities:?}");
}

#[test]
fn the_limit_of_the_intensity_is_d_plus_five_quarters() {
    assert!((intensity(1 << 40, D).unwrap() - intensity_limit(D)).abs() < 1e-6);
}

#[test]
fn the_parts_of_attention_add_up_and_bytes_explain_less_than_half_of_softmax() {
    let [times, roof, pages] =
        committed().of_one_machine(["complexity", "roofline", "pages"]).unwrap();
    let ceilings = Ceilings::of(&roof).unwrap();
    let long = steps(&roof, &times, 4096).unwrap();
    let parts = Parts::of(&roof, &pages, &ceilings, &long).unwrap();
    assert!((parts.sum() / parts.whole - 1.0).abs() < 0.05, "{}", parts.sum());
    let softmax = parts.softmax / parts.whole;
    assert!((0.18..0.23).contains(&softmax), "a fifth: {softmax}");
    let moved = parts.softmax_moves / parts.softmax;
    assert!(moved < 0.5, "less than half is for bytes: {moved}");
    let fresh = parts.new_memory / parts.at_peak;
    assert!((0.9..1.0).contains(&fresh), "almost as much as the products: {fresh}");
}
