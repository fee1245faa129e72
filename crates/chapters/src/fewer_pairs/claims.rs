//! Tests of what the chapter says of its numbers.

use super::facts::{self, Text};
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
fn a_window_is_nearly_exact_where_near_tokens_matter() {
    assert!(error(&Text::near(), Method::Window) < 0.1);
    assert!(error(&Text::spread(), Method::Window) > 0.5);
}

#[test]
fn only_the_second_round_puts_the_neighbours_together() {
    let rounds = facts::buckets_of_directions().unwrap();
    let share = |round: usize| {
        let [a, b] = facts::NEIGHBOURS.map(|direction| rounds[round][direction]);
        a == b
    };
    assert!(!share(0) && share(1));
    for buckets in rounds {
        assert!((0..4).all(|bucket| buckets.contains(&bucket)));
    }
}
