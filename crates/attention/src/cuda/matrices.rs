//! The same calls as on a CPU: matrices in, matrices out.

use super::compile::Variant;
use super::device::Gpu;
use super::error::Result;
use super::parameters::Role;
use super::program::{Kernel, Program};
use super::shape::Shape;
use crate::dot_product::AttentionGradients;
use crate::error::unsupported;
use crate::flash::{FlashOutput, Inputs};
use nalgebra::{DMatrix, DMatrixView};

impl Gpu {
    /// The output, and the log-sum-exps, as [`Flash::forward`](crate::flash::Flash::forward) finds them, up to
    /// rounding. A kernel in bf16 rounds its inputs and its output.
    ///
    /// Everything is copied to the device and back: to time a kernel, use [`Gpu::tensors`].
    ///
    /// # Errors
    /// The mask is neither none nor causal, values are not as wide as keys, its rule for scores is a function of one's own, the kernel takes
    /// no rules and no shared keys, or as [`Gpu::tensors`].
    ///
    /// ```no_run
    /// use attention::cuda::{Gpu, Kernel};
    /// use attention::{Mask, flash::Inputs};
    /// use nalgebra::{DMatrix, DMatrixView};
    ///
    /// let x = DMatrix::from_fn(300, 2 * 64, |i, j| ((i + 2 * j) as f32).sin());
    /// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(2)?;
    /// let forward = Gpu::open()?.forward(Kernel::Tiled, &inputs)?;
    /// assert_eq!(forward.output.shape(), x.shape());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forward(
        &self,
        kernel: Kernel,
        inputs: &Inputs<f32>,
    ) -> Result<FlashOutput<f32>> {
        let (shape, variant) = (Shape::of(inputs)?, Variant::of(inputs)?);
        let [q, k, v] = heads_first(inputs);
        let inputs = [(Role::Q, &q[..]), (Role::K, &k), (Role::V, &v)];
        let program = Program::Forward(kernel);
        let mut tensors = self.place(program, shape, variant, vec![], &inputs)?;
        tensors.launch()?;
        Ok(FlashOutput {
            output: side_by_side(&tensors.output()?, shape.heads, shape.n_q),
            // (heads, n_q) by rows is (n_q, heads) by columns
            log_sum_exp: DMatrix::from_vec(shape.n_q, shape.heads, tensors.lse()?),
            log_sum_exp_low: DMatrix::zeros(shape.n_q, shape.heads), // the kernels keep one number a row
        })
    }

    /// The gradients of queries, keys and values, as [`Flash::backward`](crate::flash::Flash::backward) finds them, up
    /// to rounding. `forward` may come from there, or from [`Gpu::forward`].
    ///
    /// Shapes: `grad_output` as the output (n_q, n_heads · d).
    /// The kernels keep one number a row, the log-sum-exp L rounded to `f32`, and compute weights as e^(score − L). Each
    /// weight is off by a factor of up to e^(|L| · 6·10⁻⁸): half a percent at scores of 10⁵, and at scores beyond 10⁷ the
    /// weights of a row no longer sum to 1. [`Flash`](crate::flash::Flash) has no such limit.
    ///
    /// # Errors
    /// `forward` or `grad_output` doesn't have the shape of these inputs' output, the rule for scores has a table, whose gradient the
    /// device doesn't compute, or as [`Gpu::forward`].
    ///
    /// ```no_run
    /// use attention::cuda::Gpu;
    /// use attention::{Mask, flash::{Flash, Inputs}};
    /// use nalgebra::{DMatrix, DMatrixView};
    ///
    /// let x = DMatrix::from_fn(300, 64, |i, j| ((i + 2 * j) as f32).sin());
    /// let mask = Mask::none();
    /// let inputs = Inputs::new(&x, &x, &x, &mask)?;
    /// let forward = Flash::new().forward(&inputs);
    /// let gradients = Gpu::open()?.backward(&inputs, &forward, &x)?;
    /// assert_eq!(gradients.k.shape(), (300, 64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backward(
        &self,
        inputs: &Inputs<f32>,
        forward: &FlashOutput<f32>,
        grad_output: &DMatrix<f32>,
    ) -> Result<AttentionGradients<f32>> {
        let (shape, variant) = (Shape::of(inputs)?, Variant::of(inputs)?);
        if !inputs.mask.scores().zero_tables::<f32>().is_empty() {
            let expected = "the GPU doesn't compute the gradient of a table";
            return Err(unsupported("mask", "with a table of biases", expected).into());
        }
        inputs.check_output(forward)?;
        inputs.check_grad_output(grad_output.as_view())?;
        let [q, k, v] = heads_first(inputs);
        let output = by_heads(&forward.output, shape.heads);
        let d_output = by_heads(grad_output, shape.heads);
        let copied = [
            (Role::Q, &q[..]),
            (Role::K, &k),
            (Role::V, &v),
            (Role::Output, &output),
            (Role::Lse, forward.log_sum_exp.as_slice()),
            (Role::GradOutput, &d_output),
        ];
        let mut tensors =
            self.place(Program::Backward, shape, variant, vec![], &copied)?;
        tensors.launch()?;
        let [d_q, d_k, d_v] = tensors.gradients()?;
        Ok(AttentionGradients {
            q: side_by_side(&d_q, shape.heads, shape.n_q),
            k: side_by_side(&d_k, shape.kv_heads, shape.n_k),
            v: side_by_side(&d_v, shape.kv_heads, shape.n_k),
            tables: vec![],
        })
    }
}

/// Queries, keys and values, (heads, n, d) each.
fn heads_first(inputs: &Inputs<f32>) -> [Vec<f32>; 3] {
    let [heads, kv_heads] = [inputs.n_heads(), inputs.n_kv_heads()];
    [(inputs.q, heads), (inputs.k, kv_heads), (inputs.v, kv_heads)]
        .map(|(matrix, heads)| by_heads(matrix, heads))
}

/// From (n, heads · d), by columns as nalgebra stores it, to (heads, n, d), by rows.
fn by_heads<'a>(matrix: impl Into<DMatrixView<'a, f32>>, heads: usize) -> Vec<f32> {
    let matrix = matrix.into();
    let d = matrix.ncols() / heads;
    let head = |h| matrix.columns(h * d, d).transpose(); // (d, n) by columns is (n, d) by rows
    (0..heads).flat_map(|h| head(h).as_slice().to_vec()).collect()
}

/// From (heads, n, d), by rows, to (n, heads · d).
fn side_by_side(values: &[f32], heads: usize, n: usize) -> DMatrix<f32> {
    let d = values.len() / (heads * n);
    let mut matrix = DMatrix::zeros(n, heads * d);
    for (h, head) in values.chunks_exact(n * d).enumerate() {
        matrix.columns_mut(h * d, d).copy_from(&DMatrix::from_row_slice(n, d, head));
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_first_and_go_back() {
        let matrix = DMatrix::from_fn(3, 4, |i, j| (10 * i + j) as f32); // two heads of width 2
        let tensor = by_heads(&matrix, 2);
        assert_eq!(tensor, [0., 1., 10., 11., 20., 21., 2., 3., 12., 13., 22., 23.]);
        assert_eq!(side_by_side(&tensor, 2, 3), matrix);
    }
}
