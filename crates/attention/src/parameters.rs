//! The parameters of a layer, their gradients, and steps along these.

use crate::Float;
use crate::engine::Engine;
use crate::error::{
    Result, check_count, check_not_empty, check_room, check_shape, wrong_value,
};
use crate::linear::linear_by;
use crate::named_parameters::{Named, NamedMut, NamedParameters};
use nalgebra::{DMatrix, DMatrixView, RowDVector};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use std::ops::{AddAssign, Deref, DerefMut, Mul, MulAssign};
use std::sync::atomic::{AtomicU64, Ordering};

/// The parameters of an attention layer; and of the same shapes, the gradients of a loss with respect to them.
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
/// and numbers that are not finite, are an error when writing and when reading: a layer whose training has diverged is not saved. A file
/// says whether its numbers are `f32` or `f64`, and is read as these.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters<T: Float> {
    /// Projects to queries (d_model, d_k); d_k is that of all heads together.
    pub w_q: DMatrix<T>,
    /// Projects to keys (d_model, d_k); narrower where heads share keys.
    pub w_k: DMatrix<T>,
    /// Projects to values (d_model, d_v); narrower where heads share values.
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

impl<T: Float> Parameters<T> {
    /// Returns weights drawn from a normal distribution with standard deviation √(2 / (d_in + d_out)), biases zero.
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
        Self::xavier_grouped(d_model, (d_k, d_k), (d_v, d_v), rng)
    }

    /// The same for queries and keys of different widths, and for values and outputs.
    pub(crate) fn xavier_grouped<R: Rng + ?Sized>(
        d_model: usize,
        (d_q, d_k): (usize, usize),
        (d_v, d_o): (usize, usize),
        rng: &mut R,
    ) -> Result<Self> {
        check_room::<T>(("d_model", d_model), ("d_k", d_q.max(d_k)))?;
        check_room::<T>(("d_model", d_model), ("d_v", d_v.max(d_o)))?;
        let mut draw = |d_in: usize, d_out: usize| {
            let deviation = (2.0 / (d_in as f64 + d_out as f64)).sqrt();
            DMatrix::from_fn(d_in, d_out, |_, _| {
                let z: f64 = StandardNormal.sample(rng);
                nalgebra::convert(deviation * z)
            })
        };
        Ok(Parameters {
            w_q: draw(d_model, d_q),
            w_k: draw(d_model, d_k),
            w_v: draw(d_model, d_v),
            w_o: draw(d_o, d_model),
            b_q: RowDVector::zeros(d_q),
            b_k: RowDVector::zeros(d_k),
            b_v: RowDVector::zeros(d_v),
            b_o: RowDVector::zeros(d_model),
        })
    }

    /// Returns d_model, the width of inputs and outputs.
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

    /// Returns these parameters without any bias, for layers that learn none: a bias that is not there has no columns.
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

    /// Returns zeros of the same shapes.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let zeros = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?.zeros_like();
    /// assert_eq!(zeros.norm(), 0.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn zeros_like(&self) -> Self {
        let mut zeros = self.clone();
        zeros.named_mut().into_iter().for_each(|(_, mut matrix)| matrix.fill(T::zero()));
        zeros
    }

    /// Returns every parameter under its name, a bias as a matrix of one row. Biases that are not there are left out.
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// let parameters = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?;
    /// let count: usize = parameters.named().iter().map(|(_, matrix)| matrix.len()).sum();
    /// assert_eq!(count, 2 * 6 * (4 + 3) + 2 * 4 + 3 + 6);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn named(&self) -> Named<'_, T> {
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
        let weights = [("w_q", w_q), ("w_k", w_k), ("w_v", w_v), ("w_o", w_o)];
        let biases = [("b_q", b_q), ("b_k", b_k), ("b_v", b_v), ("b_o", b_o)];
        let mut named = vec![];
        named.extend(weights.map(|(name, w)| (name.to_owned(), w.into())));
        for (name, bias) in biases.into_iter().filter(|(_, bias)| !bias.is_empty()) {
            named.push((name.to_owned(), bias.into()));
        }
        named
    }

    /// Returns what [`Parameters::named`] returns, to be changed.
    pub fn named_mut(&mut self) -> NamedMut<'_, T> {
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
        let weights = [("w_q", w_q), ("w_k", w_k), ("w_v", w_v), ("w_o", w_o)];
        let biases = [("b_q", b_q), ("b_k", b_k), ("b_v", b_v), ("b_o", b_o)];
        let mut named = vec![];
        named.extend(weights.map(|(name, w)| (name.to_owned(), w.into())));
        for (name, bias) in biases.into_iter().filter(|(_, bias)| !bias.is_empty()) {
            named.push((name.to_owned(), bias.into()));
        }
        named
    }

    /// Takes a step against the gradients: `parameter −= rate · gradient`.
    ///
    /// # Errors
    /// The gradients are of other shapes; then nothing has changed.
    ///
    /// ```
    /// # use attention::{Mask, SingleHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// # let mut layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, rng)?;
    /// # let (output, cache) = layer.forward(&example::river().x, Mask::none())?;
    /// let gradients = layer.backward(&cache, &output)?; // of ½ Σ output²
    /// layer.parameters.step(&gradients.parameters, 0.01)?;
    /// # assert!(layer.forward(&example::river().x, Mask::none())?.0.norm() < output.norm());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn step(&mut self, gradients: &Self, rate: T) -> Result<()> {
        NamedParameters::step(self, gradients, rate)
    }

    /// Returns the Euclidean norm of all entries together.
    pub fn norm(&self) -> T {
        NamedParameters::norm(self)
    }

    /// Scales gradients so that their norm is at most `most`, and returns the norm that they had.
    ///
    /// # Source
    /// R. Pascanu, T. Mikolov, Y. Bengio, *On the difficulty of training recurrent neural networks* (2013).
    ///
    /// ```
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// # let mut gradients = attention::Parameters::<f64>::xavier(6, 4, 3, rng)?;
    /// let norm = gradients.clip_norm(1.0);
    /// assert!(norm > 1.0 && (gradients.norm() - 1.0).abs() < 1e-15);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn clip_norm(&mut self, most: T) -> T {
        NamedParameters::clip_norm(self, most)
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

    /// Checks that every weight and bias has the shape that the others ask for. The fields are public, so that every use of
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
        self.check_grouped(1, 1)
    }

    /// The same for `n_heads` heads of queries that share `n_kv_heads` heads of keys and values, which divide them.
    pub(crate) fn check_grouped(&self, n_heads: usize, n_kv_heads: usize) -> Result<()> {
        check_not_empty("w_q", &self.w_q)?;
        check_not_empty("w_v", &self.w_v)?;
        let (d_model, d_q, d_v) = (self.d_model(), self.w_q.ncols(), self.w_v.ncols());
        let group = n_heads / n_kv_heads;
        let d_k = d_q / group;
        let (k_name, o_name) = match group {
            1 => ("`w_q`", "(d_v, d_model)"),
            _ => ("(d_model, n_kv_heads · d_k)", "(n_heads · d_v, d_model)"),
        };
        check_shape("w_k", &self.w_k, (d_model, d_k), k_name)?;
        check_count("w_v", "row", self.w_v.nrows(), d_model, || {
            format!("`w_q` has d_model = {d_model}")
        })?;
        check_shape("w_o", &self.w_o, (d_v.saturating_mul(group), d_model), o_name)?;
        for (argument, bias, weight, width) in [
            ("b_q", &self.b_q, "w_q", d_q),
            ("b_k", &self.b_k, "w_k", d_k),
            ("b_v", &self.b_v, "w_v", d_v),
            ("b_o", &self.b_o, "w_o", d_model),
        ] {
            check_bias(argument, bias, weight, width)?;
        }
        Ok(())
    }

    /// Returns queries from `x`, keys and values from `context`: the three projections of every attention layer, whose parameters were
    /// checked.
    pub(crate) fn project_inputs(
        &self,
        engine: &dyn Engine<T>,
        x: DMatrixView<T>,
        context: DMatrixView<T>,
    ) -> Result<[DMatrix<T>; 3]> {
        for (argument, matrix) in [("x", x), ("context", context)] {
            check_not_empty(argument, matrix)?;
            check_count(argument, "column", matrix.ncols(), self.d_model(), || {
                format!("the layer has d_model = {}", self.d_model())
            })?;
        }
        Ok([
            linear_by(engine, x, &self.w_q, &self.b_q)?, // (n_q, d_k)
            linear_by(engine, context, &self.w_k, &self.b_k)?, // (n_k, d_k)
            linear_by(engine, context, &self.w_v, &self.b_v)?, // (n_k, d_v)
        ])
    }
}

impl<T: Float> NamedParameters<T> for Parameters<T> {
    fn named(&self) -> Named<'_, T> {
        self.named()
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        self.named_mut()
    }
}

impl<T: Float> AddAssign<&Parameters<T>> for Parameters<T> {
    /// Adds other gradients of the same layer.
    ///
    /// # Panics
    /// They are of other shapes, as with nalgebra's operators. [`NamedParameters::accumulate`] returns an error instead.
    fn add_assign(&mut self, other: &Parameters<T>) {
        if let Err(error) = self.accumulate(other) {
            panic!("{error}");
        }
    }
}

impl<T: Float> MulAssign<T> for Parameters<T> {
    /// Scales every entry.
    fn mul_assign(&mut self, factor: T) {
        self.scale(factor);
    }
}

impl<T: Float> Mul<T> for Parameters<T> {
    type Output = Self;

    /// Returns these parameters or gradients, with every entry scaled.
    fn mul(mut self, factor: T) -> Self {
        self *= factor;
        self
    }
}

/// The [`Parameters`] of a layer, and a number that changes whenever they may have changed: with each step, and each time that anything
/// asks for them mutably.
///
/// What a layer keeps of a forward pass, for the backward pass or for the tokens to come, is of use only with the same parameters. So caches
/// remember this number, and the layer refuses those that remember another. A clone has the same number until one of the two changes.
/// To borrow two matrices mutably at once, begin with `&mut *layer.parameters`.
///
/// ```
/// use attention::{Error, Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let mut layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (output, cache) = layer.forward(&example::river().x, Mask::none())?;
/// let gradients = layer.backward(&cache, &output)?;
/// layer.parameters.step(&gradients.parameters, 0.05)?;
/// assert!(matches!(layer.backward(&cache, &output), Err(Error::Value { argument: "cache", .. })));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct LayerParameters<T: Float> {
    parameters: Parameters<T>,
    #[cfg_attr(feature = "serde", serde(skip))]
    version: Version,
}

/// The number of some parameters: no others have the same, in the whole program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Default for Version {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Version(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl<T: Float> LayerParameters<T> {
    /// Returns the parameters alone.
    pub fn into_inner(self) -> Parameters<T> {
        self.parameters
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }
}

impl<T: Float> From<Parameters<T>> for LayerParameters<T> {
    fn from(parameters: Parameters<T>) -> Self {
        LayerParameters { parameters, version: Version::default() }
    }
}

impl<T: Float> Deref for LayerParameters<T> {
    type Target = Parameters<T>;

    fn deref(&self) -> &Parameters<T> {
        &self.parameters
    }
}

impl<T: Float> DerefMut for LayerParameters<T> {
    /// Returns the parameters, to be changed: from now on they count as others.
    fn deref_mut(&mut self) -> &mut Parameters<T> {
        self.version = Version::default();
        &mut self.parameters
    }
}

impl<T: Float> PartialEq for LayerParameters<T> {
    /// Returns `true` if all numbers are equal, whatever has become of them meanwhile.
    fn eq(&self, other: &Self) -> bool {
        self.parameters == other.parameters
    }
}

/// Checks that a cache was made by the layer that is given it: `maker` has all on which the outputs of a layer depend.
pub(crate) fn check_maker<M: PartialEq>(maker: &M, layer: &M) -> Result<()> {
    if maker == layer {
        Ok(())
    } else {
        let because = "only the layer that made it, unchanged, can use it";
        Err(wrong_value("cache", "of other parameters", because))
    }
}

/// The gradients of a loss with respect to a layer's parameters and inputs.
///
/// ```
/// use attention::{Mask, SingleHeadAttention};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = attention::example::river().x;
/// let (output, cache) = layer.forward(&x, Mask::causal())?;
/// let gradients = layer.backward(&cache, &output)?;
/// assert_eq!(gradients.x.shape(), x.shape());
/// assert_eq!(gradients.parameters.w_q.shape(), layer.parameters.w_q.shape());
/// assert_eq!(gradients.context, None); // self-attention: all three paths end in x
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LayerGradients<T: Float> {
    /// With respect to each parameter, under the parameter's own name.
    pub parameters: Parameters<T>,
    /// With respect to the input (n_q, d_model). In self-attention the sum over three paths: queries, keys and values.
    pub x: DMatrix<T>,
    /// With respect to the context (n_k, d_model), in cross-attention; `None` in self-attention.
    pub context: Option<DMatrix<T>>,
    /// With respect to each table in the mask's rule for scores (buckets, n_heads).
    pub tables: Vec<DMatrix<T>>,
}

impl<T: Float> NamedParameters<T> for LayerGradients<T> {
    /// Returns the gradients with respect to the parameters, which an optimiser asks for.
    fn named(&self) -> Named<'_, T> {
        self.parameters.named()
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        self.parameters.named_mut()
    }
}

/// A bias is as wide as its weights, or has no columns at all.
fn check_bias<T: Float>(
    argument: &'static str,
    bias: &RowDVector<T>,
    weight: &str,
    width: usize,
) -> Result<()> {
    let expected = if bias.is_empty() { 0 } else { width };
    let because = || format!("`{weight}` has {width}");
    check_count(argument, "column", bias.ncols(), expected, because)
}

/// Parameters in files.
#[cfg(feature = "serde")]
mod saved {
    use super::{Parameters, check_bias};
    use crate::Float;
    use crate::error::{Result, check_not_empty, wrong_value};
    use crate::saved::Matrix;
    use nalgebra::RowDVector;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::any::type_name;

    /// [`Parameters`] in a file: read as what is still to be checked, and written from references. A bias is the list of its entries:
    /// nalgebra would write a unit for its number of rows, which TOML cannot hold.
    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Saved<M, R> {
        /// The type of the numbers. Nothing else in a file tells an `f64` from an `f32`, which would lose half of its digits.
        #[serde(default)]
        precision: Option<String>, // a file from elsewhere may leave it out
        w_q: M,
        w_k: M,
        w_v: M,
        w_o: M,
        b_q: R,
        b_k: R,
        b_v: R,
        b_o: R,
    }

    impl<'de, T: Float + Deserialize<'de>> Deserialize<'de> for Parameters<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let read = Saved::<Matrix<T>, Vec<T>>::deserialize(deserializer)?;
            let parameters = || -> Result<Self> {
                let precision = type_name::<T>();
                if let Some(other) = read.precision.filter(|given| given != precision) {
                    let expected = format!("it is read as {precision}");
                    return Err(wrong_value("precision", other, expected));
                }
                let parameters = Parameters {
                    w_q: read.w_q.into_matrix("w_q")?,
                    w_k: read.w_k.into_matrix("w_k")?,
                    w_v: read.w_v.into_matrix("w_v")?,
                    w_o: read.w_o.into_matrix("w_o")?,
                    b_q: RowDVector::from_vec(read.b_q),
                    b_k: RowDVector::from_vec(read.b_k),
                    b_v: RowDVector::from_vec(read.b_v),
                    b_o: RowDVector::from_vec(read.b_o),
                };
                check(&parameters)?;
                Ok(parameters)
            };
            parameters().map_err(serde::de::Error::custom)
        }
    }

    impl<T: Float + Serialize> Serialize for Parameters<T> {
        /// Parameters that do not fit one another, or are not finite, are an error now, and not when the file is read: JSON,
        /// for one, has no NaN and would hold a `null`.
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            check(self).map_err(serde::ser::Error::custom)?;
            let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
            let [b_q, b_k, b_v, b_o] = [b_q, b_k, b_v, b_o].map(RowDVector::as_slice);
            let precision = Some(type_name::<T>().to_owned());
            let saved = Saved { precision, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
            saved.serialize(serializer)
        }
    }

    /// Checks that biases fit their weights and that all numbers are finite. A layer checks more when it is used or read; one with
    /// fewer key-value heads than query heads has a narrower `w_k`, and may be saved.
    fn check<T: Float>(parameters: &Parameters<T>) -> Result<()> {
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = parameters;
        for (weight_name, weight, bias_name, bias) in [
            ("w_q", w_q, "b_q", b_q),
            ("w_k", w_k, "b_k", b_k),
            ("w_v", w_v, "b_v", b_v),
            ("w_o", w_o, "b_o", b_o),
        ] {
            check_not_empty(weight_name, weight)?;
            check_bias(bias_name, bias, weight_name, weight.ncols())?;
            let numbers =
                [(weight_name, weight.as_slice()), (bias_name, bias.as_slice())];
            for (argument, numbers) in numbers {
                if let Some(bad) = numbers.iter().find(|number| !number.is_finite()) {
                    let because = "a parameter in a file must be finite";
                    let given = nalgebra::try_convert(*bad).unwrap_or(f64::NAN);
                    return Err(wrong_value(argument, given, because));
                }
            }
        }
        Ok(())
    }
}
