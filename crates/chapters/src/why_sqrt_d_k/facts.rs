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

/// Dot products of independent vectors of width d.
fn products(d: usize, count: usize, rng: &mut ChaCha8Rng) -> DVector<f64> {
    DVector::from_fn(count, |_, _| draw(d, rng).dot(&draw(d, rng)))
}

pub const MOMENTS_COUNT: usize = 50_000;

/// Mean and variance of q·k, measured, each with its standard error.
pub struct Moments {
    pub d: usize,
    pub mean: (f64, f64),
    pub variance: (f64, f64),
    /// The variance of q·k / √d.
    pub scaled_variance: (f64, f64),
}

pub fn moments() -> [Moments; 4] {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    [8, 64, 512, 2048].map(|d| {
        let (count, width) = (MOMENTS_COUNT as f64, d as f64);
        let products = products(d, MOMENTS_COUNT, rng);
        let (mean, variance) = (products.mean(), products.variance());
        let scaled = products / width.sqrt();
        // E[s⁴] = 3 d² + 6 d for normal entries, so that the variance of s² is 2 d² + 6 d
        let variance_error = ((2.0 + 6.0 / width) / count).sqrt();
        Moments {
            d,
            mean: (mean, (variance / count).sqrt()),
            variance: (variance, variance_error * width),
            scaled_variance: (scaled.variance(), variance_error),
        }
    })
}

/// The density of numbers in bins of one width.
pub struct Histogram {
    pub width: f64,
    /// The left edge of each bin that is not empty, and the density there.
    pub bars: Vec<(f64, f64)>,
}

/// The dot products of the histograms.
pub fn many_products(d: usize) -> DVector<f64> {
    products(d, 20_000, &mut ChaCha8Rng::seed_from_u64(d as u64))
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

pub const CORRELATED_COUNT: usize = 20_000;

/// Scaled scores of queries and keys that agree: q = ρ k + √(1 − ρ²) z.
pub struct Correlated {
    pub d: usize,
    pub rho: f64,
    /// Mean and variance.
    pub measured: (f64, f64),
    /// ρ √d and 1 + ρ².
    pub expected: (f64, f64),
}

pub fn correlated() -> Vec<Correlated> {
    let mut all = vec![];
    for d in [64, 1024] {
        let (root, rhos) = ((d as f64).sqrt(), [0.0, 0.1, 0.5_f64]);
        let mut scores = [const { vec![] }; 3];
        let rng = &mut ChaCha8Rng::seed_from_u64(d as u64);
        for _ in 0..CORRELATED_COUNT {
            let (k, z) = (draw(d, rng), draw(d, rng));
            for (scores, rho) in scores.iter_mut().zip(rhos) {
                let q = &k * rho + &z * (1.0 - rho * rho).sqrt();
                scores.push(q.dot(&k) / root);
            }
        }
        for (scores, rho) in scores.map(DVector::from_vec).iter().zip(rhos) {
            let measured = (scores.mean(), scores.variance());
            let expected = (rho * root, 1.0 + rho * rho);
            all.push(Correlated { d, rho, measured, expected });
        }
    }
    all
}
