//! The times of others, as multiples of this crate's.

use crate::fast::facts::flops;
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

    /// FLOPs of the products at the width of the ladder.
    pub fn flops(&self) -> f64 {
        flops(self.n as usize, self.pass != "forward", self.mask == "causal")
    }
}

/// Returns a program's time in a cell: the median of the rounds.
pub fn time<'a>(record: &'a Record, name: &str, cell: Cell) -> Result<&'a Measurement> {
    for m in record.all(&format!("attention/{name}"), "f32") {
        if m.unit == Unit::Seconds && Cell::of(m)? == cell {
            return Ok(m);
        }
    }
    anyhow::bail!("the record `{}` has no time of {name} for {cell:?}", record.topic)
}

/// A program's time in a cell as a multiple of this crate's: the median of the rounds' ratios.
#[derive(Debug, Clone, Copy)]
pub struct Ratio<'a> {
    pub cell: Cell<'a>,
    pub ratio: f64,
}

/// Cell by cell.
pub fn ratios<'a>(record: &'a Record, peer: &str) -> Result<Vec<Ratio<'a>>> {
    let of = |m: &'a Measurement| {
        Ok(Ratio { cell: Cell::of(m)?, ratio: record.in_unit(m, Unit::Ratio)? })
    };
    record.all(&format!("attention/{peer} / flash"), "f32").map(of).collect()
}

/// The cells of a pass for which the chapter shows every peer.
pub fn shown_cells(pass: &str) -> impl Iterator<Item = Cell<'_>> {
    let cell = move |mask, n| Cell { threads: 1, d: 64, mask, pass, n };
    ["full", "causal"].into_iter().flat_map(move |mask| LENGTHS.map(|n| cell(mask, n)))
}

/// Returns the ratios of PyTorch's fused kernel, without which there is no comparison.
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

/// Returns the same for the cells with at least 512 tokens.
pub fn compared(record: &Record) -> Result<Vec<Ratio<'_>>> {
    let mut fused = against_pytorch(record)?;
    fused.retain(|r| r.cell.n >= 512);
    Ok(fused)
}
