//! Flash attention: its work and its memory, and whether it is approximate.

use super::verdict::{Claim, by_parts, only_when};
use crate::output::Page;
use crate::random::normal;
use crate::tiles_backward::Kept;
use crate::tiles_forward::operations_more;
use anyhow::Result;
use attention::flash::{Inputs, Tiles, tiled_attention};
use attention::{Float, Mask, attention};
use figures::format::{fixed, integer, percent};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::ops::Range;

const D: usize = 64;

/// (10) The widths of tiles, and how many more operations a forward pass takes in these, as a share.
pub fn work() -> [(usize, f64); 4] {
    [16, 32, 64, 128].map(|keys| (keys, operations_more(keys)))
}

/// The share that computing the scores again adds to the products with n² d multiplications of a whole step: two forward, four
/// backward.
const MORE_IN_A_STEP: f64 = 1.0 / (2.0 + 4.0);

pub const LENGTHS: [usize; 7] = [256, 512, 1024, 2048, 4096, 8192, 16_384];

/// Returns the lengths at which tiles need 3 to 5 times less memory, rounded.
pub fn lengths_as_said() -> Vec<usize> {
    let is_as_said = |n: &usize| (2.9..5.05).contains(&Kept::new(*n).ratio());
    LENGTHS.into_iter().filter(is_as_said).collect()
}

pub fn claim_work_and_memory(page: &mut Page) -> Result<Claim> {
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
    let mebibytes = |numbers: usize| fixed((4 * numbers) as f64 / f64::from(1 << 20), 2);
    page.table_of(
        "flash-memory",
        &LENGTHS.map(|n| (n, Kept::new(n))),
        &[
            ("$n$", &|(n, _)| integer(*n)),
            ("naive, MiB", &|(_, kept)| mebibytes(kept.naive())),
            ("tiled, MiB", &|(_, kept)| mebibytes(kept.tiled())),
            ("ratio", &|(_, kept)| fixed(kept.ratio(), 1)),
        ],
    );
}

pub const N: usize = 512;

/// Random queries, keys and values.
pub fn inputs() -> [DMatrix<f64>; 3] {
    let rng = &mut ChaCha8Rng::seed_from_u64(15);
    [(); 3].map(|()| normal(N, D, rng))
}

/// (1) The outputs of tiled attention, with tiles that do not divide the length, and of plain attention.
pub fn tiled_and_plain<T: Float>([q, k, v]: &[DMatrix<T>; 3]) -> Result<[DMatrix<T>; 2]> {
    let tiles = Tiles { queries: 40, keys: 48 };
    let tiled = tiled_attention(&Inputs::new(q, k, v, Mask::none())?, tiles)?.output;
    Ok([tiled, attention(q, k, v, Mask::none())?.0])
}

/// The largest difference of the two in `f64`.
pub fn difference() -> Result<f64> {
    let [tiled, plain] = tiled_and_plain(&inputs())?;
    Ok((tiled - plain).amax())
}

pub fn claim_approximate(page: &mut Page) -> Result<Claim> {
    page.value("exact-f64", "10^{−14}");
    page.value("exact-n", integer(N));
    Ok(Claim {
        section: "1-is-it-approximate",
        said: "Flash attention is approximate.".to_owned(),
        verdict: by_parts(&[("the output", difference()? > 1e-12)]),
    })
}
