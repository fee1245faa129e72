//! Products of tiles that lie somewhere in a larger matrix, without a copy and without an allocation.

use super::Float;
use gemmkit::{MatMut, MatRef, Parallelism, Workspace, gemm_with};
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, Dyn, MatrixView};
use std::ops::Range;

/// Which library multiplies.
///
/// ```
/// use attention::flash::{Flash, Products};
///
/// let slower = Flash::new().with_products(Products::Matrixmultiply);
/// assert_eq!(Flash::new().products(), Products::Gemmkit);
/// # assert_eq!(slower.products(), Products::Matrixmultiply);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Products {
    /// What `*` of nalgebra's matrices is made of.
    Matrixmultiply,
    /// Reaches full speed with smaller matrices, and lays its packed copies into memory that is kept from call to call.
    Gemmkit,
}

/// A matrix in a slice that may belong to a larger one.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    pub data: &'a [T],
    pub shape: (usize, usize),
    /// From a row to the next, and from a column to the next.
    pub strides: (usize, usize),
}

impl<'a, T: Float> View<'a, T> {
    /// Columns of `rows` entries, whose beginnings are `stride` apart; nalgebra's order.
    pub fn columns(data: &'a [T], shape: (usize, usize), stride: usize) -> Self {
        View { data, shape, strides: (1, stride) }
    }

    /// The columns of head `h`, which are `d` wide.
    pub fn of_head(matrix: &'a DMatrix<T>, h: usize, d: usize) -> Self {
        let n = matrix.nrows();
        View::columns(&matrix.as_slice()[h * d * n..][..d * n], (n, d), n)
    }

    /// Some of the rows.
    pub fn rows(self, rows: &Range<usize>) -> Self {
        let data = &self.data[rows.start * self.strides.0..];
        View { data, shape: (rows.len(), self.shape.1), ..self }
    }

    pub fn transpose(self) -> Self {
        let (shape, strides) = (self.shape, self.strides);
        View { shape: (shape.1, shape.0), strides: (strides.1, strides.0), ..self }
    }
}

impl<T: Float> View<'_, T> {
    pub fn at(&self, i: usize, j: usize) -> T {
        self.data[i * self.strides.0 + j * self.strides.1]
    }

    /// The columns, of a matrix that is not transposed.
    pub fn each_column(&self) -> impl Iterator<Item = &[T]> {
        self.data.chunks(self.strides.1).map(|column| &column[..self.shape.0])
    }

    pub fn is_finite(&self) -> bool {
        self.each_column().flatten().all(|x| x.is_finite())
    }
}

/// What the products of one thread lay aside.
pub(super) struct Multiplier {
    products: Products,
    workspace: Workspace,
}

impl Multiplier {
    pub fn new(products: Products) -> Self {
        Multiplier { products, workspace: Workspace::default() }
    }

    /// `c = a · b`, or `c += a · b` if it is to `add`. `c` holds whole columns, one after the other.
    pub fn product<T: Float>(&mut self, a: View<T>, b: View<T>, add: bool, c: &mut [T]) {
        #[cfg(test)]
        super::tests::count_product();
        let (m, n) = (a.shape.0, b.shape.1);
        let beta = if add { T::one() } else { T::zero() };
        match self.products {
            Products::Gemmkit => {
                let workspace = &mut self.workspace;
                let c = MatMut::from_col_major(c, m, n);
                let (a, b) = (gemmkit_view(a), gemmkit_view(b));
                gemm_with(workspace, T::one(), a, b, beta, c, Parallelism::Serial);
            }
            Products::Matrixmultiply => {
                let mut c = DMatrixViewMut::from_slice(c, m, n);
                c.gemm(T::one(), &nalgebra_view(a), &nalgebra_view(b), beta);
            }
        }
    }
}

fn gemmkit_view<T: Float>(x: View<'_, T>) -> MatRef<'_, T> {
    let strides = (x.strides.0 as isize, x.strides.1 as isize);
    MatRef::new(x.data, x.shape.0, x.shape.1, strides.0, strides.1)
}

fn nalgebra_view<T: Float>(x: View<'_, T>) -> MatrixView<'_, T, Dyn, Dyn, Dyn, Dyn> {
    let (rows, columns) = (Dyn(x.shape.0), Dyn(x.shape.1));
    let strides = (Dyn(x.strides.0), Dyn(x.strides.1));
    DMatrixView::from_slice_with_strides_generic(
        x.data, rows, columns, strides.0, strides.1,
    )
}
