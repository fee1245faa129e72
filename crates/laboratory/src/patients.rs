//! Attention layers that are ill: each has one planted fault, of the kind that people make.
//!
//! All shapes fit, and nothing panics. Everything but the fault is as in the healthy layer.

use crate::faults::Fault;
use crate::layer::{AttentionLayer, DecodingLayer};
use attention::engine::{check_count, wrong_value};
use attention::{
    AttentionCache, LayerGradients, Mask, MultiHeadAttention, MultiHeadCache,
    NamedParameters, Parameters, Result, linear, linear_backward,
    mask::SizedMask,
    named_parameters::{Named, NamedMut},
    softmax::{log_sum_exp_rows, softmax_rows, softmax_rows_backward},
};
use nalgebra::DMatrix;

/// A multi-head layer with a [`Fault`], for practice in finding it.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use laboratory::{AttentionLayer, Fault, Patient};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = example::river().x;
/// let (healthy, _) = layer.forward(&x, Mask::causal())?;
/// let (ill, _) = Patient::new(layer, Fault::SoftmaxOverQueries)?.forward(&x, None, Mask::causal())?;
/// assert_eq!(ill.shape(), healthy.shape()); // as if nothing were wrong
/// assert!((ill - healthy).amax() > 0.1);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Patient {
    layer: MultiHeadAttention<f64>,
    fault: Option<Fault>,
}

impl Patient {
    /// The faults that a patient may have. [`Fault::SharedSlice`] changes nothing with one head, [`Fault::PositionOfTheChunk`] nothing without
    /// rotary positions, and [`Fault::ForgottenPath`] nothing across two sequences.
    pub const FAULTS: &[Fault] = &[
        Fault::OffByOneMask,
        Fault::MaskInverted,
        Fault::ForgottenPadding,
        Fault::MaskAfterSoftmax,
        Fault::ScaleMissing,
        Fault::SoftmaxOverQueries,
        Fault::DeadHead,
        Fault::SharedSlice,
        Fault::ForgottenPath,
        Fault::KeysNotTransposed,
        Fault::PositionOfTheChunk,
    ];

    /// This layer, with biases, heads that are d_model / n_heads wide and its rotary positions if it has any, with this fault, or healthy
    /// with `None`.
    ///
    /// # Errors
    /// The fault is none of [`Patient::FAULTS`], the layer's parameters do not fit one another or its number of heads, its heads have another
    /// width, or it has no biases.
    ///
    /// ```
    /// use attention::MultiHeadAttention;
    /// use laboratory::{Fault, Patient};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let ill = Patient::new(layer, Fault::DeadHead)?;
    /// assert_eq!(ill.parameters().w_q.columns(2, 2).amax(), 0.0); // the queries of the second head
    /// assert_ne!(ill.parameters().w_q.columns(0, 2).amax(), 0.0); // and of the first
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn new(
        layer: MultiHeadAttention<f64>,
        fault: impl Into<Option<Fault>>,
    ) -> Result<Self> {
        let fault = fault.into();
        if let Some(fault) = fault.filter(|fault| !Patient::FAULTS.contains(fault)) {
            let because = "a patient has one of `Patient::FAULTS`";
            return Err(wrong_value("fault", fault.name(), because));
        }
        let n_heads = layer.n_heads();
        let rotary = layer.rotary();
        let mut layer =
            MultiHeadAttention::from_parameters(layer.parameters.into_inner(), n_heads)?;
        if let Some(rotary) = rotary {
            layer = layer.with_rotary(rotary)?;
        }
        let d_model = layer.parameters.d_model();
        let Parameters { w_q, w_v, b_q, b_k, b_v, b_o, .. } = &*layer.parameters;
        for (name, width) in [("w_q", w_q.ncols()), ("w_v", w_v.ncols())] {
            let because = || format!("heads share a width of d_model = {d_model}");
            check_count(name, "column", width, d_model, because)?;
        }
        for (name, bias) in [("b_q", b_q), ("b_k", b_k), ("b_v", b_v), ("b_o", b_o)] {
            let because = || format!("a patient has biases of d_model = {d_model}");
            check_count(name, "column", bias.ncols(), d_model, because)?;
        }
        let d = layer.parameters.d_model() / n_heads;
        let last = (n_heads - 1) * d;
        if fault == Some(Fault::DeadHead) {
            // ANCHOR: dead_head
            layer.parameters.w_q.columns_mut(last, d).fill(0.0);
            layer.parameters.w_k.columns_mut(last, d).fill(0.0);
            // ANCHOR_END: dead_head
            layer.parameters.b_q.columns_mut(last, d).fill(0.0);
            layer.parameters.b_k.columns_mut(last, d).fill(0.0);
        }
        Ok(Patient { layer, fault })
    }

    /// Returns the learned parameters, those that the fault has changed included. Names and views of them, to be changed, are those of
    /// [`NamedParameters`].
    pub fn parameters(&self) -> &Parameters<f64> {
        &self.layer.parameters
    }

    fn d(&self) -> usize {
        self.layer.parameters.d_model() / self.layer.n_heads()
    }

    /// Queries of `x`, and keys and values of `source`. With rotary positions queries and keys are turned to their places,
    /// of which these are the first.
    fn project(
        &self,
        x: &DMatrix<f64>,
        source: &DMatrix<f64>,
        [first_q, first_k]: [isize; 2],
    ) -> Result<[DMatrix<f64>; 3]> {
        let p = &self.layer.parameters;
        let mut q = linear(x, &p.w_q, &p.b_q)?;
        let mut k = linear(source, &p.w_k, &p.b_k)?;
        if let Some(rotary) = self.layer.rotary() {
            q = rotary.turn(&q, self.layer.n_heads(), first_q)?;
            k = rotary.turn(&k, self.layer.n_heads(), first_k)?;
        }
        Ok([q, k, linear(source, &p.w_v, &p.b_v)?])
    }

    /// The output of all heads side by side, and the cache of each. The mask is the one that is asked for.
    fn attend(
        &self,
        qkv: &[DMatrix<f64>; 3],
        mask: &Mask,
    ) -> Result<(DMatrix<f64>, Vec<AttentionCache<f64>>)> {
        let (d, [n_q, n_k, _]) = (self.d(), qkv.each_ref().map(DMatrix::nrows));
        let seen = self.mask(mask, n_q, n_k)?.sized(n_q, n_k)?;
        let mut attended = DMatrix::zeros(n_q, self.layer.parameters.d_model());
        let mut heads = vec![];
        for h in 0..self.layer.n_heads() {
            let slice =
                |joined: &DMatrix<f64>| joined.columns(self.slice(h) * d, d).into_owned();
            let [q, k, v] = qkv.each_ref().map(slice); // (n, d)
            let scores = self.scores(&q, &k);
            let log_sum_exp = log_sum_exp_rows(&seen.apply(scores.clone())?)?;
            let weights = self.weights(scores, &seen)?; // (n_q, n_k)
            attended.columns_mut(h * d, d).copy_from(&(&weights * &v));
            let (mask, dropout) = (mask.clone(), None);
            heads.push(AttentionCache { q, k, v, mask, weights, log_sum_exp, dropout });
        }
        Ok((attended, heads))
    }

    /// The position of the first token of the next chunk.
    fn first_position(&self, cached: usize) -> usize {
        match self.fault {
            // ANCHOR: restarted_positions
            Some(Fault::PositionOfTheChunk) => 0,
            // ANCHOR_END: restarted_positions
            // ANCHOR: healthy_positions
            _ => cached,
            // ANCHOR_END: healthy_positions
        }
    }

    /// The slice of the projections that head `h` works on.
    fn slice(&self, h: usize) -> usize {
        match self.fault {
            Some(Fault::SharedSlice) if h + 1 == self.layer.n_heads() => 0,
            _ => h,
        }
    }

    /// Returns `true` if query `i` sees key `j` where that mask is asked for.
    fn sees(&self, asked: &SizedMask, i: usize, j: usize) -> bool {
        match self.fault {
            // ANCHOR: off_by_one_mask
            Some(Fault::OffByOneMask) => {
                asked.allows((i + 1).min(asked.shape().0 - 1), j)
            }
            // ANCHOR_END: off_by_one_mask
            // ANCHOR: inverted_mask
            Some(Fault::MaskInverted) => !asked.allows(i, j),
            // ANCHOR_END: inverted_mask
            // ANCHOR: forgotten_padding
            Some(Fault::ForgottenPadding) => j + asked.shape().0 <= i + asked.shape().1,
            // ANCHOR_END: forgotten_padding
            // ANCHOR: healthy_mask
            _ => asked.allows(i, j),
            // ANCHOR_END: healthy_mask
        }
    }

    /// The mask that the patient applies where this one is asked for.
    fn mask(&self, asked: &Mask, n_q: usize, n_k: usize) -> Result<Mask> {
        let asked = asked.sized(n_q, n_k)?;
        Mask::dense(DMatrix::from_fn(n_q, n_k, |i, j| self.sees(&asked, i, j)))
    }

    fn scores(&self, q: &DMatrix<f64>, k: &DMatrix<f64>) -> DMatrix<f64> {
        q * k.transpose() * self.scale(q.ncols())
    }

    fn scale(&self, d_k: usize) -> f64 {
        match self.fault {
            // ANCHOR: missing_scale
            Some(Fault::ScaleMissing) => 1.0,
            // ANCHOR_END: missing_scale
            // ANCHOR: healthy_scale
            _ => 1.0 / (d_k as f64).sqrt(),
            // ANCHOR_END: healthy_scale
        }
    }

    fn weights(&self, scores: DMatrix<f64>, mask: &SizedMask) -> Result<DMatrix<f64>> {
        Ok(match self.fault {
            // ANCHOR: wrong_axis
            Some(Fault::SoftmaxOverQueries) => {
                softmax_rows(&mask.apply(scores)?.transpose())?.transpose()
            }
            // ANCHOR_END: wrong_axis
            Some(Fault::MaskAfterSoftmax) => clear_hidden(mask, softmax_rows(&scores)?),
            // ANCHOR: healthy_weights
            _ => softmax_rows(&mask.apply(scores)?)?,
            // ANCHOR_END: healthy_weights
        })
    }

    /// The derivative of [`Patient::weights`], fault and all: automatic differentiation would do the same.
    fn weights_backward(
        &self,
        head: &AttentionCache<f64>,
        mask: &SizedMask,
        grad_weights: DMatrix<f64>,
    ) -> Result<DMatrix<f64>> {
        match self.fault {
            Some(Fault::SoftmaxOverQueries) => {
                let (weights, grad) =
                    (head.weights.transpose(), grad_weights.transpose());
                Ok(softmax_rows_backward(&weights, &grad)?.transpose())
            }
            Some(Fault::MaskAfterSoftmax) => {
                let before_mask = softmax_rows(&self.scores(&head.q, &head.k))?;
                softmax_rows_backward(&before_mask, &clear_hidden(mask, grad_weights))
            }
            _ => softmax_rows_backward(&head.weights, &grad_weights),
        }
    }

    /// The gradients of a head's queries, keys and values.
    fn head_backward(
        &self,
        head: &AttentionCache<f64>,
        grad_attended: &DMatrix<f64>,
    ) -> Result<[DMatrix<f64>; 3]> {
        let AttentionCache { q, k, v, mask, weights, .. } = head;
        let mask = self.mask(mask, q.nrows(), k.nrows())?;
        let mask = mask.sized(q.nrows(), k.nrows())?;
        // attended = weights · v
        let grad_v = weights.tr_mul(grad_attended);
        let grad_weights = grad_attended * v.transpose();
        let grad_scores = self.weights_backward(head, &mask, grad_weights)?;
        // scores = q kᵀ · scale
        let grad_scores = grad_scores * self.scale(q.ncols());
        let grad_q = &grad_scores * k;
        let grad_k = match self.fault {
            Some(Fault::KeysNotTransposed) if grad_scores.is_square() => &grad_scores * q,
            _ => grad_scores.transpose() * q,
        };
        Ok([grad_q, grad_k, grad_v])
    }

    /// The gradient with respect to the input of self-attention, from those with respect to queries, keys and values.
    fn sum_of_paths(&self, [by_q, by_k, by_v]: [DMatrix<f64>; 3]) -> DMatrix<f64> {
        match self.fault {
            // ANCHOR: forgotten_path
            Some(Fault::ForgottenPath) => by_q + by_v,
            // ANCHOR_END: forgotten_path
            // ANCHOR: healthy_paths
            _ => by_q + by_k + by_v,
            // ANCHOR_END: healthy_paths
        }
    }
}

/// The position of the first query, where the last one stands with the last key.
fn first_query(x: &DMatrix<f64>, source: &DMatrix<f64>) -> isize {
    source.nrows() as isize - x.nrows() as isize
}

/// 0 in every place that a query may not see.
fn clear_hidden(mask: &SizedMask, mut matrix: DMatrix<f64>) -> DMatrix<f64> {
    for (j, mut column) in matrix.column_iter_mut().enumerate() {
        mask.hide_queries(j, 0..mask.shape().0, column.as_mut_slice(), 0.0);
    }
    matrix
}

impl NamedParameters<f64> for Patient {
    fn named(&self) -> Named<'_, f64> {
        self.layer.named()
    }

    fn named_mut(&mut self) -> NamedMut<'_, f64> {
        self.layer.named_mut()
    }
}

/// What a [`Patient`] keeps of its forward pass.
#[derive(Debug, Clone)]
pub struct PatientCache {
    healthy: MultiHeadCache<f64>,
    x: DMatrix<f64>,
    context: Option<DMatrix<f64>>,
    heads: Vec<AttentionCache<f64>>,
    attended: DMatrix<f64>, // (n_q, d_v · n_heads)
}

impl AttentionLayer for Patient {
    type Cache = PatientCache;

    fn forward(
        &self,
        x: &DMatrix<f64>,
        context: Option<&DMatrix<f64>>,
        mask: impl Into<Mask>,
    ) -> Result<(DMatrix<f64>, PatientCache)> {
        let mask = mask.into();
        // The healthy layer checks what it is given.
        let (_, healthy) = AttentionLayer::forward(&self.layer, x, context, &mask)?;
        let source = context.unwrap_or(x);
        let qkv = self.project(x, source, [first_query(x, source), 0])?;
        let (attended, heads) = self.attend(&qkv, &mask)?;
        let Parameters { w_o, b_o, .. } = &*self.layer.parameters;
        let output = linear(&attended, w_o, b_o)?;
        let (x, context) = (x.clone(), context.cloned());
        Ok((output, PatientCache { healthy, x, context, heads, attended }))
    }

    fn backward(
        &self,
        cache: &PatientCache,
        grad_output: &DMatrix<f64>,
    ) -> Result<LayerGradients<f64>> {
        // The healthy layer checks what it is given.
        let mut gradients = self.layer.backward(&cache.healthy, grad_output)?;
        let PatientCache { x, context, heads, attended, .. } = cache;
        let source = context.as_ref().unwrap_or(x);
        let (d, p) = (self.d(), &self.layer.parameters);
        let (grad_attended, w_o, b_o) = linear_backward(attended, &p.w_o, grad_output)?;
        let mut grad_qkv =
            [x, source, source].map(|of| DMatrix::zeros(of.nrows(), p.d_model()));
        for (h, head) in heads.iter().enumerate() {
            let grad_attended = grad_attended.columns(h * d, d).into_owned();
            let grads = self.head_backward(head, &grad_attended)?;
            for (joined, grad) in grad_qkv.iter_mut().zip(grads) {
                let mut slice = joined.columns_mut(self.slice(h) * d, d);
                slice += grad; // and not `=`, since a slice may be used twice
            }
        }
        if let Some(rotary) = self.layer.rotary() {
            let firsts = [first_query(x, source), 0];
            for (grad, first) in grad_qkv.iter_mut().zip(firsts) {
                *grad = rotary.turn_back(&*grad, self.layer.n_heads(), first)?;
            }
        }
        let (by_q, w_q, b_q) = linear_backward(x, &p.w_q, &grad_qkv[0])?;
        let (by_k, w_k, b_k) = linear_backward(source, &p.w_k, &grad_qkv[1])?;
        let (by_v, w_v, b_v) = linear_backward(source, &p.w_v, &grad_qkv[2])?;
        gradients.parameters = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
        if context.is_some() {
            (gradients.x, gradients.context) = (by_q, Some(by_k + by_v));
        } else {
            gradients.x = self.sum_of_paths([by_q, by_k, by_v]);
        }
        Ok(gradients)
    }

    fn heads(cache: &PatientCache) -> Vec<AttentionCache<f64>> {
        cache.heads.clone()
    }
}

/// The keys and values of the tokens that a [`Patient`] has read.
///
/// ```
/// use attention::{MultiHeadAttention, example};
/// use laboratory::{DecodingLayer, Patient, PatientKeyValues};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let patient = Patient::new(layer, None)?;
/// let mut cached = PatientKeyValues::default();
/// patient.forward_cached(&example::river().x, &mut cached)?;
/// assert_eq!(cached.tokens(), 6);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatientKeyValues {
    /// Keys, turned where the layer has rotary positions, and values of each chunk (n, d_model).
    chunks: Vec<[DMatrix<f64>; 2]>,
}

impl PatientKeyValues {
    /// Returns the number of tokens that have been read.
    pub fn tokens(&self) -> usize {
        self.chunks.iter().map(|[keys, _]| keys.nrows()).sum()
    }

    /// All keys, or all values, one below the other.
    fn joined(&self, which: usize) -> DMatrix<f64> {
        let rows: Vec<_> =
            self.chunks.iter().flat_map(|chunk| chunk[which].row_iter()).collect();
        DMatrix::from_rows(&rows)
    }
}

impl DecodingLayer for Patient {
    type KeyValues = PatientKeyValues;

    fn forward_cached(
        &self,
        x: &DMatrix<f64>,
        cached: &mut PatientKeyValues,
    ) -> Result<DMatrix<f64>> {
        // The healthy layer checks what it is given.
        AttentionLayer::forward(&self.layer, x, None, Mask::causal())?;
        let first = self.first_position(cached.tokens()) as isize;
        let [q, k, v] = self.project(x, x, [first, first])?;
        cached.chunks.push([k, v]);
        let qkv = [q, cached.joined(0), cached.joined(1)];
        let (attended, _) = self.attend(&qkv, &Mask::causal())?;
        let Parameters { w_o, b_o, .. } = &*self.layer.parameters;
        linear(&attended, w_o, b_o)
    }
}
