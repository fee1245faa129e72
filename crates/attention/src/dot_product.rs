//! Scaled dot-product attention: scores, weights, output, and the backward pass.

use crate::Float;
use crate::blocks::copy_of;
use crate::engine::{Factor, product_by_nalgebra};
use crate::error::{Result, check_count, check_not_empty, check_shape};
use crate::flash::Head;
use crate::mask::{Mask, SizedMask};
use crate::score_rule::RuleGradients;
use crate::softmax::{softmax_and_log_sum_exp, softmax_rows_backward_in_place};
use nalgebra::{DMatrix, DMatrixView, DVector};
use std::borrow::Cow;

/// Returns the factor 1/√d_k of the scores.
pub fn scale<T: Float>(d_k: usize) -> T {
    T::one() / nalgebra::convert::<f64, T>(d_k as f64).sqrt()
}

/// Checks that queries (n_q, d_k) and keys (n_k, d_k) fit.
///
/// # Errors
/// One of them is empty, or `k` is not as wide as `q`.
// ANCHOR: check
pub fn check_queries_and_keys<T: Float>(
    q: DMatrixView<T>,
    k: DMatrixView<T>,
) -> Result<()> {
    check_not_empty("q", q)?;
    check_not_empty("k", k)?;
    let because = || format!("`q` has d_k = {}", q.ncols());
    check_count("k", "column", k.ncols(), q.ncols(), because)
}
// ANCHOR_END: check

/// Checks that keys (n_k, d_k) and values (n_k, d_v) fit.
///
/// # Errors
/// One of them is empty, or `v` doesn't have as many rows as `k`.
pub fn check_values<T: Float>(k: DMatrixView<T>, v: DMatrixView<T>) -> Result<()> {
    check_not_empty("k", k)?; // or else `v` would be blamed
    check_not_empty("v", v)?;
    let because = || format!("`k` has n_k = {}", k.nrows());
    check_count("v", "row", v.nrows(), k.nrows(), because)
}

/// Returns the scaled scores of every query against every key: `q kᵀ / √d_k`.
///
/// The queries are scaled before the product, which could overflow otherwise where the scores do not.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k) → (n_q, n_k).
///
/// # Errors
/// An argument is empty, or `k` is not as wide as `q`.
///
/// # Source
/// A. Vaswani et al., *Attention Is All You Need* (2017), section 3.2.1.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let q = dmatrix![2.0_f64, 0.0, 0.0, 0.0]; // one query, d_k = 4
/// let k = dmatrix![3.0, 0.0, 0.0, 0.0; 0.0, 5.0, 0.0, 0.0]; // two keys
/// assert_eq!(attention::scaled_scores(&q, &k)?, dmatrix![3.0, 0.0]); // 2 · 3 / √4, and 0
/// # Ok::<(), attention::Error>(())
/// ```
// ANCHOR: scaled_scores
pub fn scaled_scores<'a, T: Float>(
    q: impl Into<DMatrixView<'a, T>>,
    k: impl Into<DMatrixView<'a, T>>,
) -> Result<DMatrix<T>> {
    let (q, k) = (q.into(), k.into());
    check_queries_and_keys(q, k)?;
    let scaled_q = copy_of(q) * scale::<T>(q.ncols()); // q / √d_k (n_q, d_k)
    Ok(product_tr(scaled_q.as_view(), k)) // q kᵀ / √d_k (n_q, n_k)
}
// ANCHOR_END: scaled_scores

/// Returns the weights with which each query attends to each key, the softmax of the scores that the mask leaves, and the
/// log-sum-exp of each query's scores.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k) → weights (n_q, n_k) and the log-sum-exp of each row of scores (n_q). A query
/// that may see no key has weights of 0 and a log-sum-exp of −∞.
///
/// # Errors
/// As [`scaled_scores`], or the mask was made for another shape.
///
/// ```
/// use attention::Mask;
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![1.0_f64, 0.0; 1.0, 0.0];
/// let (weights, _) = attention::attention_weights(&x, &x, Mask::causal())?;
/// assert_eq!(weights, dmatrix![1.0, 0.0; 0.5, 0.5]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn attention_weights<'a, T: Float>(
    q: impl Into<DMatrixView<'a, T>>,
    k: impl Into<DMatrixView<'a, T>>,
    mask: impl Into<Mask>,
) -> Result<(DMatrix<T>, DVector<T>)> {
    let (q, k) = (q.into(), k.into());
    check_queries_and_keys(q, k)?;
    masked_weights(q, k, &mask.into().sized(q.nrows(), k.nrows())?)
}

fn masked_weights<T: Float>(
    q: DMatrixView<T>,
    k: DMatrixView<T>,
    mask: &SizedMask,
) -> Result<(DMatrix<T>, DVector<T>)> {
    let scores = mask.apply(scaled_scores(q, k)?)?; // (n_q, n_k), −∞ where hidden
    let (weights, log_sum_exp) = softmax_and_log_sum_exp(scores)?; // (n_q, n_k), (n_q)
    if log_sum_exp.iter().all(|lse| lse.partial_cmp(lse).is_some()) {
        return Ok((weights, log_sum_exp));
    }
    // A visible NaN makes its whole row NaN; what is hidden still has no weight.
    Ok((mask.fill_hidden(weights, T::zero()), log_sum_exp))
}

/// Returns the output of scaled dot-product attention, `softmax(q kᵀ / √d_k + mask) v`, and a cache, which
/// [`attention_backward`] takes.
///
/// Matrices may be views of others, such as some columns, `&x.columns(0, 8)`, or the rows of a longer matrix that are filled by now.
/// The cache holds copies of them; [`flash`](crate::flash::flash()) keeps nothing.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → output (n_q, d_v). A query that may see no key has an
/// output of 0. A key or value behind the mask never reaches the output, even if it is NaN or infinite.
///
/// # Errors
/// An argument is empty, `k` is not as wide as `q`, `v` doesn't have as many rows as `k`, or the mask was made for another
/// shape.
///
/// # Source
/// A. Vaswani et al., *Attention Is All You Need* (2017), equation 1.
///
/// ```
/// use attention::{Mask, attention};
/// use nalgebra::dmatrix;
///
/// let q = dmatrix![1.0_f64, 0.0];
/// let k = dmatrix![1.0, 0.0; 1.0, 0.0; -1.0, 0.0];
/// let v = dmatrix![10.0; 20.0; f64::NAN];
/// // Two keys that match equally well, and one that the query may not see.
/// let (output, cache) = attention(&q, &k, &v, Mask::padding(&[true, true, false])?)?;
/// assert_eq!(output, dmatrix![15.0]);
/// assert_eq!(cache.weights, dmatrix![0.5, 0.5, 0.0]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn attention<'a, T: Float>(
    q: impl Into<DMatrixView<'a, T>>,
    k: impl Into<DMatrixView<'a, T>>,
    v: impl Into<DMatrixView<'a, T>>,
    mask: impl Into<Mask>,
) -> Result<(DMatrix<T>, AttentionCache<T>)> {
    let (q, k, v, mask) = (q.into(), k.into(), v.into(), mask.into());
    check_queries_and_keys(q, k)?;
    check_values(k, v)?;
    let sized = mask.sized(q.nrows(), k.nrows())?;
    let head = Head { q, k, v, mask: sized, scale: scale(q.ncols()), dropout: None };
    let Attended { output, weights, log_sum_exp } = attend(&head, None)?;
    let [q, k, v] = [q, k, v].map(copy_of);
    let cache = AttentionCache { q, k, v, mask, weights, log_sum_exp, dropout: None };
    Ok((output, cache))
}

/// What one head gives.
pub(crate) struct Attended<T> {
    pub output: DMatrix<T>,      // (n_q, d_v)
    pub weights: DMatrix<T>,     // (n_q, n_k), before dropout
    pub log_sum_exp: DVector<T>, // (n_q)
}

/// One head, whose shapes have been checked; its weights are multiplied by the factors of dropout, if there are any.
pub(crate) fn attend<T: Float>(
    head: &Head<T>,
    dropout: Option<&DMatrix<T>>,
) -> Result<Attended<T>> {
    let (weights, log_sum_exp) = masked_weights(head.q, head.k, &head.mask)?; // (n_q, n_k), (n_q)
    let seen = |i, j| head.mask.allows(i, j);
    let output = masked_product(&*used(&weights, dropout), head.v, seen); // (n_q, d_v)
    Ok(Attended { output, weights, log_sum_exp })
}

/// The weights that meet the values.
fn used<'a, T: Float>(
    weights: &'a DMatrix<T>,
    dropout: Option<&DMatrix<T>>,
) -> Cow<'a, DMatrix<T>> {
    match dropout {
        Some(factors) => Cow::Owned(weights.component_mul(factors)),
        None => Cow::Borrowed(weights),
    }
}

/// The matrices that [`attention`] keeps for its backward pass, and for those who want to look inside.
///
/// ```
/// use attention::{Mask, attention};
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![1.0_f64, 0.0; 0.0, 1.0];
/// let (_, cache) = attention(&x, &x, &x, Mask::none())?;
/// assert!((cache.weights.row(0).sum() - 1.0).abs() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionCache<T: Float> {
    /// The queries (n_q, d_k).
    pub q: DMatrix<T>,
    /// The keys (n_k, d_k).
    pub k: DMatrix<T>,
    /// The values (n_k, d_v).
    pub v: DMatrix<T>,
    /// Which query could see which key.
    pub mask: Mask,
    /// The weights (n_q, n_k), before any dropout; each row sums to 1, or to 0 if its query could see no key.
    pub weights: DMatrix<T>,
    /// The log-sum-exp of each row of masked scores (n_q).
    pub log_sum_exp: DVector<T>,
    /// The factors by which dropout multiplied the weights (n_q, n_k): 0, or 1/(1 − p). `None` where there was no dropout.
    pub dropout: Option<DMatrix<T>>,
}

impl<T: Float> AttentionCache<T> {
    /// Returns the weights that met the values: after dropout, if there was any.
    ///
    /// Shapes: → (n_q, n_k).
    ///
    /// # Errors
    /// The cache's fields were changed so that dropout and weights no longer fit.
    ///
    /// ```
    /// use attention::{Mask, attention};
    /// use nalgebra::dmatrix;
    ///
    /// let x = dmatrix![1.0_f64, 0.0; 0.0, 1.0];
    /// let (_, cache) = attention(&x, &x, &x, Mask::none())?;
    /// assert_eq!(*cache.weights_used()?, cache.weights); // no dropout here
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn weights_used(&self) -> Result<Cow<'_, DMatrix<T>>> {
        let Some(factors) = &self.dropout else {
            return Ok(Cow::Borrowed(&self.weights));
        };
        check_shape("cache.dropout", factors, self.weights.shape(), "`cache.weights`")?;
        Ok(used(&self.weights, Some(factors)))
    }

    fn sized_mask(&self) -> Result<SizedMask> {
        self.mask.sized(self.q.nrows(), self.k.nrows())
    }

    /// Checks that the matrices fit one another: the fields are public, and may have been changed.
    ///
    /// # Errors
    /// A matrix is empty, or the shapes of queries, keys, values and weights do not fit one another.
    ///
    /// ```
    /// use attention::{Mask, attention};
    /// use nalgebra::dmatrix;
    ///
    /// let x = dmatrix![1.0_f64, 2.0; 3.0, 4.0];
    /// let (_, mut cache) = attention(&x, &x, &x, Mask::none())?;
    /// assert!(cache.check().is_ok());
    /// cache.weights = dmatrix![1.0];
    /// assert!(cache.check().is_err());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn check(&self) -> Result<()> {
        check_not_empty("cache.q", &self.q)?;
        check_not_empty("cache.v", &self.v)?;
        let n_k = self.v.nrows();
        check_shape("cache.k", &self.k, (n_k, self.q.ncols()), "(n_k, d_k)")?;
        let scores = (self.q.nrows(), n_k);
        check_shape("cache.weights", &self.weights, scores, "(n_q, n_k)")?;
        match &self.dropout {
            Some(factors) => check_shape("cache.dropout", factors, scores, "(n_q, n_k)"),
            None => Ok(()),
        }
    }
}

/// The gradients of a loss with respect to the queries, keys and values of [`attention`].
///
/// ```
/// use attention::{AttentionGradients, Mask, attention, attention_backward};
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![1.0_f64, 0.0; 0.0, 1.0];
/// let (output, cache) = attention(&x, &x, &x, Mask::none())?;
/// let AttentionGradients { q, k, v, .. } = attention_backward(&cache, &output)?;
/// assert_eq!((q.shape(), k.shape(), v.shape()), ((2, 2), (2, 2), (2, 2)));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionGradients<T: Float> {
    /// `∂L/∂q` (n_q, d_k).
    pub q: DMatrix<T>,
    /// `∂L/∂k` (n_k, d_k).
    pub k: DMatrix<T>,
    /// `∂L/∂v` (n_k, d_v).
    pub v: DMatrix<T>,
    /// With respect to each table in the mask's rule for scores (buckets, n_heads): see [`ScoreRule::table`](crate::ScoreRule::table).
    pub tables: Vec<DMatrix<T>>,
}

/// Returns the gradients with respect to queries, keys and values from `grad_output = ∂L/∂output`: the backward pass of [`attention`].
///
/// Shapes: `grad_output` (n_q, d_v) → (n_q, d_k), (n_k, d_k), (n_k, d_v). What the mask hides gets a gradient of exactly 0.
///
/// # Errors
/// `grad_output` doesn't have the shape of the output, or the cache's fields were changed so that they no longer fit.
///
/// ```
/// use attention::{Mask, attention, attention_backward};
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![1.0_f64, 0.0; 0.0, 1.0];
/// let (_, cache) = attention(&x, &x, &x, Mask::causal())?;
/// let gradients = attention_backward(&cache, &dmatrix![1.0, 1.0; 0.0, 0.0])?;
/// // Only the first token's output matters to this loss, and it saw itself alone.
/// assert_eq!(gradients.v, dmatrix![1.0, 1.0; 0.0, 0.0]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn attention_backward<'a, T: Float>(
    cache: &AttentionCache<T>,
    grad_output: impl Into<DMatrixView<'a, T>>,
) -> Result<AttentionGradients<T>> {
    let grad_output = grad_output.into();
    cache.check()?;
    let AttentionCache { q, k, v, weights, dropout, .. } = cache;
    check_shape("grad_output", grad_output, (q.nrows(), v.ncols()), "the output")?;
    let (scale, mask) = (scale(q.ncols()), cache.sized_mask()?);
    let (q, k, v) = (q.as_view(), k.as_view(), v.as_view());
    let head = Head { q, k, v, mask, scale, dropout: None };
    attend_backward(&head, weights, dropout.as_ref(), grad_output)
}
pub(crate) fn attend_backward<T: Float>(
    Head { q, k, v, mask, scale, .. }: &Head<T>,
    weights: &DMatrix<T>,
    dropout: Option<&DMatrix<T>>,
    grad_output: DMatrixView<T>,
) -> Result<AttentionGradients<T>> {
    let seen = |i, j| mask.allows(i, j);

    // output = weights · v
    let grad_v = masked_tr_product(&*used(weights, dropout), grad_output, seen);
    let grad_weights = product_tr(grad_output, *v); // (n_q, n_k)

    // weights used = weights ⊙ dropout
    let grad_weights = match dropout {
        Some(factors) => grad_weights.component_mul(factors),
        None => grad_weights,
    };

    // weights = softmax(scores + mask): a hidden weight is the constant 0
    let grad_weights = mask.fill_hidden(grad_weights, T::zero());
    let grad_scores = softmax_rows_backward_in_place(weights.into(), grad_weights);
    // (n_q, n_k); 0 where hidden, even beside a NaN
    let grad_scores = mask.fill_hidden(grad_scores, T::zero());

    // changed scores = rule(scores), where the mask has a rule for scores
    let (grad_scores, tables) = change_back(mask, (*q, *k), grad_scores)?;

    // scores = products / √d_k
    let grad_products = grad_scores * *scale;

    // products = q kᵀ
    let grad_q = masked_product(&grad_products, *k, seen); // (n_q, d_k)
    let grad_k = masked_tr_product(&grad_products, *q, seen); // (n_k, d_k)

    Ok(AttentionGradients { q: grad_q, k: grad_k, v: grad_v, tables })
}

/// Returns the gradients with respect to the scores from those with respect to what the mask's rule made of them, and those of its tables.
fn change_back<T: Float>(
    mask: &SizedMask,
    (q, k): (DMatrixView<T>, DMatrixView<T>),
    mut grads: DMatrix<T>, // (n_q, n_k)
) -> Result<(DMatrix<T>, Vec<DMatrix<T>>)> {
    let rule = mask.scores();
    let mut tables = rule.zero_tables();
    if rule.has_backward() {
        let scores = scaled_scores(q, k)?; // not kept, as they are rarely needed
        let mut sums = RuleGradients::new(rule);
        let columns = scores.column_iter().zip(grads.column_iter_mut());
        for (j, (scores, mut grads)) in columns.enumerate() {
            let (scores, grads) = (scores.as_slice(), grads.as_mut_slice());
            mask.change_queries_back(j, 0..scores.len(), scores, grads, &mut sums);
        }
        sums.add_to(&mut tables, mask.head());
    }
    Ok((grads, tables))
}

/// Returns `a · b` for an `a` (n_q, n_k) that is 0 where a key is not `seen`, and `b` (n_k, d).
///
/// A plain product would let a hidden NaN through, since 0 · NaN is NaN. So rows of `b` that are not finite stay out of the product,
/// and are added to the rows that see them.
pub(crate) fn masked_product<'a, T: Float>(
    a: &DMatrix<T>,
    b: impl Into<DMatrixView<'a, T>>,
    seen: impl Fn(usize, usize) -> bool,
) -> DMatrix<T> {
    let b = b.into();
    let Some(bad) = rows_not_finite(b) else { return product(a, b) };
    let mut finite = copy_of(b);
    bad.iter().for_each(|&j| finite.row_mut(j).fill(T::zero()));
    let mut product = product(a, finite.as_view());
    for j in bad {
        for i in (0..a.nrows()).filter(|&i| seen(i, j)) {
            for c in 0..b.ncols() {
                product[(i, c)] += a[(i, j)] * b[(j, c)];
            }
        }
    }
    product
}

/// Returns `aᵀ · b` for an `a` (n_q, n_k) that is 0 where a key is not `seen`, and `b` (n_q, d). See [`masked_product`].
pub(crate) fn masked_tr_product<'a, T: Float>(
    a: &DMatrix<T>,
    b: impl Into<DMatrixView<'a, T>>,
    seen: impl Fn(usize, usize) -> bool,
) -> DMatrix<T> {
    let b = b.into();
    if rows_not_finite(b).is_none() {
        return tr_product(a, b);
    }
    masked_product(&a.transpose(), b, |j, i| seen(i, j))
}

fn product<T: Float>(a: &DMatrix<T>, b: DMatrixView<T>) -> DMatrix<T> {
    product_by_nalgebra(Factor::of(a), Factor::of(b), None)
}

fn product_tr<T: Float>(a: DMatrixView<T>, b: DMatrixView<T>) -> DMatrix<T> {
    product_by_nalgebra(Factor::of(a), Factor::transposed(b), None)
}

fn tr_product<T: Float>(a: &DMatrix<T>, b: DMatrixView<T>) -> DMatrix<T> {
    product_by_nalgebra(Factor::transposed(a), Factor::of(b), None)
}

/// Returns the rows that hold a NaN or an infinity; `None` if no row does.
fn rows_not_finite<T: Float>(matrix: DMatrixView<T>) -> Option<Vec<usize>> {
    let is_finite = |x: &T| x.is_finite();
    if matrix.column_iter().all(|column| column.as_slice().iter().all(is_finite)) {
        return None;
    }
    let rows = matrix.row_iter().enumerate();
    Some(rows.filter(|(_, row)| !row.iter().all(is_finite)).map(|(i, _)| i).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_abs_diff_eq; // a NaN is far from everything; `amax` may pass it over
    use nalgebra::dmatrix;

    fn numbers(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 7 * i + 3 * j) as f64).sin())
    }

    /// The equation, written once more with plain loops over plain vectors.
    #[test]
    fn agrees_with_the_definition() {
        let (q, k, v) = (numbers(3, 4, 0), numbers(5, 4, 1), numbers(5, 2, 2));
        let (output, _) = attention(&q, &k, &v, Mask::none()).unwrap();
        for i in 0..3 {
            let score =
                |j: usize| (0..4).map(|c| q[(i, c)] * k[(j, c)]).sum::<f64>() / 2.0;
            let total: f64 = (0..5).map(|j| score(j).exp()).sum();
            for c in 0..2 {
                let expected: f64 =
                    (0..5).map(|j| score(j).exp() / total * v[(j, c)]).sum();
                assert!((output[(i, c)] - expected).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn the_future_does_not_reach_the_past() {
        let x = numbers(6, 3, 0);
        let (before, _) = attention(&x, &x, &x, Mask::causal()).unwrap();
        for t in 1..6 {
            for poison in [100.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut changed = x.clone();
                changed.row_mut(t).fill(poison);
                let (after, cache) =
                    attention(&changed, &changed, &changed, Mask::causal()).unwrap();
                // Not equal to the bit: with a NaN in sight the product takes its slow way, in another order.
                assert_abs_diff_eq!(before.rows(0, t), after.rows(0, t), epsilon = 1e-15);
                assert!(before.row(t) != after.row(t), "token {t} does not see itself");
                assert!((t + 1..6).all(|j| cache.weights[(t, j)] == 0.0)); // beside a NaN, too

                let mut grad_output = DMatrix::zeros(6, 3);
                grad_output.rows_mut(0, t).fill(1.0);
                let gradients = attention_backward(&cache, &grad_output).unwrap();
                assert!(gradients.q.rows(0, t).iter().all(|x| x.is_finite()));
                // Queries from t on see the poison: for them 0 · NaN is NaN, rightly.
                if poison == 100.0 {
                    assert!(gradients.k.rows(t, 6 - t).iter().all(|&g| g == 0.0));
                    assert!(gradients.v.rows(t, 6 - t).iter().all(|&g| g == 0.0));
                }
            }
        }
    }

    /// The first query sees the first key alone. Whatever NaN comes with it, all others get the gradients they had.
    #[test]
    fn a_nan_spoils_no_gradient_that_it_does_not_reach() {
        let inputs = [numbers(4, 3, 0), numbers(4, 2, 3)]; // q, grad_output
        let (k, v) = (numbers(4, 3, 1), numbers(4, 2, 2));
        let run = |[q, grad_output]: &[DMatrix<f64>; 2]| {
            let (_, cache) = attention(q, &k, &v, Mask::causal()).unwrap();
            attention_backward(&cache, grad_output).unwrap()
        };
        let healthy = run(&inputs);
        for poisoned in 0..2 {
            let mut inputs = inputs.clone();
            inputs[poisoned].row_mut(0).fill(f64::NAN);
            let ill = run(&inputs);
            for (ill, healthy) in
                [(ill.q, &healthy.q), (ill.k, &healthy.k), (ill.v, &healthy.v)]
            {
                assert_abs_diff_eq!(ill.rows(1, 3), healthy.rows(1, 3), epsilon = 1e-14);
            }
        }
    }

    #[test]
    fn a_query_that_sees_nothing_is_zero() {
        let (mut q, k, v) = (numbers(4, 3, 0), numbers(2, 3, 1), numbers(2, 5, 2));
        for poison in [1.0, f64::NAN] {
            q.row_mut(0).fill(poison);
            let (output, cache) = attention(&q, &k, &v, Mask::causal()).unwrap(); // rows 0 and 1 see nothing
            assert!(output.rows(0, 2).iter().all(|&x| x == 0.0));
            assert!(cache.weights.rows(0, 2).iter().all(|&x| x == 0.0));
            assert_eq!(cache.log_sum_exp[0], f64::NEG_INFINITY);
            let gradients = attention_backward(&cache, &numbers(4, 5, 3)).unwrap();
            assert!(gradients.q.rows(0, 2).iter().all(|&x| x == 0.0));
            let all = gradients.k.iter().chain(&gradients.v);
            assert!(all.clone().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn one_token_attends_to_itself() {
        let (q, v) = (dmatrix![0.3, -2.0], dmatrix![5.0, 6.0, 7.0]);
        let (output, cache) = attention(&q, &q, &v, Mask::causal()).unwrap();
        assert_eq!(cache.weights, dmatrix![1.0]);
        assert_eq!(output, v);
    }

    #[test]
    fn a_changed_cache_is_an_error_not_a_panic() {
        let x = numbers(3, 2, 0);
        let (_, cache) = attention(&x, &x, &x, Mask::none()).unwrap();
        let mut wrong = cache.clone();
        wrong.weights = numbers(2, 3, 0);
        assert!(attention_backward(&wrong, &x).is_err());
        let mut wrong = cache.clone();
        wrong.k = numbers(2, 2, 0);
        assert!(attention_backward(&wrong, &x).is_err());
        let mut wrong = cache;
        wrong.mask = Mask::padding(&[true]).unwrap();
        assert!(attention_backward(&wrong, &x).is_err());
    }
}
