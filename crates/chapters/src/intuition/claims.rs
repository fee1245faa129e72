//! Tests of what the chapter says of its numbers.

use super::facts::{self, POINTS, Points, grid, on_circle};
use super::recurrent::through_recurrence;
use crate::sentences::{BANK, LEFT, unprojected};
use attention::example;
use nalgebra::DMatrix;

/// Returns the estimator of Nadaraya and Watson on the grid, by its definition.
fn nadaraya_watson(points: &Points, sigma: f64) -> DMatrix<f64> {
    let queries = on_circle(&grid());
    DMatrix::from_fn(queries.nrows(), 1, |i, _| {
        let kernel = |j: usize| {
            let distance = queries.row(i) - points.keys.row(j);
            (-distance.norm_squared() / (2.0 * sigma.powi(2))).exp()
        };
        let total: f64 = (0..POINTS).map(kernel).sum();
        (0..POINTS).map(|j| kernel(j) * points.values[j]).sum::<f64>() / total
    })
}

#[test]
fn attention_on_keys_of_one_norm_is_the_estimator_of_nadaraya_and_watson() {
    let points = facts::points();
    for sigma in [0.03, 0.2, 1.0] {
        let smoothed = points.smoothed(sigma).unwrap();
        let difference = (smoothed - nadaraya_watson(&points, sigma)).amax();
        assert!(difference < 1e-12, "σ = {sigma}: {difference}");
    }
}

#[test]
fn a_plain_average_tells_the_banks_apart_and_takes_twice_as_much_from_the_verb() {
    let (water, money) = (0, 1);
    for (x, own, other) in
        [(example::river().x, water, money), (example::city().x, money, water)]
    {
        let weights = unprojected(&x).unwrap().weights;
        let plain = facts::plain_average(&x);
        assert!(plain[(BANK, own)] > plain[(BANK, other)]);
        let share = weights[(BANK, LEFT)] * x.nrows() as f64;
        assert!((share - 0.5).abs() < 0.1, "{share}");
    }
}

#[test]
fn recurrent_gradients_vanish_grow_slowly_or_explode() {
    let grown = |gain| {
        let norms = through_recurrence(gain).unwrap();
        norms[7] / norms[2]
    };
    assert!(grown(0.5) < 1e-10 && grown(1.0) < 1e-10, "vanish");
    assert!((1.0..1e3).contains(&grown(2.0)), "grow slowly: {}", grown(2.0));
    assert!(grown(4.0) > 1e10, "explode");
}
