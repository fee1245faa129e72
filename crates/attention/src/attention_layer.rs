//! What all layers of attention have in common, and batches for each of them.
//!
//! The sequences of a batch run in parallel, where the feature `rayon` is on. Results come back in the order of the sequences
//! and are summed in that order, so that they are the same to the last bit for any number of threads.

use crate::dot_product::AttentionCache;
use crate::error::{Error, Result, check_count};
use crate::forward_options::ForwardOptions;
use crate::multi_head::{MultiHeadAttention, MultiHeadCache};
use crate::parallel;
use crate::parameters::{LayerGradients, Parameters};
use crate::simd::Float;
use crate::single_head::{SingleHeadAttention, SingleHeadCache};
use nalgebra::DMatrix;

/// What every attention layer can do: run forward and backward, on one sequence and on many, and show its parameters and heads.
///
/// Implement it for a layer of your own with these eight parameters, and it has batches, and can be examined and trained as those of
/// this crate.
///
/// ```
/// use attention::{AttentionLayer, Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// /// Works on any layer, whatever its cache.
/// fn largest_weight<L: AttentionLayer<f64>>(layer: &L) -> attention::Result<f64> {
///     let (_, cache) = layer.forward(&example::river().x, &Mask::none())?;
///     Ok(L::heads(&cache).iter().map(|head| head.weights.max()).fold(0.0, f64::max))
/// }
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// assert!(largest_weight(&layer)? < 1.0);
/// # Ok::<(), attention::Error>(())
/// ```
// ANCHOR: trait
pub trait AttentionLayer<T: Float>: Clone + Sync {
    /// What the forward pass keeps for the backward pass.
    type Cache: Send + Sync;

    /// What is learned.
    fn parameters(&self) -> &Parameters<T>;

    /// What is learned, to be changed.
    fn parameters_mut(&mut self) -> &mut Parameters<T>;

    /// From `x` (n_q, d_model) to the output (n_q, d_model).
    ///
    /// # Errors
    /// The shapes do not fit one another or the layer, or the layer doesn't have what the
    /// options ask for.
    fn forward<'a>(
        &self,
        x: &DMatrix<T>,
        options: impl Into<ForwardOptions<'a, T>>,
    ) -> Result<(DMatrix<T>, Self::Cache)>;

    /// From `grad_output` (n_q, d_model) to the gradients with respect to parameters
    /// and inputs.
    ///
    /// # Errors
    /// `grad_output` has another shape than the output, or the cache does not fit.
    fn backward(
        &self,
        cache: &Self::Cache,
        grad_output: &DMatrix<T>,
    ) -> Result<LayerGradients<T>>;

    /// The queries, keys, values and weights of each head; empty, if they were not kept.
    fn heads(cache: &Self::Cache) -> &[AttentionCache<T>];

    // Made of these, for every layer: forward_batch and backward_batch.
    // ANCHOR_END: trait

    /// The forward pass of each sequence of a batch: the outputs and the caches. Sequences do not see one another and may
    /// differ in length. `options(b)` are those of sequence b, from 0: a mask (`|b| &masks[b]`), or more.
    ///
    /// Shapes: `xs` B times (n_b, d_model) → B times (n_b, d_model).
    ///
    /// # Errors
    /// `xs` is empty, or a sequence is wrong, which the error names.
    ///
    /// ```
    /// use attention::{AttentionLayer, ForwardOptions, Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let batch = [example::river().x, example::city().x.rows(0, 3).into_owned()];
    /// let causal = Mask::causal();
    /// let options = |b| ForwardOptions::new().with_mask(&causal).with_dropout(0.1, b as u64);
    /// let (outputs, caches) = layer.forward_batch(&batch, options)?;
    /// assert_eq!((outputs[0].nrows(), outputs[1].nrows()), (6, 3));
    /// # Ok::<(), attention::Error>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "a list of outputs and a list of caches")]
    fn forward_batch<'a, O: Into<ForwardOptions<'a, T>>>(
        &self,
        xs: &[DMatrix<T>],
        options: impl Fn(usize) -> O + Send + Sync,
    ) -> Result<(Vec<DMatrix<T>>, Vec<Self::Cache>)> {
        if xs.is_empty() {
            return Err(Error::Empty { argument: "xs", given: "0 sequences".to_owned() });
        }
        let results = parallel::map(xs.len(), |b| self.forward(&xs[b], options(b)));
        numbered(results).map(|pairs| pairs.into_iter().unzip())
    }

    /// The backward pass of [`AttentionLayer::forward_batch`]: the gradients with respect to the parameters, summed over the batch, and those
    /// by the inputs of each sequence. Until they are summed, there is a set of parameter gradients for each sequence.
    ///
    /// # Errors
    /// `caches` is empty, `grad_outputs` has another length, or a sequence is wrong, which the error names.
    ///
    /// ```
    /// # use attention::{AttentionLayer, ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let batch = [example::river().x, example::city().x];
    /// let (outputs, caches) = layer.forward_batch(&batch, |_| ForwardOptions::new())?;
    /// let gradients = layer.backward_batch(&caches, &outputs)?; // the loss ½ Σ output² has the gradient `output`
    /// assert_eq!(gradients.parameters.w_o.shape(), (4, 4));
    /// assert_eq!(gradients.xs.len(), 2);
    /// # Ok::<(), attention::Error>(())
    /// ```
    fn backward_batch(
        &self,
        caches: &[Self::Cache],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<BatchGradients<T>> {
        check_count("grad_outputs", "entry", grad_outputs.len(), caches.len(), || {
            format!("`caches` has {}", caches.len())
        })?;
        let backward = |b: usize| self.backward(&caches[b], &grad_outputs[b]);
        let mut gradients = numbered(parallel::map(caches.len(), backward))?.into_iter();
        let Some(LayerGradients { mut parameters, x, context }) = gradients.next() else {
            let given = "0 sequences".to_owned();
            return Err(Error::Empty { argument: "caches", given });
        };
        let (mut xs, mut contexts) = (vec![x], vec![context]);
        for gradients in gradients {
            parameters.accumulate(&gradients.parameters)?;
            xs.push(gradients.x);
            contexts.push(gradients.context);
        }
        Ok(BatchGradients { parameters, xs, contexts })
    }
}

/// All results, or the first error with the number of its sequence.
fn numbered<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    let number = |(index, result): (usize, Result<R>)| {
        result.map_err(|source| Error::Sequence { index, source: Box::new(source) })
    };
    results.into_iter().enumerate().map(number).collect()
}

/// The gradients of a loss by a layer's parameters and by the inputs of a batch: see [`AttentionLayer::backward_batch`].
///
/// ```
/// # use attention::{AttentionLayer, ForwardOptions, MultiHeadAttention, example};
/// # use rand::{SeedableRng, rngs::ChaCha8Rng};
/// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (x, context) = (example::river().x, example::city().x);
/// let cross = |_| ForwardOptions::new().with_context(&context);
/// let (outputs, caches) = layer.forward_batch(&[x], cross)?;
/// let gradients = layer.backward_batch(&caches, &outputs)?;
/// assert_eq!(gradients.contexts[0].as_ref().unwrap().shape(), context.shape());
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct BatchGradients<T: Float> {
    /// By each parameter, summed over the batch.
    pub parameters: Parameters<T>,
    /// By the input of each sequence (n_b, d_model).
    pub xs: Vec<DMatrix<T>>,
    /// By the context of each sequence, in cross-attention; `None` in self-attention.
    pub contexts: Vec<Option<DMatrix<T>>>,
}

macro_rules! attention_layer {
    ($layer:ident, $cache:ident, |$bound:ident| $heads:expr) => {
        impl<T: Float> AttentionLayer<T> for $layer<T> {
            type Cache = $cache<T>;

            fn parameters(&self) -> &Parameters<T> {
                &self.parameters
            }

            fn parameters_mut(&mut self) -> &mut Parameters<T> {
                &mut self.parameters
            }

            fn forward<'a>(
                &self,
                x: &DMatrix<T>,
                options: impl Into<ForwardOptions<'a, T>>,
            ) -> Result<(DMatrix<T>, $cache<T>)> {
                $layer::forward(self, x, options) // the layer's own, not this one
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
attention_layer!(MultiHeadAttention, MultiHeadCache, |cache| cache.heads());
