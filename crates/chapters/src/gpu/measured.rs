//! Measurements on a GPU: speeds of the kernels, of PyTorch's, and of products and copies.

use super::ladder::Step;
use anyhow::{Context, Result};
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

/// Returns the times at places of the grid, which alone have heads, and no number of queries but that of the keys.
fn cells(record: &Record) -> impl Iterator<Item = &Measurement> {
    let is_of_grid = |m: &&Measurement| {
        m.sizes.contains_key("heads") && !m.sizes.contains_key("queries")
    };
    record.measurements.iter().filter(is_of_grid)
}

/// Tokens of a batch. The record counts the heads of the whole batch, which are tokens · WIDTH / (n · d).
pub fn tokens(record: &Record) -> Result<u64> {
    let m = cells(record).next().context("no cell")?;
    Ok(size(m, "heads")? * size(m, "n")? * size(m, "d")? / WIDTH)
}

/// The lengths of the grid.
pub fn lengths(record: &Record) -> Vec<u64> {
    let mut lengths: Vec<_> =
        cells(record).filter_map(|m| m.sizes.get("n").copied()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// The length at which the kernels are compared: the largest one up to 16 384 that was measured.
pub fn longest(record: &Record) -> Result<u64> {
    let longest = lengths(record).into_iter().rfind(|n| *n <= 16_384);
    longest.context("the record `gpu` has no lengths")
}

/// FLOP/s by the convention of the chapter.
pub fn speed(m: &Measurement, pass: &str) -> Result<f64> {
    let (heads, n, d) = (size(m, "heads")?, size(m, "n")?, size(m, "d")?);
    let forward = 4.0 * heads as f64 * (n * n) as f64 * d as f64;
    let masked = if setting(m, "mask")? == "causal" { forward / 2.0 } else { forward };
    let flops = if pass == "backward" { 2.5 * masked } else { masked };
    Ok(flops / m.median)
}

/// FLOP/s of a product of square matrices with so many rows.
pub fn speed_of_product(side: u64, seconds: f64) -> f64 {
    2.0 * (side as f64).powi(3) / seconds
}

/// The measurement of this pass and contestant, or pair of them, at this place of the grid.
pub fn find<'a>(
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

/// Backends of PyTorch: those for bf16 first.
pub const BACKENDS: [&str; 6] = [
    "torch-flash",
    "torch-cudnn",
    "torch-flash4",
    "torch-flash4-deterministic",
    "torch-efficient",
    "torch-math",
];

/// Returns the pass that a kernel computes, as the record names it.
pub fn pass(step: &Step) -> &'static str {
    if step.name == "backward" { "backward" } else { "forward" }
}

/// Returns true if the GPU has the chip of this chapter, which two products have.
pub fn is_of_the_chapter(record: &Record) -> bool {
    let name = record.machine.accelerator.as_deref().unwrap_or_default();
    ["H100", "H200"].iter().any(|chip| name.contains(chip))
}
