//! The spread of dot products of random vectors.

use anyhow::Result;
use attention::softmax;
use nalgebra::{DVector, dvector};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::f64::consts::TAU;
use std::ops::Range;

/// A vector of independent standard normal numbers.
pub fn draw(d: usize, rng: &mut ChaCha8Rng) -> DVector<f64> {
    DVector::from_fn(d, |_, _| StandardNormal.sample(rng))
}

/// Scores of a row, and its weights.
pub struct Responses {
    pub scores: DVector<f64>,
    pub weights: DVector<f64>,
}

/// Four scores such as vectors of width 64 may have, and the same divided by √64.
pub fn four_scores() -> Result<[Responses; 2]> {
    let scores = dvector![12.0, 8.0, 0.0, -8.0];
    let of = |scores: DVector<f64>| -> Result<Responses> {
        Ok(Responses { weights: softmax(&scores)?, scores })
    };
    Ok([of(scores.clone())?, of(scores / 64.0_f64.sqrt())?])
}

/// The density of numbers in bins of one width.
pub struct Histogram {
    pub width: f64,
    /// The left edge of each bin that is not empty, and the density there.
    pub bars: Vec<(f64, f64)>,
}

/// The dot products of the histograms: of independent vectors of width d.
pub fn many_products(d: usize) -> DVector<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(d as u64);
    DVector::from_fn(20_000, |_, _| draw(d, rng).dot(&draw(d, rng)))
}

/// Returns the histogram of the numbers in the range.
pub fn histogram(numbers: &[f64], range: Range<f64>, bins: u32) -> Histogram {
    let width = (range.end - range.start) / f64::from(bins);
    let mut counts = vec![0_usize; bins as usize];
    for number in numbers {
        let bin = ((number - range.start) / width).floor();
        if (0.0..f64::from(bins)).contains(&bin) {
            counts[bin as usize] += 1;
        }
    }
    let bar = |(i, &count): (usize, &usize)| {
        (range.start + width * i as f64, count as f64 / (numbers.len() as f64 * width))
    };
    let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    Histogram { width, bars: filled.map(bar).collect() }
}

pub fn normal_density(x: f64, standard_deviation: f64) -> f64 {
    (-(x / standard_deviation).powi(2) / 2.0).exp() / (standard_deviation * TAU.sqrt())
}

/// The mean scaled score of a query and the key that it agrees with: q = ρ k + √(1 − ρ²) z.
pub fn aligned_mean(rho: f64, d: usize) -> f64 {
    rho * (d as f64).sqrt()
}
