//! The chapter's numbers, without those of the layer that learns.

use crate::random::normal;
use crate::sentences::example_b;
use anyhow::Result;
use attention::{
    AttentionCache, AttentionGradients, Mask, Parameters, SingleHeadAttention,
    SingleHeadCache, attention, attention_backward, example,
    softmax::softmax_rows_backward,
};
use laboratory::cost::AttentionShape;
use nalgebra::{DMatrix, DVector, dmatrix};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use record::statistics::median;

/// Example (b) of *Scaled dot-product attention*, run backwards.
pub struct Example {
    pub cache: AttentionCache<f64>,
    pub grad_output: DMatrix<f64>,
    pub grad_weights: DMatrix<f64>,
    pub grad_scores: DMatrix<f64>,
    pub gradients: AttentionGradients<f64>,
}

impl Example {
    /// The sum of each row of dA ⊙ A.
    pub fn row_sums(&self) -> DVector<f64> {
        self.grad_weights.component_mul(&self.cache.weights).column_sum()
    }
}

pub fn worked_example() -> Result<Example> {
    let [q, k, v] = example_b();
    let grad_output = dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, -1.0];
    let (_, cache) = attention(&q, &k, &v, Mask::none())?;
    let grad_weights = &grad_output * v.transpose();
    Ok(Example {
        grad_scores: softmax_rows_backward(&cache.weights, &grad_weights)?,
        gradients: attention_backward(&cache, &grad_output)?,
        cache,
        grad_output,
        grad_weights,
    })
}

/// The gradient of X by each of its three ways into the output: the queries, the keys, the values.
pub fn gradients_by_path(
    p: &Parameters<f64>,
    cache: &SingleHeadCache<f64>,
    grad_output: &DMatrix<f64>,
) -> Result<[DMatrix<f64>; 3]> {
    let d = attention_backward(&cache.attention, &(grad_output * p.w_o.transpose()))?;
    Ok([d.q * p.w_q.transpose(), d.k * p.w_k.transpose(), d.v * p.w_v.transpose()])
}

/// The gradient of X of one layer, and the parts of it that come by way of queries, keys and values.
pub struct InputGradient {
    pub whole: DMatrix<f64>,
    pub paths: [DMatrix<f64>; 3],
}

impl InputGradient {
    /// The cosine of the angle between the gradient without the queries' path and with it.
    pub fn cosine_without_queries(&self) -> f64 {
        let without = &self.whole - &self.paths[0];
        without.dot(&self.whole) / (without.norm() * self.whole.norm())
    }
}

/// Fresh layers on the running example, each with a random gradient of the output. One draw would say little: the paths
/// differ several times over from layer to layer.
pub fn fresh_layers() -> Result<Vec<InputGradient>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(6);
    let x = example::river().x;
    let draw = |_| {
        let layer = SingleHeadAttention::xavier(4, 3, 2, rng)?;
        let grad_output = normal(6, 4, rng);
        let (_, cache) = layer.forward(&x, Mask::none())?;
        let paths = gradients_by_path(&layer.parameters, &cache, &grad_output)?;
        Ok(InputGradient { whole: layer.backward(&cache, &grad_output)?.x, paths })
    };
    (0..2000).map(draw).collect()
}

/// The median over these layers.
pub fn cosine_without_queries(layers: &[InputGradient]) -> f64 {
    let cosines = layers.iter().map(InputGradient::cosine_without_queries);
    median(&cosines.collect::<Vec<_>>())
}

pub const D_MODEL: usize = 512;
pub const HEADS: usize = 8;

fn layer_shape(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, D_MODEL, D_MODEL / HEADS, HEADS)
}

/// Bytes that the forward pass keeps for the backward pass, in `f32`.
pub struct Kept {
    pub n: usize,
    pub x: u128,
    /// Q, K, V and O.
    pub projected: u128,
    pub weights: u128,
}

impl Kept {
    pub fn share_of_weights(&self) -> f64 {
        self.weights as f64 / (self.weights + self.x + self.projected) as f64
    }
}

pub fn kept() -> Result<Vec<Kept>> {
    let of = |n| {
        let bytes = layer_shape(n).bytes(4)?;
        Ok(Kept {
            n,
            x: (4 * n * D_MODEL) as u128,
            projected: bytes.q + bytes.k + bytes.v + bytes.output,
            weights: bytes.weights,
        })
    };
    [128, 1024, 8192].into_iter().map(of).collect()
}
