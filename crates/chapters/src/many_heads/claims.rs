//! What the chapter says of its numbers.

use super::facts::{self, Cut, N};
use crate::sentences::{BANK, BOAT, CLERK, LEFT};
use attention::Mask;
use nalgebra::DMatrix;

#[test]
fn bank_chooses_in_the_first_head_and_left_in_the_second() {
    let [first, second] = facts::two_heads(&Mask::none()).unwrap();
    let mean = (&first + &second) / 2.0;
    let largest = |weights: &DMatrix<f64>, row| weights.row(row).max();
    let others = [0, LEFT, 3]; // "the", "left", "the"
    assert!(others.iter().all(|&j| first[(BANK, j)] < 0.005), "asks for a substance");
    assert!((largest(&second, BANK) - 1.0 / 6.0).abs() < 1e-12, "asks nothing");
    assert!(second[(LEFT, BOAT)] > 0.8 && largest(&first, LEFT) < 0.3);
    assert!(largest(&mean, LEFT) < 0.55);
}

#[test]
fn heads_change_no_cost_of_products_and_projections() {
    let cuts = facts::cuts().unwrap();
    let flops = |Cut { flops, .. }: &Cut| flops.scores + flops.values + flops.projections;
    assert!(cuts.iter().all(|cut| flops(cut) == flops(&cuts[0])));
}

#[test]
fn the_scores_of_a_head_have_the_rank_of_its_width() {
    for cut in facts::cuts().unwrap() {
        assert_eq!(cut.ranks, vec![cut.width.min(N); cut.heads]);
    }
}

#[test]
fn river_and_bank_give_most_to_clerk_and_then_to_bank() {
    let weights = facts::across_sentences().unwrap();
    for row in [1, 2] {
        assert_eq!(weights.row(row).max(), weights[(row, CLERK)]);
        let mut others = (0..6).filter(|&j| j != CLERK);
        assert!(others.all(|j| weights[(row, j)] <= weights[(row, BANK)]));
    }
}

#[test]
fn dropout_keeps_the_mean_sum_and_spreads_it_as_predicted() {
    for sums in facts::dropouts().unwrap() {
        let ratio = sums.standard_deviation / sums.predicted;
        assert!((ratio - 1.0).abs() < 0.05, "p = {}, n = {}: {ratio}", sums.p, sums.n);
        assert!((sums.mean - 1.0).abs() < 0.02, "{}", sums.mean);
    }
}
