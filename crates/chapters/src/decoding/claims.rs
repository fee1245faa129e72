//! Tests of what the chapter says of its numbers.

use super::facts::{beyond_training, scores};

/// n(n + 1)(n + 2)/6 against n(n + 1)/2.
#[test]
fn a_cache_saves_a_third_of_n() {
    for n in [64, 1024, 16_384] {
        let (again, cached) = scores(n);
        let ratio = again as f64 / cached as f64;
        assert!((ratio - (n as f64 + 2.0) / 3.0).abs() < 1e-9);
    }
}

/// A token beyond the length of training has a full window before it, and so the model predicts it better than those within, on average.
/// With sinks, whose distance is new to the model, it doesn't.
#[test]
fn beyond_the_length_of_training_a_window_alone_is_right_and_sinks_are_not() {
    let (_, [[within, alone], [same, with_sinks]]) = beyond_training().unwrap();
    assert!(alone < within && within < with_sinks, "{alone}, {within}, {with_sinks}");
    assert!((within - same).abs() < 1e-9);
}
