//! Parts of larger matrices, as slices.

use super::{Float, Inputs};
use crate::mask::SizedMask;
use crate::traffic::blocks;
use nalgebra::DMatrix;
use std::cmp::Ordering;
use std::ops::Range;

/// A matrix in a slice that may belong to a larger one. The entries of a column are neighbours.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    pub data: &'a [T],
    pub shape: (usize, usize),
    /// From a column to the next.
    pub stride: usize,
}

impl<'a, T: Float> View<'a, T> {
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
    fn longest_row(self) -> T {
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

/// One head. Each view has all rows, so that its stride is the number of rows.
pub(super) struct Slices<'a, T> {
    pub q: View<'a, T>, // (n_q, d_k)
    pub k: View<'a, T>, // (n_k, d_k)
    pub v: View<'a, T>, // (n_k, d_v)
    pub mask: SizedMask<'a>,
    pub scale: T,
}

impl<'a, T: Float> Inputs<'a, T> {
    pub(super) fn slices(&self, h: usize) -> Slices<'a, T> {
        let (d_k, d_v) = self.widths();
        Slices {
            q: View::of_head(self.q, h, d_k),
            k: View::of_head(self.k, h, d_k),
            v: View::of_head(self.v, h, d_v),
            mask: self.mask,
            scale: crate::dot_product::scale(d_k),
        }
    }
}

impl<T: Float> Slices<'_, T> {
    /// Whether scores may be so large that the rounding of their sums changes weights by more than a hundredth or so.
    ///
    /// No score is larger than the longest query times the longest key, and a sum of d_k products is off by at most d_k times
    /// the type's precision.
    pub fn rounding_moves_weights(&self) -> bool {
        let largest = self.q.longest_row() * self.k.longest_row() * self.scale;
        let d_k: T = nalgebra::convert(self.q.shape.1 as f64);
        let off = largest * d_k * T::default_epsilon();
        // It is NaN, and no smaller, where one norm is too small for this type and the other too large.
        let small: T = nalgebra::convert(1.0 / 128.0);
        off.partial_cmp(&small).is_none_or(Ordering::is_gt)
    }
}

/// `range` in pieces of at most `size`.
pub(super) fn tiles_between(
    range: Range<usize>,
    size: usize,
) -> impl Iterator<Item = Range<usize>> {
    blocks(range.len(), size)
        .map(move |block| range.start + block.start..range.start + block.end)
}
