//! The gradients of a program in tiles, and how they are checked.

use crate::random::uniform;
use anyhow::Result;
use attention::flash::{Inputs, Tiles, tiled_attention, tiled_attention_backward};
use attention::{AttentionGradients, Mask, gradient_check};
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

pub const HEADS: usize = 2;
pub const TILES: Tiles = Tiles { queries: 2, keys: 3 };

/// Queries, keys and values.
pub type Matrices = [DMatrix<f64>; 3];

/// Returns the inputs of two heads.
pub fn inputs<'a>(
    [q, k, v]: &'a Matrices,
    mask: &'a Mask,
) -> attention::Result<Inputs<'a, f64>> {
    Inputs::new(q, k, v, mask)?.with_heads(HEADS)
}

/// A program from inputs, a mask and the gradient of the output to the output and the gradients of the inputs.
pub type Program = fn(&Matrices, &Mask, &DMatrix<f64>) -> BothPasses;
pub type BothPasses = attention::Result<(DMatrix<f64>, AttentionGradients<f64>)>;

/// The program of the chapter.
pub fn tiled(of: &Matrices, mask: &Mask, grad_output: &DMatrix<f64>) -> BothPasses {
    let inputs = inputs(of, mask)?;
    let forward = tiled_attention(&inputs, TILES)?;
    let gradients = tiled_attention_backward(&inputs, &forward, grad_output, TILES)?;
    Ok((forward.output, gradients))
}

/// The problem that is checked: (5 queries, 7 keys) in two heads of (4, 3).
pub struct Problem {
    inputs: Matrices,
    /// The factors of the outputs in the loss.
    r: DMatrix<f64>,
}

impl Problem {
    pub fn new() -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(11);
        let (q, k) = (2.0 * uniform(5, 8, rng), uniform(7, 8, rng));
        Problem { inputs: [q, k, uniform(7, 6, rng)], r: uniform(5, 6, rng) }
    }

    /// The worst relative error by queries, keys and values, with the loss Σ sin(output) ⊙ P and central differences.
    pub fn worst(&self, program: Program, mask: &Mask, epsilon: f64) -> Result<[f64; 3]> {
        let (output, _) = program(&self.inputs, mask, &self.r)?;
        let here = output.map(f64::sin);
        let grad_output = output.map(f64::cos).component_mul(&self.r);
        let (_, gradients) = program(&self.inputs, mask, &grad_output)?;
        let worst = |i: usize, gradient: &DMatrix<f64>| -> Result<f64> {
            let loss = |input: &DMatrix<f64>| {
                let mut inputs = self.inputs.clone();
                inputs[i] = input.clone();
                let (output, _) = program(&inputs, mask, &self.r)?;
                Ok((output.map(f64::sin) - &here).dot(&self.r))
            };
            let check = gradient_check(&self.inputs[i], gradient, epsilon, loss)?;
            Ok(check.max_relative_error)
        };
        Ok([worst(0, &gradients.q)?, worst(1, &gradients.k)?, worst(2, &gradients.v)?])
    }
}

/// Masks, by name.
pub fn masks() -> Result<[(&'static str, Mask); 6]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(12);
    let padding = Mask::padding(&[true, false, true, true, false, true, true])?;
    Ok([
        ("none", Mask::none()),
        ("causal", Mask::causal()),
        ("padding", padding.clone()),
        ("window of 2", Mask::window(2)?),
        ("dense", Mask::dense(DMatrix::from_fn(5, 7, |_, _| rng.random_bool(0.5)))?),
        ("causal and padding", Mask::causal().and(padding)),
    ])
}
