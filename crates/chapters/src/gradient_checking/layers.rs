//! The gradients of both layers, by every parameter and the input, under three masks.

use super::check::{Case, parameters};
use crate::random::uniform;
use anyhow::Result;
use attention::{
    LayerGradients, Mask, MultiHeadAttention, Parameters, SingleHeadAttention,
};
use nalgebra::{DMatrix, DMatrixView};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// What runs a layer with these parameters: output, and gradients from the gradient by the output.
type Run =
    fn(&Parameters<f64>, &DMatrix<f64>, &Mask) -> attention::Result<(DMatrix<f64>, Back)>;
type Back = Box<dyn Fn(&DMatrix<f64>) -> attention::Result<LayerGradients<f64>>>;

fn single_head(
    p: &Parameters<f64>,
    x: &DMatrix<f64>,
    mask: &Mask,
) -> attention::Result<(DMatrix<f64>, Back)> {
    let layer = SingleHeadAttention::from(p.clone());
    let (output, cache) = layer.forward(x, mask)?;
    Ok((output, Box::new(move |grad_output| layer.backward(&cache, grad_output))))
}

fn two_heads(
    p: &Parameters<f64>,
    x: &DMatrix<f64>,
    mask: &Mask,
) -> attention::Result<(DMatrix<f64>, Back)> {
    let layer = MultiHeadAttention::from_parameters(p.clone(), 2)?;
    let (output, cache) = layer.forward(x, mask)?;
    Ok((output, Box::new(move |grad_output| layer.backward(&cache, grad_output))))
}

/// A layer and its input, without a mask.
#[derive(Clone)]
pub struct Layer {
    run: Run,
    parameters: Parameters<f64>,
    x: DMatrix<f64>,
}

/// With one head, and with two.
pub fn layers() -> Result<[Layer; 2]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    Ok([
        Layer {
            run: single_head,
            parameters: parameters(6, 4, 3, rng)?,
            x: 2.0 * uniform(5, 6, rng),
        },
        Layer {
            run: two_heads,
            parameters: parameters(8, 8, 8, rng)?,
            x: 2.0 * uniform(5, 8, rng),
        },
    ])
}

pub fn masks() -> Result<[Mask; 3]> {
    let padding = Mask::padding(&[true, false, true, true, false])?;
    Ok([Mask::none(), Mask::causal(), padding])
}

impl Layer {
    /// The layer with other entries in its input or in a parameter.
    fn with(&self, name: &str, entries: &DMatrix<f64>) -> Layer {
        let mut layer = self.clone();
        let of_input = [("x", layer.x.as_view_mut())];
        let all = of_input.into_iter().chain(layer.parameters.named_mut());
        for (_, mut changed) in all.filter(|(other, _)| *other == name) {
            changed.copy_from(entries);
        }
        layer
    }

    /// The gradient by x and by each parameter, of the loss Σ sin(output) ⊙ P.
    pub fn cases<'a>(&'a self, mask: &'a Mask) -> Result<Vec<(&'static str, Case<'a>)>> {
        let Layer { run, parameters, x } = self;
        let r = uniform(x.nrows(), x.ncols(), &mut ChaCha8Rng::seed_from_u64(8));
        let (output, back) = run(parameters, x, mask)?;
        let gradients = back(&output.map(f64::cos).component_mul(&r))?;
        let here = output.map(f64::sin);
        let case = |((name, value), (_, gradient)): (
            (_, DMatrixView<f64>),
            (_, DMatrixView<f64>),
        )| {
            let (here, r) = (here.clone(), r.clone());
            let loss = move |entries: &DMatrix<f64>| {
                let Layer { run, parameters, x } = self.with(name, entries);
                Ok((run(&parameters, &x, mask)?.0.map(f64::sin) - &here).dot(&r))
            };
            let (at, gradient) = (value.into_owned(), gradient.into_owned());
            (name, Case { at, gradient, loss: Box::new(loss) })
        };
        let values = [("x", x.as_view())].into_iter().chain(parameters.named());
        let by_x = [("x", gradients.x.as_view())];
        let gradients = by_x.into_iter().chain(gradients.parameters.named());
        Ok(values.zip(gradients).map(case).collect())
    }
}
