//! Tests of what the chapter says of its numbers.

use super::facts;
use crate::fewer_pairs::facts::{DISTANCES, SYMBOLS, Text, Way, found_at};
use laboratory::fewer_pairs::Method;

fn found(method: Method) -> [f64; 3] {
    DISTANCES.map(|distance| found_at(Way::By(method), distance).unwrap())
}

fn error(text: &Text, method: Method) -> f64 {
    text.error(&text.attend(method).unwrap()).unwrap()
}

#[test]
fn features_find_little() {
    let guessed = 1.0 / SYMBOLS as f64;
    assert!(found(Method::Linear).iter().all(|&share| share < guessed + 0.05));
    assert!(found(Method::RandomFeatures).iter().all(|&share| share < 0.3));
}

#[test]
fn the_delta_rule_finds_as_many_tokens_as_a_head_is_wide_and_then_forgets() {
    let back = |distance| found_at(Way::DeltaRule, distance).unwrap();
    assert!(back(10) > 0.95 && back(100) < 0.25 && back(1000) < 0.1);
    let at = |n| facts::found_anywhere(Way::DeltaRule, n).unwrap();
    assert!(at(32) > 0.95 && at(64) > 0.9 && at(128) < 0.75);
    let random = Way::By(Method::RandomFeatures);
    assert!(at(512) < facts::found_anywhere(random, 512).unwrap());
}

#[test]
fn linear_attention_does_hardly_better_than_the_mean() {
    for text in [Text::spread(), Text::near()] {
        let mean = text.error(&text.means().unwrap()).unwrap();
        let linear = error(&text, Method::Linear);
        assert!((0.85..1.05).contains(&(linear / mean)), "{linear} {mean}");
    }
}

#[test]
fn a_state_finds_less_in_a_longer_text() {
    let at = |method, n| facts::found_anywhere(Way::By(method), n).unwrap();
    assert_eq!(at(Method::Full, 2048), 1.0);
    let [short, long] = [16, 2048].map(|n| at(Method::RandomFeatures, n));
    assert!(short > 0.7 && long < 0.3);
    let [short, long] = [8, 2048].map(|n| at(Method::Linear, n));
    assert!(short < 0.75 && short > long + 0.05); // it misses many at once
}

#[test]
fn the_spread_of_random_features_is_that_of_the_formula() {
    for spread in facts::spread_of_features(10_000).unwrap() {
        assert!((spread.measured / spread.predicted - 1.0).abs() < 0.05);
    }
}
