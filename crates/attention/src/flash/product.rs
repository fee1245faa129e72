//! Products of tiles that lie somewhere in a larger matrix, without a copy and without an allocation.

use super::Float;
use gemmkit::{MatMut, MatRef, Parallelism, Workspace, gemm_with};
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, Dyn, U1};
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
    /// What `*` of nalgebra's matrices is made of. A left factor that stands transposed is copied for each product.
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

    /// The largest Euclidean norm of a row, of a matrix that is not transposed. A NaN is passed over.
    pub fn longest_row(&self) -> T {
        let mut squares = vec![T::zero(); self.shape.0];
        for column in self.each_column() {
            for (square, &x) in squares.iter_mut().zip(column) {
                *square += x * x;
            }
        }
        let larger = |a: T, &b: &T| if b > a { b } else { a };
        squares.iter().fold(T::zero(), larger).sqrt()
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
                let b = strided(b);
                match whole_columns(a) {
                    Some(a) => c.gemm(T::one(), &a, &b, beta),
                    None => c.gemm(T::one(), &strided(a).into_owned(), &b, beta),
                }
            }
        }
    }
}

fn gemmkit_view<T: Float>(x: View<'_, T>) -> MatRef<'_, T> {
    let strides = (x.strides.0 as isize, x.strides.1 as isize);
    MatRef::new(x.data, x.shape.0, x.shape.1, strides.0, strides.1)
}

/// The only kind of view that may be the left factor of nalgebra's product: in its type, the entries of a column are
/// neighbours. `None` if they are not.
///
/// nalgebra 0.35.0 (dimforge/nalgebra#1616, which is open) reads and writes out of bounds, without any `unsafe` of the caller's,
/// where the entries of a column of the left factor lie apart and the product takes its path for small matrices: one of
/// its three sizes is at most 5, all sizes are static, or the entries are neither `f32` nor `f64`. That path,
/// `axcpy_uninit`, takes the length of the slice around a column, `(rows − 1) · stride + 1`, for the number of its
/// entries. It is right where the stride from row to row is 1, whatever the stride from column to column; the right
/// factor and the result may have any strides.
fn whole_columns<T: Float>(x: View<'_, T>) -> Option<DMatrixView<'_, T, U1, Dyn>> {
    let (rows, columns) = (Dyn(x.shape.0), Dyn(x.shape.1));
    (x.strides.0 == 1).then(|| {
        DMatrixView::from_slice_with_strides_generic(
            x.data,
            rows,
            columns,
            U1,
            Dyn(x.strides.1),
        )
    })
}

/// A view with any strides: a right factor, or what is copied before it becomes a left one. See [`whole_columns`].
fn strided<T: Float>(x: View<'_, T>) -> DMatrixView<'_, T, Dyn, Dyn> {
    let (rows, columns) = (Dyn(x.shape.0), Dyn(x.shape.1));
    let strides = (Dyn(x.strides.0), Dyn(x.strides.1));
    DMatrixView::from_slice_with_strides_generic(
        x.data, rows, columns, strides.0, strides.1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{convert, try_convert};

    /// Whether a view is transposed before it is multiplied.
    const ORIENTATIONS: [bool; 2] = [false, true];

    /// Every entry, by the definition.
    fn by_definition(a: View<f64>, b: View<f64>, i: usize, j: usize) -> f64 {
        (0..a.shape.1).map(|c| a.at(i, c) * b.at(c, j)).sum()
    }

    /// A view of (rows, columns) in the middle of a longer matrix of `more` rows, transposed or not.
    fn view<T>(
        data: &[T],
        shape: (usize, usize),
        more: usize,
        turned: bool,
    ) -> View<'_, T>
    where
        T: Float,
    {
        let (rows, columns) = if turned { (shape.1, shape.0) } else { shape };
        let whole = View::columns(data, (rows + more, columns), rows + more);
        let part = whole.rows(&(more / 2..more / 2 + rows));
        if turned { part.transpose() } else { part }
    }

    /// Both libraries, all shapes around their limits for small matrices, each factor transposed or not, inside a
    /// longer matrix or alone.
    #[test]
    fn products_of_views_equal_the_definition() {
        fn check<T: Float>(tolerance: f64) {
            let exact: Vec<f64> =
                (0..2_000).map(|i| f64::from((i * 37 % 23) - 11)).collect();
            let data: Vec<T> = exact.iter().map(|&x| convert(x)).collect();
            let sizes = [1, 2, 3, 5, 6, 9, 17];
            for products in [Products::Matrixmultiply, Products::Gemmkit] {
                let mut multiplier = Multiplier::new(products);
                for (m, k, n) in sizes
                    .iter()
                    .flat_map(|&m| sizes.iter().map(move |&k| (m, k)))
                    .flat_map(|(m, k)| sizes.iter().map(move |&n| (m, k, n)))
                {
                    for (turned_a, turned_b) in ORIENTATIONS
                        .iter()
                        .flat_map(|&a| ORIENTATIONS.iter().map(move |&b| (a, b)))
                    {
                        for (more, add) in [(0, false), (4, true)] {
                            let a = view(&data, (m, k), more, turned_a);
                            let b = view(&data[7..], (k, n), more, turned_b);
                            let mut c: Vec<T> = vec![T::one(); m * n];
                            multiplier.product(a, b, add, &mut c);
                            let a = view(&exact, (m, k), more, turned_a);
                            let b = view(&exact[7..], (k, n), more, turned_b);
                            for (at, &c) in c.iter().enumerate() {
                                let right = by_definition(a, b, at % m, at / m);
                                let right = right + f64::from(u8::from(add));
                                let c: f64 = try_convert(c).expect("a number");
                                assert!(
                                    (c - right).abs() <= tolerance,
                                    "{products:?}, {m} x {k} x {n}, {turned_a}, {turned_b}: \
                                     {c} and not {right}"
                                );
                            }
                        }
                    }
                }
            }
        }
        // Sums of products of small whole numbers are exact.
        check::<f32>(0.0);
        check::<f64>(0.0);
    }
}
