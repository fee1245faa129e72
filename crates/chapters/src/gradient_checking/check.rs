//! The parts that all checks of the chapter share.

use anyhow::Result;
use attention::{
    Parameters,
    gradient_check::{GradientCheck, gradient_check},
};
use nalgebra::DMatrix;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

/// The step of a check, here as in the tests.
pub const EPSILON: f64 = 1e-5;

/// Fresh parameters, with biases that are not zero.
pub fn parameters(
    d_model: usize,
    d_k: usize,
    d_v: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Parameters<f64>> {
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng)?;
    for (name, mut matrix) in parameters.named_mut() {
        if name.starts_with('b') {
            matrix.apply(|b| *b = rng.random_range(-0.5..0.5));
        }
    }
    Ok(parameters)
}

type Loss<'a> = dyn Fn(&DMatrix<f64>) -> attention::Result<f64> + 'a;

/// A gradient that may be right or wrong, the place where it is taken, and the loss that it should be the gradient of.
pub struct Case<'a> {
    pub at: DMatrix<f64>,
    pub gradient: DMatrix<f64>,
    pub loss: Box<Loss<'a>>,
}

impl Case<'_> {
    pub fn check(&self, epsilon: f64) -> Result<GradientCheck<f64>> {
        Ok(gradient_check(&self.at, &self.gradient, epsilon, &self.loss)?)
    }

    pub fn relative_error(&self, epsilon: f64) -> Result<f64> {
        Ok(self.check(epsilon)?.max_relative_error)
    }
}
