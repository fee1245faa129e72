//! The errors of programs for the machine that counts.

use std::fmt;
use std::ops::Range;

/// The result of everything in this module that can be given bad input.
pub type Result<T> = std::result::Result<T, Error>;

/// Bad input to a program for the machine that counts: which argument, what was given, what was expected.
///
/// ```
/// use laboratory::traffic::{Error, Memory};
///
/// let error = Memory::<f64>::new(5).tile(3, 2).unwrap_err();
/// assert!(matches!(error, Error::FastMemory { needed: 6, free: 5, .. }));
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Fast memory has less room than is needed.
    #[error(
        "`{argument}` is {given} but {what} needs room for {needed} numbers, and fast memory has {free} free of {capacity}"
    )]
    FastMemory {
        /// The argument's name.
        argument: &'static str,
        /// Its value.
        given: String,
        /// The purpose of the room, such as `a tile of one query and one key`.
        what: String,
        /// The numbers that there must be room for.
        needed: u128,
        /// The numbers that there is room for.
        free: usize,
        /// The numbers that fast memory holds at most.
        capacity: usize,
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
        /// The unit: `row` or `column`.
        axis: &'static str,
        /// The number of rows or columns that the matrix has.
        end: usize,
    },
    /// A matrix in the slow memory of another machine, which would count what is moved.
    #[error(
        "`{argument}` is in the slow memory of another machine but it must be in that of `memory`"
    )]
    Elsewhere {
        /// The argument's name.
        argument: &'static str,
    },
    /// An error of [`attention`](attention::attention()), too.
    #[error(transparent)]
    Attention(#[from] attention::Error),
}

impl fmt::Debug for Error {
    /// The sentence, and not the fields, as in `attention`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
