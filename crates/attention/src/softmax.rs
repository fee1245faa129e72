//! Softmax: from scores to weights that are not negative and sum to one, and back.
//!
//! Before it exponentiates, every function here subtracts the largest score. The result is the same, since softmax does
//! not change when all scores move by one constant, and no exponential of finite scores can overflow.

use crate::Float;
use crate::blocks::copy_of;
use crate::error::{Result, check_count, check_not_empty, check_shape};
use crate::sums::{RunningSum, sum};
use nalgebra::{DMatrix, DMatrixView, DVector, RealField};

// ANCHOR: shift
/// Returns the number that is subtracted from all scores: their maximum.
///
/// A row of nothing but −∞ sees nothing. Its maximum is −∞ too, and −∞ − (−∞) is NaN, so
/// nothing is subtracted there: every exponential is then e^(−∞) = 0.
pub fn shift<T: RealField + Copy>(max: T) -> T {
    if max.is_finite() { max } else { T::zero() }
}

/// Returns the number by which all exponentials are divided: their sum, or 1 for a row
/// that sees nothing, since 0 / 0 is NaN.
pub fn normaliser<T: RealField + Copy>(sum: T) -> T {
    if sum.is_zero() { T::one() } else { sum }
}
// ANCHOR_END: shift

/// Returns the softmax of one vector of scores: `p[i] = exp(x[i] − max x) / Σ_j exp(x[j] − max x)`.
///
/// Shapes: `x` (n) → (n). All entries −∞ give zeros. A NaN makes all
/// weights NaN; +∞ among the scores makes some of them NaN.
///
/// # Errors
/// `x` is empty.
///
/// # Source
/// J. S. Bridle, *Probabilistic interpretation of feedforward classification network outputs, with
/// relationships to statistical pattern recognition* (1990).
///
/// ```
/// use nalgebra::dvector;
///
/// let p = attention::softmax(&dvector![1000.0_f64, 1000.0])?; // e^1000 alone would overflow
/// assert_eq!(p, dvector![0.5, 0.5]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn softmax<T: Float>(x: &DVector<T>) -> Result<DVector<T>> {
    check_has_entries("x", x)?;
    let m = shift(x.max());
    let mut exponentials = x.add_scalar(-m);
    exponentiate(exponentials.as_mut_slice()); // all between 0 and 1
    let sum = sum(exponentials.as_slice());
    Ok(exponentials / normaliser(sum))
}

/// Returns the softmax of every row of a matrix: the weights of every query.
///
/// Shapes: `scores` (n_q, n_k) → (n_q, n_k). A row of nothing but −∞ becomes a row of zeros.
///
/// # Errors
/// `scores` is empty.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let weights = attention::softmax_rows(&dmatrix![0.0_f64, 0.0; 0.0, f64::NEG_INFINITY])?;
/// assert_eq!(weights, dmatrix![0.5, 0.5; 1.0, 0.0]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn softmax_rows<'a, T: Float>(
    scores: impl Into<DMatrixView<'a, T>>,
) -> Result<DMatrix<T>> {
    let scores = scores.into();
    check_not_empty("scores", scores)?;
    let scores = copy_of(scores);
    let RowExponentials { mut exponentials, sums, .. } = row_exponentials(scores);
    divide_rows(&mut exponentials, &sums);
    Ok(exponentials) // by now the weights (n_q, n_k)
}
/// The exponentials of a matrix of scores; what was subtracted and summed in each row.
struct RowExponentials<T> {
    exponentials: DMatrix<T>, // (n_q, n_k)
    shifts: DVector<T>,       // (n_q)
    sums: DVector<T>,         // (n_q)
}

fn row_exponentials<T: Float>(scores: DMatrix<T>) -> RowExponentials<T> {
    let shifts = row_max(&scores).map(shift);
    let mut exponentials = scores; // in the same memory
    let mut sums = RunningSum::new(exponentials.nrows());
    // nalgebra stores columns: each line here runs down one, from neighbour to neighbour.
    for mut column in exponentials.column_iter_mut() {
        column -= &shifts;
        exponentiate(column.as_mut_slice());
        sums.add(column.as_slice().iter().copied());
    }
    RowExponentials { exponentials, shifts, sums: sums.finish() }
}

fn divide_rows<T: RealField + Copy>(exponentials: &mut DMatrix<T>, sums: &DVector<T>) {
    for mut column in exponentials.column_iter_mut() {
        for i in 0..column.len() {
            column[i] /= normaliser(sums[i]);
        }
    }
}

/// The largest entry of each row, column by column.
pub(crate) fn row_max<T: RealField + Copy>(matrix: &DMatrix<T>) -> DVector<T> {
    let mut max = matrix.column(0).into_owned();
    for column in matrix.column_iter().skip(1) {
        max.zip_apply(&column, |m, x| *m = m.max(x));
    }
    max
}

/// Returns the logarithm of a sum of exponentials: `ln Σ_j exp(x[j])`, without overflow.
///
/// Softmax is `exp(x − log_sum_exp(x))`, so this one number and the scores give all weights back.
/// Shapes: `x` (n) → scalar. All entries −∞ give −∞.
///
/// # Errors
/// `x` is empty.
///
/// # Source
/// P. Blanchard, D. J. Higham, N. J. Higham, *Accurately computing the log-sum-exp and softmax functions* (2021).
///
/// ```
/// use nalgebra::dvector;
///
/// let lse = attention::log_sum_exp(&dvector![1000.0_f64, 1000.0])?;
/// assert!((lse - (1000.0 + 2.0_f64.ln())).abs() < 1e-12);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn log_sum_exp<T: Float>(x: &DVector<T>) -> Result<T> {
    check_has_entries("x", x)?;
    let m = shift(x.max());
    let mut exponentials = x.add_scalar(-m);
    exponentiate(exponentials.as_mut_slice());
    Ok(m + sum(exponentials.as_slice()).ln())
}

/// Returns the log-sum-exp of a query's scores and its rounding error, as
/// [`FlashOutput`](crate::flash::FlashOutput) has them. They are made from the query's largest product with a key, `max`, which is
/// not scaled yet, and the sum of the exponentials of `scale` · (product − `max`).
///
/// Of a large score the rounded log-sum-exp alone would lose the logarithm of the sum, and e^(score − log-sum-exp) would be 1 for
/// each of two equal scores.
pub(crate) fn log_sum_exp_and_low<T: RealField + Copy>(
    scale: T,
    max: T,
    sum: T,
) -> (T, T) {
    let (max, log_sum) = (shift(max), sum.ln());
    let lse = max * scale + log_sum;
    if !lse.is_finite() {
        return (lse, T::zero());
    }
    // The rounding error: the product less `lse` is exact, but for its last digits.
    (lse, max.mul_add(scale, -lse) + log_sum)
}

/// The number that is subtracted from a row's scores to compute its weights again: their log-sum-exp, or 0 for a row that sees
/// nothing, where −∞ − (−∞) is NaN. A NaN stays one.
pub fn log_sum_exp_or_zero<T: RealField + Copy>(log_sum_exp: T) -> T {
    if log_sum_exp == crate::mask::neg_infinity() { T::zero() } else { log_sum_exp }
}

/// Returns [`log_sum_exp`] of every row.
///
/// Shapes: `scores` (n_q, n_k) → (n_q). A row of nothing but −∞ gives −∞.
///
/// # Errors
/// `scores` is empty.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let lse = attention::softmax::log_sum_exp_rows(&dmatrix![0.0_f64, 0.0; 3.0, f64::NEG_INFINITY])?;
/// assert_eq!(lse.as_slice(), [2.0_f64.ln(), 3.0]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn log_sum_exp_rows<'a, T: Float>(
    scores: impl Into<DMatrixView<'a, T>>,
) -> Result<DVector<T>> {
    let scores = scores.into();
    check_not_empty("scores", scores)?;
    let RowExponentials { shifts, sums, .. } = row_exponentials(copy_of(scores));
    Ok(log_sums(&shifts, &sums))
}

fn log_sums<T: RealField + Copy>(shifts: &DVector<T>, sums: &DVector<T>) -> DVector<T> {
    shifts.zip_map(sums, |shift, sum: T| shift + sum.ln())
}

/// [`softmax_rows`] and [`log_sum_exp_rows`] from the same exponentials, in the memory of the scores.
pub(crate) fn softmax_and_log_sum_exp<T: Float>(
    scores: DMatrix<T>,
) -> Result<(DMatrix<T>, DVector<T>)> {
    check_not_empty("scores", &scores)?;
    let RowExponentials { mut exponentials, shifts, sums } = row_exponentials(scores);
    divide_rows(&mut exponentials, &sums);
    Ok((exponentials, log_sums(&shifts, &sums)))
}

/// Returns the Jacobian of softmax at the weights `p = softmax(x)`: `∂p[i]/∂x[j] = p[i] (δ_ij − p[j])`.
///
/// Shapes: `p` (n) → (n, n), that is `diag(p) − p pᵀ`. Symmetric, and every row sums to zero. To multiply by it, use
/// [`softmax_backward`], which needs n steps where this matrix needs n².
///
/// # Errors
/// `p` is empty.
///
/// ```
/// use nalgebra::{dmatrix, dvector};
///
/// let jacobian = attention::softmax::softmax_jacobian(&dvector![0.5_f64, 0.5])?;
/// assert_eq!(jacobian, dmatrix![0.25, -0.25; -0.25, 0.25]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn softmax_jacobian<T: Float>(p: &DVector<T>) -> Result<DMatrix<T>> {
    check_has_entries("p", p)?;
    Ok(DMatrix::from_diagonal(p) - p * p.transpose())
}

/// Returns the gradient through softmax: from `grad_p = ∂L/∂p` to `∂L/∂x = p ⊙ (grad_p − ⟨grad_p, p⟩)`.
///
/// Shapes: `p` (n), `grad_p` (n) → (n). The product with [`softmax_jacobian`] in n steps, not n².
///
/// # Errors
/// `p` is empty, or `grad_p` has another length.
///
/// ```
/// use nalgebra::dvector;
///
/// let p = attention::softmax(&dvector![2.0_f64, 1.0, 0.1])?;
/// let g = dvector![0.5, -0.3, 0.2];
/// let fast = attention::softmax::softmax_backward(&p, &g)?;
/// let slow = attention::softmax::softmax_jacobian(&p)? * &g;
/// assert!((fast - slow).amax() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn softmax_backward<T: Float>(
    p: &DVector<T>,
    grad_p: &DVector<T>,
) -> Result<DVector<T>> {
    check_has_entries("p", p)?;
    check_count("grad_p", "entry", grad_p.len(), p.len(), || {
        format!("`p` has {}", p.len())
    })?;
    // the mean of grad_p under the weights p
    let mean = sum(p.component_mul(grad_p).as_slice());
    Ok(p.component_mul(&grad_p.add_scalar(-mean)))
}

/// Returns [`softmax_backward`] of every row.
///
/// Shapes: `weights` (n_q, n_k), `grad_weights` (n_q, n_k) → (n_q, n_k). Where a weight is 0, so is the
/// result, as long as the row's gradients are finite.
///
/// # Errors
/// `weights` is empty, or `grad_weights` has another shape.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let weights = dmatrix![0.5_f64, 0.5; 1.0, 0.0];
/// let grad_scores = attention::softmax::softmax_rows_backward(&weights, &dmatrix![1.0, 0.0; 1.0, 0.0])?;
/// assert_eq!(grad_scores, dmatrix![0.25, -0.25; 0.0, 0.0]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn softmax_rows_backward<'a, T: Float>(
    weights: impl Into<DMatrixView<'a, T>>,
    grad_weights: impl Into<DMatrixView<'a, T>>,
) -> Result<DMatrix<T>> {
    let (weights, grad_weights) = (weights.into(), grad_weights.into());
    check_not_empty("weights", weights)?;
    check_shape("grad_weights", grad_weights, weights.shape(), "`weights`")?;
    Ok(softmax_rows_backward_in_place(weights, copy_of(grad_weights)))
}

/// The same in the memory of `grad_weights`.
pub(crate) fn softmax_rows_backward_in_place<T: RealField + Copy>(
    weights: DMatrixView<T>,
    mut grad_weights: DMatrix<T>,
) -> DMatrix<T> {
    let mut means = RunningSum::new(weights.nrows()); // of the gradients, under the weights
    for (weights, grads) in weights.column_iter().zip(grad_weights.column_iter()) {
        let pairs = weights.as_slice().iter().zip(grads.as_slice());
        means.add(pairs.map(|(&weight, &grad)| weight * grad));
    }
    let means = means.finish();
    for (weights, mut grads) in weights.column_iter().zip(grad_weights.column_iter_mut())
    {
        let pairs = weights.as_slice().iter().zip(means.as_slice());
        for (grad, (&weight, &mean)) in grads.as_mut_slice().iter_mut().zip(pairs) {
            *grad = weight * (*grad - mean);
        }
    }
    grad_weights // by now the gradients of the scores
}

/// Replaces each number by its exponential.
fn exponentiate<T: Float>(numbers: &mut [T]) {
    numbers.iter_mut().for_each(|x| *x = x.exp());
}

fn check_has_entries<T: RealField>(argument: &'static str, x: &DVector<T>) -> Result<()> {
    if x.is_empty() {
        return Err(crate::error::empty(argument, "0 entries"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{dmatrix, dvector};

    const NEG_INFINITY: f64 = f64::NEG_INFINITY;

    /// In f32 the sum m + ln ℓ keeps nothing of ln ℓ here: all of it is the rest.
    #[test]
    fn what_rounding_takes_from_a_large_log_sum_exp_is_kept() {
        let (max, sum) = (2.0_f32.powi(24), 2.0_f32);
        assert_eq!(max + sum.ln(), max);
        assert_eq!(log_sum_exp_and_low(1.0, max, sum), (max, sum.ln()));
    }

    #[test]
    fn by_hand() {
        let p = softmax(&dvector![0.0, 2.0_f64.ln(), 3.0_f64.ln()]).unwrap();
        assert!((p - dvector![1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]).amax() < 1e-15);
    }

    #[test]
    fn a_matrix_is_its_rows() {
        let scores =
            dmatrix![1.0, 2.0, -700.0; 800.0, 801.0, 0.5; NEG_INFINITY, 0.0, 1.0];
        let weights = softmax_rows(&scores).unwrap();
        let lse = log_sum_exp_rows(&scores).unwrap();
        for i in 0..3 {
            let row = scores.row(i).transpose();
            assert_eq!(weights.row(i).transpose(), softmax(&row).unwrap());
            assert_eq!(lse[i], log_sum_exp(&row).unwrap());
        }
    }

    #[test]
    fn nothing_to_see_is_zero_not_nan() {
        let nothing = dvector![NEG_INFINITY, NEG_INFINITY];
        assert_eq!(softmax(&nothing).unwrap(), dvector![0.0, 0.0]);
        assert_eq!(log_sum_exp(&nothing).unwrap(), NEG_INFINITY);
        let weights =
            softmax_rows(&dmatrix![NEG_INFINITY, NEG_INFINITY; 0.0, 0.0]).unwrap();
        assert_eq!(weights, dmatrix![0.0, 0.0; 0.5, 0.5]);
        let grad_scores =
            softmax_rows_backward(&weights, &dmatrix![1.0, 2.0; 3.0, 4.0]).unwrap();
        assert_eq!(grad_scores.row(0), dmatrix![0.0, 0.0].row(0));
    }

    #[test]
    fn nan_is_not_hidden() {
        assert!(softmax(&dvector![f64::NAN, 1.0]).unwrap().iter().all(|p| p.is_nan()));
        assert!(
            softmax(&dvector![f64::NAN, NEG_INFINITY])
                .unwrap()
                .iter()
                .all(|p| p.is_nan())
        );
        assert!(log_sum_exp(&dvector![NEG_INFINITY, f64::NAN]).unwrap().is_nan());
        assert_eq!(log_sum_exp(&dvector![f64::INFINITY, 1.0]).unwrap(), f64::INFINITY);
    }

    #[test]
    fn large_scores_stay_finite() {
        for x in [dvector![710.0_f64, 1000.0, -1000.0], dvector![1e300, 1e300, -1e300]] {
            let p = softmax(&x).unwrap();
            assert!(p.iter().all(|p| p.is_finite()));
            assert!((p.sum() - 1.0).abs() < 1e-15);
        }
        let p = softmax(&dvector![89.0_f32, 100.0]).unwrap(); // e^89 overflows an f32
        assert!(p.iter().all(|p| p.is_finite()));
    }

    #[test]
    fn jacobian_rows_sum_to_zero_and_agree_with_the_product() {
        let p = softmax(&dvector![0.3, -1.2, 2.0, 0.0]).unwrap();
        let jacobian = softmax_jacobian(&p).unwrap();
        assert_eq!(jacobian, jacobian.transpose());
        assert!(jacobian.column_sum().amax() < 1e-16);
        let g = dvector![1.0, -2.0, 0.5, 3.0];
        let direct = &jacobian * &g;
        assert!((softmax_backward(&p, &g).unwrap() - &direct).amax() < 1e-15);
        let rows = softmax_rows_backward(&p.transpose(), &g.transpose()).unwrap();
        assert!((rows.transpose() - direct).amax() < 1e-15);
    }
}
