//! What can be wrong with an argument, said in one sentence.

use nalgebra::{DMatrix, Scalar};
use std::ops::Range;

/// The result of everything in this crate that can be given bad input.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Bad input: which argument, what was given, what was expected.
///
/// A program that shows the error to a person prints it. A program that reacts to it matches on the variant, which has
/// the argument's name and every number as a number:
///
/// ```
/// use attention::{Error, Mask, flash::Inputs};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::<f64>::zeros(2, 8);
/// let mask = Mask::none();
/// let error: Error = Inputs::new(&x, &x, &x, &mask)?.with_heads(3).unwrap_err();
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
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
        /// What was counted: `row`, `column` or `entry`.
        axis: &'static str,
        /// How many there were.
        given: usize,
        /// How many there must be.
        expected: usize,
        /// What asks for that number, such as `` `q` has d_k = 4 ``.
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
        /// What that number is, such as `it must divide d_model = 8`.
        because: String,
    },
    /// More of something than there can be.
    #[error("`{argument}` is {given} but {because}")]
    TooMany {
        /// The argument's name.
        argument: &'static str,
        /// How many were asked for.
        given: usize,
        /// How many there can be, if that is known.
        most: Option<usize>,
        /// What sets that limit, such as ``without the feature `rayon` there is only 1``.
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
    /// Rows or columns that are not all inside a matrix.
    #[error("`{argument}` is {given:?} but `{matrix}` ends at {axis} {end}")]
    OutOfBounds {
        /// The argument's name.
        argument: &'static str,
        /// The rows or columns.
        given: Range<usize>,
        /// The matrix's name.
        matrix: &'static str,
        /// What is counted: `row` or `column`.
        axis: &'static str,
        /// How many the matrix has.
        end: usize,
    },
    /// A matrix that no computer's memory could hold, or that this one's allocator refuses.
    #[error("{}", too_large(.rows, .columns))]
    NoMemory {
        /// The argument that is the number of rows, and its value.
        rows: (&'static str, usize),
        /// The argument that is the number of columns, and its value.
        columns: (&'static str, usize),
    },
    /// Too little room in the fast memory of a machine that counts what is moved, such as `laboratory::traffic::Memory`.
    #[error("`{argument}` is {given} but {because}")]
    FastMemory {
        /// The argument's name.
        argument: &'static str,
        /// Its value, such as `3 x 2`.
        given: String,
        /// How many numbers need room.
        needed: u128,
        /// How many more numbers fit.
        free: usize,
        /// How many numbers fit into an empty fast memory.
        capacity: usize,
        /// The same in words.
        because: String,
    },
    /// Sizes whose operations or bytes are too many to count.
    #[error(
        "`{argument}` is too large but its operations and bytes, and their sums, must fit 128 bits"
    )]
    Overflow {
        /// The argument's name.
        argument: &'static str,
    },
    /// A cache of a forward pass with other parameters: of another layer, or from before they were changed.
    #[error(
        "`{argument}` is of other parameters but `backward` needs those of its forward pass"
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
        /// Where it is, such as `on device 1`.
        given: String,
        /// Where it must be.
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
    /// An error in one sequence of a batch.
    #[error("sequence {index} of the batch: {source}")]
    Sequence {
        /// The sequence's position in the batch, from 0.
        index: usize,
        /// What was wrong with it.
        source: Box<Error>,
    },
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
pub(crate) fn check_not_empty<T: Scalar>(
    argument: &'static str,
    matrix: &DMatrix<T>,
) -> Result<()> {
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
///
/// ```
/// use attention::building_blocks::check_count;
///
/// let error = check_count("b", "row", 4, 3, || "`a` asks for 3".to_owned()).unwrap_err();
/// assert_eq!(error.to_string(), "`b` has 4 rows but `a` asks for 3");
/// ```
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

/// A matrix of exactly this shape (rows, columns), called `name` in the error.
///
/// # Errors
/// [`Error::Shape`], of the rows or else of the columns.
///
/// ```
/// use attention::building_blocks::check_shape;
/// use nalgebra::DMatrix;
///
/// let grad_output = DMatrix::<f64>::zeros(2, 4);
/// let error = check_shape("grad_output", &grad_output, (3, 4), "the output").unwrap_err();
/// assert_eq!(error.to_string(), "`grad_output` has 2 rows but the output is 3 x 4");
/// ```
pub fn check_shape<T: Scalar>(
    argument: &'static str,
    matrix: &DMatrix<T>,
    (rows, columns): (usize, usize),
    name: &str,
) -> Result<()> {
    let because = || format!("{name} is {rows} x {columns}");
    check_count(argument, "row", matrix.nrows(), rows, because)?;
    check_count(argument, "column", matrix.ncols(), columns, because)
}

/// A size that must be at least 1.
///
/// # Errors
/// [`Error::Zero`].
///
/// ```
/// use attention::building_blocks::check_positive;
///
/// let error = check_positive("strip", 0).unwrap_err();
/// assert_eq!(error.to_string(), "`strip` is 0 but it must be at least 1");
/// ```
pub fn check_positive(argument: &'static str, given: usize) -> Result<()> {
    if given == 0 {
        return Err(Error::Zero { argument });
    }
    Ok(())
}

/// `total` can be shared out among the heads.
pub(crate) fn check_heads(
    n_heads: usize,
    total: usize,
    because: impl FnOnce() -> String,
) -> Result<()> {
    check_positive("n_heads", n_heads)?;
    if !total.is_multiple_of(n_heads) {
        let because = because();
        let (argument, given) = ("n_heads", n_heads);
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

/// Sizes of a matrix of `T` that the allocator does not refuse: a refusal later on would end the program. Each is given with the
/// name of its argument.
///
/// # Errors
/// [`Error::Zero`], or [`Error::NoMemory`].
///
/// ```
/// use attention::building_blocks::check_room;
///
/// assert!(check_room::<f64>(("rows", 2), ("columns", 3)).is_ok());
/// assert!(check_room::<f64>(("rows", usize::MAX), ("columns", 3)).is_err());
/// ```
pub fn check_room<T>(
    rows: (&'static str, usize),
    columns: (&'static str, usize),
) -> Result<()> {
    check_matrix(rows, columns)?;
    let room = Vec::<T>::new().try_reserve_exact(rows.1 * columns.1);
    room.map_err(|_| Error::NoMemory { rows, columns })
}
