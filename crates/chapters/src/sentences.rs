//! Attention on the two sentences of the running example, which several chapters show.

use anyhow::Result;
use attention::example;
use attention::{AttentionCache, Mask, attention, scaled_scores};
use nalgebra::{DMatrix, dmatrix};

/// The places of words in "the boat left the river bank"; the last one is the same in both sentences.
pub const BOAT: usize = 1;
pub const LEFT: usize = 2;
pub const RIVER: usize = 4;
pub const BANK: usize = 5;
/// The places of other words in "the clerk left the city bank".
pub const CLERK: usize = 1;
pub const CITY: usize = 4;

/// Attention with its intermediate results.
pub struct Steps {
    pub q: DMatrix<f64>,
    pub k: DMatrix<f64>,
    pub v: DMatrix<f64>,
    /// Q Kᵀ.
    pub products: DMatrix<f64>,
    /// The scaled scores, before any mask.
    pub scores: DMatrix<f64>,
    pub weights: DMatrix<f64>,
    pub output: DMatrix<f64>,
}

pub fn steps(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
    mask: &Mask,
) -> Result<Steps> {
    let scores = scaled_scores(q, k)?;
    let (output, AttentionCache { q, k, v, weights, .. }) = attention(q, k, v, mask)?;
    let products = &q * k.transpose();
    Ok(Steps { products, q, k, v, scores, weights, output })
}

/// Queries, keys and values of example (b) in *Scaled dot-product attention*.
pub fn example_b() -> [DMatrix<f64>; 3] {
    [
        dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, 1.0],
        dmatrix![1.0, 1.0; 0.0, 1.0; 1.0, 0.0],
        dmatrix![2.0, 1.0; 1.0, 3.0; 0.0, 2.0],
    ]
}

/// Attention without anything learned: the words are queries, keys and values.
pub fn unprojected(x: &DMatrix<f64>) -> Result<Steps> {
    steps(x, x, x, &Mask::none())
}

/// Attention through the hand-made projections: the words of `x` ask, those of `y` answer.
pub fn projected(x: &DMatrix<f64>, y: &DMatrix<f64>, mask: &Mask) -> Result<Steps> {
    let [w_q, w_k, w_v] = example::projections();
    steps(&(x * w_q), &(y * w_k), &(y * w_v), mask)
}
