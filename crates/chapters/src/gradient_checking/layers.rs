//! The gradients of both layers, by every parameter and the input, under three masks.

use super::check::{Case, parameters};
use crate::random::uniform;
use anyhow::Result;
use attention::{Mask, MultiHeadAttention, SingleHeadAttention};
use laboratory::AttentionLayer;
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// A layer and its input, without a mask.
pub type WithInput<L> = (L, DMatrix<f64>);

/// A layer with one head, and one with two.
pub type Layers =
    (WithInput<SingleHeadAttention<f64>>, WithInput<MultiHeadAttention<f64>>);

pub fn layers() -> Result<Layers> {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let one_head = SingleHeadAttention::from(parameters(6, 4, 3, rng)?);
    let one_head = (one_head, 2.0 * uniform(5, 6, rng));
    let two_heads = MultiHeadAttention::from_parameters(parameters(8, 8, 8, rng)?, 2)?;
    Ok((one_head, (two_heads, 2.0 * uniform(5, 8, rng))))
}

pub fn masks() -> Result<[Mask; 3]> {
    let padding = Mask::padding(&[true, false, true, true, false])?;
    Ok([Mask::none(), Mask::causal(), padding])
}

/// The gradient with respect to x and each parameter, of the loss Σ sin(output) ⊙ P.
pub fn cases<'a, L: AttentionLayer>(
    (layer, x): &'a WithInput<L>,
    mask: &'a Mask,
) -> Result<Vec<(String, Case<'a>)>> {
    let r = uniform(x.nrows(), x.ncols(), &mut ChaCha8Rng::seed_from_u64(8));
    let (output, cache) = layer.forward(x, None, mask)?;
    let gradients = layer.backward(&cache, &output.map(f64::cos).component_mul(&r))?;
    let here = output.map(f64::sin);
    let loss = move |layer: &L, x: &DMatrix<f64>| {
        Ok((layer.forward(x, None, mask)?.0.map(f64::sin) - &here).dot(&r))
    };
    let of_x = loss.clone();
    let by_x = Case {
        at: x.clone(),
        gradient: gradients.x,
        loss: Box::new(move |x| of_x(layer, x)),
    };
    let mut cases = vec![("x".to_owned(), by_x)];
    let named = layer.named().into_iter();
    let named = named.zip(gradients.parameters.named()).enumerate();
    for (i, ((name, value), (_, gradient))) in named {
        let loss = loss.clone();
        let loss = move |entries: &DMatrix<f64>| {
            let mut changed = layer.clone();
            changed.named_mut()[i].1.copy_from(entries);
            loss(&changed, x)
        };
        let (at, gradient) = (value.into_owned(), gradient.into_owned());
        cases.push((name, Case { at, gradient, loss: Box::new(loss) }));
    }
    Ok(cases)
}
