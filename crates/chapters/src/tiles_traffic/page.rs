//! Tables and figures of traffic, for both chapters.

use super::facts::{CAPACITY, ELEMENT, bytes, lengths};
use crate::figures::format::{fixed, integer, significant};
use crate::figures::{Axis, Line, Marks, RGBColor, line_chart};
use crate::output::Page;
use anyhow::Result;
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

/// The machine's fast memory, for both chapters.
pub fn capacity(page: &mut Page) {
    page.value("capacity-kib", integer(CAPACITY * ELEMENT / 1024));
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
