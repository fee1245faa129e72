//! The errors: what is wrong with an argument, in one sentence.

use nalgebra::{DMatrixView, Scalar};
use std::fmt;

/// The result of everything in this crate that can be given bad input.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Bad input: which argument, what was given, what was expected.
///
/// A program that shows the error to a person prints it, with `{}` or `{:?}`: both give the same sentence, so that a `main` that
/// returns an error says it, too. A program that reacts to it matches on the variant, which has the argument's name and every
/// number as a number:
///
/// ```
/// use attention::{Error, Mask, flash::Inputs};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::<f64>::zeros(2, 8);
/// let error: Error = Inputs::new(&x, &x, &x, Mask::none())?.with_heads(3).unwrap_err();
/// assert_eq!(error.to_string(), "`n_heads` is 3 but it must divide the 8 columns of `q`");
///
/// let n_heads = match error {
///     Error::Indivisible { argument: "n_heads", given, total, .. } => {
///         (1..given).rev().find(|heads| total % heads == 0).unwrap() // the next smaller number that fits
///     }
///     Error::Zero { argument: "n_heads" } => 1,
///     other => return Err(other), // variants may be added later, so a match needs this line
/// };
/// assert_eq!(n_heads, 2);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A matrix, vector or slice without entries.
    #[error("`{argument}` is empty ({given}) but at least one entry is needed")]
    Empty {
        /// The argument's name.
        argument: &'static str,
        /// Its shape, such as `0 x 4`.
        given: String,
    },
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
    /// A size of 0, which must be at least 1.
    #[error("`{argument}` is 0 but it must be at least 1")]
    Zero {
        /// The argument's name.
        argument: &'static str,
    },
    /// A number of parts that does not divide what is shared out.
    #[error("`{argument}` is {given} but {because}")]
    Indivisible {
        /// The argument's name.
        argument: &'static str,
        /// The number of parts.
        given: usize,
        /// The number that it must divide.
        total: usize,
        /// The meaning of that number, such as `it must divide d_model = 8`.
        because: String,
    },
    /// More of something than there can be.
    #[error("`{argument}` is {given} but {because}")]
    TooMany {
        /// The argument's name.
        argument: &'static str,
        /// The number that was asked for.
        given: usize,
        /// The most that there can be, if that is known.
        most: Option<usize>,
        /// The reason for that limit, such as ``without the feature `rayon` there is only 1``.
        because: String,
    },
    /// A real number outside its range, or NaN.
    #[error("`{argument}` is {given} but {because}")]
    OutOfRange {
        /// The argument's name.
        argument: &'static str,
        /// Its value.
        given: f64,
        /// The range, such as `it must be positive and finite`.
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
    /// Sizes whose operations or bytes are too many to count.
    #[error(
        "`{argument}` is too large but its operations and bytes, and their sums, must fit 128 bits"
    )]
    Overflow {
        /// The argument's name.
        argument: &'static str,
    },
    /// A cache of other parameters: of another layer, or from before they were changed.
    #[error(
        "`{argument}` is of other parameters but only the layer that made it, unchanged, can use it"
    )]
    OtherParameters {
        /// The argument's name.
        argument: &'static str,
    },
    /// Data that lies in another memory, or on another device, than the function works on.
    #[error("`{argument}` is {given} but {expected}")]
    Elsewhere {
        /// The argument's name.
        argument: &'static str,
        /// The place where it is, such as `on device 1`.
        given: String,
        /// The place where it must be.
        expected: String,
    },
    /// An argument of a kind that the function has no rule for, such as a mask that no kernel on the GPU knows.
    #[error("`{argument}` is {given} but {expected}")]
    Unsupported {
        /// The argument's name.
        argument: &'static str,
        /// Its kind.
        given: String,
        /// The kinds that there is a rule for.
        expected: String,
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

/// [`Error::Unsupported`], in fewer lines.
pub(crate) fn unsupported(
    argument: &'static str,
    given: impl Into<String>,
    expected: impl Into<String>,
) -> Error {
    Error::Unsupported { argument, given: given.into(), expected: expected.into() }
}

/// At least one row and one column.
pub(crate) fn check_not_empty<'a, T: Scalar>(
    argument: &'static str,
    matrix: impl Into<DMatrixView<'a, T>>,
) -> Result<()> {
    let matrix = matrix.into();
    if matrix.is_empty() {
        let given = format!("{} x {}", matrix.nrows(), matrix.ncols());
        return Err(Error::Empty { argument, given });
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
/// [`Error::Zero`].
pub fn check_positive(argument: &'static str, given: usize) -> Result<()> {
    if given == 0 {
        return Err(Error::Zero { argument });
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
        let because = because();
        return Err(Error::Indivisible { argument, given, total, because });
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
/// [`Error::Zero`], or [`Error::NoMemory`].
pub fn check_room<T>(
    rows: (&'static str, usize),
    columns: (&'static str, usize),
) -> Result<()> {
    check_matrix(rows, columns)?;
    let room = Vec::<T>::new().try_reserve_exact(rows.1 * columns.1);
    room.map_err(|_| Error::NoMemory { rows, columns })
}
