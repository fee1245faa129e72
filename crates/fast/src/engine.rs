//! [`Flash`] as an engine, compiled once, here, for `f32` and for `f64`.
//!
//! A generic function is compiled in the program that uses it, at that program's level of optimisation, and again in each program.
//! The kernels behind these functions take half a minute to compile, for each set of vector instructions, and are two orders of
//! magnitude slower when they are not optimised. Methods of `f32` and `f64` are not generic, so they are compiled with this crate.

use crate::forward::Flash;
use crate::simd::{self, Float};
use attention::engine::{Engine, Factor, PagedInputs};
use attention::flash::{FlashOutput, Inputs};
use attention::{AttentionGradients, Result};
use nalgebra::{DMatrix, DMatrixView};

/// The functions of this crate that take long, for one type of number.
pub trait Compiled: Sized + attention::Float {
    fn forward(flash: &Flash, inputs: &Inputs<Self>) -> FlashOutput<Self>;
    fn forward_paged(flash: &Flash, inputs: &PagedInputs<Self>) -> FlashOutput<Self>;
    fn backward(
        flash: &Flash,
        inputs: &Inputs<Self>,
        forward: &FlashOutput<Self>,
        grad_output: DMatrixView<Self>,
    ) -> AttentionGradients<Self>;
    fn multiply(
        flash: &Flash,
        a: Factor<Self>,
        b: Factor<Self>,
        bias: Option<&[Self]>,
    ) -> DMatrix<Self>;
}

macro_rules! compiled {
    ($float:ty) => {
        impl Compiled for $float {
            fn forward(flash: &Flash, inputs: &Inputs<Self>) -> FlashOutput<Self> {
                flash.run_forward(inputs)
            }

            fn forward_paged(
                flash: &Flash,
                inputs: &PagedInputs<Self>,
            ) -> FlashOutput<Self> {
                flash.run_forward_paged(inputs)
            }

            fn backward(
                flash: &Flash,
                inputs: &Inputs<Self>,
                forward: &FlashOutput<Self>,
                grad_output: DMatrixView<Self>,
            ) -> AttentionGradients<Self> {
                flash.run_backward(inputs, forward, grad_output)
            }

            fn multiply(
                flash: &Flash,
                a: Factor<Self>,
                b: Factor<Self>,
                bias: Option<&[Self]>,
            ) -> DMatrix<Self> {
                simd::multiply(a, b, bias, flash.is_batch_invariant())
            }
        }
    };
}

compiled!(f32);
compiled!(f64);

impl<T: Float> Engine<T> for Flash {
    fn forward(&self, inputs: &Inputs<T>) -> Result<FlashOutput<T>> {
        Ok(T::forward(self, inputs))
    }

    fn backward(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> Result<AttentionGradients<T>> {
        inputs.check_output(forward)?;
        inputs.check_grad_output(grad_output)?;
        Ok(T::backward(self, inputs, forward, grad_output))
    }

    fn forward_paged(&self, inputs: &PagedInputs<T>) -> Result<FlashOutput<T>> {
        Ok(T::forward_paged(self, inputs))
    }

    fn product(&self, a: Factor<T>, b: Factor<T>, bias: Option<&[T]>) -> DMatrix<T> {
        T::multiply(self, a, b, bias)
    }
}
