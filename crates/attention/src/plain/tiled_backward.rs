use super::{Matrix, rows, scores, tiles};
use nalgebra::DVector;

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
    let [mut grad_q, mut grad_k, mut grad_v] =
        [q, k, v].map(|all| Matrix::zeros(all.nrows(), all.ncols()));
    // D (n_q), the weighted mean of a row of grad_weights: it is also the product of the
    // row's output with the gradient of that output.
    let means = grad_output.component_mul(output).column_sum(); // one sum a row
    for keys in tiles(k.nrows(), tile) {
        for queries in tiles(q.nrows(), tile) {
            // ANCHOR_END: walk_backward
            // ANCHOR: tile_backward
            let (q_tile, k_tile) = (rows(q, &queries), rows(k, &keys));
            let (grad_tile, v_tile) = (rows(grad_output, &queries), rows(v, &keys));
            // the forward pass once more
            let scores = scores(&q_tile, &k_tile);
            let weights = Matrix::from_fn(queries.len(), keys.len(), |i, j| {
                let (query, key) = (queries.start + i, keys.start + j);
                let weight = (scores[(i, j)] - log_sum_exp[query]).exp();
                if sees(query, key) { weight } else { 0.0 }
            });
            // and back, as without tiles; but the mean of each row is known
            let grad_weights = &grad_tile * v_tile.transpose();
            let grad_products = Matrix::from_fn(queries.len(), keys.len(), |i, j| {
                weights[(i, j)] * (grad_weights[(i, j)] - means[queries.start + i])
            }) / (q.ncols() as f64).sqrt();
            let mut sum = grad_q.rows_range_mut(queries.clone());
            sum += &grad_products * k_tile; // every tile of keys adds to it
            let mut sum = grad_k.rows_range_mut(keys.clone());
            sum += grad_products.transpose() * q_tile;
            let mut sum = grad_v.rows_range_mut(keys.clone());
            sum += weights.transpose() * grad_tile;
            // ANCHOR_END: tile_backward
            // ANCHOR: walk_ends
        }
    }
    [grad_q, grad_k, grad_v]
}
// ANCHOR_END: walk_ends
