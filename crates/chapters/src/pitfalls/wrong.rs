//! Wrong ways, on purpose: the chapter shows them, `facts.rs` and `claims.rs` run them.

use attention::{Mask, Result, softmax_rows};
use nalgebra::DMatrix;

/// WRONG: nothing is divided by √d_k.
pub fn unscaled_weights(q: &DMatrix<f64>, k: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    softmax_rows(&(q * k.transpose()))
}

// ANCHOR: one_maximum
/// WRONG: one maximum for all rows.
pub fn softmax_with_one_maximum(scores: &DMatrix<f32>) -> DMatrix<f32> {
    let mut weights = scores.add_scalar(-scores.max()).map(f32::exp);
    for mut row in weights.row_iter_mut() {
        let sum = row.sum();
        row /= sum;
    }
    weights
}
// ANCHOR_END: one_maximum

// ANCHOR: tile_twice
/// WRONG: causal, in tiles of two queries, with a tile's first query added twice.
pub fn tile_added_twice(n: usize) -> Result<Mask> {
    let tile = 2;
    Mask::dense(DMatrix::from_fn(n, n, |i, j| {
        let first = tile * (i / tile); // the tile's first query
        j <= first + i // meant: first + i % tile
    }))
}
// ANCHOR_END: tile_twice

// ANCHOR: reshape
/// WRONG: the numbers of (n, h · d), row by row, are cut into h pieces of (n, d).
pub fn split_by_reshape(joined: &DMatrix<f64>, n_heads: usize) -> Vec<DMatrix<f64>> {
    let (n, d) = (joined.nrows(), joined.ncols() / n_heads);
    let rows_first = joined.transpose(); // nalgebra keeps columns together
    let heads = rows_first.as_slice().chunks(n * d);
    heads.map(|numbers| DMatrix::from_row_slice(n, d, numbers)).collect()
}

/// And back, as wrongly, so that the two cancel.
pub fn join_by_reshape(heads: &[DMatrix<f64>]) -> DMatrix<f64> {
    let (n, d) = heads[0].shape();
    let numbers: Vec<f64> =
        heads.iter().flat_map(|head| head.transpose().as_slice().to_vec()).collect();
    DMatrix::from_row_slice(n, heads.len() * d, &numbers)
}
// ANCHOR_END: reshape
