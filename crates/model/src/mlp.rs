//! The layer between two attentions: each token by itself, through a wide hidden layer.

use crate::norm::{NormCache, RmsNorm};
use crate::random::normal;
use attention::{
    Result,
    engine::{linear_backward_by, linear_by},
    named_parameters,
};
use fast::{Flash, Float};
use nalgebra::{DMatrix, RowDVector};
use rand::Rng;

/// `silu(norm(x) W₁ + b₁) W₂ + b₂`, where silu(h) = h / (1 + e^−h).
#[derive(Debug, Clone, PartialEq)]
pub struct Mlp<T: Float> {
    /// Of the input.
    pub norm: RmsNorm<T>,
    /// (d_model, d_hidden)
    pub w_1: DMatrix<T>,
    /// (1, d_hidden)
    pub b_1: RowDVector<T>,
    /// (d_hidden, d_model)
    pub w_2: DMatrix<T>,
    /// (1, d_model)
    pub b_2: RowDVector<T>,
}

named_parameters! {
    impl[T: Float] NamedParameters<T> for Mlp<T> { norm, w_1, b_1, w_2, b_2 }
}

/// What [`Mlp::backward`] needs of the forward pass.
#[derive(Debug, Clone)]
pub struct MlpCache<T: Float> {
    norm: NormCache<T>,
    normed: DMatrix<T>,
    gate: DMatrix<T>,   // the sigmoid of the hidden layer (n, d_hidden)
    active: DMatrix<T>, // silu of it
}

impl<T: Float> Mlp<T> {
    /// Returns a layer with fresh weights, whose output is small at first.
    pub fn new<R: Rng + ?Sized>(
        d_model: usize,
        d_hidden: usize,
        output: f64,
        rng: &mut R,
    ) -> Self {
        Mlp {
            norm: RmsNorm::new(d_model),
            w_1: normal(d_model, d_hidden, (d_model as f64).powf(-0.5), rng),
            b_1: RowDVector::zeros(d_hidden),
            w_2: normal(d_hidden, d_model, output * (d_hidden as f64).powf(-0.5), rng),
            b_2: RowDVector::zeros(d_model),
        }
    }

    /// Shapes: `x` (n, d_model) → (n, d_model).
    ///
    /// # Errors
    /// `x` is not d_model wide.
    pub fn forward(&self, x: &DMatrix<T>) -> Result<(DMatrix<T>, MlpCache<T>)> {
        let (normed, norm) = self.norm.forward(x);
        let hidden = linear_by(&Flash::new(), &normed, &self.w_1, &self.b_1)?;
        let gate = sigmoid(&hidden);
        let active = hidden.component_mul(&gate); // silu
        let y = linear_by(&Flash::new(), &active, &self.w_2, &self.b_2)?;
        Ok((y, MlpCache { norm, normed, gate, active }))
    }

    /// Returns the gradients with respect to `x` (n, d_model) and to the parameters.
    ///
    /// # Errors
    /// `grad_y` is not of the output's shape.
    pub fn backward(
        &self,
        cache: &MlpCache<T>,
        grad_y: &DMatrix<T>,
    ) -> Result<(DMatrix<T>, Mlp<T>)> {
        let MlpCache { norm, normed, gate, active } = cache;
        let (mut grad_hidden, w_2, b_2) =
            linear_backward_by(&Flash::new(), active, &self.w_2, grad_y)?;
        // silu′ = s + h s (1 − s), where s is the sigmoid and h s is silu.
        grad_hidden.zip_zip_apply(gate, active, |grad, s, active| {
            *grad *= s + active * (T::one() - s);
        });
        let (grad_normed, w_1, b_1) =
            linear_backward_by(&Flash::new(), normed, &self.w_1, &grad_hidden)?;
        let (grad_x, norm) = self.norm.backward(norm, &grad_normed);
        Ok((grad_x, Mlp { norm, w_1, b_1, w_2, b_2 }))
    }
}

/// Returns 1 / (1 + e^−h) for each entry.
fn sigmoid<T: Float>(h: &DMatrix<T>) -> DMatrix<T> {
    let mut s = -h;
    T::exp_all(s.as_mut_slice()); // infinite at worst, where the sigmoid is 0
    s.apply(|power| *power = (T::one() + *power).recip());
    s
}
