//! What the chapter computes of traffic, beside what it has in common with the backward pass.

use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, OfTiles, Pass, Program, Total, chunked,
    counted_over_lengths, first, fused, naive, over_tiles, shape, tiled, total,
};
use anyhow::Result;
use attention::Mask;
use laboratory::traffic::{naive_traffic, strip_for, tiles_for};

/// What the factor between a program and tiles tends to, (c + 2d/r) / (2d/B_q) for c crossings of the matrix and products in
/// strips of r rows.
pub fn limit(crossings: usize) -> Result<f64> {
    let strip = (CAPACITY - D) / (D + 1);
    let of_length = |rows: usize| (2 * D) as f64 / rows as f64;
    Ok((crossings as f64 + of_length(strip)) / of_length(Pass::Forward.chosen()?.0))
}

/// The share of keys and values in the traffic of tiles.
pub fn share_of_keys_and_values(n: usize) -> Result<f64> {
    let report =
        Program::Tiled(Pass::Forward.chosen()?).foretold(n, &Mask::none(), CAPACITY)?;
    let [k, v] = ["k", "v"].map(|matrix| report.matrix(matrix).all());
    Ok((k + v) as f64 / total(&report))
}

/// What the programs of *The memory wall* move, with the crossings of the matrix where no row of scores fits.
pub const OTHERS: [(&str, Total, usize); 2] = [("naive", naive, 10), ("fused", fused, 6)];

/// Counts of tiles and of strips: points of a figure.
pub fn counted() -> Result<Vec<(f64, f64)>> {
    counted_over_lengths(|n| {
        Ok(vec![Program::Tiled(Pass::Forward.chosen()?), Program::Chunked(strip(n)?)])
    })
}

/// A capacity at which a few blocks of queries are left, and by what share the count lies above the formula.
pub struct FewBlocks {
    pub capacity: usize,
    pub blocks: usize,
    pub above: f64,
}

pub fn few_blocks() -> Result<Vec<FewBlocks>> {
    let of_capacity = |capacity| {
        let (queries, _) = tiles_for(capacity, D, D)?;
        let formula = Pass::Forward.by_capacity(LONG, capacity);
        let above = tiled(LONG, capacity)? / formula - 1.0;
        Ok(FewBlocks { capacity, blocks: LONG.div_ceil(queries), above })
    };
    [LONG * D / 4, LONG * D / 2, LONG * D, 2 * LONG * D]
        .map(of_capacity)
        .into_iter()
        .collect()
}

/// Up to this capacity keys and values are read more than once, by the formula.
pub const AGAIN_TO: usize = 2 * LONG * D;

/// The smallest fast memory that a tile of one query and one key fits.
pub fn least_capacity() -> usize {
    (1..).find(|&m| tiles_for(m, D, D).is_ok()).unwrap_or(CAPACITY)
}

/// About the capacity from which on tiles move less than a program with so many crossings: 4d²/M against c + 2d²/M.
pub fn pays_about(crossings: usize) -> usize {
    2 * D * D / crossings
}

/// The smallest capacity with which each matrix crosses once.
pub fn once_from(n: usize) -> Result<usize> {
    let once = Pass::Forward.each_once(n);
    first(least_capacity()..1 << 24, |capacity| Ok(tiled(n, capacity)? == once))
}

/// The largest square tile that fits.
pub fn largest_square() -> Result<usize> {
    let fits_not = |side| {
        let program = Program::Tiled((side, side));
        Ok(program.foretold(LONG, &Mask::none(), CAPACITY).is_err())
    };
    Ok(first(1..CAPACITY, fits_not)? - 1)
}

/// Sizes of tiles, the largest square and the tiles that move least among them.
pub fn sizes() -> Result<Vec<OfTiles>> {
    let square = largest_square()?;
    let chosen = Pass::Forward.chosen()?;
    let sizes = [(16, 16), (32, 32), (64, 64), (square, square), (128, 32), chosen];
    over_tiles(Pass::Forward, &sizes)
}

// ---------------------------------------------------------------------------------------------------- strips

/// The longest sequence of which one row of scores fits.
pub const LONGEST_STRIP: usize = CAPACITY - 2 * D;

/// Rows of a strip.
pub fn strip(n: usize) -> Result<usize> {
    Ok(strip_for(CAPACITY, n, D, D)?)
}

/// Lengths at which strips are compared with other programs. Far beyond the first ones, a sample suffices.
pub fn lengths_of_strips() -> impl Iterator<Item = usize> {
    (1..LONG).chain((LONG..LONGEST_STRIP).step_by(1000))
}

/// Up to what lengths strips move less than another program. The rows of a strip and the number of strips are whole, so
/// that for a while the two take turns.
pub struct Less {
    pub always: usize,
    pub ever: usize,
}

pub fn strips_move_less(than: Total) -> Result<Less> {
    let (mut always, mut ever) = (0, 0);
    for n in lengths_of_strips() {
        if chunked(n, CAPACITY)? < than(n, CAPACITY)? {
            always += usize::from(always + 1 == n);
            ever = n;
        }
    }
    Ok(Less { always, ever })
}

// ---------------------------------------------------------------------------------------------------- when it is linear

/// Numbers that a fast memory of so many KiB holds.
pub fn of_kibibytes(kibibytes: usize) -> usize {
    kibibytes * 1024 / ELEMENT
}

/// The longest sequence of which each matrix crosses once.
pub fn linear_to(capacity: usize) -> Result<usize> {
    Ok(tiles_for(capacity, D, D)?.0)
}

/// Operations per byte of the naive program and of tiles, with the scaling of each score, as in *The memory wall*.
pub fn intensities() -> Result<[f64; 2]> {
    let tiled = Program::Tiled(Pass::Forward.chosen()?).foretold(
        LONG,
        &Mask::none(),
        CAPACITY,
    )?;
    let operations = shape(LONG).flops()?.core() as f64 + (LONG * LONG) as f64;
    let reports = [naive_traffic(&shape(LONG), CAPACITY)?, tiled];
    Ok(reports.map(|report| operations / report.total().bytes(ELEMENT) as f64))
}
