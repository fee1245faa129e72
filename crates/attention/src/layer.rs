//! The single-head layer: projections that are learned, around an attention that is not.

use crate::batch::{self, BatchOutput};
use crate::dot_product::{AttentionCache, attention, attention_backward};
use crate::error::{
    Error, Result, check_count, check_not_empty, check_room, check_shape,
};
use crate::flash::{product_plus, product_tr, tr_product};
use crate::mask::Mask;
use nalgebra::{DMatrix, RealField, RowDVector};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use std::hash::{DefaultHasher, Hasher};

/// The parameters of an attention layer, and of the same shape, the gradients of a loss by them.
///
/// Weights are `(d_in, d_out)` and biases `(1, d_out)`: `y = x W + b`.
///
/// ```
/// use attention::Parameters;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let parameters = Parameters::<f64>::xavier(6, 4, 3, &mut ChaCha8Rng::seed_from_u64(0))?;
/// assert_eq!(parameters.w_v.shape(), (6, 3));
/// assert_eq!(parameters.b_q.sum(), 0.0);
/// # Ok::<(), attention::Error>(())
/// ```
///
/// With the feature `serde` they can be written to a file and read again, to the bit. Shapes that do not fit one another,
/// and numbers that are not finite, are an error of either: a layer whose training has diverged is not saved.
#[derive(Debug, Clone, PartialEq)]
// ANCHOR: parameters
pub struct Parameters<T: RealField + Copy> {
    /// Projects to queries (d_model, d_k).
    pub w_q: DMatrix<T>,
    /// Projects to keys (d_model, d_k).
    pub w_k: DMatrix<T>,
    /// Projects to values (d_model, d_v).
    pub w_v: DMatrix<T>,
    /// Projects what was attended to back to the model's width (d_v, d_model).
    pub w_o: DMatrix<T>,
    /// Bias of the queries (1, d_k).
    pub b_q: RowDVector<T>,
    /// Bias of the keys (1, d_k).
    pub b_k: RowDVector<T>,
    /// Bias of the values (1, d_v).
    pub b_v: RowDVector<T>,
    /// Bias of the output (1, d_model).
    pub b_o: RowDVector<T>,
}
// ANCHOR_END: parameters

impl<T: RealField + Copy> Parameters<T> {
    /// Weights drawn from a normal distribution with standard deviation √(2 / (d_in + d_out)), biases zero.
    ///
    /// The same generator state gives the same numbers in `f32` and `f64`, up to rounding.
    ///
    /// # Errors
    /// A size is 0 or beyond any memory.
    ///
    /// # Source
    /// X. Glorot, Y. Bengio, *Understanding the difficulty of training deep feedforward neural networks* (2010).
    ///
    /// ```
    /// use attention::Parameters;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let draw = || Parameters::<f64>::xavier(4, 4, 4, &mut ChaCha8Rng::seed_from_u64(7));
    /// assert_eq!(draw()?, draw()?); // same seed, same bits
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn xavier<R: Rng + ?Sized>(
        d_model: usize,
        d_k: usize,
        d_v: usize,
        rng: &mut R,
    ) -> Result<Self> {
        check_room::<T>(("d_model", d_model), ("d_k", d_k))?;
        check_room::<T>(("d_model", d_model), ("d_v", d_v))?;
        // ANCHOR: xavier
        let mut draw = |d_in: usize, d_out: usize| {
            let deviation = (2.0 / (d_in as f64 + d_out as f64)).sqrt();
            DMatrix::from_fn(d_in, d_out, |_, _| {
                let z: f64 = StandardNormal.sample(rng);
                nalgebra::convert(deviation * z)
            })
        };
        // ANCHOR_END: xavier
        Ok(Parameters {
            w_q: draw(d_model, d_k),
            w_k: draw(d_model, d_k),
            w_v: draw(d_model, d_v),
            w_o: draw(d_v, d_model),
            b_q: RowDVector::zeros(d_k),
            b_k: RowDVector::zeros(d_k),
            b_v: RowDVector::zeros(d_v),
            b_o: RowDVector::zeros(d_model),
        })
    }

    /// The width of what goes in and comes out.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// assert_eq!(attention::Parameters::<f64>::xavier(6, 4, 3, rng)?.d_model(), 6);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn d_model(&self) -> usize {
        self.w_q.nrows()
    }

    /// Every parameter under its name, as a slice: column by column, as nalgebra stores it.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let parameters = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?;
    /// let count: usize = parameters.named().iter().map(|(_, numbers)| numbers.len()).sum();
    /// assert_eq!(count, 2 * 6 * (4 + 3) + 2 * 4 + 3 + 6);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn named(&self) -> [(&'static str, &[T]); 8] {
        [
            ("w_q", self.w_q.as_slice()),
            ("w_k", self.w_k.as_slice()),
            ("w_v", self.w_v.as_slice()),
            ("w_o", self.w_o.as_slice()),
            ("b_q", self.b_q.as_slice()),
            ("b_k", self.b_k.as_slice()),
            ("b_v", self.b_v.as_slice()),
            ("b_o", self.b_o.as_slice()),
        ]
    }

    /// As [`Parameters::named`], to be changed: a step of gradient descent is a loop over both.
    ///
    /// ```
    /// # use attention::{Mask, SingleHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// # let mut layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, rng)?;
    /// # let (output, cache) = layer.forward(&example::river().x, &Mask::none())?;
    /// let gradients = layer.backward(&cache, &output)?.parameters;
    /// let parameters = layer.parameters.named_mut().into_iter();
    /// for ((_, parameter), (_, gradient)) in parameters.zip(gradients.named()) {
    ///     for (x, slope) in parameter.iter_mut().zip(gradient) {
    ///         *x -= 0.01 * slope;
    ///     }
    /// }
    /// # assert!(layer.forward(&example::river().x, &Mask::none())?.0.norm() < output.norm());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn named_mut(&mut self) -> [(&'static str, &mut [T]); 8] {
        [
            ("w_q", self.w_q.as_mut_slice()),
            ("w_k", self.w_k.as_mut_slice()),
            ("w_v", self.w_v.as_mut_slice()),
            ("w_o", self.w_o.as_mut_slice()),
            ("b_q", self.b_q.as_mut_slice()),
            ("b_k", self.b_k.as_mut_slice()),
            ("b_v", self.b_v.as_mut_slice()),
            ("b_o", self.b_o.as_mut_slice()),
        ]
    }

    /// Whether every weight and bias has the shape that the others ask for. The fields are public, so that every use of
    /// a layer checks, and so does reading one from a file.
    ///
    /// # Errors
    /// `w_q` or `w_v` is empty, or another parameter does not fit these two.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let mut parameters = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?;
    /// parameters.check()?;
    /// parameters.b_v = nalgebra::RowDVector::zeros(4);
    /// let error = parameters.check().unwrap_err();
    /// assert_eq!(error.to_string(), "`b_v` has 4 columns but `w_v` has 3");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn check(&self) -> Result<()> {
        check_not_empty("w_q", &self.w_q)?;
        check_not_empty("w_v", &self.w_v)?;
        let (d_model, d_k, d_v) = (self.d_model(), self.w_q.ncols(), self.w_v.ncols());
        check_shape("w_k", &self.w_k, (d_model, d_k), "`w_q`")?;
        check_count("w_v", "row", self.w_v.nrows(), d_model, || {
            format!("`w_q` has d_model = {d_model}")
        })?;
        check_shape("w_o", &self.w_o, (d_v, d_model), "(d_v, d_model)")?;
        for (argument, bias, weight, width) in [
            ("b_q", &self.b_q, "w_q", d_k),
            ("b_k", &self.b_k, "w_k", d_k),
            ("b_v", &self.b_v, "w_v", d_v),
            ("b_o", &self.b_o, "w_o", d_model),
        ] {
            check_count(argument, "column", bias.ncols(), width, || {
                format!("`{weight}` has {width}")
            })?;
        }
        Ok(())
    }

    /// What tells these parameters from others, of another layer or from before a step of an optimiser.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        const ENTRIES: usize = 64; // of each matrix: enough, and nothing beside the products of a forward pass
        let mut hasher = DefaultHasher::new();
        for (_, numbers) in self.named() {
            let step = numbers.len().div_ceil(ENTRIES).max(1);
            for number in numbers.iter().step_by(step) {
                let number: Option<f64> = nalgebra::try_convert(*number);
                hasher.write_u64(number.map_or(0, f64::to_bits));
            }
        }
        Fingerprint(hasher.finish())
    }

    /// Queries from `x`, keys and values from `context`; the three projections of every attention layer.
    pub(crate) fn project_inputs(
        &self,
        x: &DMatrix<T>,
        context: &DMatrix<T>,
    ) -> Result<[DMatrix<T>; 3]> {
        self.check()?;
        for (argument, matrix) in [("x", x), ("context", context)] {
            check_not_empty(argument, matrix)?;
            check_count(argument, "column", matrix.ncols(), self.d_model(), || {
                format!("the layer has d_model = {}", self.d_model())
            })?;
        }
        // ANCHOR: project_inputs
        Ok([
            linear(x, &self.w_q, &self.b_q)?,       // (n_q, d_k)
            linear(context, &self.w_k, &self.b_k)?, // (n_k, d_k)
            linear(context, &self.w_v, &self.b_v)?, // (n_k, d_v)
        ])
        // ANCHOR_END: project_inputs
    }
}

/// A hash of some entries of a layer's parameters, which a cache keeps: the backward pass of other parameters would give
/// gradients of no function at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// The parameters are still those of the forward pass.
    pub(crate) fn check<T: RealField + Copy>(
        self,
        parameters: &Parameters<T>,
    ) -> Result<()> {
        if self != parameters.fingerprint() {
            return Err(Error::OtherParameters { argument: "cache" });
        }
        Ok(())
    }
}

/// A linear map with a bias: `y = x W + b`.
///
/// Shapes: `x` (n, d_in), `w` (d_in, d_out), `b` (1, d_out) → (n, d_out).
///
/// # Errors
/// An argument is empty, or their widths do not fit.
///
/// ```
/// use nalgebra::{dmatrix, RowDVector};
///
/// let (x, w) = (dmatrix![1.0_f64, 2.0], dmatrix![3.0; 4.0]);
/// assert_eq!(attention::linear(&x, &w, &RowDVector::from_element(1, 0.5))?, dmatrix![11.5]);
/// # Ok::<(), attention::Error>(())
/// ```
// ANCHOR: linear
pub fn linear<T: RealField + Copy>(
    x: &DMatrix<T>,
    w: &DMatrix<T>,
    b: &RowDVector<T>,
) -> Result<DMatrix<T>> {
    check_not_empty("x", x)?;
    check_not_empty("w", w)?;
    let because = || format!("`x` has {} columns", x.ncols());
    check_count("w", "row", w.nrows(), x.ncols(), because)?;
    let because = || format!("`w` has {}", w.ncols());
    check_count("b", "column", b.ncols(), w.ncols(), because)?;
    Ok(product_plus(x, w, b)) // x w, and b added to each row
}
// ANCHOR_END: linear

// ANCHOR: linear_backward
/// The gradients of [`linear`]: by `x` (n, d_in), `w` (d_in, d_out) and `b` (1, d_out).
pub(crate) fn linear_backward<T: RealField + Copy>(
    x: &DMatrix<T>,
    w: &DMatrix<T>,
    grad_y: &DMatrix<T>,
) -> (DMatrix<T>, DMatrix<T>, RowDVector<T>) {
    let grad_x = product_tr(grad_y, w);
    let grad_w = tr_product(x, grad_y);
    (grad_x, grad_w, grad_y.row_sum())
}
// ANCHOR_END: linear_backward

/// The gradients of a loss by a layer's parameters and inputs.
///
/// ```
/// use attention::{Mask, SingleHeadAttention};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = attention::example::river().x;
/// let (output, cache) = layer.forward(&x, &Mask::causal())?;
/// let gradients = layer.backward(&cache, &output)?;
/// assert_eq!(gradients.x.shape(), x.shape());
/// assert_eq!(gradients.parameters.w_q.shape(), layer.parameters.w_q.shape());
/// assert_eq!(gradients.context, None); // self-attention: all three paths end in x
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LayerGradients<T: RealField + Copy> {
    /// By each parameter, under the parameter's own name.
    pub parameters: Parameters<T>,
    /// By the input (n_q, d_model). In self-attention the sum over three paths: queries, keys and values.
    pub x: DMatrix<T>,
    /// By the context (n_k, d_model), in cross-attention; `None` in self-attention.
    pub context: Option<DMatrix<T>>,
}

// ANCHOR: gather
/// A layer's gradients, from those of its output projection and of queries, keys, values.
pub(crate) fn gather_gradients<T: RealField + Copy>(
    parameters: &Parameters<T>,
    x: &DMatrix<T>,
    context: Option<&DMatrix<T>>,
    (w_o, b_o): (DMatrix<T>, RowDVector<T>),
    [grad_q, grad_k, grad_v]: [&DMatrix<T>; 3],
) -> LayerGradients<T> {
    let source = context.unwrap_or(x); // where keys and values came from
    let (grad_x_q, w_q, b_q) = linear_backward(x, &parameters.w_q, grad_q);
    let (grad_source_k, w_k, b_k) = linear_backward(source, &parameters.w_k, grad_k);
    let (grad_source_v, w_v, b_v) = linear_backward(source, &parameters.w_v, grad_v);
    let grad_source = grad_source_k + grad_source_v;
    let (grad_x, grad_context) = match context {
        Some(_) => (grad_x_q, Some(grad_source)),
        None => (grad_x_q + grad_source, None), // three paths into x
    };
    LayerGradients {
        parameters: Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o },
        x: grad_x,
        context: grad_context,
    }
}
// ANCHOR_END: gather

/// Attention with one head: three projections in, one out.
///
/// ```
/// use attention::{Mask, SingleHeadAttention};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = attention::example::river().x; // (6, 4)
/// let (output, _) = layer.forward(&x, &Mask::none())?;
/// assert_eq!(output.shape(), (6, 4));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(bound(
        serialize = "T: serde::Serialize",
        deserialize = "T: serde::Deserialize<'de>"
    ))
)]
pub struct SingleHeadAttention<T: RealField + Copy> {
    /// What is learned.
    pub parameters: Parameters<T>,
}

/// What [`SingleHeadAttention::forward`] keeps for the backward pass.
///
/// ```
/// use attention::{Mask, SingleHeadAttention};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (_, cache) = layer.forward(&attention::example::river().x, &Mask::none())?;
/// assert_eq!(cache.attention.weights.shape(), (6, 6));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SingleHeadCache<T: RealField + Copy> {
    /// The input (n_q, d_model).
    pub x: DMatrix<T>,
    /// The context (n_k, d_model), if it was not the input itself.
    pub context: Option<DMatrix<T>>,
    /// Queries, keys, values and weights.
    pub attention: AttentionCache<T>,
    /// What was attended to, before the output projection (n_q, d_v).
    pub attended: DMatrix<T>,
    /// Of the parameters that made it.
    fingerprint: Fingerprint,
}

impl<T: RealField + Copy> SingleHeadAttention<T> {
    /// A layer with fresh parameters: see [`Parameters::xavier`].
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
            parameters: Parameters::xavier(d_model, d_k, d_v, rng)?,
        })
    }

    /// Self-attention: every token of `x` asks all tokens of `x`.
    ///
    /// Shapes: `x` (n, d_model) → (n, d_model).
    ///
    /// # Errors
    /// `x` is empty or not d_model wide, a parameter has a shape that does not fit the others, or the mask was made for
    /// another shape.
    ///
    /// ```
    /// use attention::{Mask, SingleHeadAttention};
    /// use nalgebra::DMatrix;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let error = layer.forward(&DMatrix::zeros(6, 5), &Mask::none()).unwrap_err();
    /// assert_eq!(error.to_string(), "`x` has 5 columns but the layer has d_model = 4");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward(
        &self,
        x: &DMatrix<T>,
        mask: &Mask,
    ) -> Result<(DMatrix<T>, SingleHeadCache<T>)> {
        self.run(x, None, mask)
    }

    /// Cross-attention: every token of `x` asks all tokens of `context`.
    ///
    /// Shapes: `x` (n_q, d_model), `context` (n_k, d_model) → (n_q, d_model).
    ///
    /// # Errors
    /// As [`SingleHeadAttention::forward`], and for `context` as for `x`.
    ///
    /// ```
    /// use attention::{Mask, SingleHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x.rows(0, 2).into_owned();
    /// let (output, _) = layer.forward_cross(&x, &example::city().x, &Mask::none())?;
    /// assert_eq!(output.shape(), (2, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward_cross(
        &self,
        x: &DMatrix<T>,
        context: &DMatrix<T>,
        mask: &Mask,
    ) -> Result<(DMatrix<T>, SingleHeadCache<T>)> {
        self.run(x, Some(context), mask)
    }

    // ANCHOR: run
    fn run(
        &self,
        x: &DMatrix<T>,
        context: Option<&DMatrix<T>>,
        mask: &Mask,
    ) -> Result<(DMatrix<T>, SingleHeadCache<T>)> {
        let [q, k, v] = self.parameters.project_inputs(x, context.unwrap_or(x))?;
        let (attended, attention) = attention(&q, &k, &v, mask)?; // (n_q, d_v)
        // (n_q, d_model)
        let output = linear(&attended, &self.parameters.w_o, &self.parameters.b_o)?;
        let (x, context) = (x.clone(), context.cloned());
        let fingerprint = self.parameters.fingerprint();
        Ok((output, SingleHeadCache { x, context, attention, attended, fingerprint }))
    }
    // ANCHOR_END: run

    /// The backward pass: from `grad_output = ∂L/∂output` to the gradients by parameters and inputs.
    ///
    /// Shapes: `grad_output` (n_q, d_model).
    ///
    /// # Errors
    /// `grad_output` has not the shape of the output, or the cache is not from a layer of this shape, or not from a layer with
    /// these parameters: take the step of an optimiser after the backward pass.
    ///
    /// ```
    /// use attention::{Mask, SingleHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (output, cache) = layer.forward(&example::river().x, &Mask::none())?;
    /// // The loss ½ Σ output² has the gradient `output`.
    /// let gradients = layer.backward(&cache, &output)?;
    /// assert_eq!(gradients.parameters.b_o, output.row_sum());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward(
        &self,
        cache: &SingleHeadCache<T>,
        grad_output: &DMatrix<T>,
    ) -> Result<LayerGradients<T>> {
        let SingleHeadCache { x, context, attention, attended, fingerprint } = cache;
        check_cache(&self.parameters, x, context.as_ref(), attended)?;
        check_shape("grad_output", grad_output, x.shape(), "the output")?;
        for (name, matrix, weight) in [
            ("cache.attention.q", &attention.q, &self.parameters.w_q),
            ("cache.attention.v", &attention.v, &self.parameters.w_v),
        ] {
            let rows =
                if name.ends_with('q') { x } else { context.as_ref().unwrap_or(x) };
            check_shape(name, matrix, (rows.nrows(), weight.ncols()), "its projection")?;
        }
        fingerprint.check(&self.parameters)?;

        // ANCHOR: backward
        // ANCHOR: backward_output
        // output = attended · W_O + b_O
        let (grad_attended, w_o, b_o) =
            linear_backward(attended, &self.parameters.w_o, grad_output);
        // ANCHOR_END: backward_output
        // attended = softmax(q kᵀ / √d_k + mask) v
        let grad = attention_backward(attention, &grad_attended)?;
        // q = x W_Q + b_Q, k = source W_K + b_K, v = source W_V + b_V
        let grad_qkv = [&grad.q, &grad.k, &grad.v];
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
    /// use attention::{Mask, SingleHeadAttention, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let batch = [example::river().x, example::city().x.rows(0, 3).into_owned()];
    /// let (outputs, caches) = layer.forward_batch(&batch, &[Mask::causal()])?;
    /// let (gradients, grad_batch) = layer.backward_batch(&caches, &outputs)?;
    /// assert_eq!((grad_batch[0].nrows(), grad_batch[1].nrows()), (6, 3));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward_batch(
        &self,
        xs: &[DMatrix<T>],
        masks: &[Mask],
    ) -> Result<BatchOutput<T, SingleHeadCache<T>>> {
        batch::forward(xs, masks, |x, mask| self.forward(x, mask))
    }

    /// The backward pass of [`SingleHeadAttention::forward_batch`]: parameter gradients summed over the batch, and the
    /// gradient of each sequence.
    ///
    /// # Errors
    /// `caches` is empty, `grad_outputs` has another length, or a sequence is wrong, which the error names.
    ///
    /// ```
    /// # use attention::{Mask, SingleHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (outputs, caches) = layer.forward_batch(&[example::river().x], &[Mask::none()])?;
    /// let (parameters, grad_xs) = layer.backward_batch(&caches, &outputs)?;
    /// assert_eq!(grad_xs.len(), 1);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward_batch(
        &self,
        caches: &[SingleHeadCache<T>],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<(Parameters<T>, Vec<DMatrix<T>>)> {
        batch::backward(caches, grad_outputs, |cache, grad_output| {
            self.backward(cache, grad_output)
        })
    }
}

/// A cache's inputs have the shapes that this layer would have given them.
pub(crate) fn check_cache<T: RealField + Copy>(
    parameters: &Parameters<T>,
    x: &DMatrix<T>,
    context: Option<&DMatrix<T>>,
    attended: &DMatrix<T>,
) -> Result<()> {
    parameters.check()?;
    let (d_model, d_v) = (parameters.d_model(), parameters.w_v.ncols());
    for (argument, matrix) in [("cache.x", x), ("cache.context", context.unwrap_or(x))] {
        check_not_empty(argument, matrix)?;
        check_count(argument, "column", matrix.ncols(), d_model, || {
            format!("the layer has d_model = {d_model}")
        })?;
    }
    check_shape("cache.attended", attended, (x.nrows(), d_v), "(n_q, d_v)")
}

impl<T: RealField + Copy> Parameters<T> {
    /// Adds other gradients of the same layer.
    pub(crate) fn accumulate(&mut self, other: &Parameters<T>) {
        for ((_, sum), (_, terms)) in self.named_mut().into_iter().zip(other.named()) {
            sum.iter_mut().zip(terms).for_each(|(sum, &term)| *sum += term);
        }
    }
}

impl<T: RealField + Copy> From<Parameters<T>> for SingleHeadAttention<T> {
    /// A layer with these parameters. Their shapes are checked when it is used.
    fn from(parameters: Parameters<T>) -> Self {
        SingleHeadAttention { parameters }
    }
}
