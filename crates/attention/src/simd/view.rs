//! Parts of larger matrices, as slices.

use nalgebra::{DMatrix, RealField};
use std::ops::Range;

/// A matrix in a slice that may belong to a larger one. The entries of a column are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    pub data: &'a [T],
    pub shape: (usize, usize),
    /// From a column to the next.
    pub stride: usize,
}

impl<'a, T: RealField + Copy> View<'a, T> {
    /// The columns of head `h`, which are `d` wide.
    pub fn of_head(matrix: &'a DMatrix<T>, h: usize, d: usize) -> Self {
        let n = matrix.nrows();
        View { data: &matrix.as_slice()[h * d * n..][..d * n], shape: (n, d), stride: n }
    }

    /// All of a matrix.
    pub fn of(matrix: &'a DMatrix<T>) -> Self {
        Self::of_head(matrix, 0, matrix.ncols())
    }

    /// Some of the columns.
    pub fn columns(self, columns: &Range<usize>) -> Self {
        let shape = (self.shape.0, columns.len());
        View { data: &self.data[columns.start * self.stride..], shape, ..self }
    }

    /// Some of the rows.
    pub fn rows(self, rows: &Range<usize>) -> Self {
        View { data: &self.data[rows.start..], shape: (rows.len(), self.shape.1), ..self }
    }

    pub fn at(&self, i: usize, j: usize) -> T {
        self.data[i + j * self.stride]
    }

    pub fn column(&self, j: usize) -> &'a [T] {
        &self.data[j * self.stride..][..self.shape.0]
    }

    pub fn each_column(self) -> impl Iterator<Item = &'a [T]> {
        (0..self.shape.1).map(move |j| self.column(j))
    }

    /// The largest Euclidean norm of a row. A NaN is passed over.
    pub fn longest_row(self) -> T {
        let mut squares = vec![T::zero(); self.shape.0];
        for column in self.each_column() {
            for (square, &x) in squares.iter_mut().zip(column) {
                *square += x * x;
            }
        }
        let larger = |a: T, &b: &T| if b > a { b } else { a };
        squares.iter().fold(T::zero(), larger).sqrt()
    }

    pub fn is_finite(self) -> bool {
        self.each_column().flatten().all(|x| x.is_finite())
    }
}
