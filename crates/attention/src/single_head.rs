//! The single-head layer: projections that are learned, around an attention that is not.

use crate::Float;
use crate::batch::{self, BatchGradients};
use crate::blocks::copy_of;
use crate::dot_product::{
    AttentionCache, AttentionGradients, attention, attention_backward,
};
use crate::engine::{ByWeights, Engine, SharedEngine};
use crate::error::{Result, check_count, check_not_empty, check_shape, wrong_value};
use crate::forward_options::{BatchOptions, ForwardOptions};
use crate::linear::{linear, linear_backward_by};
use crate::named_parameters::{Named, NamedMut, NamedParameters};
use crate::parameters::{
    LayerGradients, LayerParameters, Parameters, Version, check_maker,
};
use nalgebra::{DMatrix, DMatrixView, RowDVector};
use rand::Rng;
/// A layer's gradients, from those of its output projection and of queries, keys, values.
pub(crate) fn gather_gradients<T: Float>(
    engine: &dyn Engine<T>,
    parameters: &Parameters<T>,
    x: &DMatrix<T>,
    context: Option<&DMatrix<T>>,
    (w_o, b_o): (DMatrix<T>, RowDVector<T>),
    gradients: &AttentionGradients<T>,
) -> Result<LayerGradients<T>> {
    let AttentionGradients { q: grad_q, k: grad_k, v: grad_v, tables } = gradients;
    let source = context.unwrap_or(x); // where keys and values came from
    let (grad_x_q, w_q, b_q) = linear_backward_by(engine, x, &parameters.w_q, grad_q)?;
    let (grad_source_k, w_k, b_k) =
        linear_backward_by(engine, source, &parameters.w_k, grad_k)?;
    let (grad_source_v, w_v, b_v) =
        linear_backward_by(engine, source, &parameters.w_v, grad_v)?;
    let grad_source = grad_source_k + grad_source_v;
    let (grad_x, grad_context) = match context {
        Some(_) => (grad_x_q, Some(grad_source)),
        None => (grad_x_q + grad_source, None), // three paths into x
    };
    let gradients = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
    let parameters = gradients.with_biases_of(parameters); // some layers have none
    let (x, context, tables) = (grad_x, grad_context, tables.to_vec());
    Ok(LayerGradients { parameters, x, context, tables })
}

/// Attention with one head: three projections in, one out.
///
/// ```
/// use attention::{Mask, SingleHeadAttention};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = attention::example::river().x; // (6, 4)
/// let (output, _) = layer.forward(&x, Mask::none())?;
/// assert_eq!(output.shape(), (6, 4));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SingleHeadAttention<T: Float> {
    /// The learned parameters.
    pub parameters: LayerParameters<T>,
}

/// The matrices that [`SingleHeadAttention::forward`] keeps for the backward pass.
///
/// ```
/// use attention::{Mask, SingleHeadAttention};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (_, cache) = layer.forward(&attention::example::river().x, Mask::none())?;
/// assert_eq!(cache.attention.weights.shape(), (6, 6));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SingleHeadCache<T: Float> {
    /// The input (n_q, d_model).
    pub x: DMatrix<T>,
    /// The context (n_k, d_model), if it was not the input itself.
    pub context: Option<DMatrix<T>>,
    /// Queries, keys, values and weights.
    pub attention: AttentionCache<T>,
    /// The output of attention, weights · values, before the output projection (n_q, d_v).
    pub attended: DMatrix<T>,
    /// Of the parameters that made it.
    version: Version,
}

impl<T: Float> SingleHeadAttention<T> {
    /// Returns a layer with fresh parameters: see [`Parameters::xavier`].
    ///
    /// # Errors
    /// A size is 0 or beyond any memory.
    ///
    /// ```
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let error = attention::SingleHeadAttention::<f64>::xavier(4, 0, 2, rng).unwrap_err();
    /// assert_eq!(error.to_string(), "`d_k` is 0 but it must be at least 1");
    /// ```
    pub fn xavier<R: Rng + ?Sized>(
        d_model: usize,
        d_k: usize,
        d_v: usize,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(SingleHeadAttention {
            parameters: Parameters::xavier(d_model, d_k, d_v, rng)?.into(),
        })
    }

    /// Returns the output of attention, in which every token of `x` asks all tokens of `x`, or of a context, as far as the mask lets it
    /// see them, and a cache for the backward pass. A mask alone will do for `options`; of what else [`ForwardOptions`] knows, this layer
    /// has the context.
    ///
    /// Shapes: `x` (n_q, d_model), a context (n_k, d_model) → (n_q, d_model).
    ///
    /// # Errors
    /// `x` or the context is empty or not d_model wide, a parameter has a shape that does not fit the others, the mask was made for
    /// another shape, or the options ask for dropout or flash attention, which [`MultiHeadAttention`](crate::MultiHeadAttention) has.
    ///
    /// ```
    /// use attention::{ForwardOptions, Mask, SingleHeadAttention, example};
    /// use nalgebra::DMatrix;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (x, context) = (example::river().x, example::city().x);
    /// let (output, _) = layer.forward(&x.rows(0, 2), ForwardOptions::new().context(&context))?;
    /// assert_eq!(output.shape(), (2, 4));
    ///
    /// let error = layer.forward(&DMatrix::zeros(6, 5), Mask::none()).unwrap_err();
    /// assert_eq!(error.to_string(), "`x` has 5 columns but the layer has d_model = 4");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward<'a, 'x>(
        &self,
        x: impl Into<DMatrixView<'x, T>>,
        options: impl Into<ForwardOptions<'a, T>>,
    ) -> Result<(DMatrix<T>, SingleHeadCache<T>)> {
        let options = options.into();
        self.parameters.check()?;
        let expected = "SingleHeadAttention has none";
        if options.active_dropout()?.is_some() {
            return Err(wrong_value("options.dropout", "given", expected));
        }
        if options.engine != SharedEngine::new(ByWeights) {
            return Err(wrong_value(
                "options.engine",
                "another one",
                "SingleHeadAttention has ByWeights alone",
            ));
        }
        self.run(x.into(), &options)
    }
    fn run(
        &self,
        x: DMatrixView<T>,
        options: &ForwardOptions<T>,
    ) -> Result<(DMatrix<T>, SingleHeadCache<T>)> {
        let [q, k, v] =
            self.parameters.project_inputs(&ByWeights, x, options.source(x))?;
        let (attended, attention) = attention(&q, &k, &v, &options.mask)?; // (n_q, d_v)
        // (n_q, d_model)
        let output = linear(&attended, &self.parameters.w_o, &self.parameters.b_o)?;
        let context = options.context.map(copy_of);
        let (x, version) = (copy_of(x), self.parameters.version());
        Ok((output, SingleHeadCache { x, context, attention, attended, version }))
    }

    /// Returns the gradients with respect to parameters and inputs from `grad_output = ∂L/∂output`: the backward pass.
    ///
    /// Shapes: `grad_output` (n_q, d_model).
    ///
    /// # Errors
    /// `grad_output` doesn't have the shape of the output, or the cache is not from a layer of this shape, or from before a step of
    /// an optimiser: take the step after the backward pass.
    ///
    /// ```
    /// use attention::{Mask, SingleHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (output, cache) = layer.forward(&example::river().x, Mask::none())?;
    /// // The loss ½ Σ output² has the gradient `output`.
    /// let gradients = layer.backward(&cache, &output)?;
    /// assert_eq!(gradients.parameters.b_o, output.row_sum());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward<'g>(
        &self,
        cache: &SingleHeadCache<T>,
        grad_output: impl Into<DMatrixView<'g, T>>,
    ) -> Result<LayerGradients<T>> {
        let grad_output = grad_output.into();
        let SingleHeadCache { x, context, attention, attended, version } = cache;
        self.parameters.check()?;
        check_cache(&self.parameters, x, context.as_ref(), ("cache.attended", attended))?;
        check_shape("grad_output", grad_output, x.shape(), "the output")?;
        let (n_q, n_k) = (x.nrows(), context.as_ref().unwrap_or(x).nrows());
        let (d_k, d_v) = (self.parameters.w_q.ncols(), self.parameters.w_v.ncols());
        check_shape("cache.attention.q", &attention.q, (n_q, d_k), "its projection")?;
        check_shape("cache.attention.v", &attention.v, (n_k, d_v), "its projection")?;
        check_maker(version, &self.parameters.version())?;
        // output = attended · W_O + b_O
        let (grad_attended, w_o, b_o) =
            linear_backward_by(&ByWeights, attended, &self.parameters.w_o, grad_output)?;
        // attended = softmax(q kᵀ / √d_k + mask) v
        let grad = attention_backward(attention, &grad_attended)?;
        // q = x W_Q + b_Q, k = source W_K + b_K, v = source W_V + b_V
        gather_gradients(
            &ByWeights,
            &self.parameters,
            x,
            context.as_ref(),
            (w_o, b_o),
            &grad,
        )
    }

    /// Returns the outputs and the caches of a batch: see
    /// [`MultiHeadAttention::forward_batch`](crate::MultiHeadAttention::forward_batch).
    ///
    /// # Errors
    /// `xs` is empty, `options` is a list of another length, or a sequence is wrong, which the error names.
    #[expect(clippy::type_complexity, reason = "a list of outputs and a list of caches")]
    pub fn forward_batch<'a>(
        &self,
        xs: &[DMatrix<T>],
        options: impl Into<BatchOptions<'a, T>>,
    ) -> Result<(Vec<DMatrix<T>>, Vec<SingleHeadCache<T>>)> {
        batch::forward(xs, options.into(), |x, options| self.forward(x, options))
    }

    /// Returns the gradients of a batch: see [`MultiHeadAttention::backward_batch`](crate::MultiHeadAttention::backward_batch).
    ///
    /// # Errors
    /// `caches` is empty, `grad_outputs` has another length, or a sequence is wrong, which the error names.
    pub fn backward_batch(
        &self,
        caches: &[SingleHeadCache<T>],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<BatchGradients<T>> {
        batch::backward(caches, grad_outputs, |cache, grad| self.backward(cache, grad))
    }
}

impl<T: Float> NamedParameters<T> for SingleHeadAttention<T> {
    fn named(&self) -> Named<'_, T> {
        self.parameters.named()
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        self.parameters.named_mut()
    }
}

/// A cache's inputs have the shapes that this layer would have given them.
pub(crate) fn check_cache<T: Float>(
    parameters: &Parameters<T>,
    x: &DMatrix<T>,
    context: Option<&DMatrix<T>>,
    (name, attended): (&'static str, &DMatrix<T>),
) -> Result<()> {
    let (d_model, d_v) = (parameters.d_model(), parameters.w_o.nrows());
    for (argument, matrix) in [("cache.x", x), ("cache.context", context.unwrap_or(x))] {
        check_not_empty(argument, matrix)?;
        check_count(argument, "column", matrix.ncols(), d_model, || {
            format!("the layer has d_model = {d_model}")
        })?;
    }
    check_shape(name, attended, (x.nrows(), d_v), "(n_q, d_v)")
}

impl<T: Float> From<Parameters<T>> for SingleHeadAttention<T> {
    /// Returns a layer with these parameters. Their shapes are checked when it is used.
    fn from(parameters: Parameters<T>) -> Self {
        SingleHeadAttention { parameters: parameters.into() }
    }
}
