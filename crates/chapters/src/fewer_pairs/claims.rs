//! Tests of what the chapter says of its numbers.

use super::facts::{self, Text, Way};
use laboratory::fewer_pairs::Method;

fn found(method: Method) -> [f64; 3] {
    facts::DISTANCES.map(|distance| facts::found_at(Way::By(method), distance).unwrap())
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
fn where_all_tokens_matter_a_little_the_plain_mean_is_nearer_than_any_pattern() {
    let text = Text::spread();
    let mean = text.error(&text.means().unwrap()).unwrap();
    assert!(mean < 1.0); // the error of zeros
    for method in [Method::Window, Method::Dilated, Method::Blocks, Method::Hashed] {
        assert!(error(&text, method) > 1.0);
    }
}

/// A window, a dilated one and blocks, pair by pair.
#[test]
fn the_formulas_of_the_costs_are_near_the_pairs() {
    let n = 32_768;
    let (width, step) = (Method::WIDTH, Method::STEP);
    let count = n / Method::BLOCK;
    let every = count.isqrt();
    let pairs = |of_query: &dyn Fn(usize) -> usize| (0..n).map(of_query).sum::<usize>();
    let blocks = |i: usize| {
        let own = i / Method::BLOCK;
        let seen = (0..own).filter(|b| b + 1 == own || b % every == 0).count();
        seen * Method::BLOCK + i % Method::BLOCK + 1
    };
    let counted = [
        (Method::Full, pairs(&|i| i + 1)),
        (Method::Window, pairs(&|i| (i + 1).min(width))),
        (Method::Dilated, pairs(&|i| (i / step + 1).min(width))),
        (Method::Blocks, pairs(&blocks)),
    ];
    for (method, pairs) in counted {
        let counted = (2 * facts::D * pairs) as f64;
        let ratio = facts::multiplications(method, n as u64) / counted;
        assert!((0.94..1.06).contains(&ratio), "{method:?}: {ratio}");
    }
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
