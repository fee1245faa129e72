//! Arithmetic intensity, and the ridges of an A100.

use super::traffic::{NAIVE_CROSSINGS, core_traffic, tiled_traffic};
use super::verdict::{Claim, only_when};
use crate::output::Page;
use anyhow::{Context, Result};
use attention::AttentionShape;
use figures::format::{fixed, significant};
use figures::{Axis, BLUE, GREEN, Line, MUTED, Marks, VERMILION, line_chart};
use laboratory::hardware::A100;

/// The FLOP/byte from which on the tensor cores don't wait for memory.
pub const RIDGE_BF16: f64 = A100.bf16 / A100.bandwidth;
/// The ridge of bf16 with a bandwidth of about 2 TB/s.
pub const SAID_RIDGE: f64 = A100.bf16 / 2e12;

const N: usize = 4096;
const D: usize = 64;

fn core(n: usize, d: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, d, d, 1)
}

/// (6) FLOP/byte of the core at n = 4096, d = 64 in numbers of `element` bytes, where `narrow` of the four (n, d)
/// matrices cross slow memory once, and the weights do so many times.
pub fn intensity(element: usize, narrow: usize, crossings: usize) -> Result<f64> {
    let flops = core(N, D).flops()?.core() as f64;
    Ok(flops / (element as f64 * core_traffic(narrow, N, D, crossings)))
}

/// A kind of numbers, with the ridge of what computes with them.
pub struct Kind {
    name: &'static str,
    ridge: f64,
    /// FLOP/byte with each matrix once, with all passes, and if the weights never leave fast memory.
    pub intensities: [f64; 3],
}

impl Kind {
    pub fn waits_for_memory(&self) -> [bool; 3] {
        self.intensities.map(|intensity| intensity < self.ridge)
    }
}

pub fn kinds() -> Result<Vec<Kind>> {
    let kind = |(name, rate, element)| {
        Ok(Kind {
            name,
            ridge: rate / A100.bandwidth,
            intensities: [
                core(N, D).intensity(element)?,
                intensity(element, 4, NAIVE_CROSSINGS)?,
                intensity(element, 4, 0)?,
            ],
        })
    };
    let kinds = [
        ("`f32`, no tensor cores", A100.f32, 4),
        ("`f32` rounded to TF32", A100.tf32, 4),
        ("bf16", A100.bf16, 2),
    ];
    kinds.into_iter().map(kind).collect()
}

pub fn claim_ridge(page: &mut Page) -> Result<Claim> {
    let kinds = kinds()?;
    let row = |kind: &Kind| {
        let cell = |x: f64| {
            let bound = if x < kind.ridge { "memory" } else { "compute" };
            format!("{} ({bound})", fixed(x, 0))
        };
        let (peak, bandwidth) =
            (kind.ridge * A100.bandwidth / 1e12, A100.bandwidth / 1e12);
        let ridge = format!(
            "{} / {} = {}",
            significant(peak, 3),
            fixed(bandwidth, 2),
            fixed(kind.ridge, 0)
        );
        let start = [kind.name.to_owned(), ridge];
        [&start[..], &kind.intensities.map(cell)].concat()
    };
    let header = [
        "numbers",
        "ridge: TFLOP/s over TB/s",
        "each matrix once",
        "all passes, average",
        "weights never leave",
    ];
    page.table("ridges", &header, &kinds.iter().map(row).collect::<Vec<_>>());
    page.value("intensity", fixed(kinds[0].intensities[0], 1));
    page.value("ridge-said", fixed(SAID_RIDGE, 0));
    page.value("a100-bf16", fixed(A100.bf16 / 1e12, 0));
    let waits: Vec<_> = kinds.iter().map(|kind| kind.waits_for_memory()[0]).collect();
    Ok(Claim {
        section: "6-below-the-ridge",
        said: "At $n = 4096$, $d = 64$ the intensity is 61 FLOP/byte (or 63), below the 156 of an A100, so attention is \
               memory-bound."
            .to_owned(),
        verdict: only_when(
            "the tensor cores do the products, and each matrix is counted once",
            waits.iter().all(|waits| *waits),
            waits[1] && waits[2],
        )?,
    })
}

/// The width of the figure's model, that of its heads, and how many there are. It computes in bf16.
const WIDE: (usize, usize, usize) = (4096, 128, 32);
/// The lengths in the figure.
pub const LENGTHS: [usize; 13] =
    [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

/// (7) Arithmetic intensity of the figure's core in bf16, with each matrix once.
pub fn wide_core(n: usize) -> Result<f64> {
    Ok(core(n, WIDE.1).intensity(2)?)
}

/// Returns the intensity of the whole layer: each projection reads its input and parameters and writes its output, and the core of each head
/// moves `core` numbers.
fn layer_intensity(n: usize, core: f64) -> Result<f64> {
    let (d_model, d, heads) = WIDE;
    let flops = AttentionShape::self_attention(1, n, d_model, d, heads).flops()?;
    let projections = (4 * d_model * d_model + 8 * n * d_model) as f64;
    Ok(flops.total() as f64 / (2.0 * (projections + heads as f64 * core)))
}

/// Returns the intensity of the layer with every pass over the scores.
pub fn unfused_layer(n: usize) -> Result<f64> {
    layer_intensity(n, core_traffic(4, n, WIDE.1, NAIVE_CROSSINGS))
}

/// Returns the intensity of the layer with so many queries in a tile.
pub fn tiled_layer(n: usize, queries: usize) -> Result<f64> {
    layer_intensity(n, tiled_traffic(n, WIDE.1, queries))
}

/// The first of the lengths at which the unfused layer is compute-bound.
pub fn compute_bound_length() -> Result<usize> {
    let intensities =
        LENGTHS.map(unfused_layer).into_iter().collect::<Result<Vec<_>>>()?;
    let mut lengths = LENGTHS.into_iter().zip(intensities);
    let first = lengths.find(|(_, x)| *x > RIDGE_BF16);
    Ok(first.context("the unfused layer is never compute-bound")?.0)
}

/// Returns the intensity of the core in `f32` with a width of 64: n(4d + 5) / (4(4d + n)).
pub fn narrow_core(n: usize) -> Result<f64> {
    Ok(core(n, 64).intensity(4)?)
}

pub fn claim_short_and_long(page: &mut Page) -> Result<Claim> {
    let first = compute_bound_length()?;
    let (short, long) = (fixed(narrow_core(16)?, 1), fixed(narrow_core(65_536)?, 1));
    page.value("short-16", &short);
    page.value("short-65536", &long);
    intensity_figure(page)?;
    let falls = |of: fn(usize) -> Result<f64>| -> Result<bool> {
        Ok(of(first)? > RIDGE_BF16 && of(65_536)? < RIDGE_BF16)
    };
    Ok(Claim {
        section: "7-short-and-long-sequences",
        said: "Short sequences are compute-bound and long ones memory-bound.".to_owned(),
        verdict: only_when(
            "a whole layer of a wide model is meant, unfused, and the sequence isn't very short",
            falls(wide_core)?,
            falls(unfused_layer)?,
        )?,
    })
}

fn intensity_figure(page: &mut Page) -> Result<()> {
    let line = |name: &str, colour, of: fn(usize) -> Result<f64>| {
        let points = LENGTHS.into_iter().map(|n| Ok((n as f64, of(n)?)));
        anyhow::Ok(Line::new(name, colour, points.collect::<Result<Vec<_>>>()?))
    };
    let lines = [
        line("core, each matrix once", BLUE, wide_core)?,
        line("layer, every pass", VERMILION, unfused_layer)?,
        line("layer, tiled core", GREEN, |n| tiled_layer(n, 256))?,
        line("ridge of an A100", MUTED, |_| Ok(RIDGE_BF16))?.dashed(),
    ];
    page.figure(
        "intensity",
        (
            "Arithmetic intensity against the number of tokens",
            "The core's intensity, with each matrix counted once, rises through the ridge and flattens above it. That of a \
             whole layer with every pass over the scores rises above the ridge, and falls below it again for long \
             sequences. With a tiled core it rises above the ridge and stays there.",
        ),
        (520, 420),
        |area| {
            let x = Axis::log("tokens n (logarithmic)", 2.0, 16.0..65_536.0);
            let y = Axis::log("FLOP/byte (logarithmic)", 2.0, 4.0..4096.0);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}
