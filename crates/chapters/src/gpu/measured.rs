//! What was measured on a GPU: speeds of the kernels, of PyTorch's, and of what they are compared with.

use super::banks::D;
use super::ladder::Step;
use super::machine::{BF16, F32};
use anyhow::{Context, Result, ensure};
use record::{Measurement, Record, Unit};

pub fn size(m: &Measurement, name: &str) -> Result<u64> {
    m.sizes.get(name).copied().with_context(|| format!("{} has no {name}", m.what))
}

pub fn setting<'a>(m: &'a Measurement, name: &str) -> Result<&'a str> {
    let setting = m.settings.get(name).map(String::as_str);
    setting.with_context(|| format!("{} has no {name}", m.what))
}

/// heads · d of one sequence; the grid keeps it.
pub const WIDTH: u64 = 2048;

/// Tokens of a batch. The record counts the heads of the whole batch, which are tokens · WIDTH / (n · d).
pub fn tokens(record: &Record) -> Result<u64> {
    let m = record.measurements.iter().find(|m| m.sizes.contains_key("heads"));
    let m = m.context("no cell")?;
    Ok(size(m, "heads")? * size(m, "n")? * size(m, "d")? / WIDTH)
}

/// FLOP/s by the convention of the chapter.
fn speed(m: &Measurement, pass: &str) -> Result<f64> {
    let (heads, n, d) = (size(m, "heads")?, size(m, "n")?, size(m, "d")?);
    let forward = 4.0 * heads as f64 * (n * n) as f64 * d as f64;
    let masked = if setting(m, "mask")? == "causal" { forward / 2.0 } else { forward };
    let flops = if pass == "backward" { 2.5 * masked } else { masked };
    Ok(flops / m.median)
}

/// The measurement of this pass and contestant, or pair of them, at this place of the grid.
fn find<'a>(
    record: &'a Record,
    what: &str,
    dtype: &str,
    (n, d, mask): (u64, u64, &str),
    unit: Unit,
) -> Option<&'a Measurement> {
    record.all(what, dtype).find(|m| {
        m.unit == unit
            && m.sizes.get("n") == Some(&n)
            && m.sizes.get("d") == Some(&d)
            && m.settings.get("mask").is_some_and(|setting| setting == mask)
    })
}

/// Backends of PyTorch.
pub const BACKENDS: [&str; 4] =
    ["torch-flash", "torch-cudnn", "torch-efficient", "torch-math"];

fn pass(step: &Step) -> &'static str {
    if step.name == "backward" { "backward" } else { "forward" }
}

fn dtype(step: &Step) -> &'static str {
    if step.bf16 { "bf16" } else { "f32" }
}

/// A product of square matrices.
pub struct Product {
    pub side: u64,
    pub dtype: &'static str,
    /// FLOP/s, as measured and as NVIDIA states them.
    pub speed: f64,
    pub stated: f64,
}

pub fn products(record: &Record) -> Result<Vec<Product>> {
    let mut products = vec![];
    for (dtype, stated) in [("f32", F32), ("bf16", BF16)] {
        for m in record.all("roof/product", dtype) {
            let side = size(m, "n")?;
            let speed = 2.0 * (side as f64).powi(3) / m.median;
            products.push(Product { side, dtype, speed, stated });
        }
    }
    Ok(products)
}

/// Whether the GPU has the chip of this chapter, which two products have.
pub fn is_of_the_chapter(record: &Record) -> bool {
    let name = record.machine.accelerator.as_deref().unwrap_or_default();
    ["H100", "H200"].iter().any(|chip| name.contains(chip))
}

/// The length at which the kernels are compared: the largest one up to 16 384 that was measured.
pub fn longest(record: &Record) -> Result<u64> {
    let all = record.measurements.iter().filter_map(|m| m.sizes.get("n").copied());
    all.filter(|n| *n <= 16_384).max().context("the record `gpu` has no lengths")
}

/// A kernel of the chapter without a mask.
pub struct Timed<'a> {
    pub step: &'a Step,
    /// FLOP/s.
    pub speed: f64,
    /// How many times as long each backend takes, if it takes part.
    pub backends: [Option<f64>; 4],
}

pub fn beside_the_predicted<'a>(
    record: &Record,
    steps: &'a [Step],
    n: u64,
) -> Result<Vec<Timed<'a>>> {
    let mut timed = vec![];
    for step in steps {
        let (pass, dtype) = (pass(step), dtype(step));
        let place = (n, D as u64, "full");
        let what = format!("{pass}/{}", step.name);
        let Some(m) = find(record, &what, dtype, place, Unit::Seconds) else { continue };
        let backends = BACKENDS.map(|backend| {
            let what = format!("{pass}/{backend} / {}", step.name);
            Some(find(record, &what, dtype, place, Unit::Ratio)?.median)
        });
        timed.push(Timed { step, speed: speed(m, pass)?, backends });
    }
    ensure!(!timed.is_empty(), "the record `gpu` has none of the kernels at n = {n}");
    Ok(timed)
}

/// The lengths of the grid.
pub fn lengths(record: &Record) -> Vec<u64> {
    let cells = record.measurements.iter().filter(|m| m.sizes.contains_key("heads"));
    let mut lengths: Vec<_> = cells.filter_map(|m| m.sizes.get("n").copied()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// One contestant at every length, in FLOP/s.
pub struct OverLengths {
    pub name: &'static str,
    pub dtype: &'static str,
    pub d: u64,
    pub mask: &'static str,
    pub speeds: Vec<Option<f64>>,
}

/// Our kernels of this pass, and then PyTorch's, as far as anything was measured of them.
pub fn over_lengths(
    record: &Record,
    steps: &[Step],
    pass_shown: &str,
) -> Result<Vec<OverLengths>> {
    let ours = steps.iter().filter(|step| pass(step) == pass_shown);
    let ours = ours.map(|step| (step.name, dtype(step)));
    let theirs = ["f32", "bf16"].map(|dtype| BACKENDS.map(|backend| (backend, dtype)));
    let mut rows = vec![];
    for (name, dtype) in ours.chain(theirs.concat()) {
        let what = format!("{pass_shown}/{name}");
        for (d, mask) in [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")] {
            let at = |n| find(record, &what, dtype, (n, d, mask), Unit::Seconds);
            let speeds = lengths(record)
                .into_iter()
                .map(|n| at(n).map(|m| speed(m, pass_shown)).transpose())
                .collect::<Result<Vec<_>>>()?;
            if speeds.iter().any(Option::is_some) {
                rows.push(OverLengths { name, dtype, d, mask, speeds });
            }
        }
    }
    Ok(rows)
}
