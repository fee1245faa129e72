//! The chapter's numbers.

use crate::random::normal;
use crate::sentences::BANK;
use anyhow::Result;
use attention::example::{self, Sentence};
use attention::{
    AttentionCache, Mask, Parameters, SingleHeadAttention, inspect::row_entropy,
    scaled_scores,
};
use nalgebra::{DMatrix, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// The output for "bank", and its sum with the input, of a layer that has the projections of the running example and an
/// output projection that puts water and money back where they were.
pub fn readable_layer(Sentence { x, .. }: &Sentence) -> Result<[RowDVector<f64>; 2]> {
    let [w_q, w_k, w_v] = example::projections();
    let (d_model, d_k) = w_q.shape();
    let layer = SingleHeadAttention::from(Parameters {
        b_q: RowDVector::zeros(d_k),
        b_k: RowDVector::zeros(d_k),
        b_v: RowDVector::zeros(w_v.ncols()),
        b_o: RowDVector::zeros(d_model),
        w_o: w_v.transpose(),
        w_q,
        w_k,
        w_v,
    });
    let (output, _) = layer.forward(x, Mask::none())?;
    Ok([output.row(BANK).into_owned(), (x + output).row(BANK).into_owned()])
}

/// W_Q W_Kᵀ of the running example: how strongly a feature of the asking token matches one of the answering token.
pub fn comparison() -> DMatrix<f64> {
    let [w_q, w_k, _] = example::projections();
    w_q * w_k.transpose()
}

/// Returns how many numbers a layer with d_model = 8, d_k = 2 and d_v = 3 learns in parameters whose names begin so, counted by making it.
pub fn count_parameters(kind: &str) -> Result<usize> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let parameters = Parameters::<f64>::xavier(8, 2, 3, rng)?;
    let named = parameters.named();
    let of_kind = named.iter().filter(|(name, _)| name.starts_with(kind));
    Ok(of_kind.map(|(_, numbers)| numbers.len()).sum())
}

/// Returns how many numbers a layer with d_k = d_v = d learns in its weight matrices and in its biases.
pub fn counts(d_model: usize, d: usize) -> (usize, usize) {
    (4 * d_model * d, 3 * d + d_model)
}

/// Tokens of the layers below.
pub const N: usize = 64;
pub const D_MODEL: usize = 512;
pub const D_K: usize = 64;
/// The number of layers over which a mean is taken.
pub const LAYERS: usize = 20;

/// The standard deviation of Xavier's start.
pub fn xavier() -> f64 {
    (2.0 / (D_MODEL + D_K) as f64).sqrt()
}

/// The variance that a projection from this width leaves of inputs with variance 1, after Xavier's start.
pub fn variance_from(width: usize) -> f64 {
    (2.0 * width as f64) / (D_MODEL + D_K) as f64
}

/// The effect of a fresh layer on inputs and gradients of spread 1: root mean squares, each a mean over layers.
#[derive(Default)]
pub struct Start {
    pub scores: f64,
    /// Divided by ln n.
    pub entropy: f64,
    pub grad_w_q: f64,
    pub grad_w_o: f64,
}

/// A start whose weights are Xavier's, all times this factor.
pub fn start(factor: f64) -> Result<Start> {
    let mut mean = Start::default();
    for seed in 0..LAYERS as u64 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut layer = SingleHeadAttention::<f64>::xavier(D_MODEL, D_K, D_K, rng)?;
        let Parameters { w_q, w_k, w_v, w_o, .. } = &mut *layer.parameters;
        for w in [w_q, w_k, w_v, w_o] {
            *w *= factor;
        }
        let x = normal(N, D_MODEL, rng);
        let grad_output = normal(N, D_MODEL, rng);
        let (_, cache) = layer.forward(&x, Mask::none())?;
        let AttentionCache { q, k, weights, .. } = &cache.attention;
        let gradients = layer.backward(&cache, &grad_output)?;
        let share = 1.0 / LAYERS as f64;
        mean.scores += share * root_mean_square(&scaled_scores(q, k)?);
        mean.entropy += share * row_entropy(weights)?.mean() / (N as f64).ln();
        mean.grad_w_q += share * root_mean_square(&gradients.parameters.w_q);
        mean.grad_w_o += share * root_mean_square(&gradients.parameters.w_o);
    }
    Ok(mean)
}

fn root_mean_square(m: &DMatrix<f64>) -> f64 {
    m.norm() / (m.len() as f64).sqrt()
}
