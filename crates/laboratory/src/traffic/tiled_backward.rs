//! The backward pass of attention in tiles on the machine that counts: weights are computed a second time, and kept nowhere.

use super::programs::{check, check_home};
use super::tiled::{check_smallest, check_tiles, hide, sum_of_products};
use super::{Memory, Result, SlowMatrix, Tile, blocks};
use attention::engine::{check_shape, scale};
use attention::{Float, Mask, mask::Visibility};

/// The backward pass of [`tiled_attention`](super::tiled_attention): the gradients of queries, keys and values.
///
/// `output` and `log_sum_exp` are what the forward pass returned. A first pass computes a number for each query, D = Σ
/// grad_output ⊙ output along the row, which is the mean of the weights' gradients that softmax asks for: Σ_j p_j ⟨g,
/// v_j⟩ = ⟨g, Σ_j p_j v_j⟩. The second pass computes scores and weights of each tile again, and turns them into
/// gradients.
///
/// There the keys are the outer loop. A tile has gradients for its queries and for its keys; one of the two can be
/// added up in fast memory, and the other is read and written again for each tile. A key brings two gradients (its own,
/// and its value's) and a query one. So the keys stay, and the gradients of the queries come and go.
///
/// The first pass moves n_q·(2d_v + d_k + 1) numbers. Without a mask the second one moves
///
/// 2·n_k·(d_k + d_v) + ⌈n_k / b_k⌉·n_q·(3d_k + d_v + 2)
///
/// numbers: keys, values and their gradients once, and for every block of b_k keys all queries, their gradient, read
/// and written, that of the output, and two numbers for each query. If the tiles fill a fast memory of M numbers, as those
/// of [`tiles_for_backward`] do, then b_k ≈ M / 4d for d_k = d_v = d, and self-attention moves about 7nd + 16n²d² / M.
/// With the queries outside it would be 18n²d² / M: six of d numbers for each key, and b_q ≈ M / 3d. A causal mask
/// leaves about half of what stands with ⌈n_k / b_k⌉.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v), `output` (n_q, d_v), `log_sum_exp` (n_q, 1), `grad_output`
/// (n_q, d_v) → (n_q, d_k), (n_k, d_k), (n_k, d_v). All entries must be finite, except a log-sum-exp of −∞ where a
/// query sees nothing.
///
/// # Errors
/// Shapes do not fit, a matrix lies in another machine, or `tiles` has a 0 or asks for more room than fast memory has:
/// see [`tiles_for_backward`].
///
/// # Source
/// T. Dao et al., *FlashAttention* (2022), algorithm 4, with D from appendix B.2.
///
/// ```
/// use attention::{Mask, attention, attention_backward};
/// use laboratory::traffic::{Memory, tiled_attention, tiled_attention_backward};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(6, 2, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let (memory, tiles) = (Memory::new(60), (2, 3));
/// let [q, k, v, g] = ["q", "k", "v", "g"].map(|name| memory.put(name, x.clone()));
/// let (o, lse) = tiled_attention(&memory, [&q, &k, &v], Mask::none(), tiles)?;
/// let [grad_q, _, _] =
///     tiled_attention_backward(&memory, [&q, &k, &v], [&o, &lse], &g, Mask::none(), tiles)?;
///
/// let (_, cache) = attention(&x, &x, &x, Mask::none())?;
/// let expected = attention_backward(&cache, &x)?;
/// assert!((grad_q.into_matrix() - expected.q).amax() < 1e-14);
/// assert_eq!(memory.report().matrix("grad_q").read, 2 * 6 * 2); // once for each block of keys
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn tiled_attention_backward<'m, T: Float>(
    memory: &'m Memory<T>,
    [q, k, v]: [&SlowMatrix<'m, T>; 3],
    [output, log_sum_exp]: [&SlowMatrix<'m, T>; 2],
    grad_output: &SlowMatrix<'m, T>,
    mask: impl Into<Mask>,
    tiles: (usize, usize),
) -> Result<[SlowMatrix<'m, T>; 3]> {
    let mask = check(memory, [q, k, v], mask)?;
    let [o, lse] = [("output", output), ("log_sum_exp", log_sum_exp)];
    check_home(memory, &[o, lse, ("grad_output", grad_output)])?;
    let ((n_q, n_k), d_k, d_v) = (mask.shape(), q.shape().1, v.shape().1);
    check_shape("output", &output.matrix, (n_q, d_v), "(n_q, d_v)")?;
    check_shape("log_sum_exp", &log_sum_exp.matrix, (n_q, 1), "(n_q, 1)")?;
    check_shape("grad_output", &grad_output.matrix, (n_q, d_v), "the output")?;
    check_tiles(memory, room, tiles, [n_q, n_k, d_k, d_v])?;

    memory.pass("row sums");
    let mut grad_q = memory.allocate("grad_q", n_q, d_k)?;
    let mut row_sums = memory.allocate("row_sums", n_q, 1)?;
    for i in 0..n_q {
        let o_i = output.load(i..i + 1, 0..d_v)?;
        let grad_o_i = grad_output.load(i..i + 1, 0..d_v)?;
        let mut sum = memory.tile(1, 1)?; // D
        sum.add_product_tr(&o_i, &grad_o_i)?;
        row_sums.store((i, 0), &sum)?;
        grad_q.store((i, 0), &memory.tile(1, d_k)?)?; // zeros, to be added to
    }

    memory.pass("tiles, backward");
    let mut grad_k = memory.allocate("grad_k", n_k, d_k)?;
    let mut grad_v = memory.allocate("grad_v", n_k, d_v)?;
    for columns in blocks(n_k, tiles.1) {
        let k_j = k.load(columns.clone(), 0..d_k)?; // (b_k, d_k)
        let v_j = v.load(columns.clone(), 0..d_v)?; // (b_k, d_v)
        let mut grad_k_j = memory.tile(columns.len(), d_k)?;
        let mut grad_v_j = memory.tile(columns.len(), d_v)?;
        for rows in blocks(n_q, tiles.0) {
            let visibility = mask.visibility(rows.clone(), columns.clone());
            if visibility == Visibility::Hidden {
                continue; // costs nothing
            }
            let q_i = q.load(rows.clone(), 0..d_k)?; // (b_q, d_k)
            let grad_o_i = grad_output.load(rows.clone(), 0..d_v)?; // (b_q, d_v)
            let lse = log_sum_exp.load(rows.clone(), 0..1)?; // (b_q, 1)
            let row_sums = row_sums.load(rows.clone(), 0..1)?; // (b_q, 1)

            // weights = exp(q kᵀ / √d_k − log-sum-exp)
            let mut weights = memory.tile(rows.len(), columns.len())?; // (b_q, b_k)
            weights.add_product_tr(&q_i, &k_j)?;
            exponentials(&mut weights, scale(d_k), &lse);
            if visibility == Visibility::Partial {
                hide(&mut weights, &mask, (rows.start, columns.start), T::zero());
            }
            // output = weights · v
            grad_v_j.add_tr_product(&weights, &grad_o_i)?;
            let mut grad = memory.tile(rows.len(), columns.len())?; // of the weights
            grad.add_product_tr(&grad_o_i, &v_j)?;
            // weights = softmax(q kᵀ / √d_k)
            through_softmax(&mut grad, &weights, &row_sums, scale(d_k));
            // now of q kᵀ
            let mut grad_q_i = grad_q.load(rows.clone(), 0..d_k)?;
            grad_q_i.add_product(&grad, &k_j)?;
            grad_q.store((rows.start, 0), &grad_q_i)?;
            grad_k_j.add_tr_product(&grad, &q_i)?;
        }
        grad_k.store((columns.start, 0), &grad_k_j)?;
        grad_v.store((columns.start, 0), &grad_v_j)?;
    }
    Ok([grad_q, grad_k, grad_v])
}

/// From products to weights. A row that sees nothing, whose log-sum-exp is −∞, is hidden afterwards.
fn exponentials<T: Float>(products: &mut Tile<T>, scale: T, lse: &Tile<T>) {
    for (mut row, &lse) in products.view_mut().row_iter_mut().zip(lse.view().iter()) {
        row.apply(|s| *s = (*s * scale - lse).exp());
    }
}

/// From the gradients of the weights to those of the products: `p ⊙ (g − D) / √d_k`.
fn through_softmax<T: Float>(
    grad: &mut Tile<T>,
    weights: &Tile<T>,
    row_sums: &Tile<T>,
    scale: T,
) {
    let (weights, row_sums) = (weights.view(), row_sums.view());
    for (i, mut row) in grad.view_mut().row_iter_mut().enumerate() {
        let sum = row_sums[i];
        row.zip_apply(&weights.row(i), |g, p| *g = p * (*g - sum) * scale);
    }
}

// ---------------------------------------------------------------------------------------------------- room

/// The tiles with which [`tiled_attention_backward`] moves least: as many keys as there is room for beside one query,
/// then as many queries as still fit.
///
/// Keys, values and their gradients, b_k·2(d_k + d_v), queries with their gradient and that of their output and two
/// numbers for each, b_q·(2d_k + d_v + 2), weights and their gradients, 2·b_q·b_k, share fast memory. See
/// [`tiles_for`](super::tiles_for), where it is the other way round.
///
/// # Errors
/// A width is 0, or fast memory has no room for a tile of one query and one key.
///
/// ```
/// use laboratory::traffic::tiles_for_backward;
///
/// assert_eq!(tiles_for_backward(32_768, 64, 64)?, (1, 126));
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn tiles_for_backward(
    capacity: usize,
    d_k: usize,
    d_v: usize,
) -> Result<(usize, usize)> {
    let needed = check_smallest(room, capacity, d_k, d_v)?;
    let of_query = 2 * d_k + d_v + 2; // no overflow, since one tile fits
    let of_key = 2 * (d_k + d_v);
    let keys = 1 + (capacity - needed) / (of_key + 2);
    let queries = (capacity - keys * of_key) / (of_query + 2 * keys);
    Ok((queries, keys))
}

fn room((b_q, b_k): (usize, usize), d_k: usize, d_v: usize) -> u128 {
    let with_their_gradients = sum_of_products(&[
        [b_q, d_k], // queries
        [b_k, d_k], // keys
        [b_k, d_v], // values
        [b_q, b_k], // weights
    ]);
    let alone = sum_of_products(&[
        [b_q, d_v], // gradients of the output
        [b_q, 2],   // log-sum-exp and D
    ]);
    with_their_gradients.saturating_mul(2).saturating_add(alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::samples::{
        Moved, ROOMY, Ran, assert_close, assert_needs_room_of_tiles, attended, gradients,
        random_inputs, run, total,
    };
    use crate::traffic::{chunked_attention, tiled_attention};
    use attention::Mask;
    use nalgebra::DMatrix;

    /// The backward pass from what the crate's forward pass returns.
    fn run_backward(
        [q, k, v, grad_output]: [&DMatrix<f64>; 4],
        mask: &Mask,
        capacity: usize,
        tiles: (usize, usize),
    ) -> Result<Ran<3>> {
        let [output, lse] = attended([q, k, v], mask);
        run([q, k, v], capacity, |memory, inputs| {
            let output = memory.put("output", output.clone());
            let lse = memory.put("log_sum_exp", lse.clone());
            let g = memory.put("grad_output", grad_output.clone());
            tiled_attention_backward(memory, inputs, [&output, &lse], &g, mask, tiles)
        })
    }

    /// D and zeros first; then keys, values and their gradients once, and what belongs to the queries of each tile that is not
    /// hidden.
    fn moved([n_q, n_k, d_k, d_v]: [usize; 4], queries: usize) -> Vec<Moved> {
        let second = "tiles, backward";
        vec![
            ("row sums", "output", n_q * d_v, 0),
            ("row sums", "grad_output", n_q * d_v, 0),
            ("row sums", "row_sums", 0, n_q),
            ("row sums", "grad_q", 0, n_q * d_k),
            (second, "k", n_k * d_k, 0),
            (second, "v", n_k * d_v, 0),
            (second, "q", queries * d_k, 0),
            (second, "grad_output", queries * d_v, 0),
            (second, "log_sum_exp", queries, 0),
            (second, "row_sums", queries, 0),
            (second, "grad_q", queries * d_k, queries * d_k),
            (second, "grad_k", 0, n_k * d_k),
            (second, "grad_v", 0, n_k * d_v),
        ]
    }

    /// Without a mask every block of keys sees all queries.
    fn moved_without_mask(
        sizes @ [n_q, n_k, ..]: [usize; 4],
        (_, b_k): (usize, usize),
    ) -> Vec<Moved> {
        moved(sizes, n_k.div_ceil(b_k) * n_q)
    }

    #[test]
    fn agrees_and_moves_what_the_formula_says_with_room_for_just_that() {
        let moved = |sizes, [_, queries]: [usize; 2]| moved(sizes, queries);
        assert_needs_room_of_tiles(room, run_backward, moved, gradients);
    }

    /// The tiled forward pass leaves all that the backward pass asks for; nothing of another program is needed.
    #[test]
    fn forward_and_backward() {
        let inputs @ [q, k, v, g] = &random_inputs([7, 9, 3, 2]);
        let mask = Mask::causal();
        let expected = gradients(inputs.each_ref(), &mask);
        for chunked in [true, false] {
            let (results, ..) = run([q, k, v], ROOMY, |memory, inputs| {
                let (output, lse) = if chunked {
                    chunked_attention(memory, inputs, &mask, 3)?
                } else {
                    tiled_attention(memory, inputs, &mask, (2, 4))?
                };
                let (kept, g) = ([&output, &lse], memory.put("", g.clone()));
                tiled_attention_backward(memory, inputs, kept, &g, &mask, (4, 2))
            })
            .unwrap();
            assert_close(&results, &expected, "forward and backward");
        }
    }

    /// No other tiles that fit the same memory move less, and none that fit are larger.
    #[test]
    fn the_choice_is_the_best() {
        for capacity in [50, 100, 333, 900] {
            let moved = |tiles| total(&moved_without_mask([60, 60, 4, 3], tiles));
            let fits = |tiles| room(tiles, 4, 3) <= capacity as u128;
            let (b_q, b_k) = tiles_for_backward(capacity, 4, 3).unwrap();
            let all = (1..=60).flat_map(|b_q| (1..=60).map(move |b_k| (b_q, b_k)));
            let best = all.filter(|&tiles| fits(tiles)).map(moved).min();
            assert_eq!(Some(moved((b_q, b_k))), best);
            assert!(!fits((b_q + 1, b_k)) && !fits((1, b_k + 1)));
        }
        let least = room((1, 1), 4, 3) as usize;
        assert_eq!(tiles_for_backward(least, 4, 3).unwrap(), (1, 1));
        assert!(tiles_for_backward(least - 1, 4, 3).is_err());
    }
}
