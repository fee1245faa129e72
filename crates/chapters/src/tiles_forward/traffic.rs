//! The chapter's own numbers about traffic. Those that it shares with the backward pass are in `tiles_traffic`.

use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, Pass, Program, bytes, counted_over_lengths, naive, shape,
    tiled,
};
use anyhow::Result;
use laboratory::traffic::{strip_for, tiles_for};

/// Counts of tiles and of strips: points of a figure.
pub fn counted() -> Result<Vec<(f64, f64)>> {
    counted_over_lengths(|n| {
        Ok(vec![Program::Tiled(Pass::Forward.chosen()?), Program::Chunked(strip(n)?)])
    })
}

// ---------------------------------------------------------------------------------------------------- strips

/// Rows of a strip.
pub fn strip(n: usize) -> Result<usize> {
    Ok(strip_for(CAPACITY, n, D, D)?)
}

// ---------------------------------------------------------------------------------------------------- larger tiles of keys

/// Returns the most queries for which there is room beside so many keys.
pub fn queries_beside(keys: usize) -> usize {
    (CAPACITY - 2 * D * keys) / (2 * D + 2 + keys)
}

/// The numbers that are moved at the length of the chapter with tiles of so many keys.
pub fn moved_with(keys: usize) -> f64 {
    Pass::Forward.moved(LONG, LONG.div_ceil(queries_beside(keys)) * LONG)
}

// ---------------------------------------------------------------------------------------------------- when it is linear

/// Numbers that a third-level processor cache of 32 MiB holds.
pub const THIRD_CACHE: usize = (32 << 20) / ELEMENT;

/// The longest sequence of which each matrix crosses once.
pub fn linear_to(capacity: usize) -> Result<usize> {
    Ok(tiles_for(capacity, D, D)?.0)
}

/// Operations per byte of the naive program and of tiles, with the scaling of each score, as in *The memory wall*.
pub fn intensities() -> Result<[f64; 2]> {
    let operations = shape(LONG).flops()?.core() as f64 + (LONG * LONG) as f64;
    let per_byte = |numbers| operations / bytes(numbers);
    Ok([per_byte(naive(LONG, CAPACITY)?), per_byte(tiled(LONG, CAPACITY)?)])
}
