//! Softmax of rows that are not seen all at once.

use crate::Float;
use crate::blocks::copy_of;
use crate::dot_product::masked_product;
use crate::error::{Result, check_count, check_not_empty, check_room, check_shape};
use crate::mask::neg_infinity;
use crate::softmax::{log_sum_exp_and_low, normaliser, row_max, shift};
use crate::sums::row_sums;
use nalgebra::{DMatrix, DMatrixView, DVector};

/// The state of the softmax of some rows after a part of their scores: enough to go on, and to finish.
///
/// For each row: the largest score so far, the sum of the exponentials, and the sum of the values weighted by them, both
/// relative to that largest score. Two states over different keys [merge](OnlineSoftmax::merge) into one, in any order and
/// however the keys were split (up to rounding); the [empty](OnlineSoftmax::new) state changes nothing.
///
/// A score of −∞ says that a value is not seen: it does not count, even if it is NaN or infinite.
///
/// # Source
/// M. Milakov, N. Gimelshein, *Online normalizer calculation for softmax* (2018).
///
/// ```
/// use attention::flash::OnlineSoftmax;
/// use nalgebra::dmatrix;
///
/// let mut state = OnlineSoftmax::<f64>::new(1, 1)?; // one row, values of width 1
/// state.absorb(&dmatrix![0.0], &dmatrix![10.0])?; // score 0, value 10
/// state.absorb(&dmatrix![0.0, 1000.0], &dmatrix![20.0; 30.0])?; // two more at once
/// let (output, log_sum_exp) = state.finish();
/// assert_eq!((output[0], log_sum_exp[0]), (30.0, 1000.0)); // against e^1000 the others are nothing
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OnlineSoftmax<T: Float> {
    max: DVector<T>,    // m: the largest score of each row
    sum: DVector<T>,    // ℓ: the sum of exp(score − m)
    values: DMatrix<T>, // o: the sum of exp(score − m) · value, (rows, d_v)
}

impl<T: Float> OnlineSoftmax<T> {
    /// Returns the state before any score: a largest one of −∞, and sums of 0.
    ///
    /// Shapes: `rows` queries, values `d_v` wide.
    ///
    /// # Errors
    /// `rows` or `d_v` is 0, or no memory could hold the state.
    ///
    /// ```
    /// use attention::flash::OnlineSoftmax;
    ///
    /// let (output, log_sum_exp) = OnlineSoftmax::<f64>::new(1, 2)?.finish();
    /// assert_eq!((output[(0, 1)], log_sum_exp[0]), (0.0, f64::NEG_INFINITY)); // nothing seen
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn new(rows: usize, d_v: usize) -> Result<Self> {
        check_room::<T>(("rows", rows), ("d_v", d_v))?;
        Ok(OnlineSoftmax {
            max: DVector::repeat(rows, neg_infinity()),
            sum: DVector::zeros(rows),
            values: DMatrix::zeros(rows, d_v),
        })
    }

    /// Some more keys: their scores, and their values. One key, a tile, or all of them.
    ///
    /// Shapes: `scores` (rows, keys), `values` (keys, d_v).
    ///
    /// # Errors
    /// A matrix is empty or of another shape.
    ///
    /// ```
    /// # use attention::flash::OnlineSoftmax;
    /// # use nalgebra::dmatrix;
    /// let mut state = OnlineSoftmax::<f64>::new(2, 1)?;
    /// state.absorb(&dmatrix![0.0, 0.0; 1.0, 1.0], &dmatrix![1.0; 3.0])?;
    /// assert_eq!(state.finish().0, dmatrix![2.0; 2.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn absorb<'a>(
        &mut self,
        scores: impl Into<DMatrixView<'a, T>>,
        values: impl Into<DMatrixView<'a, T>>,
    ) -> Result<()> {
        let (scores, values) = (scores.into(), values.into());
        self.check(scores, values)?;
        let terms = self.terms(scores); // (rows, keys)
        self.values += masked_product(&terms, values, |i, j| is_seen(scores[(i, j)]));
        Ok(())
    }

    /// Takes up the scores alone, and returns the exponentials by which values are weighted.
    fn terms(&mut self, scores: DMatrixView<T>) -> DMatrix<T> {
        let mut terms = copy_of(scores);
        let max = self.max.zip_map(&row_max(&terms), |old, new| old.max(new));
        self.rescale(max);
        for mut column in terms.column_iter_mut() {
            column.zip_apply(&self.max, |x, m| *x = (*x - shift(m)).exp());
        }
        self.sum += row_sums(&terms); // one number for each row
        terms
    }
    // ANCHOR_END: absorb

    /// [`OnlineSoftmax::absorb`] with dropout, which comes between the softmax and the values: the sum of the exponentials stays.
    pub(super) fn absorb_dropping(
        &mut self,
        scores: &DMatrix<T>,
        values: DMatrixView<T>,
        dropped: impl FnOnce(DMatrix<T>) -> DMatrix<T>,
    ) -> Result<()> {
        self.check(scores.as_view(), values)?;
        let terms = dropped(self.terms(scores.as_view()));
        self.values += masked_product(&terms, values, |i, j| is_seen(scores[(i, j)]));
        Ok(())
    }
    /// A new largest score, never below the old one: the sums, which are relative to that,
    /// are corrected.
    fn rescale(&mut self, max: DVector<T>) {
        let correction = self.max.zip_map(&max, |old, new| (old - shift(new)).exp());
        self.sum.component_mul_assign(&correction);
        for mut column in self.values.column_iter_mut() {
            column.component_mul_assign(&correction);
        }
        self.max = max;
    }

    /// Returns the largest score of each row so far (rows); −∞ where nothing was seen.
    ///
    /// ```
    /// # use attention::flash::OnlineSoftmax;
    /// # use nalgebra::dmatrix;
    /// let mut state = OnlineSoftmax::<f64>::new(1, 1)?;
    /// state.absorb(&dmatrix![1.0, 3.0, 2.0], &dmatrix![0.0; 0.0; 0.0])?;
    /// assert_eq!(state.max()[0], 3.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn max(&self) -> &DVector<T> {
        &self.max
    }

    /// Returns the sum of the exponentials of each row so far, relative to [`OnlineSoftmax::max`] (rows).
    ///
    /// ```
    /// # use attention::flash::OnlineSoftmax;
    /// # use nalgebra::dmatrix;
    /// let mut state = OnlineSoftmax::<f64>::new(1, 1)?;
    /// state.absorb(&dmatrix![3.0, 3.0], &dmatrix![0.0; 0.0])?;
    /// assert_eq!(state.sum()[0], 2.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn sum(&self) -> &DVector<T> {
        &self.sum
    }

    /// Returns the sum of the values so far, weighted by those exponentials (rows, d_v).
    ///
    /// ```
    /// # use attention::flash::OnlineSoftmax;
    /// # use nalgebra::dmatrix;
    /// let mut state = OnlineSoftmax::<f64>::new(1, 1)?;
    /// state.absorb(&dmatrix![3.0, 3.0], &dmatrix![10.0; 20.0])?;
    /// assert_eq!(state.values()[0], 30.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn values(&self) -> &DMatrix<T> {
        &self.values
    }

    /// Returns the state after the keys of both.
    ///
    /// # Errors
    /// `other` doesn't have the same number of rows, or values of another width.
    ///
    /// ```
    /// # use attention::flash::OnlineSoftmax;
    /// # use nalgebra::dmatrix;
    /// let part = |score: f64, value: f64| {
    ///     let mut state = OnlineSoftmax::new(1, 1)?;
    ///     state.absorb(&dmatrix![score], &dmatrix![value])?;
    ///     Ok::<_, attention::Error>(state)
    /// };
    /// let merged = part(0.0, 10.0)?.merge(part(0.0, 20.0)?)?;
    /// assert_eq!(merged.finish().0, dmatrix![15.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn merge(mut self, mut other: Self) -> Result<Self> {
        check_shape("other", &other.values, self.values.shape(), "`self`")?;
        let max = self.max.zip_map(&other.max, |a, b| a.max(b));
        self.rescale(max.clone());
        other.rescale(max);
        self.sum += other.sum;
        self.values += other.values;
        Ok(self)
    }

    /// Returns the weighted mean of the values, and the log-sum-exp of the scores. A row that saw nothing gives 0 and −∞.
    ///
    /// Shapes: → (rows, d_v), (rows).
    ///
    /// ```
    /// # use attention::flash::OnlineSoftmax;
    /// # use nalgebra::dmatrix;
    /// let mut state = OnlineSoftmax::<f64>::new(1, 1)?;
    /// state.absorb(&dmatrix![3.0, f64::NEG_INFINITY], &dmatrix![7.0; f64::NAN])?;
    /// assert_eq!(state.finish(), (dmatrix![7.0], nalgebra::dvector![3.0]));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn finish(self) -> (DMatrix<T>, DVector<T>) {
        let OnlineSoftmax { max, sum, mut values } = self;
        for mut column in values.column_iter_mut() {
            column.zip_apply(&sum, |x, sum| *x /= normaliser(sum));
        }
        (values, max.zip_map(&sum, |m, sum| m + sum.ln()))
    }

    /// Returns the rounding error of the log-sum-exp that [`OnlineSoftmax::finish`] returns (rows).
    pub(super) fn log_sum_exp_low(&self) -> DVector<T> {
        self.max.zip_map(&self.sum, |m, sum| log_sum_exp_and_low(T::one(), m, sum).1)
    }

    fn check(&self, scores: DMatrixView<T>, values: DMatrixView<T>) -> Result<()> {
        #[cfg(test)]
        super::tests::count_step();
        check_not_empty("scores", scores)?;
        check_not_empty("values", values)?;
        let (rows, d_v) = self.values.shape();
        check_count("scores", "row", scores.nrows(), rows, || {
            format!("the state has {rows}")
        })?;
        check_shape("values", values, (scores.ncols(), d_v), "(keys, d_v)")
    }
}

fn is_seen<T: Float>(score: T) -> bool {
    score != neg_infinity()
}
