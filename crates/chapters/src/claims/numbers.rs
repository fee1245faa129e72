//! Numbers of which more is claimed than they say: three measurements of memory, and a spread without a gap.

use super::verdict::{Claim, only_when};
use crate::output::Page;
use anyhow::Result;
use attention::softmax;
use figures::format::{fixed, integer, percent};
use laboratory::hardware::A100;
use nalgebra::DVector;

/// (15) Tokens, and the megabytes that were measured.
const MEASURED: [(f64, f64); 3] = [(512.0, 15.0), (2048.0, 85.0), (8192.0, 1200.0)];

/// Seconds that the longest of the three took.
const SECONDS: f64 = 0.28;

/// The width for which a speed is computed from that time.
pub const WIDTH: usize = 512;

/// Returns the power of the length with which memory grew, from each measurement to the next.
pub fn exponents() -> [f64; 2] {
    let exponent = |from: usize| {
        let [(n, bytes), (more, more_bytes)] = [MEASURED[from], MEASURED[from + 1]];
        (more_bytes / bytes).ln() / (more / n).ln()
    };
    [exponent(0), exponent(1)]
}

/// Returns the bytes per n² that the difference between each measurement and the next gives: a constant doesn't count there.
pub fn bytes_per_square() -> [f64; 2] {
    let of = |from: usize| {
        let [(n, bytes), (more, more_bytes)] = [MEASURED[from], MEASURED[from + 1]];
        1e6 * (more_bytes - bytes) / (more * more - n * n)
    };
    [of(0), of(1)]
}

/// Returns the megabytes that don't grow with the length, if all else grows with its square.
pub fn constant_megabytes() -> f64 {
    let (n, bytes) = MEASURED[0];
    bytes - bytes_per_square()[0] * n * n / 1e6
}

/// Returns the FLOP/s of the two products of the longest sequence.
pub fn speed() -> f64 {
    let (n, _) = MEASURED[2];
    4.0 * n * n * WIDTH as f64 / SECONDS
}

pub fn claim_three_measurements(page: &mut Page) -> Result<Claim> {
    let exponents = exponents();
    let [first, second] = bytes_per_square();
    page.value("three-exponent-first", fixed(exponents[0], 2));
    page.value("three-exponent-second", fixed(exponents[1], 2));
    page.value("three-bytes-first", fixed(first, 1));
    page.value("three-bytes-second", fixed(second, 1));
    page.value("three-constant", fixed(constant_megabytes(), 0));
    page.value("three-milliseconds", fixed(1e3 * SECONDS, 0));
    page.value("three-width", integer(WIDTH));
    page.value("three-speed", fixed(speed() / 1e12, 1));
    page.value("three-share", percent(speed() / A100.f32, 1));
    Ok(Claim {
        section: "15-three-measurements",
        said: "Attention took 15, 85 and 1,200 MB, each time with four times the tokens, so its memory grows as $n^2$."
            .to_owned(),
        verdict: only_when(
            "a constant comes on top",
            exponents.iter().all(|exponent| (exponent - 2.0).abs() < 0.05),
            (first / second - 1.0).abs() < 0.01,
        )?,
    })
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

pub fn claim_spread(page: &mut Page) -> Result<Claim> {
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
