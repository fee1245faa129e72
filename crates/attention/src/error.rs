//! What can be wrong with an argument, said in one sentence.

use nalgebra::{DMatrix, Scalar};

/// The result of everything in this crate that can be given bad input.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Bad input: which argument, what was given, what was expected.
///
/// ```
/// use attention::{Error, scaled_scores};
/// use nalgebra::DMatrix;
///
/// let q = DMatrix::<f64>::zeros(2, 4);
/// let k = DMatrix::<f64>::zeros(5, 3);
/// let error: Error = scaled_scores(&q, &k).unwrap_err();
/// assert_eq!(error.to_string(), "`k` has 3 columns but `q` has d_k = 4");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    #[error("`{argument}` has {given} {} but {expected}", plural(.axis, *.given))]
    Shape {
        /// The argument's name.
        argument: &'static str,
        /// What was counted: `row`, `column` or `entry`.
        axis: &'static str,
        /// How many there were.
        given: usize,
        /// What asks for another number, such as `` `q` has d_k = 4 ``.
        expected: String,
    },
    /// A number outside its range.
    #[error("`{argument}` is {given} but {expected}")]
    Value {
        /// The argument's name.
        argument: &'static str,
        /// Its value.
        given: String,
        /// The range, such as `it must divide d_model = 8`.
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
pub(crate) fn check_count(
    argument: &'static str,
    axis: &'static str,
    given: usize,
    expected: usize,
    because: impl FnOnce() -> String,
) -> Result<()> {
    if given != expected {
        let expected = because();
        return Err(Error::Shape { argument, axis, given, expected });
    }
    Ok(())
}

/// A matrix of exactly this shape, called `name` in the error.
pub(crate) fn check_shape<T: Scalar>(
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
pub(crate) fn check_positive(argument: &'static str, given: usize) -> Result<()> {
    if given == 0 {
        let expected = "it must be at least 1".to_owned();
        return Err(Error::Value { argument, given: "0".to_owned(), expected });
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
    let most = isize::MAX as usize / 16; // entries of at most 16 bytes
    if rows.1.checked_mul(columns.1).is_none_or(|entries| entries > most) {
        return Err(no_memory(rows, columns));
    }
    Ok(())
}

/// Sizes of a matrix that the allocator does not refuse: a refusal later on would end the program.
pub(crate) fn check_room<T>(
    rows: (&'static str, usize),
    columns: (&'static str, usize),
) -> Result<()> {
    check_matrix(rows, columns)?;
    let room = Vec::<T>::new().try_reserve_exact(rows.1 * columns.1);
    room.map_err(|_| no_memory(rows, columns))
}

/// Blames the larger of the two.
fn no_memory(rows: (&'static str, usize), columns: (&'static str, usize)) -> Error {
    let swapped = rows.1 > columns.1;
    let (other, (argument, given)) =
        if swapped { (columns, rows) } else { (rows, columns) };
    let expected = if other.0 == argument {
        "no memory could hold a square matrix of that size".to_owned()
    } else {
        format!("with {} = {} no memory could hold the matrix", other.0, other.1)
    };
    Error::Value { argument, given: given.to_string(), expected }
}
