//! Wrong ways, on purpose: the chapter shows them, `facts.rs` and `claims.rs` run them.

use attention::{Mask, Result, softmax_rows};
use nalgebra::{DMatrix, RealField};

// ANCHOR: unscaled
/// WRONG: nothing is divided by √d_k.
pub fn unscaled_weights(q: &DMatrix<f64>, k: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    softmax_rows(&(q * k.transpose()))
}
// ANCHOR_END: unscaled

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

// ANCHOR: columns
/// WRONG: each column sums to one, and not each row.
pub fn softmax_of_columns(scores: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    Ok(softmax_rows(&scores.transpose())?.transpose())
}
// ANCHOR_END: columns

// ANCHOR: masked_after
/// WRONG: all keys have got their weight before the mask takes some of it away.
pub fn masked_after_softmax(scores: &DMatrix<f64>, mask: &Mask) -> Result<DMatrix<f64>> {
    let allowed = mask.sized(scores.nrows(), scores.ncols())?.allowed_matrix();
    let weights = softmax_rows(scores)?;
    Ok(weights.zip_map(&allowed, |p, seen| if seen { p } else { 0.0 }))
}
// ANCHOR_END: masked_after

// ANCHOR: renormalised
/// WRONG, but not always: the same, with each row divided by what is left of it.
pub fn renormalised(scores: &DMatrix<f64>, mask: &Mask) -> Result<DMatrix<f64>> {
    let mut weights = masked_after_softmax(scores, mask)?;
    for mut row in weights.row_iter_mut() {
        let sum = row.sum();
        row /= sum;
    }
    Ok(weights)
}
// ANCHOR_END: renormalised

// ANCHOR: finite
/// WRONG: a number that is large enough, it seems, in the place of −∞.
pub fn weights_with_finite_mask<T: RealField + Copy>(
    scores: &DMatrix<T>,
    mask: &Mask,
) -> Result<DMatrix<T>> {
    let sized = mask.sized(scores.nrows(), scores.ncols())?;
    let large: T = nalgebra::convert(-1e9);
    let added = sized.allowed_matrix().map(|seen| if seen { T::zero() } else { large });
    softmax_rows(&(scores + added))
}
// ANCHOR_END: finite

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
