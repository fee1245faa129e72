//! What the layers with one head and with several have in common.

use crate::dot_product::AttentionCache;
use crate::error::Result;
use crate::layer::{SingleHeadAttention, SingleHeadCache};
use crate::mask::Mask;
use crate::multi_head::{MultiHeadAttention, MultiHeadCache};
use crate::parameters::{LayerGradients, Parameters};
use nalgebra::{DMatrix, RealField};

/// What every attention layer can do: run forward and backward, and show its heads.
///
/// Implement it for a layer of your own, and what is written for any layer works on it.
///
/// ```
/// use attention::{AttentionLayer, Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// /// Works on any layer, whatever its cache.
/// fn largest_weight<L: AttentionLayer<f64>>(layer: &L) -> attention::Result<f64> {
///     let (_, cache) = layer.forward(&example::river().x, None, &Mask::none())?;
///     Ok(L::heads(&cache).iter().map(|head| head.weights.max()).fold(0.0, f64::max))
/// }
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// assert!(largest_weight(&layer)? < 1.0);
/// # Ok::<(), attention::Error>(())
/// ```
// ANCHOR: trait
pub trait AttentionLayer<T: RealField + Copy>: Clone {
    /// What the forward pass keeps for the backward pass.
    type Cache;

    /// What is learned.
    fn parameters_mut(&mut self) -> &mut Parameters<T>;

    /// From `x` (n_q, d_model) and `context` (n_k, d_model) to the output (n_q, d_model).
    /// In self-attention `context` is `None`.
    ///
    /// # Errors
    /// The shapes do not fit one another or the layer.
    fn forward(
        &self,
        x: &DMatrix<T>,
        context: Option<&DMatrix<T>>,
        mask: &Mask,
    ) -> Result<(DMatrix<T>, Self::Cache)>;

    /// From `grad_output` (n_q, d_model) to the gradients by parameters and inputs.
    ///
    /// # Errors
    /// `grad_output` has another shape than the output, or the cache does not fit.
    fn backward(
        &self,
        cache: &Self::Cache,
        grad_output: &DMatrix<T>,
    ) -> Result<LayerGradients<T>>;

    /// The queries, keys, values and weights of each head.
    fn heads(cache: &Self::Cache) -> &[AttentionCache<T>];
}
// ANCHOR_END: trait

macro_rules! attention_layer {
    ($layer:ident, $cache:ident, |$bound:ident| $heads:expr) => {
        impl<T: RealField + Copy> AttentionLayer<T> for $layer<T> {
            type Cache = $cache<T>;

            fn parameters_mut(&mut self) -> &mut Parameters<T> {
                &mut self.parameters
            }

            fn forward(
                &self,
                x: &DMatrix<T>,
                context: Option<&DMatrix<T>>,
                mask: &Mask,
            ) -> Result<(DMatrix<T>, $cache<T>)> {
                match context {
                    Some(context) => self.forward_cross(x, context, mask),
                    None => $layer::forward(self, x, mask), // the layer's own, not this one
                }
            }

            fn backward(
                &self,
                cache: &$cache<T>,
                grad_output: &DMatrix<T>,
            ) -> Result<LayerGradients<T>> {
                $layer::backward(self, cache, grad_output)
            }

            fn heads($bound: &$cache<T>) -> &[AttentionCache<T>] {
                $heads
            }
        }
    };
}
attention_layer!(SingleHeadAttention, SingleHeadCache, |cache| std::slice::from_ref(
    &cache.attention
));
attention_layer!(MultiHeadAttention, MultiHeadCache, |cache| &cache.heads);
