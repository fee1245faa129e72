//! Tables and figures of traffic, for both chapters.

use super::facts::{
    CAPACITY, D, ELEMENT, LONG, OfTiles, Pass, bytes, kibibytes, lengths,
};
use crate::output::Page;
use anyhow::Result;
use figures::format::{fixed, integer, percent, significant};
use figures::{Axis, Line, Marks, RGBColor, line_chart};
use std::ops::Range;

pub fn mebibytes(numbers: f64) -> String {
    let mebibytes = bytes(numbers) / f64::from(1 << 20);
    if mebibytes < 1000.0 {
        fixed(mebibytes, 1)
    } else {
        integer(mebibytes.round() as usize)
    }
}

/// Returns a factor as text.
pub fn factor(more: f64, less: f64) -> String {
    significant(more / less, 3)
}

/// The machine's values, for both chapters.
pub fn machine(page: &mut Page) {
    page.value("d", integer(D));
    page.value("long", integer(LONG));
    page.value("capacity-kib", integer(CAPACITY * ELEMENT / 1024));
}

/// Between which capacities the formula of a pass is close, and how close.
pub fn formula(page: &mut Page, pass: Pass) -> Result<()> {
    let close = pass.close();
    page.value("formula-from-kib", fixed(kibibytes(*close.start()), 0));
    page.value("formula-to-kib", fixed(kibibytes(*close.end()), 0));
    page.value("formula-within", percent(pass.above_formula(close)?[1], 1));
    Ok(())
}

pub fn over_tiles(page: &mut Page, over_tiles: &[OfTiles]) {
    page.table_of(
        "tiles",
        over_tiles,
        &[
            ("queries × keys", &|of| format!("{} × {}", of.tiles.0, of.tiles.1)),
            ("fast memory", &|of| integer(of.peak)),
            ("MiB", &|of| mebibytes(of.full)),
            ("formula", &|of| mebibytes(of.full_formula)),
            ("off by", &|of| percent(of.off(), 1)),
            ("causal, MiB", &|of| mebibytes(of.causal)),
            ("formula", &|of| mebibytes(of.causal_formula)),
            ("off by", &|of| percent(of.causal_off(), 1)),
        ],
    );
}

/// A line over the number of tokens.
pub fn over_lengths(
    name: &str,
    colour: RGBColor,
    numbers: impl Fn(usize) -> Result<f64>,
) -> Result<Line> {
    let points = lengths().map(|n| Ok((n as f64, bytes(numbers(n)?))));
    Ok(Line::new(name, colour, points.collect::<Result<Vec<_>>>()?))
}

/// A line over these capacities.
pub fn over_capacities(
    name: &str,
    colour: RGBColor,
    capacities: &[usize],
    numbers: impl Fn(usize) -> Result<f64>,
) -> Result<Line> {
    let points = capacities.iter().map(|&m| Ok((kibibytes(m), bytes(numbers(m)?))));
    Ok(Line::new(name, colour, points.collect::<Result<Vec<_>>>()?))
}

pub fn tokens() -> Axis {
    Axis::log("tokens n (logarithmic)", 2.0, 64.0..16384.0)
}

/// The capacity of fast memory, from so many KiB on.
pub fn fast_memory(from: f64) -> Axis {
    Axis::log("fast memory in KiB (logarithmic)", 2.0, from..4096.0)
}

/// Bytes over the number of tokens or the capacity of fast memory.
pub fn chart(
    page: &mut Page,
    (name, words): (&str, (&str, &str)),
    (x, bytes): (Axis, Range<f64>),
    lines: &[Line],
    marks: Marks,
) -> Result<()> {
    let y = Axis::log("bytes (logarithmic)", 10.0, bytes);
    page.figure(name, words, (520, 420), |area| line_chart(area, &x, &y, lines, marks))
}
