//! Random matrices, parameters and masks, and what an error blames.

use crate::{
    AttentionCache, Error, Float, ForwardOptions, HeadsCache, Mask, MultiHeadCache,
    Parameters,
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// A matrix of numbers between −1 and 1, the same for the same seed.
pub fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
    super::one_problem::numbers(rows, columns, seed)
}

/// Fresh parameters whose biases are not zero, so that a forgotten bias is seen.
pub fn parameters(d_model: usize, d_k: usize, d_v: usize, seed: u64) -> Parameters<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng).expect("sizes");
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

/// The options with this mask and, in cross-attention, this context.
pub fn options<'a, T: Float>(
    context: Option<&'a DMatrix<T>>,
    mask: &Mask,
) -> ForwardOptions<'a, T> {
    let options = ForwardOptions::from(mask);
    match context {
        Some(context) => options.context(context),
        None => options,
    }
}

/// One mask of every kind, and two of them combined so that, if there are as many queries as keys, the first sees nothing.
pub fn masks(n_q: usize, n_k: usize) -> Vec<(&'static str, Mask)> {
    let valid: Vec<bool> = (0..n_k).map(|j| j % 3 != 0).collect();
    let padding =
        if n_k == 1 { Mask::none() } else { Mask::padding(&valid).expect("keys") };
    let allowed = DMatrix::from_fn(n_q, n_k, |i, j| i == j || (5 * i + 3 * j) % 4 < 2);
    let blocks =
        DMatrix::from_fn(n_q.div_ceil(2), n_k.div_ceil(2), |i, j| (i + j) % 3 < 2);
    vec![
        ("none", Mask::none()),
        ("causal", Mask::causal()),
        ("padding", padding.clone()),
        ("window", Mask::window(2).expect("a width")),
        ("dense", Mask::dense(allowed).expect("entries")),
        ("blocks", Mask::blocks(2, blocks).expect("entries")),
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

/// An error's variant and the argument that it blames, such as `Shape k`: what tables of misuses expect.
pub fn blame(error: &Error) -> String {
    let (variant, argument) = match error {
        Error::Empty { argument, .. } => ("Empty", *argument),
        Error::Shape { argument, .. } => ("Shape", *argument),
        Error::Zero { argument } => ("Zero", *argument),
        Error::Indivisible { argument, .. } => ("Indivisible", *argument),
        Error::TooMany { argument, .. } => ("TooMany", *argument),
        Error::OutOfRange { argument, .. } => ("OutOfRange", *argument),
        Error::NoMemory { rows, columns } => {
            ("NoMemory", if rows.1 > columns.1 { rows.0 } else { columns.0 })
        }
        Error::Overflow { argument } => ("Overflow", *argument),
        Error::OtherParameters { argument } => ("OtherParameters", *argument),
        Error::Elsewhere { argument, .. } => ("Elsewhere", *argument),
        Error::Unsupported { argument, .. } => ("Unsupported", *argument),
        Error::Within { place, source } => return format!("{place}: {}", blame(source)),
    };
    format!("{variant} {argument}")
}
