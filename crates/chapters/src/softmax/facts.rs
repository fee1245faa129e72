//! What the chapter computes.

use anyhow::{Context, Result};
use attention::{log_sum_exp, softmax, softmax_backward, softmax_jacobian};
use nalgebra::{DMatrix, DVector, dvector};
use record::{Record, Unit};

/// The scores that the chapter computes with.
pub fn scores() -> DVector<f64> {
    dvector![2.0, 1.0, -1.0]
}

/// Softmax forward and backward, with every intermediate result.
pub struct Example {
    pub scores: DVector<f64>,
    pub exponentials: DVector<f64>,
    pub weights: DVector<f64>,
    /// e^(x₁ − x₂), the ratio of the first two weights.
    pub ratio: f64,
    /// The scores less their maximum.
    pub shifted: DVector<f64>,
    pub log_sum_exp: f64,
    pub jacobian: DMatrix<f64>,
    pub grad_weights: DVector<f64>,
    /// ⟨g, p⟩, the mean of the gradient under the weights.
    pub mean: f64,
    pub grad_scores: DVector<f64>,
}

pub fn example() -> Result<Example> {
    let (x, g) = (scores(), dvector![0.5, -0.3, 0.2]);
    let p = softmax(&x)?;
    let shifted = x.add_scalar(-x.max());
    Ok(Example {
        exponentials: x.map(f64::exp),
        ratio: (x[0] - x[1]).exp(),
        shifted,
        log_sum_exp: log_sum_exp(&x)?,
        jacobian: softmax_jacobian(&p)?,
        mean: g.dot(&p),
        grad_scores: softmax_backward(&p, &g)?,
        grad_weights: g,
        weights: p,
        scores: x,
    })
}

/// The weights when all scores are multiplied by one factor.
pub fn sharpened(factor: f64) -> Result<DVector<f64>> {
    Ok(softmax(&(scores() * factor))?)
}

/// The types of floating-point numbers, with the largest number of each.
pub const LARGEST: [(&str, f64); 3] =
    [("f16", 65504.0), ("f32", f32::MAX as f64), ("f64", f64::MAX)];

/// Scores whose exponentials no type can hold: their weights and their log-sum-exp.
pub fn of_large_scores() -> Result<(DVector<f64>, f64)> {
    let scores = dvector![1000.0, 999.0, 0.0];
    Ok((softmax(&scores)?, log_sum_exp(&scores)?))
}

/// ln(eᵗ + e⁰), the smooth maximum of t and 0.
pub fn smooth_maximum(t: f64) -> Result<f64> {
    Ok(log_sum_exp(&dvector![t, 0.0])?)
}

/// Multiplications for the gradient by one row of n scores: with the Jacobian, p pᵀ and its product with the gradient;
/// directly, ⟨g, p⟩ and p ⊙ (g − ⟨g, p⟩).
pub fn multiplications(n: usize) -> [usize; 2] {
    [2 * n * n, 2 * n]
}

/// Softmax of every row of an n × n matrix, in seconds.
pub struct RowTimes {
    pub n: u64,
    pub down_columns: f64,
    pub along_rows: f64,
}

pub fn row_times(record: &Record) -> Result<Vec<RowTimes>> {
    let of = |measured| {
        let measured: &record::Measurement = measured;
        let n = *measured.sizes.get("n").context("softmax of rows has no n")?;
        let down_columns = record.in_unit(measured, Unit::Seconds)?;
        let along_rows = record.seconds("softmax of rows/along the rows", "f32", n)?;
        Ok(RowTimes { n, down_columns, along_rows })
    };
    record.all("softmax of rows/down the columns", "f32").map(of).collect()
}
