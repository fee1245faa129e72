//! What the chapter computes of traffic, beside what it has in common with the way forward.

use crate::tiles_traffic::facts::{
    CAPACITY, D, LONG, OfTiles, Pass, Program, Tiles, capacities, counted_over_lengths,
    over_tiles, tiled_backward,
};
use anyhow::Result;

/// The tiles that move least in the fast memory of the chapter.
pub fn chosen() -> Result<Tiles> {
    Pass::Backward.tiles(CAPACITY)
}

/// The capacities of the figure: a tile of one query and one key does not fit the smallest of the way forward.
pub fn capacities_backward() -> Vec<usize> {
    capacities().split_off(1)
}

/// Counts of tiles: points of a figure.
pub fn counted() -> Result<Vec<(f64, f64)>> {
    counted_over_lengths(|_| Ok(vec![Program::TiledBackward(chosen()?)]))
}

/// Sizes of tiles, those that move least at the end.
pub fn sizes() -> Result<Vec<OfTiles>> {
    over_tiles(Pass::Backward, &[(16, 16), (32, 32), (32, 64), (8, 112), chosen()?])
}

/// Numbers that three orders of the loops move, by formula, each with the tiles that suit it best. Of the first one there is
/// a program.
pub struct LoopOrders {
    pub keys_outside: f64,
    pub queries_outside: f64,
    /// One sweep of each order.
    pub two_sweeps: f64,
}

pub fn loop_orders() -> Result<LoopOrders> {
    let (n, d) = (LONG as f64, D as f64);
    let blocks = |size: usize| LONG.div_ceil(size) as f64;
    // D, and zeros for what is added to in slow memory.
    let row_sums = n * (2.0 * d + 1.0);
    // Queries, their gradient and that of the output stay; keys, values and two gradients come by, the gradients twice.
    let b_q = (CAPACITY - 4 * D) / (3 * D + 4);
    let queries_outside =
        row_sums + 2.0 * n * d + n * (3.0 * d + 2.0) + blocks(b_q) * n * 6.0 * d;
    // The first order without the gradient of the queries, then the second one without those of keys and values.
    let b_k_alone = (CAPACITY - (2 * D + 2)) / (4 * D + 2);
    let b_q_alone = (CAPACITY - 2 * D) / (3 * D + 4);
    let two_sweeps = row_sums
        + (4.0 * n * d + blocks(b_k_alone) * n * (2.0 * d + 2.0))
        + (n * (3.0 * d + 2.0) + blocks(b_q_alone) * n * 2.0 * d);
    let keys_outside = tiled_backward(LONG, CAPACITY)?;
    Ok(LoopOrders { keys_outside, queries_outside, two_sweeps })
}
