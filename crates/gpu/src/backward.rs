//! The backward pass on a GPU: matrices in, matrices out.

use crate::programs::{D_K, D_OUTPUT, D_Q, D_V};
use attention::AttentionGradients;
use attention::cuda::{Gpu, OnGpu, Program, Result, Tensor};
use attention::engine::{Engine, wrong_value};
use attention::flash::{FlashOutput, Inputs};
use nalgebra::DMatrixView;
use std::sync::Arc;

/// Returns the gradients of queries, keys and values, as an [`Engine`] finds them, up to rounding. `forward` may come from there, or
/// from [`Gpu::forward`].
///
/// Shapes: `grad_output` as the output (n_q, n_heads · d).
///
/// The kernels keep one number a row, the log-sum-exp L rounded to `f32`, and compute weights as e^(score − L). Each
/// weight is off by a factor of up to e^(|L| · 6·10⁻⁸): half a percent at scores of 10⁵, and at scores beyond 10⁷ the
/// weights of a row no longer sum to 1. Other engines have no such limit.
///
/// # Errors
/// `forward` or `grad_output` doesn't have the shape of these inputs' output, the rule for scores has a table, whose gradient the
/// device doesn't compute, or as [`Gpu::forward`].
pub fn backward<'g>(
    gpu: &Gpu,
    program: Program,
    inputs: &Inputs<f32>,
    forward: &FlashOutput<f32>,
    grad_output: impl Into<DMatrixView<'g, f32>>,
) -> Result<AttentionGradients<f32>> {
    let grad_output = grad_output.into();
    if !inputs.zero_gradients().tables.is_empty() {
        let expected = "the GPU doesn't compute the gradient of a table";
        return Err(wrong_value("mask", "with a table of biases", expected).into());
    }
    inputs.check_output(forward)?;
    inputs.check_grad_output(grad_output)?;
    let others = [
        (Tensor::OUTPUT, forward.output.as_view()),
        (Tensor::LSE, forward.log_sum_exp.as_view()),
        (D_OUTPUT, grad_output),
    ];
    let tensors = gpu.run(program, inputs, &others)?;
    Ok(AttentionGradients {
        q: tensors.read_matrix(D_Q)?,
        k: tensors.read_matrix(D_K)?,
        v: tensors.read_matrix(D_V)?,
        tables: vec![],
    })
}

/// A GPU as an engine with a backward pass, where [`OnGpu`] has none.
#[derive(Debug, Clone)]
pub struct OnGpuWithBackward {
    gpu: Arc<Gpu>,
    forward: OnGpu,
    backward: Program,
}

impl OnGpuWithBackward {
    /// Returns the engine that runs one kernel forward, and another for the gradients: [`BACKWARD`](crate::BACKWARD), say.
    pub fn new(gpu: Arc<Gpu>, forward: Program, backward: Program) -> Self {
        OnGpuWithBackward { forward: OnGpu::new(gpu.clone(), forward), gpu, backward }
    }
}

impl Engine<f32> for OnGpuWithBackward {
    fn forward(&self, inputs: &Inputs<f32>) -> attention::Result<FlashOutput<f32>> {
        self.forward.forward(inputs)
    }

    fn backward(
        &self,
        inputs: &Inputs<f32>,
        forward: &FlashOutput<f32>,
        grad_output: DMatrixView<f32>,
    ) -> attention::Result<AttentionGradients<f32>> {
        Ok(backward(&self.gpu, self.backward, inputs, forward, grad_output)?)
    }
}
