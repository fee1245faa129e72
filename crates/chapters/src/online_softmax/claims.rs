//! Tests of what the chapter says of its numbers.

use super::facts::{self, Changes, TILE, harmonic};
use super::rounding::{self, Errors, Keys, LONGEST, ROWS, Spread, Way};
use anyhow::{Context, Result};
use attention::flash::OnlineSoftmax;
use attention::softmax_rows;
use nalgebra::DMatrix;
use qd::Quad;
use std::sync::LazyLock;

static ERRORS: LazyLock<Vec<(usize, Errors)>> = LazyLock::new(rounding::errors_in_f64);

/// The mean errors of rows of `n` keys.
fn errors(n: usize) -> &'static Errors {
    &ERRORS.iter().find(|(length, _)| *length == n).unwrap().1
}

fn near(a: f64, b: f64, factor: f64) -> bool {
    a < factor * b && b < factor * a
}

/// Rounding errors are measured against numbers that have to be more accurate than an `f64`.
#[test]
fn thirty_digits_are_right() {
    let off = |given: Quad, right: Quad| ((given - right) / right).0.abs();
    // e = 2.718281828459045 + 1.4456468917292502e-16, as its digits are known.
    let e = Quad(std::f64::consts::E, 1.445_646_891_729_250_2e-16);
    assert!(off(Quad::ONE.exp(), e) < 1e-29);
    assert!(off(Quad::LN_2.exp(), Quad::from(2.0)) < 1e-29);
    for x in [-300.3, -20.0, -0.7, -1e-9, 0.3, 55.5].map(Quad::from) {
        assert!(off(x.exp() * (-x).exp(), Quad::ONE) < 1e-28, "{x:?}");
    }
    let third = Quad::ONE / Quad::from(3.0);
    assert!(off(third + third + third, Quad::ONE) < 1e-31);
}

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

// ------------------------------------------------------------------------------------------------ rounding

#[test]
fn one_key_at_a_time_is_as_exact_as_plain_softmax() {
    for (n, e) in &*ERRORS {
        assert!(near(e[&Way::ONE], e[&Way::Plain], 1.4), "n = {n}");
        assert!(e[&Way::Rising] < e[&Way::ONE], "n = {n}: nor worse with rising scores");
    }
}

#[test]
fn tiles_are_far_more_exact_and_trees_stay_level() {
    for (n, e) in &*ERRORS {
        let [one, tiles, tree] = Way::ONLINE.map(|way| e[&way]);
        let plain_tree = e[&Way::PlainTree];
        assert!(tree < 2.5, "n = {n}: the tree is level");
        assert!(plain_tree < 2.5, "n = {n}: so is plain softmax with sums as trees");
        assert!(plain_tree < tree, "n = {n}: and more exact, down to single keys");
        assert!(*n < 512 || 4.0 * tiles < one, "n = {n}: tiles are far more exact");
        assert!(*n < 4096 || 2.0 * tree < tiles, "n = {n}: and the tree more still");
    }
}

#[test]
fn corrections_cost_about_as_much_as_additions_and_rising_scores_gain_more() {
    for (n, e) in &ERRORS[4..] {
        let (rising, without) = (e[&Way::Rising], e[&Way::RisingPlain]);
        assert!(without < rising && rising < e[&Way::Plain], "n = {n}");
        // Independent errors add in squares.
        let price = (rising.powi(2) - without.powi(2)).sqrt();
        assert!(near(price, without, 2.0), "n = {n}: comparable with the additions");
    }
}

#[test]
fn with_64_times_the_keys_the_error_is_8_times_as_large() {
    let growth = |way| errors(LONGEST)[&way] / errors(LONGEST / 64)[&way];
    assert!(near(growth(Way::ONE), 8.0, 1.4));
    assert!(near(growth(Way::Plain), 8.0, 1.4));
}

#[test]
fn errors_in_f32_are_like_those_in_f64() {
    for (n, singles) in rounding::errors_in_f32() {
        for way in Way::ONLINE {
            let (single, double) = (singles[&way], errors(n)[&way]);
            assert!(near(single, double, 1.6), "n = {n}: {way:?}, {single}, {double}");
        }
    }
}

/// Returns the crate's result, `width` keys at a time or as a tree of tiles.
fn of_the_crate(keys: &Keys<f64>, width: usize, is_tree: bool) -> Result<f64> {
    let mut states = vec![OnlineSoftmax::new(1, 1)?];
    for tile in keys.0.chunks(width) {
        let scores = DMatrix::from_fn(1, tile.len(), |_, j| tile[j].0);
        let values = DMatrix::from_fn(tile.len(), 1, |j, _| tile[j].1);
        if is_tree {
            states.push(OnlineSoftmax::new(1, 1)?);
        }
        states.last_mut().context("a state")?.absorb(&scores, &values)?;
    }
    while states.len() > 1 {
        let mut pairs = states.into_iter();
        states = vec![];
        while let Some(left) = pairs.next() {
            states.push(match pairs.next() {
                Some(right) => left.merge(right)?,
                None => left,
            });
        }
    }
    Ok(states.pop().context("a row without keys")?.finish().0[0])
}

/// Its exponentials are the system's.
#[test]
fn the_crate_is_as_exact_as_what_is_measured_here() {
    let n = 1024;
    let here = errors(n);
    for (way, width, is_tree) in
        [(Way::ONE, 1, false), (Way::TILES, TILE, false), (Way::Tree, TILE, true)]
    {
        let error_of = |seed| {
            let keys = Keys::random(n, seed);
            rounding::error(of_the_crate(&keys, width, is_tree).unwrap(), keys.exact())
        };
        let mean = (0..ROWS as u64).map(error_of).sum::<f64>() / ROWS as f64;
        let ratio = mean / here[&way];
        assert!(
            (0.6..1.6).contains(&ratio),
            "{way:?}: {mean} in the crate, {here:?} here"
        );
    }
}

#[test]
fn split_anywhere_a_row_is_twice_as_exact_as_by_plain_softmax() {
    for [plain, one, split] in [rounding::spreads::<f64>(), rounding::spreads::<f32>()] {
        let as_exact =
            |a: &Spread, b: &Spread| (0.7..1.4).contains(&(a.median / b.median));
        assert!(as_exact(&one, &plain), "one at a time is as exact as plain");
        assert!(2.0 * split.median < plain.median, "twice as exact and more");
        assert!(2.0 * split.largest < plain.largest, "and at worst, too");
    }
}

// ------------------------------------------------------------------------------------------------ cost

#[test]
fn random_scores_change_the_maximum_as_often_as_expected() {
    for Changes { n, one_at_a_time, in_tiles } in facts::changes() {
        assert!((one_at_a_time - harmonic(n)).abs() < 0.15, "n = {n}: {one_at_a_time}");
        let expected = harmonic(n / TILE);
        assert!(n < TILE || (in_tiles - expected).abs() < 0.15, "n = {n}, tiles");
    }
}

#[test]
fn the_maximum_of_4096_scores_changes_nine_times() {
    assert_eq!(harmonic(facts::changes().last().unwrap().n).round(), 9.0);
}

#[test]
fn in_tiles_of_64_the_corrections_are_next_to_nothing() {
    let costs = facts::costs();
    let cost = costs.iter().find(|cost| cost.tile == TILE).unwrap();
    assert!(cost.exponentials < 0.02 && cost.share_of_products < 0.01);
}
