//! Parameters under their names: of one layer, of a stack of layers, of a whole model; and what any of them can do.

use crate::Float;
use crate::error::{Error, Result, check_count, wrong_value};
use crate::sums::sum;
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, DVectorView, RowDVector};

/// Parameters, or gradients, each under its name.
pub type Named<'a, T> = Vec<(String, DMatrixView<'a, T>)>;

/// [`Named`], to be changed.
pub type NamedMut<'a, T> = Vec<(String, DMatrixViewMut<'a, T>)>;

/// Anything that learns: its parameters are matrices with names, in an order that doesn't change.
///
/// [`named_parameters!`](macro@crate::named_parameters) implements it for a struct whose fields have it. A matrix has it, and needs no name; a list
/// has its numbers for names; what is `None` has no parameters. Gradients implement it, too, with the names of the parameters.
pub trait NamedParameters<T: Float> {
    /// Returns every matrix under its name.
    fn named(&self) -> Named<'_, T>;

    /// Returns every matrix under its name, to be changed.
    fn named_mut(&mut self) -> NamedMut<'_, T>;

    /// Takes a step of gradient descent: `parameter −= rate · gradient`.
    ///
    /// # Errors
    /// A gradient is missing, of another shape or not finite; then nothing has changed.
    fn step(&mut self, gradients: &impl NamedParameters<T>, rate: T) -> Result<()> {
        check_finite("gradients", &gradients.named())?;
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

    /// Returns the Euclidean norm of all entries together. It is infinite only if it is beyond the range of `T`.
    fn norm(&self) -> T {
        let named = self.named();
        let columns = || named.iter().flat_map(|(_, matrix)| matrix.column_iter());
        let squares: Vec<T> = columns().map(|column| column.norm_squared()).collect();
        let squares = sum(&squares);
        // What squares below the smallest number have lost is nothing beside a sum of this size.
        let entries: usize = columns().map(|column| column.len()).sum();
        let enough = T::max_value().map_or(T::zero(), |most| {
            nalgebra::convert::<_, T>(4.0 * entries as f64) / most
        });
        if squares.is_finite() && squares >= enough {
            return squares.sqrt();
        }
        // Squares were too large or too small for `T`. Those of shares of the largest entry are not.
        let largest =
            columns().fold(T::zero(), |largest, column| largest.max(column.amax()));
        if largest == T::zero() || !largest.is_finite() {
            return squares.sqrt();
        }
        let shares: Vec<T> =
            columns().map(|column| (column / largest).norm_squared()).collect();
        largest * sum(&shares).sqrt()
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
        let shapes = sums.iter().map(|(name, sum)| (name.as_str(), sum.shape()));
        check_fit(argument, shapes_of(&terms), shapes, "")?;
        for ((_, sum), (_, term)) in sums.iter_mut().zip(&terms) {
            sum.zip_apply(term, |sum, term| *sum += factor * term);
        }
        Ok(())
    }
}

/// The names and shapes of some matrices.
pub(crate) fn shapes_of<'n, T: Float>(
    named: &'n Named<T>,
) -> impl ExactSizeIterator<Item = (&'n str, (usize, usize))> {
    named.iter().map(|(name, matrix)| (name.as_str(), matrix.shape()))
}

/// Checks that matrices have the names and shapes that parameters have, in the same order; `place` says in an error where those are, if not
/// in the model.
pub(crate) fn check_fit<'n>(
    argument: &'static str,
    given: impl ExactSizeIterator<Item = (&'n str, (usize, usize))>,
    expected: impl ExactSizeIterator<Item = (&'n str, (usize, usize))>,
    place: &str,
) -> Result<()> {
    let count = expected.len();
    check_count(argument, "entry", given.len(), count, || match count {
        1 => format!("there is 1 parameter{place}"),
        _ => format!("there are {count} parameters{place}"),
    })?;
    for ((given_name, given), (name, (rows, columns))) in given.zip(expected) {
        // A matrix alone has no name.
        let quoted = if name.is_empty() { name } else { &format!(" `{name}`") };
        let because = || format!("the parameter{quoted} is {rows} x {columns}{place}");
        let fit = check_count(argument, "row", given.0, rows, because)
            .and_then(|()| check_count(argument, "column", given.1, columns, because))
            .and_then(|()| match given_name == name {
                true => Ok(()),
                false => Err(wrong_value(
                    argument,
                    format!("`{given_name}`"),
                    format!("the parameter in its place is{quoted}{place}"),
                )),
            });
        fit.map_err(|error| within(given_name, error))?;
    }
    Ok(())
}

/// Checks that every entry is finite, in one pass.
pub(crate) fn check_finite<T: Float>(
    argument: &'static str,
    named: &Named<T>,
) -> Result<()> {
    for (name, matrix) in named {
        // Without an early end, several entries are looked at in one instruction.
        let is_finite = |column: DVectorView<T>| {
            column.iter().fold(true, |all, entry| all & entry.is_finite())
        };
        if matrix.column_iter().all(is_finite) {
            continue;
        }
        let bad = matrix.iter().find(|entry| !entry.is_finite());
        let given: f64 = bad.map_or(f64::NAN, |bad| nalgebra::convert_unchecked(*bad));
        return Err(within(name, wrong_value(argument, given, "it must be finite")));
    }
    Ok(())
}

/// An error with the name of its matrix in front, if it has one.
pub(crate) fn within(name: &str, error: Error) -> Error {
    if name.is_empty() { error } else { error.within(format!("`{name}`")) }
}

/// Implements [`NamedParameters`] for a struct of parts that have it. The names are those of the fields, and the parts' own behind a dot.
///
/// ```
/// use attention::{Adam, Mask, MultiHeadAttention, NamedParameters, Parameters, Result, example, named_parameters};
/// use nalgebra::RowDVector;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// struct Model<Layer> {
///     layers: Vec<Layer>,
///     b: RowDVector<f64>,
/// }
/// type Gradients = Model<Parameters<f64>>;
///
/// named_parameters! {
///     impl[Layer: NamedParameters<f64>] NamedParameters<f64> for Model<Layer> { layers, b }
/// }
///
/// let mut rng = ChaCha8Rng::seed_from_u64(0);
/// let layers = (0..2).map(|_| MultiHeadAttention::xavier(4, 2, &mut rng)).collect::<Result<_>>()?;
/// let mut model = Model { layers, b: RowDVector::zeros(4) };
/// assert_eq!(model.named()[8].0, "layers.1.w_q");
///
/// let x = example::river().x;
/// let (hidden, first) = model.layers[0].forward(&x, Mask::causal())?;
/// let (output, second) = model.layers[1].forward(&hidden, Mask::causal())?;
/// let from_second = model.layers[1].backward(&second, &output)?; // of ½ Σ output², without b
/// let from_first = model.layers[0].backward(&first, &from_second.x)?;
/// let layers = vec![from_first.parameters, from_second.parameters];
/// let mut gradients = Gradients { layers, b: RowDVector::zeros(4) };
/// gradients.clip_norm(1.0);
/// Adam::new(0.01).step(&mut model, &gradients)?;
/// # Ok::<(), attention::Error>(())
/// ```
#[macro_export]
macro_rules! named_parameters {
    (impl[$($generics:tt)*] NamedParameters<$float:ty> for $model:ty { $($field:ident),+ $(,)? }) => {
        impl<$($generics)*> $crate::NamedParameters<$float> for $model {
            fn named(&self) -> $crate::named_parameters::Named<'_, $float> {
                let parts = [$((
                    stringify!($field),
                    $crate::NamedParameters::<$float>::named(&self.$field),
                )),+];
                $crate::named_parameters::joined(parts)
            }

            fn named_mut(&mut self) -> $crate::named_parameters::NamedMut<'_, $float> {
                let parts = [$((
                    stringify!($field),
                    $crate::NamedParameters::<$float>::named_mut(&mut self.$field),
                )),+];
                $crate::named_parameters::joined(parts)
            }
        }
    };
}

/// Joins the matrices of several parts, with the names of the parts in front of their own: `layers` and `0.w_q` give `layers.0.w_q`.
#[doc(hidden)]
pub fn joined<Name: AsRef<str>, Matrix>(
    parts: impl IntoIterator<Item = (Name, Vec<(String, Matrix)>)>,
) -> Vec<(String, Matrix)> {
    let joined = parts.into_iter().flat_map(|(part, named)| {
        named.into_iter().map(move |(name, matrix)| {
            let part = part.as_ref();
            let dot = if name.is_empty() { "" } else { "." };
            (format!("{part}{dot}{name}"), matrix)
        })
    });
    joined.collect()
}

impl<T: Float, L: NamedParameters<T>> NamedParameters<T> for Option<L> {
    fn named(&self) -> Named<'_, T> {
        self.as_ref().map_or(vec![], L::named)
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        self.as_mut().map_or(vec![], L::named_mut)
    }
}

impl<T: Float, L: NamedParameters<T>> NamedParameters<T> for Vec<L> {
    fn named(&self) -> Named<'_, T> {
        let parts = self.iter().map(L::named).enumerate();
        joined(parts.map(|(i, part)| (i.to_string(), part)))
    }

    fn named_mut(&mut self) -> NamedMut<'_, T> {
        let parts = self.iter_mut().map(L::named_mut).enumerate();
        joined(parts.map(|(i, part)| (i.to_string(), part)))
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
