//! Parameters under their names: of one layer, of a stack of layers, of a whole model; and what any of them can do.

use crate::error::{Result, check_count};
use crate::simd::Float;
use crate::sums::sum;
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, RowDVector};

/// Parameters, or gradients, each under its name.
pub type Named<'a, T> = Vec<(String, DMatrixView<'a, T>)>;

/// [`Named`], to be changed.
pub type NamedMut<'a, T> = Vec<(String, DMatrixViewMut<'a, T>)>;

/// Anything that learns: its parameters are matrices with names, in an order that doesn't change.
///
/// A matrix is one without a name, and a list of such things has their numbers for names, so that a model names its parts with
/// [`prefixed`] and is done. Gradients implement it, too, with the names of the parameters.
///
/// ```
/// use attention::{Adam, Mask, MultiHeadAttention, Named, NamedMut, NamedParameters, example};
/// use attention::{prefixed, prefixed_mut};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// struct Model {
///     layers: Vec<MultiHeadAttention<f64>>,
/// }
///
/// impl NamedParameters<f64> for Model {
///     fn named(&self) -> Named<'_, f64> {
///         prefixed("layers", self.layers.named())
///     }
///     fn named_mut(&mut self) -> NamedMut<'_, f64> {
///         prefixed_mut("layers", self.layers.named_mut())
///     }
/// }
///
/// let mut rng = ChaCha8Rng::seed_from_u64(0);
/// let layers = vec![MultiHeadAttention::xavier(4, 2, &mut rng)?, MultiHeadAttention::xavier(4, 1, &mut rng)?];
/// let mut model = Model { layers };
/// assert_eq!(model.named()[8].0, "layers.1.w_q");
///
/// let x = example::river().x;
/// let (hidden, first) = model.layers[0].forward(&x, Mask::causal())?;
/// let (output, second) = model.layers[1].forward(&hidden, Mask::causal())?;
/// let from_second = model.layers[1].backward(&second, &output)?; // of ½ Σ output²
/// let from_first = model.layers[0].backward(&first, &from_second.x)?;
/// let mut gradients = prefixed_gradients(from_first, from_second);
/// gradients.clip_norm(1.0);
/// Adam::new(0.01).step(&mut model, &gradients)?;
/// # use attention::LayerGradients;
/// # fn prefixed_gradients(a: LayerGradients<f64>, b: LayerGradients<f64>) -> Gradients { Gradients { layers: vec![a, b] } }
/// # struct Gradients { layers: Vec<LayerGradients<f64>> }
/// # impl NamedParameters<f64> for Gradients {
/// #     fn named(&self) -> Named<'_, f64> { prefixed("layers", self.layers.named()) }
/// #     fn named_mut(&mut self) -> NamedMut<'_, f64> { prefixed_mut("layers", self.layers.named_mut()) }
/// # }
/// # Ok::<(), attention::Error>(())
/// ```
pub trait NamedParameters<T: Float> {
    /// Returns every matrix under its name.
    fn named(&self) -> Named<'_, T>;

    /// Returns every matrix under its name, to be changed.
    fn named_mut(&mut self) -> NamedMut<'_, T>;

    /// Takes a step of gradient descent: `parameter −= rate · gradient`.
    ///
    /// # Errors
    /// A gradient is missing or of another shape; then nothing has changed.
    fn step(&mut self, gradients: &impl NamedParameters<T>, rate: T) -> Result<()> {
        self.add_scaled(gradients, "gradients", -rate)
    }

    /// Adds other gradients of the same parameters.
    ///
    /// # Errors
    /// A matrix is missing or of another shape; then nothing has changed.
    fn accumulate(&mut self, other: &impl NamedParameters<T>) -> Result<()> {
        self.add_scaled(other, "other", T::one())
    }

    /// Scales every entry.
    fn scale(&mut self, factor: T) {
        self.named_mut().into_iter().for_each(|(_, mut matrix)| matrix *= factor);
    }

    /// Returns the Euclidean norm of all entries together.
    fn norm(&self) -> T {
        let squares: Vec<T> = self
            .named()
            .iter()
            .flat_map(|(_, matrix)| {
                matrix.column_iter().map(|column| column.norm_squared())
            })
            .collect();
        sum(&squares).sqrt()
    }

    /// Scales gradients so that their norm is at most `most`, and returns the norm that they had. A norm that is not finite is returned
    /// without a change.
    fn clip_norm(&mut self, most: T) -> T {
        let norm = self.norm();
        if norm > most && norm.is_finite() {
            self.scale(most / norm);
        }
        norm
    }

    #[doc(hidden)]
    fn add_scaled(
        &mut self,
        other: &impl NamedParameters<T>,
        argument: &'static str,
        factor: T,
    ) -> Result<()> {
        let terms = other.named();
        let mut sums = self.named_mut();
        check_fit(
            argument,
            &terms,
            sums.iter().map(|(name, m)| (name.as_str(), m.shape())),
        )?;
        for ((_, sum), (_, term)) in sums.iter_mut().zip(&terms) {
            sum.zip_apply(term, |sum, term| *sum += factor * term);
        }
        Ok(())
    }
}

/// Checks that these matrices have the names and shapes that are expected, in the same order.
pub(crate) fn check_fit<'e, T: Float>(
    argument: &'static str,
    given: &Named<T>,
    expected: impl ExactSizeIterator<Item = (&'e str, (usize, usize))>,
) -> Result<()> {
    let count = expected.len();
    check_count(argument, "entry", given.len(), count, || {
        format!("there are {count} parameters")
    })?;
    for ((given_name, matrix), (name, (rows, columns))) in given.iter().zip(expected) {
        let because = || format!("the parameter `{name}` is {rows} x {columns}");
        let check = |axis, given, expected| {
            check_count(argument, axis, given, expected, because)
                .map_err(|error| error.within(format!("`{given_name}`")))
        };
        check("row", matrix.nrows(), rows)?;
        check("column", matrix.ncols(), columns)?;
    }
    Ok(())
}

/// Returns the same matrices with `prefix` in front of their names: `layers` and `0.w_q` give `layers.0.w_q`.
pub fn prefixed<'a, T: Float>(prefix: &str, named: Named<'a, T>) -> Named<'a, T> {
    named.into_iter().map(|(name, matrix)| (join(prefix, &name), matrix)).collect()
}

/// Returns what [`prefixed`] returns, to be changed.
pub fn prefixed_mut<'a, T: Float>(
    prefix: &str,
    named: NamedMut<'a, T>,
) -> NamedMut<'a, T> {
    named.into_iter().map(|(name, matrix)| (join(prefix, &name), matrix)).collect()
}

fn join(prefix: &str, name: &str) -> String {
    if name.is_empty() { prefix.to_owned() } else { format!("{prefix}.{name}") }
}

impl<T: Float, L: NamedParameters<T>> NamedParameters<T> for Vec<L> {
    fn named(&self) -> Named<'_, T> {
        let parts = self.iter().enumerate();
        parts.flat_map(|(i, part)| prefixed(&i.to_string(), part.named())).collect()
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        let parts = self.iter_mut().enumerate();
        parts
            .flat_map(|(i, part)| prefixed_mut(&i.to_string(), part.named_mut()))
            .collect()
    }
}

impl<T: Float> NamedParameters<T> for DMatrix<T> {
    fn named(&self) -> Named<'_, T> {
        vec![(String::new(), self.into())]
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        vec![(String::new(), self.into())]
    }
}

impl<T: Float> NamedParameters<T> for RowDVector<T> {
    fn named(&self) -> Named<'_, T> {
        vec![(String::new(), self.into())]
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        vec![(String::new(), self.into())]
    }
}
