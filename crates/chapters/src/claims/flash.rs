//! Flash attention: its work and its memory, and whether it is approximate.

use super::verdict::{Claim, by_parts, only_when};
use crate::output::Page;
use crate::random::normal;
use anyhow::Result;
use attention::flash::{Inputs, Tiles, tiled_attention};
use attention::{Mask, attention};
use figures::format::{fixed, integer, percent};
use nalgebra::{DMatrix, RealField};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::ops::Range;

const D: usize = 64;

/// (10) How many more operations a forward pass takes in tiles of `keys` keys, as a share.
pub fn more_operations(keys: usize) -> f64 {
    let (n, c, d) = (4096.0, keys as f64, D as f64);
    // A score and its share of the products: 4d + 5 operations. Tiles of c keys add, to each row of each tile, five
    // operations for maximum, correction and sum, and d for the rescaled output; the division, one of the five per
    // score, moves to the end, once per entry of the output.
    let naive = n * (4.0 * d + 5.0);
    let tiled = n * (4.0 * d + 4.0) + (n / c) * (d + 5.0) + d;
    tiled / naive - 1.0
}

/// The widths of tiles, with [`more_operations`] of each.
pub fn work() -> [(usize, f64); 4] {
    [16, 32, 64, 128].map(|keys| (keys, more_operations(keys)))
}

/// What computing the scores again adds to the products with n² d multiplications of a whole step: two forward, four
/// backward.
const MORE_IN_A_STEP: f64 = 1.0 / (2.0 + 4.0);

pub const LENGTHS: [usize; 7] = [256, 512, 1024, 2048, 4096, 8192, 16_384];

/// Bytes that the core keeps in `f32`: with the weights, and with one number a row in their place.
fn memory(n: usize) -> (f64, f64) {
    ((4 * (4 * n * D + n * n)) as f64, (4 * (4 * n * D + n)) as f64)
}

/// How many times less memory tiles need.
pub fn memory_ratio(n: usize) -> f64 {
    memory(n).0 / memory(n).1
}

/// Where that is 3 to 5 times, rounded.
pub fn lengths_as_said() -> Vec<usize> {
    LENGTHS.into_iter().filter(|n| (2.9..5.05).contains(&memory_ratio(*n))).collect()
}

pub fn tell_work_and_memory(page: &mut Page) -> Result<Claim> {
    let sign = |extra: f64| if extra > 0.0 { "+" } else { "" };
    let work = work();
    let rows = work.map(|(keys, extra)| {
        vec![integer(keys), format!("{}{}", sign(extra), percent(extra, 1))]
    });
    page.table("flash-forward", &["keys in a tile", "operations, forward"], &rows);
    page.value("flash-step", percent(MORE_IN_A_STEP, 0));
    memory_table(page);

    let near_15: Range<f64> = 0.145..0.175;
    let as_said = lengths_as_said();
    Ok(Claim {
        section: "10-more-work-less-memory",
        said: "Flash attention does 15 % more work and uses 3–5 times less memory."
            .to_owned(),
        verdict: only_when(
            &format!(
                "the core of a whole training step is meant, where it is {}, and 512 to 1024 tokens at $d = 64$",
                percent(MORE_IN_A_STEP, 0)
            ),
            work.iter().any(|(_, extra)| near_15.contains(extra))
                && as_said.len() == LENGTHS.len(),
            near_15.contains(&MORE_IN_A_STEP) && !as_said.is_empty(),
        )?,
    })
}

fn memory_table(page: &mut Page) {
    let mebibytes = |bytes: f64| fixed(bytes / f64::from(1 << 20), 2);
    let row = |n| {
        let (naive, tiled) = memory(n);
        vec![integer(n), mebibytes(naive), mebibytes(tiled), fixed(memory_ratio(n), 1)]
    };
    let header = ["$n$", "naive, MiB", "tiled, MiB", "ratio"];
    page.table("flash-memory", &header, &LENGTHS.map(row));
}

pub const N: usize = 512;

/// (1) Outputs of tiled and of plain attention.
pub struct Outputs<T: RealField> {
    pub tiled: DMatrix<T>,
    pub plain: DMatrix<T>,
}

/// Random queries, keys and values.
pub fn inputs() -> [DMatrix<f64>; 3] {
    let rng = &mut ChaCha8Rng::seed_from_u64(15);
    [(); 3].map(|()| normal(N, D, rng))
}

/// With tiles that do not divide the length.
pub fn outputs<T: RealField + Copy>([q, k, v]: &[DMatrix<T>; 3]) -> Result<Outputs<T>> {
    let tiles = Tiles { queries: 40, keys: 48 };
    let tiled = tiled_attention(&Inputs::new(q, k, v, &Mask::none())?, tiles)?.output;
    Ok(Outputs { tiled, plain: attention(q, k, v, &Mask::none())?.0 })
}

/// The largest difference of two outputs in `f64`.
pub fn difference() -> Result<f64> {
    let Outputs { tiled, plain } = outputs(&inputs())?;
    Ok((tiled - plain).amax())
}

pub fn tell_approximate(page: &mut Page) -> Result<Claim> {
    page.value("exact-f64", "10^{−14}");
    page.value("exact-n", integer(N));
    Ok(Claim {
        section: "1-is-it-approximate",
        said: "Flash attention is approximate.".to_owned(),
        verdict: by_parts(&[("the output", difference()? > 1e-12)]),
    })
}
