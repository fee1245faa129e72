//! How many times as long as this crate others took, and what of that was predicted from the scores that are computed and then
//! hidden.

use super::words::describe;
use crate::fast::facts::{D, HEADS, N};
use anyhow::{Context, Result, ensure};
use record::statistics::geometric_mean;
use record::{Measurement, Record, Unit};

/// The lengths of the grid.
const LENGTHS: [u64; 6] = [256, 512, 1024, 2048, 4096, 8192];

/// One cell of the grid: how many threads, how wide, which mask, which pass, how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell<'a> {
    pub threads: usize,
    pub d: u64,
    pub mask: &'a str,
    pub pass: &'a str,
    pub n: u64,
}

impl<'a> Cell<'a> {
    fn of(m: &'a Measurement) -> Result<Self> {
        let size =
            |name| m.sizes.get(name).copied().with_context(|| format!("no {name}"));
        let setting = |name| m.settings.get(name).with_context(|| format!("no {name}"));
        Ok(Cell {
            threads: m.threads,
            d: size("d")?,
            mask: setting("mask")?,
            pass: setting("pass")?,
            n: size("n")?,
        })
    }

    /// Without a mask, at the ladder's size.
    pub fn of_ladder(pass: &'a str) -> Self {
        Cell { threads: 1, d: D as u64, mask: "full", pass, n: N as u64 }
    }

    /// FLOPs of the products, half of which a causal mask spares.
    pub fn flops(&self) -> f64 {
        let pass = if self.pass == "forward" { 1.0 } else { 3.5 };
        let work = pass * if self.mask == "causal" { 0.5 } else { 1.0 };
        work * (4 * HEADS * D) as f64 * (self.n * self.n) as f64
    }
}

/// How long somebody took in a cell: the median of the rounds.
pub fn time<'a>(record: &'a Record, name: &str, cell: Cell) -> Result<&'a Measurement> {
    for m in record.all(&format!("attention/{name}"), "f32") {
        if m.unit == Unit::Seconds && Cell::of(m)? == cell {
            return Ok(m);
        }
    }
    let cell = describe(cell);
    anyhow::bail!("the record `{}` has no time of {name} for {cell}", record.topic)
}

/// How many times as long as this crate somebody took in a cell: the median of the rounds' ratios, and their spread.
#[derive(Debug, Clone, Copy)]
pub struct Ratio<'a> {
    pub cell: Cell<'a>,
    pub ratio: f64,
    pub spread: f64,
}

/// Cell by cell.
fn ratios<'a>(record: &'a Record, peer: &str) -> Result<Vec<Ratio<'a>>> {
    let of = |m: &'a Measurement| {
        let ratio = record.in_unit(m, Unit::Ratio)?;
        Ok(Ratio { cell: Cell::of(m)?, ratio, spread: m.spread })
    };
    record.all(&format!("attention/{peer} / flash"), "f32").map(of).collect()
}

/// The cells of a pass for which the chapter shows every peer.
pub fn shown_cells(pass: &str) -> impl Iterator<Item = Cell<'_>> {
    let cell = move |mask, n| Cell { threads: 1, d: 64, mask, pass, n };
    ["full", "causal"].into_iter().flat_map(move |mask| LENGTHS.map(|n| cell(mask, n)))
}

/// The ratios of a peer in these cells.
pub fn shown<'a>(record: &'a Record, peer: &str) -> Result<Vec<Ratio<'a>>> {
    let mut ratios = ratios(record, peer)?;
    ratios.retain(|r| (r.cell.threads, r.cell.d) == (1, 64));
    Ok(ratios)
}

/// The ratio in a cell, if it was measured.
pub fn ratio_in(ratios: &[Ratio], cell: Cell) -> Option<f64> {
    ratios.iter().find(|r| r.cell == cell).map(|r| r.ratio)
}

/// Of PyTorch's fused kernel, without which there is no comparison.
pub fn against_pytorch(record: &Record) -> Result<Vec<Ratio<'_>>> {
    let fused = ratios(record, "pytorch-fused")?;
    ensure!(
        fused.len() >= 96,
        "the record `peers` has only {} cells against PyTorch",
        fused.len()
    );
    Ok(fused)
}

pub fn mean(ratios: &[Ratio]) -> f64 {
    geometric_mean(&ratios.iter().map(|r| r.ratio).collect::<Vec<_>>())
}

pub fn smallest<'a>(ratios: &[Ratio<'a>]) -> Result<Ratio<'a>> {
    ratios.iter().copied().min_by(|a, b| a.ratio.total_cmp(&b.ratio)).context("no cell")
}

pub fn largest<'a>(ratios: &[Ratio<'a>]) -> Result<Ratio<'a>> {
    ratios.iter().copied().max_by(|a, b| a.ratio.total_cmp(&b.ratio)).context("no cell")
}

/// A cell in which the quotient of the median times says the opposite of the median of the ratios.
pub struct Turned<'a> {
    pub cell: Cell<'a>,
    pub quotient: f64,
    /// Of this crate's times.
    pub spread: f64,
}

/// Those that are turned.
pub fn turned<'a>(record: &Record, ratios: &[Ratio<'a>]) -> Result<Vec<Turned<'a>>> {
    let mut turned = vec![];
    for &Ratio { cell, ratio, .. } in ratios {
        let ours = time(record, "flash", cell)?;
        let quotient = time(record, "pytorch-fused", cell)?.median / ours.median;
        if (quotient < 1.0) != (ratio < 1.0) {
            turned.push(Turned { cell, quotient, spread: ours.spread / ours.median });
        }
    }
    Ok(turned)
}

// --------------------------------------------------------------------------------------- computed, and then hidden

/// How many scores of (n, n) a kernel computes under a causal mask that walks over blocks of `queries` queries, and for each
/// over `keys` keys at a time, as far as its last query sees; the last of them are computed whole.
fn computed(n: u64, queries: u64, keys: u64) -> u64 {
    let blocks =
        (0..n.div_ceil(queries)).map(|i| (i * queries, n.min((i + 1) * queries)));
    blocks.map(|(start, end)| (end - start) * n.min(end.div_ceil(keys) * keys)).sum()
}

/// The same of a walk over blocks of `keys` keys, and for each over `queries` queries at a time, from the first that sees one.
fn computed_back(n: u64, keys: u64, queries: u64) -> u64 {
    let blocks = (0..n.div_ceil(keys)).map(|i| (i * keys, n.min((i + 1) * keys)));
    blocks.map(|(start, end)| (end - start) * (n - start / queries * queries)).sum()
}

/// PyTorch's blocks of queries for a sequence of this length, and its tiles' keys: `flash_attention_kernel_impl` in
/// aten/src/ATen/native/cpu/FlashAttentionKernel.cpp, which has the same numbers for the way back.
pub fn split_sizes(n: u64) -> (u64, u64) {
    let queries = match n {
        768.. => 256,
        192.. => 64,
        _ => 32,
    };
    (queries, 512)
}

/// A ratio under a causal mask, predicted from the one without a mask.
#[derive(Debug, Clone, Copy)]
pub struct Forecast {
    pub n: u64,
    pub predicted: f64,
    pub measured: f64,
}

/// What a causal mask costs at one length in scores that are computed and then hidden, and what that predicts.
pub struct Hidden {
    pub n: u64,
    /// The shares of all scores that are computed: by PyTorch, by this crate forward, and by it backward.
    pub computed: [f64; 3],
    /// Forward, and with the backward pass.
    pub forecasts: [Forecast; 2],
}

/// `rows` and `numbers` are those of this crate's panels.
pub fn hidden(fused: &[Ratio], (rows, numbers): (u64, u64)) -> Result<Vec<Hidden>> {
    let of = |n: u64| {
        let (queries, keys) = split_sizes(n);
        let counts = [
            computed(n, queries, keys),
            computed(n, rows, numbers),
            computed_back(n, rows, numbers),
        ];
        let [theirs, ours, ours_back] = counts.map(|count| count as f64);
        let forecast = |pass, quotient: f64| {
            let measured = |mask| {
                let cell = Cell { threads: 1, d: 64, mask, pass, n };
                ratio_in(fused, cell).with_context(|| describe(cell))
            };
            let (full, measured) = (measured("full")?, measured("causal")?);
            anyhow::Ok(Forecast { n, predicted: full * quotient, measured })
        };
        let both = 7.0 * theirs / (2.0 * ours + 5.0 * ours_back);
        Ok(Hidden {
            n,
            computed: [theirs, ours, ours_back].map(|count| count / (n * n) as f64),
            forecasts: [
                forecast("forward", theirs / ours)?,
                forecast("forward+backward", both)?,
            ],
        })
    };
    LENGTHS.into_iter().map(of).collect()
}

/// The lengths at which the ratio is largest: predicted, and measured.
pub fn peaks(forecasts: &[Forecast]) -> [u64; 2] {
    let largest = |of: fn(&Forecast) -> f64| {
        forecasts.iter().max_by(|a, b| of(a).total_cmp(&of(b))).map_or(0, |f| f.n)
    };
    [largest(|f| f.predicted), largest(|f| f.measured)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By asking for each score whether it is computed.
    #[test]
    fn scores_are_counted_as_tiles_compute_them() {
        for (n, queries, keys) in [(8, 2, 8), (8, 4, 2), (10, 4, 3), (7, 8, 8)] {
            let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
            let last = |i: u64| n.min((i / queries + 1) * queries) - 1; // of the block's rows
            let brute = pairs().filter(|&(i, j)| j / keys * keys <= last(i)).count();
            assert_eq!(
                computed(n, queries, keys),
                brute as u64,
                "{n}, {queries}, {keys}"
            );
            // Here i is a key, in blocks, and j a query.
            let first = |i: u64| i / queries * queries / keys * keys;
            let brute = pairs().filter(|&(i, j)| j >= first(i)).count();
            assert_eq!(computed_back(n, queries, keys), brute as u64, "{n}, back");
        }
    }
}
