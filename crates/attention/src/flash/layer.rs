//! A multi-head layer whose heads never make their matrices of weights.

use super::{Flash, FlashOutput, Inputs};
use crate::dot_product::AttentionGradients;
use crate::error::{Result, check_shape};
use crate::layer::{check_cache, gather_gradients};
use crate::linear::{linear, linear_backward};
use crate::mask::Mask;
use crate::multi_head::MultiHeadAttention;
use crate::parameters::{Fingerprint, LayerGradients};
use crate::simd::Float;
use nalgebra::{DMatrix, RealField};

/// What [`MultiHeadAttention::forward_flash`] keeps for the backward pass: five matrices of the size of its input, six with a
/// context, and two numbers a query and head. [`MultiHeadCache`](crate::MultiHeadCache) has the weights besides, n² numbers a head.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example, flash::Flash};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = example::river().x;
/// let (_, cache) = layer.forward_flash(&x, None, &Mask::none(), &Flash::new())?;
/// assert_eq!(cache.forward.log_sum_exp.shape(), (6, 2));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FlashCache<T: RealField> {
    /// The input (n_q, d_model).
    pub x: DMatrix<T>,
    /// The context (n_k, d_model), if it was not the input itself.
    pub context: Option<DMatrix<T>>,
    /// The queries of all heads (n_q, d_model).
    pub q: DMatrix<T>,
    /// The keys of all heads (n_k, d_model).
    pub k: DMatrix<T>,
    /// The values of all heads (n_k, d_model).
    pub v: DMatrix<T>,
    /// Which query could see which key.
    pub mask: Mask,
    /// The heads' outputs side by side (n_q, d_model), and their log-sum-exps (n_q, n_heads).
    pub forward: FlashOutput<T>,
    /// Of the parameters that made it.
    fingerprint: Fingerprint,
}

impl<T: Float> MultiHeadAttention<T> {
    /// [`forward`](MultiHeadAttention::forward) and [`forward_cross`](MultiHeadAttention::forward_cross) with another core:
    /// the same output up to rounding, in memory that grows with n and not with n². There is no dropout in it.
    ///
    /// Shapes: `x` (n_q, d_model), `context` (n_k, d_model), or `None` in self-attention → (n_q, d_model).
    ///
    /// # Errors
    /// As [`MultiHeadAttention::forward_cross`].
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example, flash::Flash};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x;
    /// let (output, _) = layer.forward_flash(&x, None, &Mask::causal(), &Flash::new())?;
    /// let (naive, _) = layer.forward(&x, &Mask::causal())?;
    /// assert!((output - naive).amax() < 1e-15);
    /// # Ok::<(), attention::Error>(())
    /// ```
    // ANCHOR: forward
    pub fn forward_flash(
        &self,
        x: &DMatrix<T>,
        context: Option<&DMatrix<T>>,
        mask: &Mask,
        flash: &Flash,
    ) -> Result<(DMatrix<T>, FlashCache<T>)> {
        self.check()?;
        let source = context.unwrap_or(x);
        let [q, k, v] = self.parameters.project_inputs(x, source)?; // each (n, d_model)
        let inputs = Inputs::new(&q, &k, &v, mask)?.with_heads(self.n_heads())?;
        let forward = flash.forward(&inputs); // (n_q, d_model)
        let output = linear(&forward.output, &self.parameters.w_o, &self.parameters.b_o)?;
        let (x, context, mask) = (x.clone(), context.cloned(), mask.clone());
        let fingerprint = self.parameters.fingerprint();
        Ok((output, FlashCache { x, context, q, k, v, mask, forward, fingerprint }))
    }
    // ANCHOR_END: forward

    /// The backward pass of [`MultiHeadAttention::forward_flash`].
    ///
    /// Shapes: `grad_output` (n_q, d_model).
    ///
    /// # Errors
    /// `grad_output` has not the shape of the output, or the cache is not from a layer of this shape, or not from a layer with
    /// these parameters: take the step of an optimiser after the backward pass.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example, flash::Flash};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (x, flash) = (example::river().x, Flash::new());
    /// let (output, cache) = layer.forward_flash(&x, None, &Mask::causal(), &flash)?;
    /// let gradients = layer.backward_flash(&cache, &output, &flash)?;
    ///
    /// let (_, naive) = layer.forward(&x, &Mask::causal())?;
    /// assert!((gradients.x - layer.backward(&naive, &output)?.x).amax() < 1e-14);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward_flash(
        &self,
        cache: &FlashCache<T>,
        grad_output: &DMatrix<T>,
        flash: &Flash,
    ) -> Result<LayerGradients<T>> {
        let FlashCache { x, context, q, k, v, mask, forward, fingerprint } = cache;
        self.check()?;
        let (output, name) = (&forward.output, "`cache.x`");
        check_shape("cache.forward.output", output, x.shape(), name)?;
        check_cache(&self.parameters, x, context.as_ref(), output)?;
        check_shape("grad_output", grad_output, x.shape(), "the output")?;
        check_shape("cache.q", q, x.shape(), "`cache.x`")?;
        let source = context.as_ref().unwrap_or(x).shape();
        check_shape("cache.k", k, source, "(n_k, d_model)")?;
        check_shape("cache.v", v, source, "(n_k, d_model)")?;
        fingerprint.check(&self.parameters)?;

        let (grad_attended, w_o, b_o) =
            linear_backward(output, &self.parameters.w_o, grad_output);
        let inputs = Inputs::new(q, k, v, mask)?.with_heads(self.n_heads())?;
        let AttentionGradients { q, k, v } =
            flash.backward(&inputs, forward, &grad_attended)?;
        let context = context.as_ref();
        Ok(gather_gradients(&self.parameters, x, context, (w_o, b_o), [&q, &k, &v]))
    }
}
