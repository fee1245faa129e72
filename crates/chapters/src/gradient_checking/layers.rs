//! The gradients of both layers, by every parameter and the input, under three masks.

use super::check::{Case, parameters};
use crate::random::uniform;
use anyhow::Result;
use attention::{AttentionLayer, Mask, MultiHeadAttention, SingleHeadAttention};
use nalgebra::{DMatrix, DMatrixView};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// A layer and its input, without a mask.
#[derive(Clone)]
pub struct Layer<L> {
    layer: L,
    x: DMatrix<f64>,
}

/// With one head, and with two.
pub type Layers = (Layer<SingleHeadAttention<f64>>, Layer<MultiHeadAttention<f64>>);

pub fn layers() -> Result<Layers> {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let layer = SingleHeadAttention::from(parameters(6, 4, 3, rng)?);
    let one_head = Layer { layer, x: 2.0 * uniform(5, 6, rng) };
    let layer = MultiHeadAttention::from_parameters(parameters(8, 8, 8, rng)?, 2)?;
    Ok((one_head, Layer { layer, x: 2.0 * uniform(5, 8, rng) }))
}

pub fn masks() -> Result<[Mask; 3]> {
    let padding = Mask::padding(&[true, false, true, true, false])?;
    Ok([Mask::none(), Mask::causal(), padding])
}

impl<L: AttentionLayer<f64> + Clone> Layer<L> {
    /// The layer with other entries in its input or in a parameter.
    fn with(&self, name: &str, entries: &DMatrix<f64>) -> Self {
        let Layer { mut layer, mut x } = self.clone();
        let of_input = [("x", x.as_view_mut())];
        let all = of_input.into_iter().chain(layer.parameters_mut().named_mut());
        for (_, mut changed) in all.filter(|(other, _)| *other == name) {
            changed.copy_from(entries);
        }
        Layer { layer, x }
    }

    /// The gradient by x and by each parameter, of the loss Σ sin(output) ⊙ P.
    pub fn cases<'a>(&'a self, mask: &'a Mask) -> Result<Vec<(&'static str, Case<'a>)>> {
        let Layer { layer, x } = self;
        let r = uniform(x.nrows(), x.ncols(), &mut ChaCha8Rng::seed_from_u64(8));
        let (output, cache) = layer.forward(x, mask)?;
        let gradients =
            layer.backward(&cache, &output.map(f64::cos).component_mul(&r))?;
        let here = output.map(f64::sin);
        let case = |((name, value), (_, gradient)): (
            (_, DMatrixView<f64>),
            (_, DMatrixView<f64>),
        )| {
            let (here, r) = (here.clone(), r.clone());
            let loss = move |entries: &DMatrix<f64>| {
                let Layer { layer, x } = self.with(name, entries);
                Ok((layer.forward(&x, mask)?.0.map(f64::sin) - &here).dot(&r))
            };
            let (at, gradient) = (value.into_owned(), gradient.into_owned());
            (name, Case { at, gradient, loss: Box::new(loss) })
        };
        let values = [("x", x.as_view())].into_iter().chain(layer.parameters().named());
        let by_x = [("x", gradients.x.as_view())];
        let gradients = by_x.into_iter().chain(gradients.parameters.named());
        Ok(values.zip(gradients).map(case).collect())
    }
}
