//! [`Flash`] as an engine, compiled once, here, for `f32` and for `f64`.
//!
//! A generic function is compiled in the program that uses it, at that program's level of optimisation, and again in each program.
//! The kernels behind these functions take half a minute to compile, for each set of vector instructions, and are two orders of
//! magnitude slower when they are not optimised. Methods of `f32` and `f64` are not generic, so they are compiled with this crate.

use crate::forward::Flash;
use crate::simd;
use attention::engine::{Engine, Factor, PagedInputs};
use attention::flash::{FlashOutput, Inputs};
use attention::{AttentionGradients, Result};
use nalgebra::{DMatrix, DMatrixView};

macro_rules! compiled {
    ($float:ty) => {
        impl Engine<$float> for Flash {
            fn forward(&self, inputs: &Inputs<$float>) -> Result<FlashOutput<$float>> {
                Ok(self.run_forward(inputs))
            }

            fn backward(
                &self,
                inputs: &Inputs<$float>,
                forward: &FlashOutput<$float>,
                grad_output: DMatrixView<$float>,
            ) -> Result<AttentionGradients<$float>> {
                inputs.check_output(forward)?;
                inputs.check_grad_output(grad_output)?;
                Ok(self.run_backward(inputs, forward, grad_output))
            }

            fn forward_paged(
                &self,
                inputs: &PagedInputs<$float>,
            ) -> Result<FlashOutput<$float>> {
                Ok(self.run_forward_paged(inputs))
            }

            fn product(
                &self,
                a: Factor<$float>,
                b: Factor<$float>,
                bias: Option<&[$float]>,
            ) -> DMatrix<$float> {
                simd::multiply(a, b, bias)
            }
        }
    };
}

compiled!(f32);
compiled!(f64);
