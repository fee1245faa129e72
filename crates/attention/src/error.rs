//! The errors: what is wrong with an argument, in one sentence.

use nalgebra::{DMatrixView, Scalar};
use std::fmt;

/// The result of everything in this crate that can be given bad input.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Bad input: which argument, what was given, what was expected.
///
/// A program that shows the error to a person prints it, with `{}` or `{:?}`: both give the same sentence, so that a `main` that
/// returns an error says it, too. A program that reacts to it matches on the variant, which has the argument's name, and of
/// shapes the numbers:
///
/// ```
/// use attention::{Error, Mask, flash::Inputs};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::<f64>::zeros(2, 8);
/// let error = Inputs::new(&x, &x, &x, Mask::none())?.with_heads(3).unwrap_err();
/// assert_eq!(error.to_string(), "`n_heads` is 3 but it must divide the 8 columns of `q`");
///
/// let error = attention::attention(&x, &x.columns(0, 3), &x, Mask::none()).unwrap_err();
/// let width = match error {
///     Error::Shape { argument: "k", axis: "column", expected, .. } => expected,
///     other => return Err(other), // variants may be added later, so a match needs this line
/// };
/// assert_eq!(width, 8);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A matrix, vector or slice of the wrong length along one axis.
    #[error("`{argument}` has {given} {} but {because}", plural(.axis, *.given))]
    Shape {
        /// The argument's name.
        argument: &'static str,
        /// The things that were counted: `row`, `column` or `entry`.
        axis: &'static str,
        /// The number that was given.
        given: usize,
        /// The number that is needed.
        expected: usize,
        /// The reason for that number, such as `` `q` has d_k = 4 ``.
        because: String,
    },
    /// A value that can't be: a size of 0, nothing at all, a number out of its range, a cache of another layer, a mask that no kernel knows.
    #[error("`{argument}` is {given} but {because}")]
    Value {
        /// The argument's name.
        argument: &'static str,
        /// What it is, such as `3` or `empty (0 x 4)`.
        given: String,
        /// What it has to be, such as `it must divide d_model = 8`.
        because: String,
    },
    /// A matrix that no computer's memory could hold, or that this one's allocator refuses.
    #[error("{}", too_large(.rows, .columns))]
    NoMemory {
        /// The argument that is the number of rows, and its value.
        rows: (&'static str, usize),
        /// The argument that is the number of columns, and its value.
        columns: (&'static str, usize),
    },
    /// An error in a part of something larger: a layer of a model, or a sequence of a batch.
    #[error("{place}: {source}")]
    Within {
        /// The part, such as `layers.0` or `sequence 3 of the batch`.
        place: String,
        /// The error there.
        source: Box<Error>,
    },
}

impl Error {
    /// Returns this error with the place where it happened, such as a layer's name, in front.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention};
    /// use nalgebra::DMatrix;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let result = layer.forward(&DMatrix::zeros(6, 5), Mask::none());
    /// let error = result.map_err(|error| error.within("layers.0")).unwrap_err();
    /// assert_eq!(error.to_string(), "layers.0: `x` has 5 columns but the layer has d_model = 4");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn within(self, place: impl Into<String>) -> Self {
        Error::Within { place: place.into(), source: Box::new(self) }
    }
}

impl fmt::Debug for Error {
    /// Writes the sentence, and not the fields: this is what a `main` that returns an error prints.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

fn plural(axis: &str, count: usize) -> String {
    match (axis, count) {
        (_, 1) => axis.to_owned(),
        ("entry", _) => "entries".to_owned(),
        _ => format!("{axis}s"),
    }
}

/// Blames the larger of the two.
fn too_large(rows: &(&'static str, usize), columns: &(&'static str, usize)) -> String {
    let ((larger, size), (other, beside)) =
        if rows.1 > columns.1 { (rows, columns) } else { (columns, rows) };
    if larger == other {
        format!(
            "`{larger}` is {size} but no memory could hold a square matrix of that size"
        )
    } else {
        format!(
            "`{larger}` is {size} but with {other} = {beside} no memory could hold the matrix"
        )
    }
}

/// [`Error::Value`], in fewer lines.
pub fn wrong_value(
    argument: &'static str,
    given: impl fmt::Display,
    because: impl Into<String>,
) -> Error {
    Error::Value { argument, given: given.to_string(), because: because.into() }
}

/// An argument that has none of the things that it is made of, such as `0 entries`.
pub(crate) fn empty(argument: &'static str, given: impl fmt::Display) -> Error {
    let because = "at least one entry is needed";
    wrong_value(argument, format_args!("empty ({given})"), because)
}

/// At least one row and one column.
pub(crate) fn check_not_empty<'a, T: Scalar>(
    argument: &'static str,
    matrix: impl Into<DMatrixView<'a, T>>,
) -> Result<()> {
    let matrix = matrix.into();
    if matrix.is_empty() {
        let given = format!("{} x {}", matrix.nrows(), matrix.ncols());
        return Err(empty(argument, given));
    }
    Ok(())
}

/// Errs unless `given`, a number of rows, columns or entries, is `expected`; `because` writes the error's second half.
///
/// # Errors
/// [`Error::Shape`], with the name of the argument and of the axis.
pub fn check_count(
    argument: &'static str,
    axis: &'static str,
    given: usize,
    expected: usize,
    because: impl FnOnce() -> String,
) -> Result<()> {
    if given != expected {
        let because = because();
        return Err(Error::Shape { argument, axis, given, expected, because });
    }
    Ok(())
}

/// Checks that a matrix has exactly this shape (rows, columns), called `name` in the error.
///
/// # Errors
/// [`Error::Shape`], of the rows or else of the columns.
pub fn check_shape<'a, T: Scalar>(
    argument: &'static str,
    matrix: impl Into<DMatrixView<'a, T>>,
    (rows, columns): (usize, usize),
    name: &str,
) -> Result<()> {
    let matrix = matrix.into();
    let because = || format!("{name} is {rows} x {columns}");
    check_count(argument, "row", matrix.nrows(), rows, because)?;
    check_count(argument, "column", matrix.ncols(), columns, because)
}

/// Checks that a size is at least 1.
///
/// # Errors
/// [`Error::Value`].
pub fn check_positive(argument: &'static str, given: usize) -> Result<()> {
    if given == 0 {
        return Err(wrong_value(argument, given, "it must be at least 1"));
    }
    Ok(())
}

/// `total` can be shared out among the heads.
pub(crate) fn check_heads(
    argument: &'static str,
    given: usize,
    total: usize,
    because: impl FnOnce() -> String,
) -> Result<()> {
    check_positive(argument, given)?;
    if !total.is_multiple_of(given) {
        return Err(wrong_value(argument, given, because()));
    }
    Ok(())
}

/// Sizes of a matrix that memory could hold: without this, an absurd size would panic in the allocator's arithmetic.
pub(crate) fn check_matrix(
    rows: (&'static str, usize),
    columns: (&'static str, usize),
) -> Result<()> {
    check_positive(rows.0, rows.1)?;
    check_positive(columns.0, columns.1)?;
    // No allocation is larger than `isize::MAX` bytes. A mask does not know the type of the scores, so the largest entry is
    // taken for one of 16 bytes: twice an `f64`.
    let most = isize::MAX as usize / 16;
    if rows.1.checked_mul(columns.1).is_none_or(|entries| entries > most) {
        return Err(Error::NoMemory { rows, columns });
    }
    Ok(())
}

/// Checks that the allocator does not refuse a matrix of `T` of this size: a refusal later on would end the program. Each is given with the
/// name of its argument.
///
/// # Errors
/// [`Error::Value`], or [`Error::NoMemory`].
pub fn check_room<T>(
    rows: (&'static str, usize),
    columns: (&'static str, usize),
) -> Result<()> {
    check_matrix(rows, columns)?;
    let room = Vec::<T>::new().try_reserve_exact(rows.1 * columns.1);
    room.map_err(|_| Error::NoMemory { rows, columns })
}
