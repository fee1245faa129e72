//! The algorithm as the book explains it: one tile of scores at a time, forward and backward.

use super::{FlashOutput, Head, Inputs, OnlineSoftmax, Tiles};
use crate::Float;
use crate::blocks::blocks;
use crate::dot_product::{AttentionGradients, masked_product, masked_tr_product};
use crate::error::Result;
use crate::mask::{Visibility, neg_infinity};
use crate::score_rule::RuleGradients;
use crate::softmax::log_sum_exp_or_zero;
use nalgebra::{DMatrix, DMatrixView, DVector, DVectorView};
use std::ops::Range;

/// [`attention`](crate::attention()) of every head, one tile of scores at a time: exact, without the matrix of weights.
///
/// A tile of which the mask leaves nothing is not computed.
///
/// Shapes: see [`Inputs`]; → output (n_q, n_heads · d_v), log-sum-exp (n_q, n_heads). Extra memory: one tile of scores and
/// one block of queries with its output, whatever n.
///
/// # Errors
/// A size of `tiles` is 0.
///
/// # Source
/// T. Dao, *FlashAttention-2* (2023), algorithm 1.
///
/// ```
/// use attention::{Mask, attention, flash::{Inputs, Tiles, tiled_attention}};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(100, 4, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let forward = tiled_attention(&Inputs::new(&x, &x, &x, Mask::none())?, Tiles::default())?;
/// let (expected, _) = attention(&x, &x, &x, Mask::none())?;
/// assert!((forward.output - expected).amax() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn tiled_attention<T: Float>(
    inputs: &Inputs<T>,
    tiles: Tiles,
) -> Result<FlashOutput<T>> {
    tiles.check()?;
    let mut forward = FlashOutput::zeros(inputs);
    let (n_q, d_v) = (inputs.lengths().0, inputs.widths().1);
    for (h, head) in inputs.heads().enumerate() {
        for rows in blocks(n_q, tiles.queries) {
            let state = attend(&head, rows.clone(), tiles.keys)?;
            let low = state.log_sum_exp_low(); // (rows)
            let (output, log_sum_exp) = state.finish(); // (rows, d_v), (rows)
            let place = (rows.start, h * d_v);
            forward.output.view_mut(place, output.shape()).copy_from(&output);
            let place = (rows.start, h);
            forward.log_sum_exp.view_mut(place, (rows.len(), 1)).copy_from(&log_sum_exp);
            forward.log_sum_exp_low.view_mut(place, (rows.len(), 1)).copy_from(&low);
        }
    }
    Ok(forward)
}
/// One block of queries, and all keys that it sees, a tile at a time.
fn attend<T: Float>(
    head: &Head<T>,
    rows: Range<usize>,
    tile_keys: usize,
) -> Result<OnlineSoftmax<T>> {
    let q = head.q.rows_range(rows.clone()); // (rows, d_k), stays for the whole walk
    let mut state = OnlineSoftmax::new(rows.len(), head.v.ncols())?;
    for columns in blocks(head.k.nrows(), tile_keys) {
        if head.mask.visibility(rows.clone(), columns.clone()) == Visibility::Hidden {
            continue; // nothing to see: no product, no exponential
        }
        let k = head.k.rows_range(columns.clone()); // (columns, d_k)
        let v = head.v.rows_range(columns.clone()); // (columns, d_v)
        let scores = (q * head.scale) * k.transpose(); // (rows, columns)
        let mut scores = head.changed(scores, &rows, &columns); // if there is a bias
        head.hide(&mut scores, rows.clone(), columns.clone(), neg_infinity());
        state.absorb_dropping(&scores, v, |weights| {
            head.dropped(weights, &rows, &columns)
        })?;
    }
    Ok(state)
}

impl<T: Float> Head<'_, T> {
    /// The scores of a tile as the mask's rule for scores makes them, if it has one.
    fn changed(
        &self,
        mut scores: DMatrix<T>,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> DMatrix<T> {
        if !self.mask.scores().is_none() {
            for (mut column, j) in scores.column_iter_mut().zip(columns.clone()) {
                self.mask.change_queries(j, rows.clone(), column.as_mut_slice());
            }
        }
        scores
    }

    /// The weights of a tile, or their gradients, with the factors of dropout, if there is dropout.
    fn dropped(
        &self,
        mut weights: DMatrix<T>,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> DMatrix<T> {
        if let Some(dropout) = self.dropout {
            for (mut column, j) in weights.column_iter_mut().zip(columns.clone()) {
                dropout.multiply_queries(rows.start, j, column.as_mut_slice());
            }
        }
        weights
    }

    /// Turns the gradients of a tile's changed scores into those of `scores`, as they were before.
    fn change_back(
        &self,
        scores: &DMatrix<T>,
        grads: &mut DMatrix<T>,
        (rows, columns): (&Range<usize>, &Range<usize>),
        into: &mut RuleGradients,
    ) {
        if !self.mask.scores().has_backward() {
            return;
        }
        let lines = scores.column_iter().zip(grads.column_iter_mut());
        for ((scores, mut grads), j) in lines.zip(columns.clone()) {
            let (scores, grads) = (scores.as_slice(), grads.as_mut_slice());
            self.mask.change_queries_back(j, rows.clone(), scores, grads, into);
        }
    }

    /// Writes `hidden` over the entries of a tile that the mask hides.
    fn hide(
        &self,
        tile: &mut DMatrix<T>,
        rows: Range<usize>,
        columns: Range<usize>,
        hidden: T,
    ) {
        if self.mask.visibility(rows.clone(), columns.clone()) == Visibility::Full {
            return;
        }
        for (mut column, j) in tile.column_iter_mut().zip(columns) {
            self.mask.hide_queries(j, rows.clone(), column.as_mut_slice(), hidden);
        }
    }
}

/// Returns [`attention_backward`](crate::attention_backward()) of every head, one tile at a time: the weights are not kept, they are
/// computed again from the scores and the log-sum-exp.
///
/// Shapes: `forward` as an engine returned it for these inputs, `grad_output`
/// (n_q, n_heads · d_v) → (n_q, n_heads · d_k), (n_k, n_heads · d_k), (n_k, n_heads · d_v). What the mask hides gets a gradient of
/// exactly 0.
///
/// If scores are so large that their last digit decides (about 1/ε, 10⁷ in `f32`), take the tiles of the forward pass:
/// in tiles of other sizes a score may be rounded otherwise, and a weight recomputed from it would be another.
///
/// # Errors
/// `forward` or `grad_output` doesn't have the shape of these inputs' output, or a size of `tiles` is 0.
///
/// # Source
/// T. Dao et al., *FlashAttention* (2022), algorithm 4.
///
/// ```
/// use attention::flash::{Inputs, Tiles, tiled_attention, tiled_attention_backward};
/// use attention::{Mask, attention, attention_backward};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(100, 4, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?;
/// let forward = tiled_attention(&inputs, Tiles::default())?;
/// let gradients = tiled_attention_backward(&inputs, &forward, &x, Tiles::default())?;
///
/// let (_, cache) = attention(&x, &x, &x, Mask::causal())?;
/// let expected = attention_backward(&cache, &x)?;
/// assert!((gradients.q - expected.q).amax() < 1e-13);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn tiled_attention_backward<'g, T: Float>(
    inputs: &Inputs<T>,
    forward: &FlashOutput<T>,
    grad_output: impl Into<DMatrixView<'g, T>>,
    tiles: Tiles,
) -> Result<AttentionGradients<T>> {
    let grad_output = grad_output.into();
    tiles.check()?;
    inputs.check_output(forward)?;
    inputs.check_grad_output(grad_output)?;
    let ((n_q, n_k), (d_k, d_v)) = (inputs.lengths(), inputs.widths());
    let mut gradients = inputs.zero_gradients();
    for (h, head) in inputs.heads().enumerate() {
        let g = inputs.kv_head(h);
        let mut of_tables = RuleGradients::new(head.mask.scores());
        let output = forward.output.columns(h * d_v, d_v);
        let grad_output = grad_output.columns(h * d_v, d_v);
        let (log_sum_exp, low) =
            (forward.log_sum_exp.column(h), forward.log_sum_exp_low.column(h));
        let mut grad_q = gradients.q.columns_mut(h * d_k, d_k);
        // D = rowsum(grad_output ⊙ output), the one number a row that softmax needs
        let d: DVector<T> = grad_output.component_mul(&output).column_sum(); // (n_q)
        for columns in blocks(n_k, tiles.keys) {
            // These four stay for the whole walk down the queries.
            let k = head.k.rows_range(columns.clone()).into_owned(); // (columns, d_k)
            let v = head.v.rows_range(columns.clone()).into_owned(); // (columns, d_v)
            let mut grad_k = DMatrix::zeros(columns.len(), d_k);
            let mut grad_v = DMatrix::zeros(columns.len(), d_v);
            for rows in blocks(n_q, tiles.queries) {
                let seen = head.mask.visibility(rows.clone(), columns.clone());
                if seen == Visibility::Hidden {
                    continue;
                }
                let tile = Tile {
                    q: head.q.rows_range(rows.clone()).into_owned(), // (rows, d_k)
                    k: &k,
                    v: &v,
                    grad_output: grad_output.rows_range(rows.clone()).into_owned(),
                    log_sum_exp: log_sum_exp.rows_range(rows.clone()),
                    log_sum_exp_low: low.rows_range(rows.clone()),
                    d: d.rows_range(rows.clone()),
                };
                let [from_q, from_k, from_v] =
                    tile.backward(&head, (rows.clone(), columns.clone()), &mut of_tables);
                let mut grad_q = grad_q.rows_range_mut(rows);
                grad_q += from_q; // every block of keys adds to it
                grad_k += from_k;
                grad_v += from_v;
            }
            let (place_k, place_v) = ((columns.start, g * d_k), (columns.start, g * d_v));
            let mut sum_k = gradients.k.view_mut(place_k, grad_k.shape());
            sum_k += grad_k; // over all heads that share these keys
            let mut sum_v = gradients.v.view_mut(place_v, grad_v.shape());
            sum_v += grad_v;
        }
        of_tables.add_to(&mut gradients.tables, head.mask.head());
    }
    Ok(gradients)
}

/// The inputs of the backward pass of one tile.
struct Tile<'a, T: Float> {
    q: DMatrix<T>,                       // (rows, d_k)
    k: &'a DMatrix<T>,                   // (columns, d_k)
    v: &'a DMatrix<T>,                   // (columns, d_v)
    grad_output: DMatrix<T>,             // (rows, d_v)
    log_sum_exp: DVectorView<'a, T>,     // (rows)
    log_sum_exp_low: DVectorView<'a, T>, // (rows)
    d: DVectorView<'a, T>,               // (rows)
}

impl<T: Float> Tile<'_, T> {
    /// The shares of this tile in the gradients of its queries, keys and values.
    fn backward(
        &self,
        head: &Head<T>,
        (rows, columns): (Range<usize>, Range<usize>),
        of_tables: &mut RuleGradients,
    ) -> [DMatrix<T>; 3] {
        let Tile { q, k, v, grad_output, log_sum_exp, log_sum_exp_low: low, d } = self;
        let seen = |i, j| head.mask.allows(rows.start + i, columns.start + j);

        // The forward pass once more; but with the log-sum-exp at hand, no softmax is needed.
        let scores = (q * head.scale) * k.transpose(); // (rows, columns)
        let changed = head.changed(scores.clone(), &rows, &columns); // if there is a bias
        let mut weights = by_row(&changed, |score, i| {
            (score - log_sum_exp_or_zero(log_sum_exp[i]) - low[i]).exp()
        });
        head.hide(&mut weights, rows.clone(), columns.clone(), T::zero());

        // output = (weights, of which dropout may drop some) · v
        let used = head.dropped(weights.clone(), &rows, &columns);
        let grad_v = masked_tr_product(&used, grad_output, seen); // (columns, d_v)
        let grad_weights = grad_output * v.transpose(); // (rows, columns)
        let grad_weights = head.dropped(grad_weights, &rows, &columns);

        // weights = softmax(scores): what a row takes off is D, known beforehand
        let grad_scores = by_row(&grad_weights, |grad, i| grad - d[i]);
        let mut grad_scores = weights.component_mul(&grad_scores);
        head.hide(&mut grad_scores, rows.clone(), columns.clone(), T::zero());
        head.change_back(&scores, &mut grad_scores, (&rows, &columns), of_tables);

        // scores = q kᵀ / √d_k
        let grad_products = grad_scores * head.scale;
        let grad_q = masked_product(&grad_products, *k, seen); // (rows, d_k)
        let grad_k = masked_tr_product(&grad_products, q, seen); // (columns, d_k)
        [grad_q, grad_k, grad_v]
    }
}

/// `f` of each entry of `matrix` and the number of its row.
fn by_row<T: Float>(matrix: &DMatrix<T>, f: impl Fn(T, usize) -> T) -> DMatrix<T> {
    #[cfg(test)]
    super::tests::count_step();
    DMatrix::from_fn(matrix.nrows(), matrix.ncols(), |i, j| f(matrix[(i, j)], i))
}
