//! What a layer learns, and the gradients of it.

use crate::error::{
    Error, Result, check_count, check_not_empty, check_room, check_shape,
};
use crate::linear::linear;
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, RealField, RowDVector};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use std::hash::{DefaultHasher, Hasher};

/// The parameters of an attention layer, and of the same shape, the gradients of a loss by them.
///
/// Weights are `(d_in, d_out)` and biases `(1, d_out)`, or `(1, 0)` where there is none: `y = x W + b`.
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
/// With the feature `serde` they can be written to a file and read again, to the bit if the format keeps it (serde_json's feature
/// `float_roundtrip`). Shapes that do not fit one another,
/// and numbers that are not finite, are an error when writing and when reading: a layer whose training has diverged is not saved.
#[derive(Debug, Clone, PartialEq)]
// ANCHOR: parameters
pub struct Parameters<T: RealField + Copy> {
    /// Projects to queries (d_model, d_k); d_k is that of all heads together.
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

    /// These parameters without any bias, for layers that learn none: a bias that is not there has no columns.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let parameters = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?.without_biases();
    /// let names: Vec<_> = parameters.named().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["w_q", "w_k", "w_v", "w_o"]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn without_biases(self) -> Self {
        let [b_q, b_k, b_v, b_o] = [(); 4].map(|()| RowDVector::zeros(0));
        Parameters { b_q, b_k, b_v, b_o, ..self }
    }

    /// Zeros of the same shapes: where sums and the averages of an optimiser begin.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let zeros = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?.zeros_like();
    /// assert!(zeros.named().iter().all(|(_, matrix)| matrix.amax() == 0.0));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn zeros_like(&self) -> Self {
        let mut zeros = self.clone();
        zeros.named_mut().into_iter().for_each(|(_, mut matrix)| matrix.fill(T::zero()));
        zeros
    }

    /// Every parameter under its name, a bias as a matrix of one row. Biases that are not there are left out.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let parameters = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?;
    /// let count: usize = parameters.named().iter().map(|(_, matrix)| matrix.len()).sum();
    /// assert_eq!(count, 2 * 6 * (4 + 3) + 2 * 4 + 3 + 6);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn named(&self) -> Vec<(&'static str, DMatrixView<'_, T>)> {
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
        let weights = [("w_q", w_q), ("w_k", w_k), ("w_v", w_v), ("w_o", w_o)];
        let biases = [("b_q", b_q), ("b_k", b_k), ("b_v", b_v), ("b_o", b_o)];
        let mut named: Vec<_> = weights.map(|(name, w)| (name, w.as_view())).into();
        for (name, bias) in biases.into_iter().filter(|(_, bias)| !bias.is_empty()) {
            named.push((name, DMatrixView::from_slice(bias.as_slice(), 1, bias.len())));
        }
        named
    }

    /// As [`Parameters::named`], to be changed: a step of an optimiser is a loop over both.
    ///
    /// ```
    /// # use attention::{Mask, SingleHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// # let mut layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, rng)?;
    /// # let (output, cache) = layer.forward(&example::river().x, &Mask::none())?;
    /// let gradients = layer.backward(&cache, &output)?.parameters;
    /// let parameters = layer.parameters.named_mut().into_iter();
    /// for ((_, mut parameter), (_, gradient)) in parameters.zip(gradients.named()) {
    ///     parameter -= 0.01 * gradient;
    /// }
    /// # assert!(layer.forward(&example::river().x, &Mask::none())?.0.norm() < output.norm());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn named_mut(&mut self) -> Vec<(&'static str, DMatrixViewMut<'_, T>)> {
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
        let weights = [("w_q", w_q), ("w_k", w_k), ("w_v", w_v), ("w_o", w_o)];
        let biases = [("b_q", b_q), ("b_k", b_k), ("b_v", b_v), ("b_o", b_o)];
        let mut named: Vec<_> = weights.map(|(name, w)| (name, w.as_view_mut())).into();
        for (name, bias) in biases.into_iter().filter(|(_, bias)| !bias.is_empty()) {
            let columns = bias.len();
            let matrix = DMatrixViewMut::from_slice(bias.as_mut_slice(), 1, columns);
            named.push((name, matrix));
        }
        named
    }

    /// Adds other gradients of the same layer.
    ///
    /// # Errors
    /// A parameter has another shape, or is there on one side only.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let parameters = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?;
    /// let mut sum = parameters.zeros_like();
    /// sum.accumulate(&parameters)?;
    /// assert_eq!(sum, parameters);
    /// let error = sum.accumulate(&parameters.without_biases()).unwrap_err();
    /// assert_eq!(error.to_string(), "`other.b_q` has 0 columns but the parameter is 1 x 4");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn accumulate(&mut self, other: &Self) -> Result<()> {
        self.check_same_shapes(other)?;
        for ((_, mut sum), (_, term)) in self.named_mut().into_iter().zip(other.named()) {
            sum += term;
        }
        Ok(())
    }

    /// `other` has the shapes of these parameters, and the same biases.
    pub(crate) fn check_same_shapes(&self, other: &Self) -> Result<()> {
        for (name, (rows, columns), (given_rows, given_columns)) in [
            ("other.w_q", self.w_q.shape(), other.w_q.shape()),
            ("other.w_k", self.w_k.shape(), other.w_k.shape()),
            ("other.w_v", self.w_v.shape(), other.w_v.shape()),
            ("other.w_o", self.w_o.shape(), other.w_o.shape()),
            ("other.b_q", self.b_q.shape(), other.b_q.shape()),
            ("other.b_k", self.b_k.shape(), other.b_k.shape()),
            ("other.b_v", self.b_v.shape(), other.b_v.shape()),
            ("other.b_o", self.b_o.shape(), other.b_o.shape()),
        ] {
            let because = || format!("the parameter is {rows} x {columns}");
            check_count(name, "row", given_rows, rows, because)?;
            check_count(name, "column", given_columns, columns, because)?;
        }
        Ok(())
    }

    /// These gradients, without those of biases that the layer doesn't have.
    pub(crate) fn with_biases_of(mut self, layer: &Self) -> Self {
        for (gradient, bias) in [
            (&mut self.b_q, &layer.b_q),
            (&mut self.b_k, &layer.b_k),
            (&mut self.b_v, &layer.b_v),
            (&mut self.b_o, &layer.b_o),
        ] {
            if bias.is_empty() {
                *gradient = RowDVector::zeros(0);
            }
        }
        self
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
            let expected = if bias.is_empty() { 0 } else { width }; // or none at all
            check_count(argument, "column", bias.ncols(), expected, || {
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
            for (i, start) in (0..numbers.len()).step_by(step).enumerate() {
                // Of every row some time, also where all steps are whole columns.
                let at = (start + i % step).min(numbers.len() - 1);
                let number: Option<f64> = nalgebra::try_convert(numbers[at]);
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

/// Parameters in files.
#[cfg(feature = "serde")]
mod saved {
    use super::Parameters;
    use crate::error::{Error, Result};
    use crate::saved::{Matrix, Row};
    use nalgebra::RealField;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// [`Parameters`] in a file: read as what is still to be checked, and written from references.
    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Saved<M, R> {
        w_q: M,
        w_k: M,
        w_v: M,
        w_o: M,
        b_q: R,
        b_k: R,
        b_v: R,
        b_o: R,
    }

    impl<'de, T: RealField + Copy + Deserialize<'de>> Deserialize<'de> for Parameters<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let read = Saved::<Matrix<T>, Row<T>>::deserialize(deserializer)?;
            let parameters = || -> Result<Self> {
                let parameters = Parameters {
                    w_q: read.w_q.into_matrix("w_q")?,
                    w_k: read.w_k.into_matrix("w_k")?,
                    w_v: read.w_v.into_matrix("w_v")?,
                    w_o: read.w_o.into_matrix("w_o")?,
                    b_q: read.b_q.into_row("b_q")?,
                    b_k: read.b_k.into_row("b_k")?,
                    b_v: read.b_v.into_row("b_v")?,
                    b_o: read.b_o.into_row("b_o")?,
                };
                check(&parameters)?;
                Ok(parameters)
            };
            parameters().map_err(serde::de::Error::custom)
        }
    }

    impl<T: RealField + Copy + Serialize> Serialize for Parameters<T> {
        /// Parameters that do not fit one another, or are not finite, are an error now, and not when the file is read: JSON,
        /// for one, has no NaN and would hold a `null`.
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            check(self).map_err(serde::ser::Error::custom)?;
            let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
            Saved { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o }.serialize(serializer)
        }
    }

    /// What holds of parameters in a file.
    fn check<T: RealField + Copy>(parameters: &Parameters<T>) -> Result<()> {
        parameters.check()?;
        for (argument, numbers) in parameters.named() {
            if let Some(bad) = numbers.iter().find(|number| !number.is_finite()) {
                let because = "a parameter in a file must be finite".to_owned();
                let given = nalgebra::try_convert(*bad).unwrap_or(f64::NAN);
                return Err(Error::OutOfRange { argument, given, because });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    /// With 64 rows, the entries that the fingerprint looks at are a whole column apart.
    #[test]
    fn a_change_of_any_row_changes_the_fingerprint() {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let parameters = Parameters::<f64>::xavier(64, 64, 64, rng).unwrap();
        for row in 0..64 {
            let mut changed = parameters.clone();
            changed.w_q.row_mut(row).add_scalar_mut(1.0);
            assert!(changed.fingerprint() != parameters.fingerprint(), "row {row}");
        }
    }
}
