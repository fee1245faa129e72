//! The chapter's numbers.

use super::wrong;
use crate::backward::gradients_by_path;
use crate::gradient_checking::parameters;
use crate::random::{normal, uniform};
use crate::records::least_and_most;
use crate::sentences::{Steps, projected};
use anyhow::Result;
use attention::{
    ForwardOptions, Mask, MultiHeadAttention, MultiHeadCache, SingleHeadAttention,
    SingleHeadCache, attention_weights, example, row_entropy,
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

pub const KEYS: usize = 8;
pub const ROWS: usize = 5000;

/// The result of a wrong way, and the right one.
pub struct Results<T> {
    pub wrong: T,
    pub right: T,
}

/// The mean largest weight of rows of random queries and keys with `d_k` features. Wrong: the scores are divided by
/// `divisor`, and not by √d_k.
pub fn largest_weight(d_k: usize, divisor: f64) -> Result<Results<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(d_k as u64);
    let (mut wrong, mut right) = (0.0, 0.0);
    for _ in 0..ROWS {
        let (q, k) = (normal(1, d_k, rng), normal(KEYS, d_k, rng));
        wrong += wrong::unscaled_weights(&(&q / divisor), &k)?.max() / ROWS as f64;
        right += attention_weights(&q, &k, Mask::none())?.0.max() / ROWS as f64;
    }
    Ok(Results { wrong, right })
}

/// Returns the [`largest_weight`] of one of the eight heads of a model of width 512, divided by the root of that width.
pub fn largest_weight_by_model() -> Result<Results<f64>> {
    largest_weight(64, 512_f64.sqrt())
}

/// The tokens of [`padded`] that are real.
pub const REAL: [bool; 8] = [true, true, true, true, true, true, false, false];

/// Attention over the running example and two rows of padding, each like the word "the", under this padding mask.
pub fn padded(valid: [bool; 8]) -> Result<Steps> {
    let x = example::river().x.insert_rows(6, 2, 0.1);
    projected(&x, &x, &Mask::padding(&valid)?)
}

/// Pairs of a query and a later key: those that a mask allows, and all.
pub fn future_seen() -> Result<(usize, usize)> {
    let mask = wrong::tile_added_twice(6)?;
    let mask = mask.sized(6, 6)?;
    let future = (0..6).flat_map(|i| (i + 1..6).map(move |j| (i, j)));
    let seen = future.clone().filter(|&(i, j)| mask.allows(i, j)).count();
    Ok((seen, future.count()))
}

/// Both sentences of the running example, one below the other, as if they were one: the mean share of a token's weights that
/// lies on the other sentence, and the outputs.
pub fn stacked() -> Result<(f64, Results<DMatrix<f64>>)> {
    let (river, city) = (example::river().x, example::city().x);
    let both = DMatrix::from_fn(12, 4, |i, c| match i {
        i if i < 6 => river[(i, c)],
        i => city[(i - 6, c)],
    });
    let wrong = projected(&both, &both, &Mask::none())?;
    let elsewhere = |i: usize| {
        let other = if i < 6 { 6 } else { 0 };
        wrong.weights.columns(other, 6).row(i).sum()
    };
    let right = projected(&river, &river, &Mask::none())?.output;
    let share_elsewhere = (0..12).map(elsewhere).sum::<f64>() / 12.0;
    Ok((share_elsewhere, Results { wrong: wrong.output, right }))
}

/// A layer with two heads, of which the second asks nothing, after the running example has passed it.
pub fn with_a_flat_head() -> Result<(MultiHeadAttention<f64>, MultiHeadCache<f64>)> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut layer = MultiHeadAttention::<f64>::xavier(4, 2, rng)?;
    layer.parameters.w_q *= 6.0;
    layer.parameters.w_q.columns_mut(2, 2).fill(0.0);
    let (_, cache) = layer.forward(&example::river().x, Mask::none())?;
    Ok((layer, cache))
}

/// Mean entropies of both heads of [`with_a_flat_head`], the live one first, and of the mean of their weights.
pub fn head_entropies() -> Result<[f64; 3]> {
    let (_, cache) = with_a_flat_head()?;
    let [live, flat] = [&cache.heads()[0].weights, &cache.heads()[1].weights];
    let entropy = |weights: &DMatrix<f64>| anyhow::Ok(row_entropy(weights)?.mean());
    Ok([entropy(live)?, entropy(flat)?, entropy(&((live + flat) / 2.0))?])
}

/// The most that an entropy of six weights can be.
pub fn most_entropy() -> f64 {
    6.0_f64.ln()
}

pub const SEEDS: u64 = 10_000;

/// The mean sum of a row of weights under dropout. Wrong: what is kept is not divided by its probability.
pub fn dropout_sums() -> Result<Results<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer = MultiHeadAttention::<f64>::xavier(4, 1, rng)?;
    let x = example::river().x;
    let (mut wrong, mut right) = (0.0, 0.0);
    for _ in 0..SEEDS {
        let (_, cache) = layer.forward(&x, ForwardOptions::new().dropout(0.5, rng))?;
        let used = cache.heads()[0].weights_used()?;
        let kept = cache.heads()[0]
            .weights
            .zip_map(&used, |p, u| if u == 0.0 { 0.0 } else { p });
        wrong += kept.sum() / 6.0 / SEEDS as f64;
        right += used.sum() / 6.0 / SEEDS as f64;
    }
    Ok(Results { wrong, right })
}

/// A layer after the running example has passed it, and the gradient that its output gets.
pub struct Passed {
    pub layer: SingleHeadAttention<f64>,
    pub cache: SingleHeadCache<f64>,
    pub grad_output: DMatrix<f64>,
}

pub fn passed(seed: u64) -> Result<Passed> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let layer = SingleHeadAttention::from(parameters(4, 3, 2, rng)?);
    let grad_output = uniform(6, 4, rng);
    let (_, cache) = layer.forward(&example::river().x, Mask::none())?;
    Ok(Passed { layer, cache, grad_output })
}

/// A layer that has made a step since it wrote its cache.
pub fn stale(seed: u64) -> Result<Passed> {
    let mut stale = passed(seed)?;
    let step = stale.layer.backward(&stale.cache, &stale.grad_output)?.parameters;
    stale.layer.parameters.step(&step, 0.1)?;
    Ok(stale)
}

pub const STALE_SEEDS: u64 = 20;

/// Returns the error of the input's gradient with a stale cache, if a backward pass takes any: the least and the most of
/// several layers.
pub fn off_by_stale_caches() -> Result<(f64, f64)> {
    let all = (0..STALE_SEEDS).map(off_by_stale_cache).collect::<Result<Vec<_>>>()?;
    Ok(least_and_most(all))
}

fn off_by_stale_cache(seed: u64) -> Result<f64> {
    let Passed { layer, cache, grad_output } = stale(seed)?;
    let [q, k, v] = gradients_by_path(&layer.parameters, &cache, &grad_output)?;
    let (_, cache) = layer.forward(&example::river().x, Mask::none())?;
    let fresh = layer.backward(&cache, &grad_output)?.x;
    Ok((q + k + v - &fresh).norm() / fresh.norm())
}
