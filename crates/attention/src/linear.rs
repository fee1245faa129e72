//! A linear map with a bias, and its gradients.

use crate::Float;
use crate::engine::{ByWeights, Engine, Factor};
use crate::error::{Result, check_count, check_not_empty, check_shape};
use crate::sums::sum;
use nalgebra::{DMatrix, DMatrixView, RowDVector};

/// Returns a linear map with a bias: `y = x W + b`. For none, pass a bias of no columns.
///
/// Shapes: `x` (n, d_in), `w` (d_in, d_out), `b` (1, d_out) or (1, 0) → (n, d_out).
///
/// # Errors
/// `x` or `w` is empty, or the widths do not fit.
///
/// ```
/// use nalgebra::{dmatrix, RowDVector};
///
/// let (x, w) = (dmatrix![1.0_f64, 2.0], dmatrix![3.0; 4.0]);
/// assert_eq!(attention::linear(&x, &w, &RowDVector::from_element(1, 0.5))?, dmatrix![11.5]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn linear<'a, T: Float>(
    x: impl Into<DMatrixView<'a, T>>,
    w: impl Into<DMatrixView<'a, T>>,
    b: &RowDVector<T>,
) -> Result<DMatrix<T>> {
    linear_by(&ByWeights, x, w, b)
}

/// [`linear`], by the products of an engine.
///
/// # Errors
/// As [`linear`].
pub fn linear_by<'a, T: Float>(
    engine: &(impl Engine<T> + ?Sized),
    x: impl Into<DMatrixView<'a, T>>,
    w: impl Into<DMatrixView<'a, T>>,
    b: &RowDVector<T>,
) -> Result<DMatrix<T>> {
    let (x, w) = (x.into(), w.into());
    check(x, w)?;
    if b.is_empty() {
        return Ok(engine.product(Factor::of(x), Factor::of(w), None));
    }
    let because = || format!("`w` has {}", w.ncols());
    check_count("b", "column", b.ncols(), w.ncols(), because)?;
    Ok(engine.product(Factor::of(x), Factor::of(w), Some(b.as_slice()))) // x w, and b added to each row
}

/// Returns the gradients of [`linear`] with respect to `x` (n, d_in), `w` (d_in, d_out) and `b` (1, d_out). Ignore the last if there is
/// no bias.
///
/// Shapes: `x` (n, d_in), `w` (d_in, d_out), `grad_y` (n, d_out).
///
/// # Errors
/// An argument is empty, or their shapes do not fit.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let (x, w) = (dmatrix![1.0_f64, 2.0], dmatrix![3.0; 4.0]);
/// let (grad_x, grad_w, grad_b) = attention::linear_backward(&x, &w, &dmatrix![10.0])?;
/// assert_eq!((grad_x, grad_w), (dmatrix![30.0, 40.0], dmatrix![10.0; 20.0]));
/// assert_eq!(grad_b[0], 10.0);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn linear_backward<'a, T: Float>(
    x: impl Into<DMatrixView<'a, T>>,
    w: impl Into<DMatrixView<'a, T>>,
    grad_y: impl Into<DMatrixView<'a, T>>,
) -> Result<(DMatrix<T>, DMatrix<T>, RowDVector<T>)> {
    linear_backward_by(&ByWeights, x, w, grad_y)
}

/// [`linear_backward`], by the products of an engine.
///
/// # Errors
/// As [`linear_backward`].
pub fn linear_backward_by<'a, T: Float>(
    engine: &(impl Engine<T> + ?Sized),
    x: impl Into<DMatrixView<'a, T>>,
    w: impl Into<DMatrixView<'a, T>>,
    grad_y: impl Into<DMatrixView<'a, T>>,
) -> Result<(DMatrix<T>, DMatrix<T>, RowDVector<T>)> {
    let (x, w, grad_y) = (x.into(), w.into(), grad_y.into());
    check(x, w)?;
    check_shape("grad_y", grad_y, (x.nrows(), w.ncols()), "the output")?;
    let grad_x = engine.product(Factor::of(grad_y), Factor::transposed(w), None); // dY Wᵀ
    let grad_w = engine.product(Factor::transposed(x), Factor::of(grad_y), None); // Xᵀ dY
    let grad_b = grad_y.column_iter().map(|column| sum(column.as_slice()));
    Ok((grad_x, grad_w, RowDVector::from_iterator(grad_y.ncols(), grad_b)))
}

fn check<T: Float>(x: DMatrixView<T>, w: DMatrixView<T>) -> Result<()> {
    check_not_empty("x", x)?;
    check_not_empty("w", w)?;
    let because = || format!("`x` has {} columns", x.ncols());
    check_count("w", "row", w.nrows(), x.ncols(), because)
}
