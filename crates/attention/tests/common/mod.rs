//! What several of the tests share.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub use attention::AttentionLayer as Layer;
use attention::{
    AttentionCache, BatchOutput, LayerGradients, Mask, MultiHeadAttention,
    MultiHeadCache, Parameters, Result, SingleHeadAttention, SingleHeadCache,
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
pub fn named<T: RealField + Copy>(p: &Parameters<T>) -> [(&'static str, DMatrix<T>); 8] {
    let matrix = |bias: &nalgebra::RowDVector<T>| {
        DMatrix::from_row_slice(1, bias.len(), bias.as_slice())
    };
    [
        ("w_q", p.w_q.clone()),
        ("w_k", p.w_k.clone()),
        ("w_v", p.w_v.clone()),
        ("w_o", p.w_o.clone()),
        ("b_q", matrix(&p.b_q)),
        ("b_k", matrix(&p.b_k)),
        ("b_v", matrix(&p.b_v)),
        ("b_o", matrix(&p.b_o)),
    ]
}

/// Puts `values` in the place of the parameter of that name.
pub fn set<T: RealField + Copy>(p: &mut Parameters<T>, name: &str, values: &DMatrix<T>) {
    match name {
        "w_q" => p.w_q.copy_from(values),
        "w_k" => p.w_k.copy_from(values),
        "w_v" => p.w_v.copy_from(values),
        "w_o" => p.w_o.copy_from(values),
        "b_q" => p.b_q.copy_from(values),
        "b_k" => p.b_k.copy_from(values),
        "b_v" => p.b_v.copy_from(values),
        "b_o" => p.b_o.copy_from(values),
        other => panic!("no parameter is called {other}"),
    }
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

/// What both layers can do with a batch.
pub trait BatchLayer<T: RealField + Copy>: Layer<T> {
    fn forward_batch(
        &self,
        xs: &[DMatrix<T>],
        masks: &[Mask],
    ) -> Result<BatchOutput<T, Self::Cache>>;
    fn backward_batch(
        &self,
        caches: &[Self::Cache],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<(Parameters<T>, Vec<DMatrix<T>>)>;
}

macro_rules! layer {
    ($layer:ident, $cache:ident) => {
        impl<T: RealField + Copy> BatchLayer<T> for $layer<T> {
            fn forward_batch(
                &self,
                xs: &[DMatrix<T>],
                masks: &[Mask],
            ) -> Result<BatchOutput<T, $cache<T>>> {
                self.forward_batch(xs, masks)
            }
            fn backward_batch(
                &self,
                caches: &[$cache<T>],
                grad_outputs: &[DMatrix<T>],
            ) -> Result<(Parameters<T>, Vec<DMatrix<T>>)> {
                self.backward_batch(caches, grad_outputs)
            }
        }
    };
}
layer!(SingleHeadAttention, SingleHeadCache);
layer!(MultiHeadAttention, MultiHeadCache);

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
    fn parameters_mut(&mut self) -> &mut Parameters<f64> {
        &mut self.layer.parameters
    }
    fn forward(
        &self,
        x: &DMatrix<f64>,
        context: Option<&DMatrix<f64>>,
        mask: &Mask,
    ) -> Result<(DMatrix<f64>, MultiHeadCache<f64>)> {
        let (mut output, mut cache) = Layer::forward(&self.layer, x, context, mask)?;
        (self.output)(&mut output);
        (self.cache)(&mut cache);
        Ok((output, cache))
    }
    fn backward(
        &self,
        cache: &MultiHeadCache<f64>,
        grad_output: &DMatrix<f64>,
    ) -> Result<LayerGradients<f64>> {
        let (_, healthy) =
            Layer::forward(&self.layer, &cache.x, cache.context.as_ref(), &Mask::none())?;
        let mut gradients = self.layer.backward(&healthy, grad_output)?;
        (self.gradients)(&mut gradients);
        Ok(gradients)
    }
    fn heads(cache: &MultiHeadCache<f64>) -> &[AttentionCache<f64>] {
        &cache.heads
    }
}
