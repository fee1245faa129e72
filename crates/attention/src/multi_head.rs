//! Multi-head attention: the same attention several times at once, each on its own slice of the projections.

use crate::batch::{self, BatchOutput};
use crate::dot_product::{AttentionCache, attention_backward, attention_with_dropout};
use crate::error::{Error, Result, check_count, check_positive, check_room, check_shape};
use crate::layer::{check_cache, gather_gradients};
use crate::linear::{linear, linear_backward};
use crate::mask::Mask;
use crate::parameters::{Fingerprint, LayerGradients, Parameters};
use nalgebra::{DMatrix, RealField};
use rand::{Rng, RngExt, SeedableRng, rngs::ChaCha8Rng};

/// Attention with several heads, for self- and cross-attention, with dropout on the weights in training.
///
/// The projections are d_model wide and are cut into `n_heads` slices of d_model / n_heads columns. Each head attends
/// on its slice; the outputs are joined and projected once more.
///
/// # Source
/// A. Vaswani et al., *Attention Is All You Need* (2017), section 3.2.2.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (output, cache) = layer.forward(&example::river().x, &Mask::causal())?;
/// assert_eq!(output.shape(), (6, 4));
/// assert_eq!(cache.heads[1].weights.shape(), (6, 6));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(
        try_from = "saved::MultiHead<T>",
        bound(
            serialize = "T: serde::Serialize",
            deserialize = "T: serde::Deserialize<'de>"
        )
    )
)]
pub struct MultiHeadAttention<T: RealField + Copy> {
    /// What is learned; the columns of head `h` are `h · d .. (h + 1) · d`, with d = d_model / n_heads.
    pub parameters: Parameters<T>,
    n_heads: usize,
    dropout: f64,
}

/// What the forward pass keeps for the backward pass.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (_, cache) = layer.forward(&example::river().x, &Mask::none())?;
/// assert_eq!(cache.heads.len(), 2);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MultiHeadCache<T: RealField + Copy> {
    /// The input (n_q, d_model).
    pub x: DMatrix<T>,
    /// The context (n_k, d_model), if it was not the input itself.
    pub context: Option<DMatrix<T>>,
    /// Queries, keys, values and weights of each head.
    pub heads: Vec<AttentionCache<T>>,
    /// The heads' outputs side by side, before the output projection (n_q, d_model).
    pub attended: DMatrix<T>,
    /// Of the parameters that made it.
    pub(crate) fingerprint: Fingerprint,
}

impl<T: RealField + Copy> MultiHeadAttention<T> {
    /// A layer with fresh parameters (see [`Parameters::xavier`]) and no dropout.
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
        check_heads(n_heads, d_model)?;
        let parameters = Parameters::xavier(d_model, d_model, d_model, rng)?;
        Self::from_parameters(parameters, n_heads)
    }

    /// A layer with these parameters and no dropout.
    ///
    /// # Errors
    /// `n_heads` is 0 or does not divide d_model, or the projections are not all (d_model, d_model).
    ///
    /// ```
    /// use attention::{MultiHeadAttention, Parameters};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let parameters = Parameters::<f64>::xavier(6, 4, 3, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let error = MultiHeadAttention::from_parameters(parameters, 2).unwrap_err();
    /// assert_eq!(error.to_string(), "`w_q` has 4 columns but heads share a width of d_model = 6");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn from_parameters(parameters: Parameters<T>, n_heads: usize) -> Result<Self> {
        let layer = MultiHeadAttention { parameters, n_heads, dropout: 0.0 };
        layer.check()?;
        Ok(layer)
    }

    /// The same layer with dropout: in training, each weight is set to 0 with probability `p`, and the others are
    /// divided by 1 − p so that a row's expected sum stays 1.
    ///
    /// # Errors
    /// `p` is not at least 0 and less than 1.
    ///
    /// # Source
    /// N. Srivastava et al., *Dropout* (2014), in its inverted form.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let layer = attention::MultiHeadAttention::<f64>::xavier(8, 2, rng)?;
    /// assert!(layer.with_dropout(1.0).is_err()); // nothing would be left
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_dropout(self, p: f64) -> Result<Self> {
        check_probability("p", p)?;
        Ok(MultiHeadAttention { dropout: p, ..self })
    }

    /// The number of heads.
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

    /// The probability that a weight is dropped in training.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let layer = attention::MultiHeadAttention::<f64>::xavier(8, 2, rng)?.with_dropout(0.1)?;
    /// assert_eq!(layer.dropout(), 0.1);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn dropout(&self) -> f64 {
        self.dropout
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.parameters.check()?;
        check_positive("n_heads", self.n_heads)?; // before a width is blamed
        let d_model = self.parameters.d_model();
        for (argument, w) in
            [("w_q", &self.parameters.w_q), ("w_v", &self.parameters.w_v)]
        {
            check_count(argument, "column", w.ncols(), d_model, || {
                format!("heads share a width of d_model = {d_model}")
            })?;
        }
        check_heads(self.n_heads, d_model)
    }

    /// Self-attention, without dropout: every token of `x` asks all tokens of `x`.
    ///
    /// Shapes: `x` (n, d_model) → (n, d_model).
    ///
    /// # Errors
    /// `x` is empty or not d_model wide, the parameters do not fit one another or the number of heads, or the mask was
    /// made for another shape.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 4, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (output, _) = layer.forward(&example::river().x, &Mask::none())?;
    /// assert_eq!(output.shape(), (6, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward(
        &self,
        x: &DMatrix<T>,
        mask: &Mask,
    ) -> Result<(DMatrix<T>, MultiHeadCache<T>)> {
        self.run(x, None, mask, None)
    }

    /// Cross-attention, without dropout: every token of `x` asks all tokens of `context`.
    ///
    /// Shapes: `x` (n_q, d_model), `context` (n_k, d_model) → (n_q, d_model).
    ///
    /// # Errors
    /// As [`MultiHeadAttention::forward`], and for `context` as for `x`.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x.rows(0, 2).into_owned();
    /// let (output, cache) = layer.forward_cross(&x, &example::city().x, &Mask::none())?;
    /// assert_eq!((output.shape(), cache.heads[0].weights.shape()), ((2, 4), (2, 6)));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward_cross(
        &self,
        x: &DMatrix<T>,
        context: &DMatrix<T>,
        mask: &Mask,
    ) -> Result<(DMatrix<T>, MultiHeadCache<T>)> {
        self.run(x, Some(context), mask, None)
    }

    /// The forward pass of training, with dropout on the weights. `context` is `None` in self-attention.
    ///
    /// What is dropped depends on the state of `rng` alone, and not on the number of threads: each head draws from a
    /// generator of its own, seeded in the order of the heads.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::forward_cross`].
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let mut rng = ChaCha8Rng::seed_from_u64(0);
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut rng)?.with_dropout(0.5)?;
    /// let x = example::river().x;
    /// let run = |seed| {
    ///     let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    ///     layer.forward_training(&x, None, &Mask::none(), rng)
    /// };
    /// assert_eq!(run(1)?, run(1)?); // same seed, same bits
    /// assert_ne!(run(1)?.0, run(2)?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward_training<R: Rng + ?Sized>(
        &self,
        x: &DMatrix<T>,
        context: Option<&DMatrix<T>>,
        mask: &Mask,
        rng: &mut R,
    ) -> Result<(DMatrix<T>, MultiHeadCache<T>)> {
        self.check()?; // before as many numbers are drawn as it claims to have heads
        let seeds: Vec<u64> = (0..self.n_heads).map(|_| rng.next_u64()).collect();
        self.run(x, context, mask, Some(&seeds))
    }

    // ANCHOR: run
    fn run(
        &self,
        x: &DMatrix<T>,
        context: Option<&DMatrix<T>>,
        mask: &Mask,
        seeds: Option<&[u64]>,
    ) -> Result<(DMatrix<T>, MultiHeadCache<T>)> {
        self.check()?;
        let source = context.unwrap_or(x);
        let qkv = self.parameters.project_inputs(x, source)?; // three times (n, d_model)
        let scores = (x.nrows(), source.nrows());
        let heads = batch::map(self.n_heads, |h| {
            let [q, k, v] = qkv.each_ref().map(|joined| self.split(joined, h)); // (n, d)
            let dropout = seeds.and_then(|seeds| self.dropout_factors(scores, seeds[h]));
            attention_with_dropout(q, k, v, mask, dropout)
        });
        let heads: Vec<_> = heads.into_iter().collect::<Result<_>>()?;
        let (outputs, caches): (Vec<_>, Vec<_>) = heads.into_iter().unzip();
        let attended = join(&outputs); // (n_q, d_model)
        let output = linear(&attended, &self.parameters.w_o, &self.parameters.b_o)?;
        let (x, context) = (x.clone(), context.cloned());
        let fingerprint = self.parameters.fingerprint();
        Ok((output, MultiHeadCache { x, context, heads: caches, attended, fingerprint }))
    }
    // ANCHOR_END: run

    // ANCHOR: split
    /// The columns of head `h`: (n, d_model) → (n, d_model / n_heads).
    fn split(&self, joined: &DMatrix<T>, h: usize) -> DMatrix<T> {
        let (n, d) = (joined.nrows(), joined.ncols() / self.n_heads);
        DMatrix::from_column_slice(n, d, &joined.as_slice()[n * d * h..][..n * d])
    }
    // ANCHOR_END: split

    // ANCHOR: dropout
    /// What dropout multiplies a head's weights by: 0 with probability p, else 1 / (1 − p).
    fn dropout_factors(
        &self,
        (n_q, n_k): (usize, usize),
        seed: u64,
    ) -> Option<DMatrix<T>> {
        if self.dropout == 0.0 {
            return None;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let kept = nalgebra::convert(1.0 / (1.0 - self.dropout));
        Some(DMatrix::from_fn(n_q, n_k, |_, _| {
            if rng.random::<f64>() < self.dropout { T::zero() } else { kept }
        }))
    }
    // ANCHOR_END: dropout

    /// The backward pass: from `grad_output = ∂L/∂output` to the gradients by parameters and inputs.
    ///
    /// Shapes: `grad_output` (n_q, d_model).
    ///
    /// # Errors
    /// `grad_output` has not the shape of the output, or the cache is not from a layer of this shape, or not from a layer with
    /// these parameters: take the step of an optimiser after the backward pass.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (output, cache) = layer.forward(&example::river().x, &Mask::none())?;
    /// let gradients = layer.backward(&cache, &output)?;
    /// assert_eq!(gradients.x.shape(), (6, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward(
        &self,
        cache: &MultiHeadCache<T>,
        grad_output: &DMatrix<T>,
    ) -> Result<LayerGradients<T>> {
        let MultiHeadCache { x, context, heads, attended, fingerprint } = cache;
        self.check()?;
        check_cache(&self.parameters, x, context.as_ref(), attended)?;
        check_shape("grad_output", grad_output, x.shape(), "the output")?;
        check_count("cache.heads", "entry", heads.len(), self.n_heads, || {
            format!("the layer has n_heads = {}", self.n_heads)
        })?;
        let d = attended.ncols() / self.n_heads;
        for head in heads {
            let n_k = context.as_ref().unwrap_or(x).nrows();
            check_shape("cache.heads[..].q", &head.q, (x.nrows(), d), "a head's slice")?;
            check_shape("cache.heads[..].v", &head.v, (n_k, d), "a head's slice")?;
        }
        fingerprint.check(&self.parameters)?;

        // ANCHOR: backward
        // output = attended · W_O + b_O
        let (grad_attended, w_o, b_o) =
            linear_backward(attended, &self.parameters.w_o, grad_output);
        // attended = join of every head's attention
        let heads = batch::map(self.n_heads, |h| {
            attention_backward(&heads[h], &self.split(&grad_attended, h))
        });
        let heads: Vec<_> = heads.into_iter().collect::<Result<_>>()?;
        let mut grad_qkv = [vec![], vec![], vec![]];
        for head in heads {
            for (joined, grad) in grad_qkv.iter_mut().zip([head.q, head.k, head.v]) {
                joined.push(grad);
            }
        }
        let [grad_q, grad_k, grad_v] = grad_qkv.map(|heads| join(&heads)); // each (n, d_model)
        // q = x W_Q + b_Q, k = source W_K + b_K, v = source W_V + b_V
        let grad_qkv = [&grad_q, &grad_k, &grad_v];
        Ok(gather_gradients(&self.parameters, x, context.as_ref(), (w_o, b_o), grad_qkv))
        // ANCHOR_END: backward
    }

    /// Self-attention within each sequence of a batch. Sequences do not see one another and may differ in length.
    ///
    /// Shapes: `xs` B times (n_b, d_model) → B times (n_b, d_model). `masks` holds one mask a sequence, or one for all.
    ///
    /// # Errors
    /// `xs` is empty, `masks` has neither one entry nor B, or a sequence is wrong, which the error names.
    ///
    /// ```
    /// # use attention::{Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let batch = [example::river().x, example::city().x];
    /// let (outputs, _) = layer.forward_batch(&batch, &[Mask::causal()])?;
    /// assert_eq!(outputs[1], layer.forward(&batch[1], &Mask::causal())?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward_batch(
        &self,
        xs: &[DMatrix<T>],
        masks: &[Mask],
    ) -> Result<BatchOutput<T, MultiHeadCache<T>>> {
        batch::forward(xs, masks, |x, mask| self.forward(x, mask))
    }

    /// The backward pass of [`MultiHeadAttention::forward_batch`]: parameter gradients summed over the batch, and the
    /// gradient of each sequence.
    ///
    /// # Errors
    /// `caches` is empty, `grad_outputs` has another length, or a sequence is wrong, which the error names.
    ///
    /// ```
    /// # use attention::{Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (outputs, caches) = layer.forward_batch(&[example::river().x], &[Mask::none()])?;
    /// let (parameters, grad_xs) = layer.backward_batch(&caches, &outputs)?;
    /// assert_eq!(parameters.w_o.shape(), (4, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward_batch(
        &self,
        caches: &[MultiHeadCache<T>],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<(Parameters<T>, Vec<DMatrix<T>>)> {
        batch::backward(caches, grad_outputs, |cache, grad_output| {
            self.backward(cache, grad_output)
        })
    }
}

fn check_heads(n_heads: usize, d_model: usize) -> Result<()> {
    check_positive("n_heads", n_heads)?;
    if !d_model.is_multiple_of(n_heads) {
        let because = format!("it must divide d_model = {d_model}");
        let (argument, given, total) = ("n_heads", n_heads, d_model);
        return Err(Error::Indivisible { argument, given, total, because });
    }
    Ok(())
}

fn check_probability(argument: &'static str, p: f64) -> Result<()> {
    if !(0.0..1.0).contains(&p) {
        let because = "it must be at least 0 and less than 1".to_owned();
        return Err(Error::OutOfRange { argument, given: p, because });
    }
    Ok(())
}

// ANCHOR: join
/// The heads' matrices side by side: n_heads times (n, d) → (n, n_heads · d).
fn join<T: RealField + Copy>(heads: &[DMatrix<T>]) -> DMatrix<T> {
    let columns: Vec<_> = heads.iter().map(DMatrix::as_slice).collect();
    let (n, d) = heads[0].shape(); // nalgebra stores columns, one after the other
    DMatrix::from_vec(n, heads.len() * d, columns.concat())
}
// ANCHOR_END: join

/// Layers in files.
#[cfg(feature = "serde")]
mod saved {
    use super::{MultiHeadAttention, check_probability};
    use crate::error::{Error, Result};
    use crate::parameters::Parameters;
    use nalgebra::RealField;
    use serde::Deserialize;

    /// [`MultiHeadAttention`] as it is read.
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "T: RealField + Copy + Deserialize<'de>"))]
    pub struct MultiHead<T: RealField + Copy> {
        parameters: Parameters<T>,
        n_heads: usize,
        dropout: f64,
    }

    impl<T: RealField + Copy> TryFrom<MultiHead<T>> for MultiHeadAttention<T> {
        type Error = Error;

        fn try_from(read: MultiHead<T>) -> Result<Self> {
            check_probability("dropout", read.dropout)?;
            let layer =
                MultiHeadAttention::from_parameters(read.parameters, read.n_heads)?;
            layer.with_dropout(read.dropout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
