//! Tests of what the chapter says of its numbers.

use super::page::{Sample, samples};
use crate::trained::{book, open};
use model::Task as _;

#[test]
fn the_weights_are_those_that_the_curves_end_with() {
    let (opened, task) = (open("book").unwrap(), book().unwrap());
    let last = opened.trained.history.last().unwrap();
    assert_eq!(last.step, opened.trained.plan.steps);
    let loss = opened.model.loss(&task.held_out()).unwrap();
    assert!((loss - f64::from(last.held_out)).abs() < 1e-5, "{loss}");
    assert!(f64::from(last.loss.unwrap()) < loss - 0.1); // it knows some of it by heart
    assert_eq!(opened.trained.alphabet, task.alphabet);
}

/// A low temperature repeats itself: it has fewer different words.
#[test]
fn a_low_temperature_repeats_what_is_likely() {
    let samples = samples(&open("book").unwrap(), &book().unwrap()).unwrap();
    let different = samples.iter().map(|Sample { text, .. }| {
        let words: std::collections::BTreeSet<_> = text.split_whitespace().collect();
        words.len() as f64 / text.split_whitespace().count() as f64
    });
    assert!(different.is_sorted());
}
