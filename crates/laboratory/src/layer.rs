//! The interface through which a layer is examined.

use attention::{
    AttentionCache, ForwardOptions, KeyValueCache, LayerGradients, Mask,
    MultiHeadAttention, MultiHeadCache, NamedParameters, Result, SingleHeadAttention,
    SingleHeadCache,
};
use nalgebra::DMatrix;

/// A layer of attention that can be examined: it runs forward and backward, and shows its parameters and its heads.
///
/// Implement it for a layer of your own, and [`diagnose`](crate::diagnose()) works on it.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use laboratory::AttentionLayer;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// fn largest_weight<L: AttentionLayer>(layer: &L) -> attention::Result<f64> {
///     let (_, cache) = layer.forward(&example::river().x, None, Mask::none())?;
///     Ok(L::heads(&cache).iter().map(|head| head.weights.max()).fold(0.0, f64::max))
/// }
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// assert!(largest_weight(&layer)? < 1.0);
/// # Ok::<(), attention::Error>(())
/// ```
pub trait AttentionLayer: NamedParameters<f64> + Clone {
    /// The matrices that the forward pass keeps for the backward pass.
    type Cache;

    /// Returns the output (n_q, d_model) of queries from `x` (n_q, d_model), and of keys
    /// and values from the context (n_k, d_model), or from `x` where there is none; and
    /// the cache.
    ///
    /// # Errors
    /// The shapes do not fit one another or the layer.
    fn forward(
        &self,
        x: &DMatrix<f64>,
        context: Option<&DMatrix<f64>>,
        mask: impl Into<Mask>,
    ) -> Result<(DMatrix<f64>, Self::Cache)>;

    /// Returns the gradients with respect to parameters and inputs, from `grad_output`
    /// (n_q, d_model).
    ///
    /// # Errors
    /// `grad_output` has another shape than the output, or the cache does not fit.
    fn backward(
        &self,
        cache: &Self::Cache,
        grad_output: &DMatrix<f64>,
    ) -> Result<LayerGradients<f64>>;

    /// Returns the queries, keys, values and weights of each head.
    fn heads(cache: &Self::Cache) -> Vec<AttentionCache<f64>>;
}

macro_rules! attention_layer {
    ($layer:ident, $cache:ident, |$bound:ident| $heads:expr) => {
        impl AttentionLayer for $layer<f64> {
            type Cache = $cache<f64>;

            fn forward(
                &self,
                x: &DMatrix<f64>,
                context: Option<&DMatrix<f64>>,
                mask: impl Into<Mask>,
            ) -> Result<(DMatrix<f64>, $cache<f64>)> {
                let mut options = ForwardOptions::new().mask(mask);
                if let Some(context) = context {
                    options = options.context(context);
                }
                $layer::forward(self, x, options) // the layer's own, not this one
            }

            fn backward(
                &self,
                cache: &$cache<f64>,
                grad_output: &DMatrix<f64>,
            ) -> Result<LayerGradients<f64>> {
                $layer::backward(self, cache, grad_output)
            }

            fn heads($bound: &$cache<f64>) -> Vec<AttentionCache<f64>> {
                $heads
            }
        }
    };
}
attention_layer!(SingleHeadAttention, SingleHeadCache, |cache| vec![
    cache.attention.clone()
]);
attention_layer!(MultiHeadAttention, MultiHeadCache, |cache| cache.heads());

/// A layer of attention that can read a text in chunks, and keeps keys and values in between.
///
/// Implement it for a layer of your own, and [`diagnose_chunks`](crate::diagnose_chunks()) works on it.
///
/// ```
/// use attention::{KeyValueCache, MultiHeadAttention, example};
/// use laboratory::DecodingLayer;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (x, mut cached) = (example::river().x, KeyValueCache::default());
/// let last = DecodingLayer::forward_cached(&layer, &x, &mut cached)?;
/// assert_eq!((last.shape(), cached.tokens()), ((6, 4), 6));
/// # Ok::<(), attention::Error>(())
/// ```
pub trait DecodingLayer: AttentionLayer {
    /// The keys and values of the tokens so far; at first of none.
    type KeyValues: Default;

    /// Returns the output (n, d_model) of the next tokens `x` (n, d_model) under a causal mask, and adds their keys and values to
    /// those of the tokens so far.
    ///
    /// # Errors
    /// The shapes do not fit one another or the layer.
    fn forward_cached(
        &self,
        x: &DMatrix<f64>,
        cached: &mut Self::KeyValues,
    ) -> Result<DMatrix<f64>>;
}

impl DecodingLayer for MultiHeadAttention<f64> {
    type KeyValues = KeyValueCache<f64>;

    fn forward_cached(
        &self,
        x: &DMatrix<f64>,
        cached: &mut KeyValueCache<f64>,
    ) -> Result<DMatrix<f64>> {
        // The layer's own, not this one.
        MultiHeadAttention::forward_cached(self, x, cached, Mask::causal())
    }
}
