//! The peers on the page: values, tables and figures.

use super::facts::{self, Cell, Ratio, mean};
use crate::figures::format::{duration, fixed, integer};
use crate::figures::{Axis, BLUE, Line, MUTED, Marks, VERMILION, line_chart};
use crate::output::Page;
use crate::records::{least_and_most, machine_in_brief};
use anyhow::Result;
use record::Record;
use std::ops::Range;

const PASSES: [&str; 2] = ["forward", "forward+backward"];

const PEERS: [(&str, &str); 4] = [
    ("pytorch-fused", "PyTorch, fused"),
    ("pytorch-written", "PyTorch, written out"),
    ("numpy", "NumPy"),
    ("naive", "this crate, naive"),
];

/// `records`: of each machine, the one that is shown in full first. `avx2`: of those that were measured without AVX-512, too.
pub fn generate(page: &mut Page, records: &[Record], avx2: &[Record]) -> Result<()> {
    with_avx2(page, records, avx2)?;
    by_machine(page, records)?;
    times(page, &records[0])?;
    charts(page, &facts::against_pytorch(&records[0])?)
}

/// A line for each machine: the times of PyTorch's fused kernel, as multiples of this crate's.
fn by_machine(page: &mut Page, records: &[Record]) -> Result<()> {
    let mut rows = vec![];
    let (mut wins_of_all, mut all) = (0, 0);
    for record in records {
        let fused = facts::compared(record)?;
        let (least, most) = least_and_most(fused.iter().map(|r| r.ratio));
        let wins = fused.iter().filter(|r| r.ratio >= 1.0).count();
        wins_of_all += wins;
        all += fused.len();
        rows.push(vec![
            machine_in_brief(&record.machine),
            fixed(mean(&fused), 2),
            format!("{} to {}", fixed(least, 2), fixed(most, 2)),
            format!("{wins} of {}", fused.len()),
        ]);
    }
    let header = ["machine", "PyTorch, fused / ours", "range", "at least 1"];
    page.table("machines", &header, &rows);
    page.value("peers-wins", format!("{wins_of_all} of {all}"));
    Ok(())
}

/// The range of the means of PyTorch's fused kernel over this crate, both without AVX-512.
fn with_avx2(page: &mut Page, records: &[Record], avx2: &[Record]) -> Result<()> {
    let mut means = vec![];
    for record in avx2 {
        if records.iter().any(|with| with.machine.is_same(&record.machine)) {
            means.push(mean(&facts::ratios(record, "pytorch-fused")?));
        }
    }
    let (least, most) = least_and_most(means);
    page.value("avx2-least", fixed(least, 2));
    page.value("avx2-most", fixed(most, 2));
    Ok(())
}

/// Returns the ratios on one thread, of this pass, this width and this mask.
fn group<'a>(ratios: &[Ratio<'a>], pass: &str, (d, mask): (u64, &str)) -> Vec<Ratio<'a>> {
    let is_in = |r: &&Ratio| r.cell == Cell { threads: 1, d, mask, pass, n: r.cell.n };
    ratios.iter().filter(is_in).copied().collect()
}

/// This crate's times, at a width of 64 on one thread, and how many times as long each peer took.
fn times(page: &mut Page, record: &Record) -> Result<()> {
    let peers = PEERS.map(|(name, _)| facts::ratios(record, name));
    let peers = peers.into_iter().collect::<Result<Vec<_>>>()?;
    let dash = || "–".to_owned();
    for (pass, file) in PASSES.into_iter().zip(["times", "times-both"]) {
        let mut rows = vec![];
        for cell in facts::shown_cells(pass) {
            let ours = facts::time(record, "flash", cell)?.median;
            let speed = fixed(cell.flops() / ours / 1e9, 0);
            let n = integer(cell.n as usize);
            let mut row = vec![cell.mask.to_owned(), n, duration(ours), speed];
            for ratios in &peers {
                let found = ratios.iter().find(|r| r.cell == cell);
                row.push(found.map_or_else(dash, |r| fixed(r.ratio, 2)));
            }
            rows.push(row);
        }
        let names = PEERS.map(|(_, name)| name);
        let header = [&["mask", "$n$", "this crate", "GFLOP/s"][..], &names[..]].concat();
        page.table(file, &header, &rows);
    }
    Ok(())
}

/// PyTorch's time over ours, against n.
fn charts(page: &mut Page, fused: &[Ratio]) -> Result<()> {
    let all = fused.iter().map(|r| r.ratio);
    let (least, most) = least_and_most(all.chain([1.0]));
    let range = (least * 10.0).floor() / 10.0..(most * 2.0).ceil() / 2.0;
    chart(page, "peers", "forward", fused, range.clone())?;
    chart(page, "peers-both", "forward+backward", fused, range)
}

fn chart(
    page: &mut Page,
    name: &str,
    pass: &str,
    fused: &[Ratio],
    range: Range<f64>,
) -> Result<()> {
    let (mut lines, mut drawn) = (vec![], vec![]);
    for (d, mask) in [(64, "full"), (128, "full"), (64, "causal"), (128, "causal")] {
        let group = group(fused, pass, (d, mask));
        let colour = if mask == "full" { BLUE } else { VERMILION };
        let points = group.iter().map(|r| (r.cell.n as f64, r.ratio));
        let line = Line::new(format!("d = {d}, {mask}"), colour, points);
        lines.push(if d == 128 { line.dashed() } else { line });
        drawn.extend(group);
    }
    lines.push(Line::new("as fast", MUTED, [(256.0, 1.0), (8192.0, 1.0)]).dashed());
    let title = format!(
        "PyTorch's time divided by this crate's, {}, one thread, against the number of tokens",
        pass.replace('+', " and ")
    );
    page.figure(name, (&title, &chart_in_words(&drawn)), (380, 380), |area| {
        let x = Axis::log("tokens n (logarithmic)", 2.0, 256.0..8192.0);
        let y = Axis::linear("PyTorch's time / ours", range);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}

/// Returns a description of a figure of these points.
fn chart_in_words(points: &[Ratio]) -> String {
    let above = match points.iter().filter(|point| point.ratio > 1.0).count() {
        all if all == points.len() => "All points lie".to_owned(),
        some => format!("{some} of {} points lie", points.len()),
    };
    let peak = |d: u64| {
        let line = points.iter().filter(|r| (r.cell.d, r.cell.mask) == (d, "causal"));
        line.max_by(|a, b| a.ratio.total_cmp(&b.ratio)).map_or(0, |r| r.cell.n)
    };
    let peaks = match (peak(64), peak(128)) {
        (one, other) if one == other => format!("{one} tokens"),
        (one, other) => format!("{one} tokens for d = 64 and {other} for d = 128"),
    };
    format!(
        "{above} above the dashed line at 1, where this crate is the faster one. The lines of causal masks are highest at {peaks}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_as_they_are_drawn() {
        let point = |d, n, ratio| {
            let cell = Cell { threads: 1, d, mask: "causal", pass: "forward", n };
            Ratio { cell, ratio }
        };
        let told = chart_in_words(&[point(64, 512, 1.2), point(128, 512, 1.1)]);
        assert!(told.starts_with("All points"));
        assert!(told.ends_with("highest at 512 tokens."));
        let told = chart_in_words(&[point(64, 512, 0.9), point(128, 256, 1.1)]);
        assert!(told.starts_with("1 of 2 points"));
        assert!(told.ends_with("512 tokens for d = 64 and 256 for d = 128."));
    }
}
