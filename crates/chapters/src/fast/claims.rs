//! Tests of what the chapter says of its polynomial and of its predictions.

use super::facts::{ROUNDING, error_of_taylor};
use super::ladder::{LARGE, Ladder, SMALL};
use super::peers::compared;
use crate::records::tests::committed;

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

/// The ladder of the committed records.
fn ladder() -> Ladder {
    let topics = ["ladder", "parts", "roofline"];
    let [steps, parts, roofline] = committed().of_one_machine(topics).unwrap();
    Ladder::of(steps, parts, &roofline).unwrap()
}

/// Which predictions hold, which is too low, and which too high.
#[test]
fn the_predictions_of_steps_5_and_8_hold_and_those_of_4_and_6_do_not() {
    let steps = ladder().steps().unwrap();
    let measured = |i: usize| steps[i - 1].seconds / steps[i - 1].predicted().unwrap();
    assert!(measured(4) > 1.15);
    assert!((0.95..1.0).contains(&measured(5)));
    assert!(measured(6) < 0.9);
    assert!((0.94..1.06).contains(&measured(8)));
}

/// The first of three runs is shorter than predicted, and the other two are as long.
#[test]
fn two_of_three_runs_of_step_7_hit_the_prediction() {
    let ladder = ladder();
    let predicted = ladder.steps().unwrap()[6].predicted().unwrap();
    let [peers, ..] = &committed().of_each_machine("peers").unwrap()[..] else {
        panic!("no machine has peers")
    };
    let runs = ladder.again(Some(peers)).unwrap();
    let run = runs.iter().find(|run| run.name == "registers, forward").unwrap();
    let [first, others @ ..] = run.times.map(|time| time.unwrap() / predicted);
    assert!(first < 0.93);
    assert!(others.iter().all(|ratio| (ratio - 1.0).abs() < 0.02));
}

#[test]
fn products_and_exponentials_of_step_2_have_the_same_price() {
    let ladder = ladder();
    let exponentials = ladder.exponentials("one by one").unwrap();
    let both = ladder.explained(SMALL, "one by one").unwrap();
    assert!(((both - exponentials) / exponentials - 1.0).abs() < 0.02);
}

/// What is left for all else halves with the larger tiles.
#[test]
fn the_larger_tiles_of_step_6_shrink_more_than_their_products() {
    let ladder = ladder();
    let steps = ladder.steps().unwrap();
    let left =
        |i: usize, tile| steps[i - 1].seconds - ladder.explained(tile, "vector").unwrap();
    assert!(left(6, LARGE) < 0.6 * left(5, SMALL));
}

#[test]
fn this_crate_is_faster_than_pytorch_nearly_everywhere() {
    for record in committed().of_each_machine("peers").unwrap() {
        let ratios = compared(&record).unwrap();
        let faster = ratios.iter().filter(|r| r.ratio >= 1.0).count();
        assert!(20 * faster >= 19 * ratios.len());
    }
}

#[test]
fn a_causal_mask_nearly_halves_the_time_of_tiles_and_leaves_the_naive_program_alone() {
    let ladder = ladder();
    for pass in ["forward", "both"] {
        let ratio = |step| {
            ladder.time(&format!("{pass} causal"), step).unwrap()
                / ladder.time(pass, step).unwrap()
        };
        assert!((0.9..1.1).contains(&ratio("naive")));
        for step in ["tiled", "registers", "threads"] {
            assert!((0.45..0.6).contains(&ratio(step)), "{step}");
        }
    }
}
