//! Tests of what the chapter says of its numbers.

use super::facts::{self, SYMBOLS, Text};
use laboratory::fewer_pairs::Method;

fn found(method: Method) -> [f64; 3] {
    facts::DISTANCES.map(|distance| facts::found_at(Some(method), distance).unwrap())
}

fn error(text: &Text, method: Method) -> f64 {
    text.error(&text.attend(method).unwrap()).unwrap()
}

#[test]
fn full_attention_finds_all() {
    assert_eq!(found(Method::Full), [1.0; 3]);
}

#[test]
fn a_window_finds_what_is_near_and_a_dilated_one_what_is_on_its_step() {
    let [near, further, far] = found(Method::Window);
    assert!(near > 0.99 && further > 0.99 && far < 0.1);
    let [near, further, far] = found(Method::Dilated);
    assert!(near < 0.1 && further < 0.1 && far > 0.99);
    assert!(
        1000_usize.is_multiple_of(Method::STEP) && 1000 < Method::STEP * Method::WIDTH
    );
}

#[test]
fn blocks_find_some_of_what_is_far() {
    let [near, further, far] = found(Method::Blocks);
    assert!(near > 0.99 && further > 0.99 && (0.28..0.38).contains(&far));
}

#[test]
fn hashes_find_at_any_distance() {
    assert!(found(Method::Hashed).iter().all(|&share| share > 0.9));
    assert!(error(&Text::spread(), Method::Hashed) > 1.0);
}

#[test]
fn features_find_little() {
    let guessed = 1.0 / SYMBOLS as f64;
    assert!(found(Method::Linear).iter().all(|&share| share < guessed + 0.05));
    assert!(found(Method::RandomFeatures).iter().all(|&share| share < 0.3));
}

#[test]
fn a_window_is_nearly_exact_where_near_tokens_matter() {
    assert!(error(&Text::near(), Method::Window) < 0.1);
    assert!(error(&Text::spread(), Method::Window) > 0.5);
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
    let at = |method, n| facts::found_anywhere(method, n).unwrap();
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
