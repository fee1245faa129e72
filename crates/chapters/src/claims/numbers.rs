//! Numbers that are quoted without what they depend on: three measurements without their lengths, a spread without a gap.

use super::verdict::{Claim, NOT, only_when};
use crate::output::Page;
use anyhow::Result;
use attention::softmax;
use figures::format::{fixed, percent};
use nalgebra::DVector;

/// (15) Megabytes that were measured at three lengths, which are not told.
const MEASURED: [f64; 3] = [15.0, 85.0, 1200.0];

/// By which factors the lengths must grow if memory grows with their square.
pub fn factors_of_lengths() -> [f64; 2] {
    let [first, second, third] = MEASURED;
    [(second / first).sqrt(), (third / second).sqrt()]
}

/// The exponents, if each length is twice the one before.
pub fn exponents_of_doublings() -> [f64; 2] {
    factors_of_lengths().map(|factor| 2.0 * factor.log2())
}

pub fn tell_three_measurements(page: &mut Page) -> Claim {
    let factors = factors_of_lengths();
    let exponents = exponents_of_doublings();
    for (key, i) in [("first", 0), ("second", 1)] {
        page.value(format!("three-{key}"), fixed(factors[i], 1));
        page.value(format!("three-exponent-{key}"), fixed(exponents[i], 1));
    }
    Claim {
        section: "15-three-measurements",
        said: "Attention took 15, 85 and 1,200 MB as sequences grew, so its memory is quadratic.".to_owned(),
        verdict: format!("{NOT} as it stands: the lengths are missing"),
    }
}

/// (12) The spread that is said to be enough.
const SPREAD: f64 = 10.0;

/// A weight from which on a row may be called one-hot.
const ONE_HOT: f64 = 0.95;

/// The largest weight of eight evenly spaced scores with that spread.
pub fn largest_of_even_scores() -> Result<f64> {
    let scores = DVector::from_fn(8, |j, _| SPREAD * j as f64 / 7.0);
    Ok(softmax(&scores)?.max())
}

/// The largest weight of so many keys, if the largest score lies so far above all others, which tie.
pub fn largest_with_gap(keys: usize, gap: f64) -> f64 {
    1.0 / (1.0 + (keys - 1) as f64 * (-gap).exp())
}

pub fn tell_spread(page: &mut Page) -> Result<Claim> {
    let even = largest_of_even_scores()?;
    page.value("spread-even", fixed(even, 2));
    page.value("one-hot", fixed(ONE_HOT, 2));
    for keys in [1000, 100_000] {
        let largest = largest_with_gap(keys, SPREAD);
        page.value(format!("gap-{keys}"), percent(largest, 0));
    }
    Ok(Claim {
        section: "12-one-hot-weights",
        said: "A spread of scores above 10 makes the weights one-hot.".to_owned(),
        verdict: only_when(
            "the largest score is 10 above the second, and keys are at most a thousand",
            even > ONE_HOT,
            largest_with_gap(1000, SPREAD) > ONE_HOT,
        )?,
    })
}
