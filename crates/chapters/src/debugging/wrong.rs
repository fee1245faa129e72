//! A wrong way, on purpose: the chapter shows it, `facts.rs` and `claims.rs` run it.

use attention::{Mask, Result};
use nalgebra::DMatrix;

/// WRONG: causal, in tiles of two queries, with a tile's first query added twice.
pub fn tile_added_twice(n: usize) -> Result<Mask> {
    let tile = 2;
    Mask::dense(DMatrix::from_fn(n, n, |i, j| {
        let first = tile * (i / tile); // the tile's first query
        j <= first + i // meant: first + i % tile
    }))
}
