//! # Build it yourself: backward by tiles
//!
//! hard, 60 minutes, without `attention::`
//!
//! `tiled_backward` returns the gradients of queries, keys and values without ever holding more weights than one tile has. It gets what
//! the forward pass kept, the output $(n_q, d_v)$ and the log-sum-exp of each query, and the gradient of the output. For each tile it computes
//! the scores once more, and the weights from them. The softmax needs one number of a whole row, $D$, which must be known before the first tile:
//! the chapter shows that output and gradient give it away. `tiles` and `rows` are those of `tiled`.
//!
//! # Hint
//!
//! A weight is $e^{s - \mathrm{lse}}$, with the log-sum-exp of the *whole* row. Where `sees` says no, it is 0. With these weights, what else
//! needs the mask?
//!
//! # Hint
//!
//! Inside of a tile it's `attention_backward`, but for the mean of each row: $D_i = \sum_c dO_{ic} O_{ic}$, known beforehand. Which of the
//! three gradients get a share from every tile?
//!
//! # Hint
//!
//! `let mut sum = grad_q.rows_range_mut(queries.clone()); sum += …` adds a share to its rows. For the keys it is the transpose of
//! `grad_products` times the tile's queries, and for the values the transpose of the weights times the tile's rows of `grad_output`.

use attention::plain::*;

// PROGRAM scores online tiled tiled_backward
// FAULT mean-of-the-tile: is D the sum over the whole row
// - weights[(i, j)] * (grad_weights[(i, j)] - means[queries.start + i])
// > weights[(i, j)] * (grad_weights[(i, j)] - weights.row(i).dot(&grad_weights.row(i)))
// FAULT mean-of-another-query: counted from the first query of all
// - weights[(i, j)] * (grad_weights[(i, j)] - means[queries.start + i])
// > weights[(i, j)] * (grad_weights[(i, j)] - means[i])
// FAULT mean-left-out: is D the sum over the whole row
// - weights[(i, j)] * (grad_weights[(i, j)] - means[queries.start + i])
// > weights[(i, j)] * grad_weights[(i, j)]
// FAULT no-scale: 1 / √d stands in dQ and in dK
// - }) / (q.ncols() as f64).sqrt();
// > });
// FAULT lse-of-another-query: counted from the first query of all
// - let weight = (scores[(i, j)] - log_sum_exp[query]).exp();
// > let weight = (scores[(i, j)] - log_sum_exp[i]).exp();
// FAULT two-exponentials: what is the exponential of 1,000
// - let weight = (scores[(i, j)] - log_sum_exp[query]).exp();
// > let weight = scores[(i, j)].exp() / log_sum_exp[query].exp();
// FAULT no-mask: hidden pairs add nothing
// - if sees(query, key) { weight } else { 0.0 }
// > if sees(query, key) { weight } else { weight }
// FAULT last-tile-alone: every tile of keys adds to dQ
// - sum += &grad_products * k_tile; // every tile of keys adds to it
// > sum.copy_from(&(&grad_products * k_tile));
// FAULT last-queries-alone: every tile of queries adds to dK and dV
// - sum += grad_products.transpose() * q_tile;
// > sum.copy_from(&(grad_products.transpose() * q_tile));
// FAULT value-gradient: is dV a sum of weights times dO
// - sum += weights.transpose() * grad_tile;
// > sum += grad_products.transpose() * grad_tile;

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DVector;

    fn draw(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// The output, the log-sum-exps, and the gradients, all with whole matrices.
    fn at_once(
        [q, k, v]: [&Matrix; 3],
        grad_output: &Matrix,
        sees: impl Fn(usize, usize) -> bool,
    ) -> (Matrix, DVector<f64>, [Matrix; 3]) {
        let root = (q.ncols() as f64).sqrt();
        let scores = q * k.transpose() / root;
        let seen = |i: usize, j: usize| if sees(i, j) { scores[(i, j)] } else { -1e300 };
        let lse = DVector::from_fn(q.nrows(), |i, _| {
            let max = (0..k.nrows()).map(|j| seen(i, j)).fold(-1e300, f64::max);
            max + (0..k.nrows()).map(|j| (seen(i, j) - max).exp()).sum::<f64>().ln()
        });
        let weights =
            Matrix::from_fn(q.nrows(), k.nrows(), |i, j| (seen(i, j) - lse[i]).exp());
        let grad_weights = grad_output * v.transpose();
        let grad_products = Matrix::from_fn(q.nrows(), k.nrows(), |i, j| {
            let mean = weights.row(i).dot(&grad_weights.row(i));
            weights[(i, j)] * (grad_weights[(i, j)] - mean) / root
        });
        let grads = [
            &grad_products * k,
            grad_products.transpose() * q,
            weights.transpose() * grad_output,
        ];
        (weights * v, lse, grads)
    }

    /// All scores grow with `size`.
    fn compare(
        size: f64,
        [n_q, n_k]: [usize; 2],
        sees: impl Fn(usize, usize) -> bool,
        tile: usize,
        question: &str,
    ) {
        let (q, k, v, grad) =
            (draw(n_q, 4, 0) * size, draw(n_k, 4, 1), draw(n_k, 3, 2), draw(n_q, 3, 3));
        let (output, lse, [grad_q, grad_k, grad_v]) = at_once([&q, &k, &v], &grad, &sees);
        let [came_q, came_k, came_v] =
            tiled_backward([&q, &k, &v], (&output, &lse), &grad, &sees, tile);
        for (name, came, right) in
            [("dV", came_v, grad_v), ("dQ", came_q, grad_q), ("dK", came_k, grad_k)]
        {
            let what = format!("{n_q} queries, {n_k} keys, tiles of {tile}: {name}");
            assert!(
                came.shape() == right.shape(),
                "{what} should be {:?}, and is {:?}",
                right.shape(),
                came.shape()
            );
            assert!(
                size != 1.0 || (0.5 * &came - &right).amax() > 1e-12,
                "{what} is twice as large as it should be: 1 / √d stands in dQ and in dK"
            );
            let off = (&came - &right).amax() / size;
            assert!(off < 1e-11, "{what} is off by {off:.2e}: {question}");
        }
    }

    #[test]
    fn one_tile_is_the_backward_pass() {
        let question = "is dV a sum of weights times dO? And the gradient of a score is its weight times what is left of that weight's gradient without the mean of the row: is D the sum over the whole row?";
        compare(1.0, [5, 7], |_, _| true, 7, question);
    }

    #[test]
    fn tiles_of_keys_add_up() {
        for n_k in [3, 7] {
            let question = "every tile of keys adds to dQ; and is D the sum over the whole row, not over the tile?";
            compare(1.0, [2, n_k], |_, _| true, 2, question);
        }
    }

    #[test]
    fn tiles_of_queries_add_up() {
        let question = "every tile of queries adds to dK and dV, and log-sum-exp and D are counted from the first query of all";
        for tile in [3, 2, 1] {
            compare(1.0, [7, 3], |_, _| true, tile, question);
        }
    }

    #[test]
    fn hidden_pairs_add_nothing() {
        for tile in [8, 4, 3, 1] {
            let question = "hidden pairs add nothing: their weights are 0";
            compare(1.0, [8, 8], |i, j| j <= i, tile, question);
            compare(1.0, [8, 8], |i, j| j <= i && i - j < 3, tile, question);
        }
    }

    #[test]
    fn large_scores_are_no_trouble() {
        let question = "scores and log-sum-exps are in the thousands: what is the exponential of 1,000, and of −1,000?";
        compare(3000.0, [5, 7], |_, _| true, 2, question);
    }
}
