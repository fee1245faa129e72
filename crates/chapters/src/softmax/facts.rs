//! The chapter's numbers.

use anyhow::Result;
use attention::softmax::{log_sum_exp, softmax, softmax_backward, softmax_jacobian};
use nalgebra::{DMatrix, DVector, dvector};

/// The scores that the chapter computes with.
pub fn scores() -> DVector<f64> {
    dvector![2.0, 1.0, -1.0]
}

/// Softmax forward and backward, with every intermediate result.
pub struct Example {
    pub scores: DVector<f64>,
    pub weights: DVector<f64>,
    pub jacobian: DMatrix<f64>,
    pub grad_weights: DVector<f64>,
    /// ⟨g, p⟩, the mean of the gradient under the weights.
    pub mean: f64,
    pub grad_scores: DVector<f64>,
}

pub fn example() -> Result<Example> {
    let (x, g) = (scores(), dvector![0.5, -0.3, 0.2]);
    let p = softmax(&x)?;
    Ok(Example {
        jacobian: softmax_jacobian(&p)?,
        mean: g.dot(&p),
        grad_scores: softmax_backward(&p, &g)?,
        grad_weights: g,
        weights: p,
        scores: x,
    })
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
