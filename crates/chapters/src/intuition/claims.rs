//! What the chapter says of its numbers.

use super::facts;
use super::recurrent::{factor_per_token, through_recurrence};

#[test]
fn attention_on_keys_of_one_norm_is_the_estimator_of_nadaraya_and_watson() {
    for sigma in [0.03, 0.2, 1.0] {
        let difference = facts::points().difference(sigma).unwrap();
        assert!(difference < 1e-12, "σ = {sigma}: {difference}");
    }
}

#[test]
fn recurrent_gradients_vanish_stay_nearly_level_or_explode() {
    let factor = |gain| factor_per_token(&through_recurrence(gain).unwrap());
    assert!(factor(0.5) < 0.9 && factor(1.0) < 0.9, "vanish");
    assert!((factor(2.0) - 1.0).abs() < 0.05, "nearly level");
    assert!(factor(4.0) > 1.1, "explode");
}
