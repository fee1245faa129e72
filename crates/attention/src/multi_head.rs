//! Multi-head attention: the same attention several times at once, each on its own slice of the projections.

use crate::Float;
use crate::batch::{self, BatchGradients};
use crate::blocks::copy_of;
use crate::dot_product::{AttentionCache, AttentionGradients};
use crate::dropout::Dropout;
use crate::engine::SharedEngine;
use crate::error::{Result, check_heads, check_room, check_shape};
use crate::flash::{FlashOutput, Inputs, check_groups, kv_name};
use crate::forward_options::{BatchOptions, ForwardOptions};
use crate::linear::{linear_backward_by, linear_by};
use crate::mask::Mask;
use crate::named_parameters::{Named, NamedMut, NamedParameters};
use crate::parameters::{
    LayerGradients, LayerParameters, Parameters, Version, check_maker,
};
use crate::positions::{Rotary, check_width};
use crate::single_head::gather_gradients;
use nalgebra::{DMatrix, DMatrixView};
use rand::Rng;

/// Attention with several heads, to the input itself or to a context; by the matrix of weights, with or without dropout, or tile by tile.
///
/// The projections are cut into `n_heads` slices of columns, d_model / n_heads in a fresh layer. Each head attends on its slice;
/// the outputs are joined and projected once more. Heads may share keys and values ([`MultiHeadAttention::xavier_grouped`]), and know
/// where they stand by rotary positions ([`MultiHeadAttention::with_rotary`]).
///
/// # Source
/// A. Vaswani et al., *Attention Is All You Need* (2017), section 3.2.2.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (output, cache) = layer.forward(&example::river().x, Mask::causal())?;
/// assert_eq!(output.shape(), (6, 4));
/// assert_eq!(cache.heads()[1].weights.shape(), (6, 6));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "saved::Saved<Parameters<T>>"))]
pub struct MultiHeadAttention<T: Float> {
    /// The learned parameters; of the d · n_heads columns of a projection those of head number `head` are `head · d .. (head + 1) · d`.
    pub parameters: LayerParameters<T>,
    n_heads: usize,
    n_kv_heads: usize,
    rotary: Option<Rotary>,
}

/// The matrices that [`MultiHeadAttention::forward`] keeps for the backward pass.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (_, cache) = layer.forward(&example::river().x, Mask::none())?;
/// assert_eq!(cache.heads().len(), 2);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MultiHeadCache<T: Float> {
    x: DMatrix<T>,               // (n_q, d_model)
    context: Option<DMatrix<T>>, // (n_k, d_model), if it was not the input itself
    q: DMatrix<T>, // of all heads (n_q, d_k · n_heads), turned to their positions
    k: DMatrix<T>, // (n_k, d_k · n_kv_heads), turned, too
    v: DMatrix<T>, // (n_k, d_v · n_kv_heads)
    mask: Mask,
    dropout: Option<Dropout>,
    forward: FlashOutput<T>, // of the heads, before the output projection
    engine: SharedEngine<T>, // that computed it, and will compute the backward pass
    maker: Maker,
}

/// All on which the outputs of a layer depend: what it keeps is of no use to a layer with another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Maker {
    parameters: Version,
    n_heads: usize,
    n_kv_heads: usize,
    rotary: Option<Rotary>,
}

impl<T: Float> MultiHeadCache<T> {
    /// Returns the weights of each head (n_q, n_k), before dropout; none if the engine keeps none, as [`Tiled`](crate::engine::Tiled).
    ///
    /// ```
    /// # use attention::{Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (_, cache) = layer.forward(&example::river().x, Mask::causal())?;
    /// assert_eq!(cache.weights()[1][(0, 1)], 0.0); // the future
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn weights(&self) -> &[DMatrix<T>] {
        &self.forward.weights
    }

    /// Returns the outputs of the heads side by side, before the output projection, and their log-sum-exps.
    pub fn forward(&self) -> &FlashOutput<T> {
        &self.forward
    }

    /// Returns a copy of the queries, keys, values and weights of each head, to be looked at; none if the engine keeps no weights.
    pub fn heads(&self) -> Vec<AttentionCache<T>> {
        let Maker { n_heads, n_kv_heads, .. } = self.maker;
        let shape = (self.q.nrows(), self.k.nrows());
        let of_head = |(h, weights): (usize, &DMatrix<T>)| AttentionCache {
            q: copy_of(split(&self.q, h, n_heads)),
            k: copy_of(split(&self.k, h * n_kv_heads / n_heads, n_kv_heads)),
            v: copy_of(split(&self.v, h * n_kv_heads / n_heads, n_kv_heads)),
            mask: self.mask.or_of_head(h),
            weights: weights.clone(),
            log_sum_exp: self.forward.log_sum_exp.column(h).into_owned(),
            dropout: self.dropout.map(|dropout| dropout.of_head(h).matrix(shape)),
        };
        self.forward.weights.iter().enumerate().map(of_head).collect()
    }
}

impl<T: Float> MultiHeadAttention<T> {
    /// Returns a layer with fresh parameters (see [`Parameters::xavier`]), whose heads are d_model / n_heads wide.
    ///
    /// # Errors
    /// A size is 0 or beyond any memory, or `n_heads` does not divide `d_model`.
    ///
    /// ```
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let error = attention::MultiHeadAttention::<f64>::xavier(8, 3, rng).unwrap_err();
    /// assert_eq!(error.to_string(), "`n_heads` is 3 but it must divide d_model = 8");
    /// ```
    pub fn xavier<R: Rng + ?Sized>(
        d_model: usize,
        n_heads: usize,
        rng: &mut R,
    ) -> Result<Self> {
        Self::xavier_grouped(d_model, n_heads, n_heads, rng)
    }

    /// Returns a layer with fresh parameters whose heads share `n_kv_heads` heads of keys and values: grouped-query attention, or with
    /// one of them multi-query attention. See [`Inputs::grouped`] for which head asks which keys.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::xavier`], or `n_kv_heads` does not divide `n_heads`.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let layer = MultiHeadAttention::<f64>::xavier_grouped(8, 4, 2, rng)?; // d = 2
    /// assert_eq!((layer.parameters.w_q.shape(), layer.parameters.w_k.shape()), ((8, 8), (8, 4)));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn xavier_grouped<R: Rng + ?Sized>(
        d_model: usize,
        n_heads: usize,
        n_kv_heads: usize,
        rng: &mut R,
    ) -> Result<Self> {
        // Before anything is drawn, which takes a while for a wide layer.
        check_room::<T>(("d_model", d_model), ("d_model", d_model))?;
        let because = || format!("it must divide d_model = {d_model}");
        check_heads("n_heads", n_heads, d_model, because)?;
        check_groups(n_heads, n_kv_heads)?;
        let shared = d_model / n_heads * n_kv_heads;
        let widths = ((d_model, shared), (shared, d_model));
        let parameters = Parameters::xavier_grouped(d_model, widths.0, widths.1, rng)?;
        Self::from_grouped_parameters(parameters, n_heads, n_kv_heads)
    }

    /// Returns a layer with these parameters. Heads may be narrower or wider than d_model / n_heads, and their values of another width than
    /// their queries and keys.
    ///
    /// # Errors
    /// `n_heads` is 0 or does not divide the columns of `w_q` and `w_v`, or the parameters do not fit one another.
    ///
    /// ```
    /// use attention::{MultiHeadAttention, Parameters};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let parameters = Parameters::<f64>::xavier(6, 4, 3, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let error = MultiHeadAttention::from_parameters(parameters, 2).unwrap_err();
    /// assert_eq!(error.to_string(), "`n_heads` is 2 but it must divide the 3 columns of `w_v`");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn from_parameters(parameters: Parameters<T>, n_heads: usize) -> Result<Self> {
        Self::from_grouped_parameters(parameters, n_heads, n_heads)
    }

    /// Returns a layer with these parameters whose `n_heads` heads share `n_kv_heads` heads of keys and values.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::from_parameters`], or `n_kv_heads` does not divide `n_heads`, or the columns of `w_k` and `w_v`.
    pub fn from_grouped_parameters(
        parameters: Parameters<T>,
        n_heads: usize,
        n_kv_heads: usize,
    ) -> Result<Self> {
        let parameters = parameters.into();
        let layer = MultiHeadAttention { parameters, n_heads, n_kv_heads, rotary: None };
        layer.check()?;
        Ok(layer)
    }

    /// Returns the layer with rotary positions, by which its queries and keys are turned before they meet.
    ///
    /// The first token of a sequence stands at position 0. In cross-attention positions are aligned at the ends, as those of a mask.
    ///
    /// # Errors
    /// The heads of queries and keys have an odd width.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, Rotary, example, positions::RotaryPairs};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x; // whose tokens 0 and 3 are the same word
    /// let same = |output: nalgebra::DMatrix<f64>| (output.row(0) - output.row(3)).amax() < 1e-12;
    /// assert!(same(layer.forward(&x, Mask::none())?.0));
    ///
    /// let layer = layer.with_rotary(Rotary::new(10_000.0, RotaryPairs::Halves)?)?;
    /// assert!(!same(layer.forward(&x, Mask::none())?.0));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_rotary(self, rotary: Rotary) -> Result<Self> {
        let layer = MultiHeadAttention { rotary: Some(rotary), ..self };
        layer.check()?;
        Ok(layer)
    }

    /// Returns the rotary positions, if there are any.
    pub fn rotary(&self) -> Option<Rotary> {
        self.rotary
    }

    /// Returns the number of heads of keys and values.
    pub fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// Returns the number of heads.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// assert_eq!(attention::MultiHeadAttention::<f64>::xavier(8, 2, rng)?.n_heads(), 2);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    pub(crate) fn maker(&self) -> Maker {
        let &MultiHeadAttention { ref parameters, n_heads, n_kv_heads, rotary } = self;
        Maker { parameters: parameters.version(), n_heads, n_kv_heads, rotary }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let MultiHeadAttention { parameters, n_heads, n_kv_heads, rotary } = self;
        check_groups(*n_heads, *n_kv_heads)?;
        parameters.check_grouped(*n_heads, *n_kv_heads)?;
        let kv_name = kv_name(*n_heads, *n_kv_heads);
        for (argument, heads, name, w) in [
            ("n_heads", *n_heads, "w_q", &parameters.w_q),
            (kv_name, *n_kv_heads, "w_v", &parameters.w_v),
        ] {
            check_heads(argument, heads, w.ncols(), || {
                format!("it must divide the {} columns of `{name}`", w.ncols())
            })?;
        }
        if let Some(rotary) = rotary {
            rotary.check()?;
            check_width("w_q", parameters.w_q.as_view(), *n_heads)?;
        }
        Ok(())
    }
}

impl<T: Float> MultiHeadAttention<T> {
    /// Returns the output of attention, in which every token of `x` asks all tokens of `x`, or of a context, as far as the mask lets it
    /// see them, and a cache for the backward pass. A mask alone will do for `options`; [`ForwardOptions`] say what else there is.
    ///
    /// Shapes: `x` (n_q, d_model), a context (n_k, d_model) → (n_q, d_model).
    ///
    /// # Errors
    /// `x` or the context is empty or not d_model wide, the parameters do not fit one another or the number of heads, the mask was
    /// made for another shape, or dropout is outside of its range.
    ///
    /// ```
    /// use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 4, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x;
    /// let (output, _) = layer.forward(&x, Mask::causal())?;
    ///
    /// let options = ForwardOptions::new().mask(Mask::causal()).flash();
    /// let (by_tiles, _) = layer.forward(&x, options)?;
    /// assert!((output - by_tiles).amax() < 1e-15);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward<'a, 'x>(
        &self,
        x: impl Into<DMatrixView<'x, T>>,
        options: impl Into<ForwardOptions<'a, T>>,
    ) -> Result<(DMatrix<T>, MultiHeadCache<T>)> {
        let (x, options) = (x.into(), options.into());
        self.check()?;
        let dropout = options.active_dropout()?;
        let ForwardOptions { mask, context, engine, .. } = &options;
        // Three matrices, each as wide as all heads together.
        let mut qkv = self.parameters.project_inputs(&**engine, x, options.source(x))?;
        self.turn(&mut qkv, 0, false); // to their positions, if they are rotary
        let [q, k, v] = qkv;
        let inputs = self.inputs([&q, &k, &v], mask)?.with_dropout(dropout);
        let forward = engine.forward(&inputs)?; // (n_q, d_v · n_heads)
        let Parameters { w_o, b_o, .. } = &*self.parameters;
        let output = linear_by(&**engine, &forward.output, w_o, b_o)?; // (n_q, d_model)
        let (context, maker) = (context.map(copy_of), self.maker());
        let (x, mask, engine) = (copy_of(x), mask.clone(), engine.clone());
        let cache =
            MultiHeadCache { x, context, q, k, v, mask, dropout, forward, engine, maker };
        Ok((output, cache))
    }

    /// Turns queries and keys to their positions, or their gradients back, if the layer has rotary positions. The first key stands at the
    /// position `first`, and the last query where the last key does.
    pub(crate) fn turn(&self, [q, k, _]: &mut [DMatrix<T>; 3], first: isize, back: bool) {
        let Some(rotary) = self.rotary else { return };
        let turns = |n, first| rotary.turns(n, first, k.ncols() / self.n_kv_heads);
        let (n_q, n_k) = (q.nrows(), k.nrows());
        let of_keys = turns(n_k, first);
        let of_queries =
            (n_q != n_k).then(|| turns(n_q, first + n_k as isize - n_q as isize));
        rotary.turn_by(q, of_queries.as_ref().unwrap_or(&of_keys), back);
        rotary.turn_by(k, &of_keys, back);
    }

    /// Queries, keys and values of all heads.
    fn inputs<'m>(
        &self,
        [q, k, v]: [&'m DMatrix<T>; 3],
        mask: &Mask,
    ) -> Result<Inputs<'m, T>> {
        Inputs::grouped(q, k, v, mask, self.n_heads, self.n_kv_heads)
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
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (output, cache) = layer.forward(&example::river().x, Mask::none())?;
    /// let gradients = layer.backward(&cache, &output)?;
    /// assert_eq!(gradients.x.shape(), (6, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward<'g>(
        &self,
        cache: &MultiHeadCache<T>,
        grad_output: impl Into<DMatrixView<'g, T>>,
    ) -> Result<LayerGradients<T>> {
        let grad_output = grad_output.into();
        let MultiHeadCache { x, context, q, k, v, mask, dropout, forward, engine, maker } =
            cache;
        check_maker(maker, &self.maker())?;
        check_shape("grad_output", grad_output, x.shape(), "the output")?;
        // output = attended · W_O + b_O
        let (grad_attended, w_o, b_o) = linear_backward_by(
            &**engine,
            &forward.output,
            &self.parameters.w_o,
            grad_output,
        )?;
        // attended = the heads' attention, side by side
        let inputs = self.inputs([q, k, v], mask)?.with_dropout(*dropout);
        let gradients = engine.backward(&inputs, forward, grad_attended.as_view())?;
        // q = x W_Q + b_Q, k = source W_K + b_K, v = source W_V + b_V
        let AttentionGradients { q, k, v, tables } = gradients;
        let mut grad_qkv = [q, k, v];
        self.turn(&mut grad_qkv, 0, true); // back, with rotary positions
        let [q, k, v] = grad_qkv;
        let gradients = AttentionGradients { q, k, v, tables };
        let context = context.as_ref();
        gather_gradients(&**engine, &self.parameters, x, context, (w_o, b_o), &gradients)
    }

    /// Returns the outputs and the caches of a batch of sequences, which do not see one another and may differ in length, so that
    /// padding is rarely needed.
    ///
    /// `options` are the same for all sequences, such as a mask, or a list with those of each ([`BatchOptions`]). With dropout, every
    /// sequence drops weights of its own.
    ///
    /// Shapes: `xs` B times (n_b, d_model) → B times (n_b, d_model).
    ///
    /// # Errors
    /// `xs` is empty, `options` is a list of another length, or a sequence is wrong, which the error names. A sequence without tokens is
    /// wrong, too, and then no sequence is computed: leave it out of the batch.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let batch = [example::river().x, example::city().x.rows(0, 3).into_owned()];
    /// let (outputs, _) = layer.forward_batch(&batch, Mask::causal())?;
    /// assert_eq!((outputs[0].nrows(), outputs[1].nrows()), (6, 3));
    ///
    /// let masks = vec![Mask::none(), Mask::padding(&[true, true, false])?];
    /// let (outputs, caches) = layer.forward_batch(&batch, masks)?;
    /// # assert_eq!((outputs[0].nrows(), caches.len()), (6, 2));
    /// # Ok::<(), attention::Error>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "a list of outputs and a list of caches")]
    pub fn forward_batch<'a>(
        &self,
        xs: &[DMatrix<T>],
        options: impl Into<BatchOptions<'a, T>>,
    ) -> Result<(Vec<DMatrix<T>>, Vec<MultiHeadCache<T>>)> {
        batch::forward(xs, options.into(), |x, options| self.forward(x, options))
    }

    /// Returns the gradients with respect to the parameters, summed over the batch, and with respect to the inputs of each sequence: the
    /// backward pass of [`MultiHeadAttention::forward_batch`]. Until they are summed, there is a set of parameter gradients for each
    /// sequence.
    ///
    /// # Errors
    /// `caches` is empty, `grad_outputs` has another length, or a sequence is wrong, which the error names.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let batch = [example::river().x, example::city().x];
    /// let (outputs, caches) = layer.forward_batch(&batch, ForwardOptions::new())?;
    /// let gradients = layer.backward_batch(&caches, &outputs)?; // the loss ½ Σ output² has the gradient `output`
    /// assert_eq!(gradients.parameters.w_o.shape(), (4, 4));
    /// assert_eq!(gradients.xs.len(), 2);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward_batch(
        &self,
        caches: &[MultiHeadCache<T>],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<BatchGradients<T>> {
        batch::backward(caches, grad_outputs, |cache, grad| self.backward(cache, grad))
    }
}

impl<T: Float> NamedParameters<T> for MultiHeadAttention<T> {
    fn named(&self) -> Named<'_, T> {
        self.parameters.named()
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        self.parameters.named_mut()
    }
}
/// The columns of head `head`: (n, d · n_heads) → (n, d).
fn split<T: Float>(
    joined: &DMatrix<T>,
    head: usize,
    n_heads: usize,
) -> DMatrixView<'_, T> {
    let d = joined.ncols() / n_heads;
    joined.columns(head * d, d) // a view: nothing is copied
}

/// Layers in files.
#[cfg(feature = "serde")]
mod saved {
    use super::MultiHeadAttention;
    use crate::Float;
    use crate::error::{Error, Result};
    use crate::parameters::Parameters;
    use crate::positions::Rotary;
    use serde::{Deserialize, Serialize, Serializer};

    /// [`MultiHeadAttention`] in a file: read as what is still to be checked, and written from a reference.
    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    pub struct Saved<P> {
        n_heads: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n_kv_heads: Option<usize>, // if there are fewer than heads
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rotary: Option<Rotary>,
        parameters: P,
    }

    impl<T: Float> TryFrom<Saved<Parameters<T>>> for MultiHeadAttention<T> {
        type Error = Error;

        fn try_from(read: Saved<Parameters<T>>) -> Result<Self> {
            let Saved { parameters, n_heads, n_kv_heads, rotary } = read;
            let n_kv_heads = n_kv_heads.unwrap_or(n_heads);
            let parameters = parameters.into();
            let layer = MultiHeadAttention { parameters, n_heads, n_kv_heads, rotary };
            layer.check()?;
            Ok(layer)
        }
    }

    impl<T: Float + Serialize> Serialize for MultiHeadAttention<T> {
        /// Heads that do not divide the parameters are an error now, and not when the file is read.
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.check().map_err(serde::ser::Error::custom)?;
            let &MultiHeadAttention { ref parameters, n_heads, n_kv_heads, rotary } =
                self;
            let n_kv_heads = (n_kv_heads != n_heads).then_some(n_kv_heads);
            Saved { parameters, n_heads, n_kv_heads, rotary }.serialize(serializer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    /// A wide layer takes a second to draw: what is wrong is said before.
    #[test]
    fn nothing_is_drawn_for_heads_that_do_not_divide() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for n_heads in [0, 3] {
            assert!(MultiHeadAttention::<f64>::xavier(8, n_heads, &mut rng).is_err());
        }
        let untouched = ChaCha8Rng::seed_from_u64(0).next_u64();
        assert_eq!(rng.next_u64(), untouched);
    }
}
