//! Matrices in files: nothing is read that could not have been made by this crate's constructors.
//!
//! nalgebra 0.35 multiplies the rows and columns of a matrix that it reads without a look at overflow, so that a tampered
//! file can hold a matrix which is larger than its entries. So matrices are read here as what they are in the file, and
//! checked before they become matrices.

use crate::error::{Result, check_count};
use nalgebra::{DMatrix, Scalar};
use serde::Deserialize;

/// A matrix as nalgebra writes it: the entries column by column, the number of rows, and that of columns.
#[derive(Deserialize)]
pub struct Matrix<T>(Vec<T>, usize, usize);

impl<T: Scalar> Matrix<T> {
    pub fn into_matrix(self, argument: &'static str) -> Result<DMatrix<T>> {
        let Matrix(entries, rows, columns) = self;
        check_entries(argument, entries.len(), (rows, columns))?;
        Ok(DMatrix::from_vec(rows, columns, entries))
    }
}

fn check_entries(
    argument: &'static str,
    given: usize,
    (rows, columns): (usize, usize),
) -> Result<()> {
    // A product that no number can be is no number of entries either.
    let expected = rows.saturating_mul(columns);
    check_count(argument, "entry", given, expected, || {
        format!("it is {rows} x {columns}")
    })
}
