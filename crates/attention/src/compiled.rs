//! The entry points that are compiled once, here, for `f32` and for `f64`.
//!
//! A generic function is compiled in the program that uses it, at that program's level of optimisation, and again in each program.
//! The kernels behind these functions take half a minute to compile, for each set of vector instructions, and are two orders of
//! magnitude slower when they are not optimised. Methods of `f32` and `f64` are not generic, so they are compiled with this crate.

use crate::dot_product::{self, AttentionCache, AttentionGradients};
use crate::error::Result;
use crate::flash::{Flash, FlashOutput, Inputs, PagedInputs};
use crate::mask::Mask;
use crate::simd::{self, Factor, Float};
use nalgebra::{DMatrix, DMatrixView};

/// The functions of this crate that take long, for one type of number.
pub trait Compiled: Sized {
    fn multiply(a: Factor<Self>, b: Factor<Self>, bias: Option<&[Self]>) -> DMatrix<Self>
    where
        Self: Float;

    fn attend(
        q: DMatrixView<Self>,
        k: DMatrixView<Self>,
        v: DMatrixView<Self>,
        mask: &Mask,
        dropout: Option<DMatrix<Self>>,
    ) -> Result<(DMatrix<Self>, AttentionCache<Self>)>
    where
        Self: Float;

    fn attend_backward(
        cache: &AttentionCache<Self>,
        grad_output: DMatrixView<Self>,
    ) -> Result<AttentionGradients<Self>>
    where
        Self: Float;

    fn flash_forward(flash: &Flash, inputs: &Inputs<Self>) -> FlashOutput<Self>
    where
        Self: Float;

    fn flash_forward_paged(
        flash: &Flash,
        inputs: &PagedInputs<Self>,
    ) -> FlashOutput<Self>
    where
        Self: Float;

    fn flash_backward(
        flash: &Flash,
        inputs: &Inputs<Self>,
        forward: &FlashOutput<Self>,
        grad_output: DMatrixView<Self>,
    ) -> AttentionGradients<Self>
    where
        Self: Float;
}

macro_rules! compiled {
    ($float:ty) => {
        impl Compiled for $float {
            fn multiply(
                a: Factor<Self>,
                b: Factor<Self>,
                bias: Option<&[Self]>,
            ) -> DMatrix<Self> {
                simd::multiply(a, b, bias)
            }

            fn attend(
                q: DMatrixView<Self>,
                k: DMatrixView<Self>,
                v: DMatrixView<Self>,
                mask: &Mask,
                dropout: Option<DMatrix<Self>>,
            ) -> Result<(DMatrix<Self>, AttentionCache<Self>)> {
                dot_product::attend(q, k, v, mask, dropout)
            }

            fn attend_backward(
                cache: &AttentionCache<Self>,
                grad_output: DMatrixView<Self>,
            ) -> Result<AttentionGradients<Self>> {
                dot_product::attend_backward(cache, grad_output)
            }

            fn flash_forward(flash: &Flash, inputs: &Inputs<Self>) -> FlashOutput<Self> {
                flash.run_forward(inputs)
            }

            fn flash_forward_paged(
                flash: &Flash,
                inputs: &PagedInputs<Self>,
            ) -> FlashOutput<Self> {
                flash.run_forward_paged(inputs)
            }

            fn flash_backward(
                flash: &Flash,
                inputs: &Inputs<Self>,
                forward: &FlashOutput<Self>,
                grad_output: DMatrixView<Self>,
            ) -> AttentionGradients<Self> {
                flash.run_backward(inputs, forward, grad_output)
            }
        }
    };
}

compiled!(f32);
compiled!(f64);
