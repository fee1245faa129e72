use super::{Matrix, Partial, scores};
use nalgebra::DVector;
use std::ops::Range;

// ANCHOR: tiles
/// The ranges that cut 0..n into tiles; the last one may be shorter.
fn tiles(n: usize, tile: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(tile).map(move |start| start..n.min(start + tile))
}

fn rows(matrix: &Matrix, range: &Range<usize>) -> Matrix {
    matrix.rows_range(range.clone()).into_owned()
}
// ANCHOR_END: tiles

// ANCHOR: tiled
/// The output of attention and the log-sum-exp of each query, by one tile after another.
pub fn tiled(
    [q, k, v]: [&Matrix; 3],
    sees: impl Fn(usize, usize) -> bool,
    tile: usize,
) -> (Matrix, DVector<f64>) {
    let mut output = Matrix::zeros(q.nrows(), v.ncols());
    let mut log_sum_exp = DVector::zeros(q.nrows());
    for queries in tiles(q.nrows(), tile) {
        let mut partials: Vec<_> =
            queries.clone().map(|_| Partial::new(v.ncols())).collect();
        for keys in tiles(k.nrows(), tile) {
            let scores = scores(&rows(q, &queries), &rows(k, &keys));
            for (i, query) in queries.clone().enumerate() {
                for (j, key) in keys.clone().enumerate() {
                    if sees(query, key) {
                        partials[i].absorb(scores[(i, j)], &v.row(key).into_owned());
                    }
                }
            }
        }
        for (query, partial) in queries.zip(partials) {
            let (row, lse) = partial.finish();
            output.set_row(query, &row);
            log_sum_exp[query] = lse;
        }
    }
    (output, log_sum_exp)
}
// ANCHOR_END: tiled

// ANCHOR: walk_backward
/// The gradients of queries, keys and values. The weights of a tile come back from its
/// scores and the log-sum-exp of the rows.
pub fn tiled_backward(
    [q, k, v]: [&Matrix; 3],
    (output, log_sum_exp): (&Matrix, &DVector<f64>), // of the forward pass
    grad_output: &Matrix,
    sees: impl Fn(usize, usize) -> bool,
    tile: usize,
) -> [Matrix; 3] {
    let [mut grad_q, mut grad_k, mut grad_v] = [q, k, v].map(|matrix| 0.0 * matrix);
    // D (n_q), the weighted mean of a row of grad_weights: it is also the product of the
    // row's output with the gradient of that output.
    let means = grad_output.component_mul(output).column_sum();
    for keys in tiles(k.nrows(), tile) {
        for queries in tiles(q.nrows(), tile) {
            // ANCHOR_END: walk_backward
            // ANCHOR: tile_backward
            let [q, grad_output] = [q, grad_output].map(|all| rows(all, &queries));
            let [k, v] = [k, v].map(|all| rows(all, &keys));
            // the forward pass once more
            let scores = scores(&q, &k);
            let weights = Matrix::from_fn(q.nrows(), k.nrows(), |i, j| {
                let (query, key) = (queries.start + i, keys.start + j);
                let weight = (scores[(i, j)] - log_sum_exp[query]).exp();
                if sees(query, key) { weight } else { 0.0 }
            });
            // and back, as without tiles; but the mean of each row is known
            let grad_weights = &grad_output * v.transpose();
            let grad_products = Matrix::from_fn(q.nrows(), k.nrows(), |i, j| {
                weights[(i, j)] * (grad_weights[(i, j)] - means[queries.start + i])
            }) / (q.ncols() as f64).sqrt();
            let mut sum = grad_q.rows_range_mut(queries.clone());
            sum += &grad_products * k; // every tile of keys adds to it
            let mut sum = grad_k.rows_range_mut(keys.clone());
            sum += grad_products.transpose() * q;
            let mut sum = grad_v.rows_range_mut(keys.clone());
            sum += weights.transpose() * grad_output;
            // ANCHOR_END: tile_backward
            // ANCHOR: walk_ends
        }
    }
    [grad_q, grad_k, grad_v]
}
// ANCHOR_END: walk_ends
