//! Faults that are planted in a backward pass, each with an input that hides it and one that does not.

use super::check::{Case, parameters};
use crate::random::uniform;
use anyhow::Result;
use attention::{
    AttentionCache, ForwardOptions, Mask, MultiHeadAttention, SingleHeadAttention,
    attention, attention_backward,
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

pub struct Fault {
    pub name: &'static str,
    pub hidden_by: &'static str,
    pub seen_by: &'static str,
    pub case: fn(Trial) -> Result<Case<'static>>,
}

/// A trial of a fault: with the input that hides it or with another one, and with the fault or without it.
#[derive(Clone, Copy)]
pub struct Trial {
    pub hides: bool,
    pub planted: bool,
}

pub const FAULTS: [Fault; 7] = [
    Fault {
        name: "backward computes the weights again, and aligns the causal mask at the first key",
        hidden_by: "4 queries, 4 keys",
        seen_by: "2 queries, 4 keys",
        case: realigned,
    },
    Fault {
        name: "the queries' gradient is doubled",
        hidden_by: "one key",
        seen_by: "2 keys",
        case: doubled,
    },
    Fault {
        name: "softmax's backward pass takes the plain mean of $g$",
        hidden_by: "$Q = 0$, so all weights are equal",
        seen_by: "random $Q$",
        case: plain_mean,
    },
    Fault {
        name: "$W_Q$ instead of $W_Q^\\top$ on the way to $X$",
        hidden_by: "$W_Q = I$",
        seen_by: "random $W_Q$, even if square",
        case: transposed,
    },
    Fault {
        name: "the gradient with respect to $W_Q$ is three times too large",
        hidden_by: "$X = 0$",
        seen_by: "random $X$",
        case: tripled,
    },
    Fault {
        name: "backward computes the weights again, and forgets the mask",
        hidden_by: "no mask",
        seen_by: "a causal mask",
        case: unmasked,
    },
    Fault {
        name: "backward forgets dropout",
        hidden_by: "dropout switched off",
        seen_by: "half of the weights dropped",
        case: without_dropout,
    },
];

/// Draws queries and keys, these many, and values; runs attention; and has the gradient with respect to the queries made.
fn by_queries(
    trial: Trial,
    (n_q, n_k): (usize, usize),
    scale: f64,
    mask: Mask,
    wrong: impl Fn(&AttentionCache<f64>, &DMatrix<f64>) -> attention::Result<DMatrix<f64>>,
) -> Result<Case<'static>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(9);
    let (q, k, v) =
        (scale * uniform(n_q, 4, rng), uniform(n_k, 4, rng), uniform(n_k, 3, rng));
    let r = uniform(n_q, 3, rng);
    let (_, cache) = attention(&q, &k, &v, &mask)?;
    let right = attention_backward(&cache, &r)?.q;
    let gradient = if trial.planted { wrong(&cache, &r)? } else { right };
    let loss = move |q: &DMatrix<f64>| Ok(attention(q, &k, &v, &mask)?.0.dot(&r));
    Ok(Case { at: q, gradient, loss: Box::new(loss) })
}

/// Keys up to the query's own number, counted from the beginning and not from the end.
fn realigned(trial: Trial) -> Result<Case<'static>> {
    let n_q = if trial.hides { 4 } else { 2 };
    by_queries(trial, (n_q, 4), 1.0, Mask::causal(), |cache, r| {
        let mask = Mask::dense(DMatrix::from_fn(n_q, 4, |i, j| j <= i))?;
        Ok(attention_backward(&AttentionCache { mask, ..cache.clone() }, r)?.q)
    })
}

fn doubled(trial: Trial) -> Result<Case<'static>> {
    let n_k = if trial.hides { 1 } else { 2 };
    by_queries(trial, (1, n_k), 1.0, Mask::none(), |cache, r| {
        Ok(2.0 * attention_backward(cache, r)?.q)
    })
}

/// Softmax's backward pass with the plain mean of g in the place of its mean under the weights.
fn plain_mean(trial: Trial) -> Result<Case<'static>> {
    let scale = if trial.hides { 0.0 } else { 1.0 };
    by_queries(trial, (3, 4), scale, Mask::none(), |cache, r| {
        let g = r * cache.v.transpose();
        let mean = g.column_mean();
        let entry = |i, j| cache.weights[(i, j)] * (g[(i, j)] - mean[i]);
        let grad_scores = DMatrix::from_fn(g.nrows(), g.ncols(), entry);
        Ok(grad_scores * &cache.k / 2.0) // √d_k = 2
    })
}

fn unmasked(trial: Trial) -> Result<Case<'static>> {
    let mask = if trial.hides { Mask::none() } else { Mask::causal() };
    by_queries(trial, (4, 4), 1.0, mask, |cache, r| {
        let (_, again) = attention(&cache.q, &cache.k, &cache.v, Mask::none())?;
        Ok(attention_backward(&again, r)?.q)
    })
}

/// Self-attention by x, with W_Q in the place of its transpose.
fn transposed(trial: Trial) -> Result<Case<'static>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(10);
    let mut layer = SingleHeadAttention::from(parameters(4, 4, 4, rng)?);
    if trial.hides {
        layer.parameters.w_q.fill_with_identity();
    }
    let (x, context, r) = (uniform(3, 4, rng), uniform(5, 4, rng), uniform(3, 4, rng));
    let (_, cache) = layer.forward(&x, ForwardOptions::new().context(&context))?;
    let p = &layer.parameters;
    let d = attention_backward(&cache.attention, &(&r * p.w_o.transpose()))?;
    let gradient = if trial.planted { d.q * &p.w_q } else { d.q * p.w_q.transpose() };
    let loss = move |x: &DMatrix<f64>| {
        Ok(layer.forward(x, ForwardOptions::new().context(&context))?.0.dot(&r))
    };
    Ok(Case { at: x, gradient, loss: Box::new(loss) })
}

fn tripled(trial: Trial) -> Result<Case<'static>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(11);
    let layer = SingleHeadAttention::from(parameters(4, 3, 2, rng)?);
    let scale = if trial.hides { 0.0 } else { 1.0 };
    let (x, r) = (scale * uniform(5, 4, rng), uniform(5, 4, rng));
    let (_, cache) = layer.forward(&x, Mask::none())?;
    let factor = if trial.planted { 3.0 } else { 1.0 };
    let gradient = factor * layer.backward(&cache, &r)?.parameters.w_q;
    let at = layer.parameters.w_q.clone();
    let loss = move |w_q: &DMatrix<f64>| {
        let mut layer = layer.clone();
        layer.parameters.w_q.copy_from(w_q);
        Ok(layer.forward(&x, Mask::none())?.0.dot(&r))
    };
    Ok(Case { at, gradient, loss: Box::new(loss) })
}

fn without_dropout(trial: Trial) -> Result<Case<'static>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(12);
    let layer = MultiHeadAttention::from_parameters(parameters(4, 4, 4, rng)?, 2)?;
    let (x, r) = (uniform(5, 4, rng), uniform(5, 4, rng));
    // The same draw each time, or else the slope would be that of another function.
    let p = if trial.hides { 0.0 } else { 0.5 };
    let dropping =
        move || ForwardOptions::new().dropout(p, &mut ChaCha8Rng::seed_from_u64(1));
    // The backward pass forgets what was dropped, as if it belonged to a forward pass without dropout.
    let of_backward = if trial.planted { ForwardOptions::new() } else { dropping() };
    let (_, cache) = layer.forward(&x, of_backward)?;
    let gradient = layer.backward(&cache, &r)?.x;
    let loss = move |x: &DMatrix<f64>| Ok(layer.forward(x, dropping())?.0.dot(&r));
    Ok(Case { at: x, gradient, loss: Box::new(loss) })
}
