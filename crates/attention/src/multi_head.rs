//! Multi-head attention: the same attention several times at once, each on its own slice of the projections.

use crate::batch::{self, BatchGradients};
use crate::blocks::copy_of;
use crate::dot_product::{AttentionCache, AttentionGradients, attention_backward};
use crate::dropout::Dropout;
use crate::error::{Result, check_count, check_heads, check_room, check_shape};
use crate::flash::{Flash, FlashOutput, Inputs};
use crate::forward_options::{BatchOptions, Engine, ForwardOptions};
use crate::linear::{linear, linear_backward};
use crate::mask::Mask;
use crate::named_parameters::{Named, NamedMut, NamedParameters};
use crate::parallel;
use crate::parameters::{Fingerprint, LayerGradients, Parameters};
use crate::simd::Float;
use crate::single_head::{check_cache, gather_gradients};
use nalgebra::{DMatrix, DMatrixView};
use rand::Rng;

/// Attention with several heads, to the input itself or to a context; by the matrix of weights, with or without dropout, or tile by tile.
///
/// The projections are cut into `n_heads` slices of columns, d_model / n_heads in a fresh layer. Each head attends on its slice;
/// the outputs are joined and projected once more.
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
    pub parameters: Parameters<T>,
    n_heads: usize,
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
    /// The input (n_q, d_model).
    pub x: DMatrix<T>,
    /// The context (n_k, d_model), if it was not the input itself.
    pub context: Option<DMatrix<T>>,
    /// The matrices of the heads.
    pub core: HeadsCache<T>,
    /// Of the parameters that made it.
    fingerprint: Fingerprint,
}

impl<T: Float> MultiHeadCache<T> {
    /// Returns the queries, keys, values and weights of each head; none after flash attention, which keeps no weights.
    ///
    /// ```
    /// # use attention::{Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (_, cache) = layer.forward(&example::river().x, Mask::causal())?;
    /// assert_eq!(cache.heads()[1].weights[(0, 1)], 0.0); // the future
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn heads(&self) -> &[AttentionCache<T>] {
        match &self.core {
            HeadsCache::Weights { heads, .. } => heads,
            HeadsCache::Flash { .. } => &[],
        }
    }
}

/// The matrices that all heads of a layer keep for the backward pass.
///
/// ```
/// use attention::{ForwardOptions, HeadsCache, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (_, cache) = layer.forward(&example::river().x, ForwardOptions::new().flash())?;
/// let HeadsCache::Flash { forward, .. } = cache.core else { unreachable!() };
/// assert_eq!(forward.log_sum_exp.shape(), (6, 2));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a pass, beside matrices of many times its size"
)]
pub enum HeadsCache<T: Float> {
    /// Of attention by its matrix of weights: n_q · n_k numbers a head, twice as many with dropout.
    Weights {
        /// Queries, keys, values and weights of each head.
        heads: Vec<AttentionCache<T>>,
        /// The heads' outputs side by side, before the output projection (n_q, d_v · n_heads).
        attended: DMatrix<T>,
    },
    /// Of attention tile by tile: queries, keys, values and output, and two numbers a query and head.
    Flash {
        /// The queries of all heads (n_q, d_k · n_heads).
        q: DMatrix<T>,
        /// The keys of all heads (n_k, d_k · n_heads).
        k: DMatrix<T>,
        /// The values of all heads (n_k, d_v · n_heads).
        v: DMatrix<T>,
        /// Which query could see which key.
        mask: Mask,
        /// The heads' outputs side by side (n_q, d_v · n_heads), and their log-sum-exps (n_q, n_heads).
        forward: FlashOutput<T>,
        /// The weights that were dropped, if there was dropout.
        dropout: Option<DroppedWeights>,
        /// The engine that computed it, and will compute the backward pass.
        flash: Flash,
    },
}

impl<T: Float> HeadsCache<T> {
    /// The heads' outputs side by side (n_q, d_v · n_heads), and where they are.
    fn attended(&self) -> (&'static str, &DMatrix<T>) {
        match self {
            HeadsCache::Weights { attended, .. } => ("cache.attended", attended),
            HeadsCache::Flash { forward, .. } => {
                ("cache.forward.output", &forward.output)
            }
        }
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
        // Before anything is drawn, which takes a while for a wide layer.
        check_room::<T>(("d_model", d_model), ("d_model", d_model))?;
        check_heads(n_heads, d_model, || format!("it must divide d_model = {d_model}"))?;
        let parameters = Parameters::xavier(d_model, d_model, d_model, rng)?;
        Self::from_parameters(parameters, n_heads)
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
        let layer = MultiHeadAttention { parameters, n_heads };
        layer.check()?;
        Ok(layer)
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

    fn check(&self) -> Result<()> {
        self.parameters.check()?;
        for (name, w) in [("w_q", &self.parameters.w_q), ("w_v", &self.parameters.w_v)] {
            check_heads(self.n_heads, w.ncols(), || {
                format!("it must divide the {} columns of `{name}`", w.ncols())
            })?;
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
        // Three matrices, each as wide as all heads together.
        let qkv = self.parameters.project_inputs(x, options.source(x))?;
        let core = match options.engine {
            Engine::Naive => self.attend(&qkv, &options.mask, dropout)?,
            Engine::Flash(flash) => {
                self.attend_by_tiles(qkv, options.mask, dropout, flash)?
            }
        };
        let Parameters { w_o, b_o, .. } = &self.parameters;
        let output = linear(core.attended().1, w_o, b_o)?; // (n_q, d_model)
        let context = options.context.map(copy_of);
        let (x, fingerprint) = (copy_of(x), self.parameters.fingerprint());
        Ok((output, MultiHeadCache { x, context, core, fingerprint }))
    }

    // ANCHOR: attend
    /// Each head attends on its slice of queries, keys and values.
    fn attend(
        &self,
        qkv: &[DMatrix<T>; 3],
        mask: &Mask,
        dropout: Option<Dropout>,
    ) -> Result<HeadsCache<T>> {
        let shape = (qkv[0].nrows(), qkv[1].nrows()); // (n_q, n_k)
        let heads = parallel::map(self.n_heads, |head| {
            let [q, k, v] = qkv.each_ref().map(|joined| self.split(joined, head)); // (n, d)
            let factors = dropout.map(|dropout| dropout.matrix(head, shape));
            T::attend(q, k, v, mask, factors) // attention, and dropout on its weights
        });
        let heads: Vec<_> = heads.into_iter().collect::<Result<_>>()?;
        let (outputs, heads): (Vec<_>, Vec<_>) = heads.into_iter().unzip();
        Ok(HeadsCache::Weights { heads, attended: join(&outputs) })
    }
    // ANCHOR_END: attend

    /// The same without matrices of weights. Nothing is split: a head's columns are one piece
    /// of memory, and are found where they are.
    fn attend_by_tiles(
        &self,
        [q, k, v]: [DMatrix<T>; 3],
        mask: Mask,
        dropout: Option<Dropout>,
        flash: Flash,
    ) -> Result<HeadsCache<T>> {
        let inputs = Inputs::new(&q, &k, &v, &mask)?.with_heads(self.n_heads)?;
        let forward = flash.forward(&inputs.with_dropout(dropout));
        let dropout = dropout.map(DroppedWeights);
        Ok(HeadsCache::Flash { q, k, v, mask, forward, dropout, flash })
    }

    // ANCHOR: split
    /// The columns of head `head`: (n, d · n_heads) → (n, d).
    fn split<'m>(&self, joined: &'m DMatrix<T>, head: usize) -> DMatrixView<'m, T> {
        let d = joined.ncols() / self.n_heads;
        joined.columns(head * d, d) // a view: nothing is copied
    }
    // ANCHOR_END: split

    /// Returns the gradients with respect to parameters and inputs from `grad_output = ∂L/∂output`: the backward pass.
    ///
    /// Shapes: `grad_output` (n_q, d_model).
    ///
    /// # Errors
    /// `grad_output` doesn't have the shape of the output, or the cache is not from a layer of this shape, or from before a step of
    /// an optimiser: take the step after the backward pass. (A sample of the parameters is compared, so a change of a few entries of a
    /// large layer may go unseen.)
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
        let MultiHeadCache { x, context, core, fingerprint } = cache;
        self.check()?;
        let context = context.as_ref();
        let (name, attended) = core.attended();
        check_cache(&self.parameters, x, context, (name, attended))?;
        check_shape("grad_output", grad_output, x.shape(), "the output")?;
        fingerprint.check(&self.parameters)?;

        // output = attended · W_O + b_O
        let (grad_attended, w_o, b_o) =
            linear_backward(attended, &self.parameters.w_o, grad_output)?;
        let lengths = (x.nrows(), context.unwrap_or(x).nrows());
        let [grad_q, grad_k, grad_v] = match core {
            HeadsCache::Weights { heads, .. } => {
                self.attend_backward(heads, lengths, &grad_attended)?
            }
            HeadsCache::Flash { q, k, v, mask, forward, dropout, flash } => {
                self.check_projections([q, k, v], lengths)?;
                let inputs = Inputs::new(q, k, v, mask)?.with_heads(self.n_heads)?;
                let inputs = inputs.with_dropout(dropout.map(|dropped| dropped.0));
                let AttentionGradients { q, k, v } =
                    flash.backward(&inputs, forward, &grad_attended)?;
                [q, k, v]
            }
        };
        // q = x W_Q + b_Q, k = source W_K + b_K, v = source W_V + b_V
        let grad_qkv = [&grad_q, &grad_k, &grad_v];
        gather_gradients(&self.parameters, x, context, (w_o, b_o), grad_qkv)
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

    /// The gradients with respect to the queries, keys and values of all heads.
    fn attend_backward(
        &self,
        heads: &[AttentionCache<T>],
        (n_q, n_k): (usize, usize),
        grad_attended: &DMatrix<T>,
    ) -> Result<[DMatrix<T>; 3]> {
        check_count("cache.heads", "entry", heads.len(), self.n_heads, || {
            format!("the layer has n_heads = {}", self.n_heads)
        })?;
        let width = |w: &DMatrix<T>| w.ncols() / self.n_heads;
        let (d_k, d_v) = (width(&self.parameters.w_q), width(&self.parameters.w_v));
        for head in heads {
            check_shape("cache.heads[..].q", &head.q, (n_q, d_k), "a head's slice")?;
            check_shape("cache.heads[..].v", &head.v, (n_k, d_v), "a head's slice")?;
        }

        // ANCHOR: backward
        // attended = join of every head's attention
        let heads = parallel::map(self.n_heads, |head| {
            attention_backward(&heads[head], self.split(grad_attended, head))
        });
        let heads: Vec<_> = heads.into_iter().collect::<Result<_>>()?;
        let mut grad_qkv = [vec![], vec![], vec![]];
        for head in heads {
            for (joined, grad) in grad_qkv.iter_mut().zip([head.q, head.k, head.v]) {
                joined.push(grad);
            }
        }
        Ok(grad_qkv.map(|heads| join(&heads))) // each as wide as all heads
        // ANCHOR_END: backward
    }

    /// Checks that the matrices of flash attention have the shapes that this layer's projections give.
    fn check_projections(
        &self,
        [q, k, v]: [&DMatrix<T>; 3],
        (n_q, n_k): (usize, usize),
    ) -> Result<()> {
        let (d_k, d_v) = (self.parameters.w_q.ncols(), self.parameters.w_v.ncols());
        check_shape("cache.q", q, (n_q, d_k), "its projection")?;
        check_shape("cache.k", k, (n_k, d_k), "its projection")?;
        check_shape("cache.v", v, (n_k, d_v), "its projection")
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

/// The weights that dropout dropped: a probability and a seed, from which each of them follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DroppedWeights(Dropout);

// ANCHOR: join
/// The heads' matrices side by side: n_heads times (n, d) → (n, n_heads · d).
fn join<T: Float>(heads: &[DMatrix<T>]) -> DMatrix<T> {
    let columns: Vec<_> = heads.iter().map(DMatrix::as_slice).collect();
    let (n, d) = heads[0].shape(); // nalgebra stores columns, one after the other
    DMatrix::from_vec(n, heads.len() * d, columns.concat())
}
// ANCHOR_END: join

/// Layers in files.
#[cfg(feature = "serde")]
mod saved {
    use super::MultiHeadAttention;
    use crate::error::{Error, Result};
    use crate::parameters::Parameters;
    use crate::simd::Float;
    use serde::{Deserialize, Serialize, Serializer};

    /// [`MultiHeadAttention`] in a file: read as what is still to be checked, and written from a reference.
    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    pub struct Saved<P> {
        parameters: P,
        n_heads: usize,
    }

    impl<T: Float> TryFrom<Saved<Parameters<T>>> for MultiHeadAttention<T> {
        type Error = Error;

        fn try_from(read: Saved<Parameters<T>>) -> Result<Self> {
            MultiHeadAttention::from_parameters(read.parameters, read.n_heads)
        }
    }

    impl<T: Float + Serialize> Serialize for MultiHeadAttention<T> {
        /// Heads that do not divide the parameters are an error now, and not when the file is read.
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.check().map_err(serde::ser::Error::custom)?;
            let MultiHeadAttention { parameters, n_heads } = self;
            Saved { parameters, n_heads: *n_heads }.serialize(serializer)
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
