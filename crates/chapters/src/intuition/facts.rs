//! Single queries, and attention as a smoother.

use crate::random::normal;
use anyhow::Result;
use attention::{Mask, attention};
use nalgebra::{DMatrix, dmatrix};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::f64::consts::TAU;

/// The weights of a lookup with a query that lies between the first two of three keys.
pub fn lookup() -> Result<DMatrix<f64>> {
    let keys = dmatrix![4.0, 0.0; 0.0, 4.0; -4.0, 0.0];
    let values = dmatrix![10.0; 20.0; 30.0];
    let (_, cache) = attention(&dmatrix![2.0, 2.0], &keys, &values, Mask::none())?;
    Ok(cache.weights)
}

/// The number of points that are smoothed.
pub const POINTS: usize = 60;

/// The curve behind the points.
pub fn curve(angle: f64) -> f64 {
    angle.sin() + 0.5 * (3.0 * angle).cos()
}

/// Angles all around the circle, at which the smoothers are asked.
pub fn grid() -> Vec<f64> {
    (0..=240).map(|i| TAU * f64::from(i) / 240.0).collect()
}

/// Noisy points of the curve.
pub struct Points {
    pub angles: Vec<f64>,
    /// The angles as points on a circle (n, 2), so all of norm 1.
    pub keys: DMatrix<f64>,
    /// The values (n, 1).
    pub values: DMatrix<f64>,
}

pub fn points() -> Points {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let mut angles: Vec<f64> = (0..POINTS).map(|_| rng.random_range(0.0..TAU)).collect();
    angles.sort_by(f64::total_cmp);
    let noise = normal(POINTS, 1, rng) * 0.3;
    let values = DMatrix::from_fn(POINTS, 1, |i, _| curve(angles[i]) + noise[i]);
    Points { keys: on_circle(&angles), angles, values }
}

pub fn on_circle(angles: &[f64]) -> DMatrix<f64> {
    DMatrix::from_fn(angles.len(), 2, |i, c| {
        if c == 0 { angles[i].cos() } else { angles[i].sin() }
    })
}

impl Points {
    /// Returns the estimate of attention as a kernel smoother on the grid, with queries scaled so that the kernel has standard deviation `sigma`.
    ///
    /// exp(−‖q − k‖² / 2σ²) is exp(q·k / σ²) times what does not depend on the key, where all keys have one norm. Attention
    /// computes exp(q'·k / √d_k), so q' = q √d_k / σ².
    pub fn smoothed(&self, sigma: f64) -> Result<DMatrix<f64>> {
        let queries = on_circle(&grid()) * (2_f64.sqrt() / sigma.powi(2));
        Ok(attention(&queries, &self.keys, &self.values, Mask::none())?.0)
    }
}

/// Every row is the mean of all rows.
pub fn plain_average(x: &DMatrix<f64>) -> DMatrix<f64> {
    DMatrix::from_rows(&vec![x.row_mean(); x.nrows()])
}
