//! Parameters, layers and masks in files: nothing is read that could not have been made by this crate's constructors.
//!
//! nalgebra 0.35 multiplies the rows and columns of a matrix that it reads without a look at overflow, so that a tampered
//! file can hold a matrix which is larger than its entries. So matrices are read here as what they are in the file, and
//! checked before they become matrices.

use crate::error::{Error, Result, check_count};
use crate::layer::Parameters;
use crate::multi_head::{MultiHeadAttention, check_probability};
use nalgebra::{DMatrix, RealField, RowDVector, Scalar};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A matrix as nalgebra writes it: the entries column by column, the number of rows, and that of columns.
#[derive(Deserialize)]
pub(crate) struct Matrix<T>(Vec<T>, usize, usize);

impl<T: Scalar> Matrix<T> {
    pub fn into_matrix(self, argument: &'static str) -> Result<DMatrix<T>> {
        let Matrix(entries, rows, columns) = self;
        check_entries(argument, entries.len(), (rows, columns))?;
        Ok(DMatrix::from_vec(rows, columns, entries))
    }
}

/// A row as nalgebra writes it: the entries, nothing for the number of rows, and the number of columns.
#[derive(Deserialize)]
struct Row<T>(Vec<T>, (), usize);

impl<T: Scalar> Row<T> {
    fn into_row(self, argument: &'static str) -> Result<RowDVector<T>> {
        let Row(entries, (), columns) = self;
        check_entries(argument, entries.len(), (1, columns))?;
        Ok(RowDVector::from_vec(entries))
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

/// [`Parameters`] as they are read.
#[derive(Deserialize)]
struct ParametersRead<T> {
    w_q: Matrix<T>,
    w_k: Matrix<T>,
    w_v: Matrix<T>,
    w_o: Matrix<T>,
    b_q: Row<T>,
    b_k: Row<T>,
    b_v: Row<T>,
    b_o: Row<T>,
}

impl<'de, T: RealField + Copy + Deserialize<'de>> Deserialize<'de> for Parameters<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = ParametersRead::<T>::deserialize(deserializer)?;
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

/// [`Parameters`] as they are written.
#[derive(Serialize)]
#[serde(bound(serialize = "T: Serialize + RealField + Copy"))]
struct ParametersWritten<'a, T> {
    w_q: &'a DMatrix<T>,
    w_k: &'a DMatrix<T>,
    w_v: &'a DMatrix<T>,
    w_o: &'a DMatrix<T>,
    b_q: &'a RowDVector<T>,
    b_k: &'a RowDVector<T>,
    b_v: &'a RowDVector<T>,
    b_o: &'a RowDVector<T>,
}

impl<T: RealField + Copy + Serialize> Serialize for Parameters<T> {
    /// Parameters that do not fit one another, or are not finite, are an error now, and not when the file is read: JSON,
    /// for one, has no NaN and would hold a `null`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        check(self).map_err(serde::ser::Error::custom)?;
        let Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o } = self;
        ParametersWritten { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o }.serialize(serializer)
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

/// [`MultiHeadAttention`] as it is read.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: RealField + Copy + Deserialize<'de>"))]
pub(crate) struct MultiHeadRead<T: RealField + Copy> {
    parameters: Parameters<T>,
    n_heads: usize,
    dropout: f64,
}

impl<T: RealField + Copy> TryFrom<MultiHeadRead<T>> for MultiHeadAttention<T> {
    type Error = Error;

    fn try_from(read: MultiHeadRead<T>) -> Result<Self> {
        check_probability("dropout", read.dropout)?;
        let layer = MultiHeadAttention::from_parameters(read.parameters, read.n_heads)?;
        layer.with_dropout(read.dropout)
    }
}
