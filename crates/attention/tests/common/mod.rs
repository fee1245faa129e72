//! What several of the tests share.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub use attention::AttentionLayer as Layer;
use attention::{
    AttentionCache, ForwardOptions, HeadsCache, LayerGradients, Mask, MultiHeadAttention,
    MultiHeadCache, Parameters, Result,
};
use nalgebra::{DMatrix, RealField};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// A matrix of numbers between −1 and 1, the same for the same seed.
pub fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
}

/// Fresh parameters whose biases are not zero, so that a forgotten bias is seen.
pub fn parameters(d_model: usize, d_k: usize, d_v: usize, seed: u64) -> Parameters<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng).unwrap();
    for bias in [
        &mut parameters.b_q,
        &mut parameters.b_k,
        &mut parameters.b_v,
        &mut parameters.b_o,
    ] {
        bias.iter_mut().for_each(|b| *b = rng.random_range(-0.5..0.5));
    }
    parameters
}

/// Every parameter, or every gradient, under its name; a bias as a matrix of one row.
pub fn named<T: RealField + Copy>(p: &Parameters<T>) -> Vec<(&'static str, DMatrix<T>)> {
    p.named().into_iter().map(|(name, matrix)| (name, matrix.into_owned())).collect()
}

/// Puts `values` in the place of the parameter of that name.
pub fn set<T: RealField + Copy>(p: &mut Parameters<T>, name: &str, values: &DMatrix<T>) {
    let mut parameters = p.named_mut().into_iter();
    let (_, mut parameter) = parameters.find(|(found, _)| *found == name).unwrap();
    parameter.copy_from(values);
}

/// How to run a layer with this mask and, in cross-attention, this context.
pub fn options<'a, T: RealField>(
    context: Option<&'a DMatrix<T>>,
    mask: &'a Mask,
) -> ForwardOptions<'a, T> {
    ForwardOptions { context, ..mask.into() }
}

/// One mask of every kind, and two of them combined so that, if there are as many queries as keys, the first sees nothing.
pub fn masks(n_q: usize, n_k: usize) -> Vec<(&'static str, Mask)> {
    let valid: Vec<bool> = (0..n_k).map(|j| j % 3 != 0).collect();
    let padding = if n_k == 1 { Mask::none() } else { Mask::padding(&valid).unwrap() };
    let allowed = DMatrix::from_fn(n_q, n_k, |i, j| i == j || (5 * i + 3 * j) % 4 < 2);
    vec![
        ("none", Mask::none()),
        ("causal", Mask::causal()),
        ("padding", padding.clone()),
        ("window", Mask::window(2).unwrap()),
        ("dense", Mask::dense(allowed).unwrap()),
        ("causal and padding", Mask::causal().and(padding)),
    ]
}

/// The heads of a cache, to be changed.
pub fn heads_of(cache: &mut MultiHeadCache<f64>) -> &mut Vec<AttentionCache<f64>> {
    let HeadsCache::Weights { heads, .. } = &mut cache.core else {
        panic!("flash attention keeps no heads")
    };
    heads
}

/// A layer of somebody else, which changes what a healthy one gives: its output, its heads or its gradients.
#[derive(Clone)]
pub struct Foreign {
    pub layer: MultiHeadAttention<f64>,
    pub output: fn(&mut DMatrix<f64>),
    pub cache: fn(&mut MultiHeadCache<f64>),
    pub gradients: fn(&mut LayerGradients<f64>),
}

impl Layer<f64> for Foreign {
    type Cache = MultiHeadCache<f64>;
    fn parameters(&self) -> &Parameters<f64> {
        &self.layer.parameters
    }
    fn parameters_mut(&mut self) -> &mut Parameters<f64> {
        &mut self.layer.parameters
    }
    fn forward<'a>(
        &self,
        x: &DMatrix<f64>,
        options: impl Into<ForwardOptions<'a, f64>>,
    ) -> Result<(DMatrix<f64>, MultiHeadCache<f64>)> {
        let (mut output, mut cache) = self.layer.forward(x, options)?;
        (self.output)(&mut output);
        (self.cache)(&mut cache);
        Ok((output, cache))
    }
    fn backward(
        &self,
        cache: &MultiHeadCache<f64>,
        grad_output: &DMatrix<f64>,
    ) -> Result<LayerGradients<f64>> {
        let none = Mask::none();
        let options = options(cache.context.as_ref(), &none);
        let (_, healthy) = self.layer.forward(&cache.x, options)?;
        let mut gradients = self.layer.backward(&healthy, grad_output)?;
        (self.gradients)(&mut gradients);
        Ok(gradients)
    }
    fn heads(cache: &MultiHeadCache<f64>) -> &[AttentionCache<f64>] {
        cache.heads()
    }
}
