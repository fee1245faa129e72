//! The peers on the page: values, tables and figures.

use super::facts::{self, Cell, Ratio, mean};
use crate::figures::format::{duration, fixed, integer};
use crate::figures::{Axis, BLUE, Line, MUTED, Marks, VERMILION, line_chart};
use crate::output::Page;
use crate::records::{least_and_most, list, machine_in_brief};
use anyhow::Result;
use record::statistics::geometric_mean;
use record::{Machine, Record};
use std::collections::BTreeSet;
use std::ops::Range;

const PASSES: [&str; 2] = ["forward", "forward+backward"];

/// Widths and masks.
const KINDS: [(u64, &str); 4] =
    [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")];

const PEERS: [(&str, &str); 4] = [
    ("pytorch-fused", "PyTorch, fused"),
    ("pytorch-written", "PyTorch, written out"),
    ("numpy", "NumPy"),
    ("naive", "this crate, naive"),
];

/// `records`: of each machine, the one that is shown in full first. `without_avx512`: of those where this was measured, too.
pub fn generate(
    page: &mut Page,
    records: &[Record],
    without_avx512: &[Record],
) -> Result<()> {
    by_width_of_vectors(page, records, without_avx512)?;
    by_machine(page, records)?;
    let machines: Vec<_> = records.iter().map(|record| &record.machine).collect();
    page.value("with-avx512", with_avx512(&machines));
    page.value("numpy-exponentials", numpy_exponentials(&machines));
    let record = &records[0];
    let fused = &facts::compared(record)?;
    // Cells that could have come out the other way.
    let within = fused.iter().filter(|r| (r.ratio - 1.0).abs() < r.spread).count();
    page.value("peers-within", integer(within));
    page.value("peers-cells", integer(fused.len()));
    page.value("split-keys", integer(facts::PYTORCH_TILE_KEYS));
    means(page, fused);
    times(page, record)?;
    charts(page, &facts::against_pytorch(record)?)
}

/// A line for each machine: the times of PyTorch's fused kernel, as multiples of this crate's. And of all machines: the
/// range of NumPy's layer as a multiple of this crate's naive one.
fn by_machine(page: &mut Page, records: &[Record]) -> Result<()> {
    let mean = |ratios: &[f64]| fixed(geometric_mean(ratios), 2);
    let (mut rows, mut means, mut numpy) = (vec![], vec![], vec![]);
    let (mut wins_of_all, mut all) = (0, 0);
    for record in records {
        let fused: Vec<_> = facts::compared(record)?.iter().map(|r| r.ratio).collect();
        let (least, most) = least_and_most(fused.iter().copied());
        let wins = fused.iter().filter(|ratio| **ratio >= 1.0).count();
        wins_of_all += wins;
        all += fused.len();
        numpy.push(geometric_mean(&facts::layers(record)?));
        means.push(geometric_mean(&fused));
        rows.push(vec![
            machine_in_brief(&record.machine),
            mean(&fused),
            format!("{} to {}", fixed(least, 2), fixed(most, 2)),
            format!("{wins} of {}", fused.len()),
        ]);
    }
    let header = ["machine", "PyTorch, fused / ours", "range", "at least 1"];
    page.table("machines", &header, &rows);
    page.value("peers-wins", format!("{wins_of_all} of {all}"));
    let (least, most) = least_and_most(means);
    page.value("fused-least", fixed(least, 1));
    page.value("fused-most", fixed(most, 1));
    let (least, most) = least_and_most(numpy);
    page.value("numpy-least", fixed(least, 1));
    page.value("numpy-most", fixed(most, 1));
    Ok(())
}

/// The names of the machines of which this is known to be so of AVX-512.
fn named(machines: &[&Machine], has_avx512: Option<bool>) -> Option<String> {
    let is = |machine: &&&Machine| {
        machine.known_design().design().map(|design| design.has_avx512) == has_avx512
    };
    let names: Vec<_> =
        machines.iter().filter(is).map(|machine| machine.processor()).collect();
    (!names.is_empty()).then(|| list(&names))
}

/// Says which of the machines have AVX-512.
fn with_avx512(machines: &[&Machine]) -> String {
    let parts = [
        named(machines, Some(true)).map(|names| format!("{names} can use both")),
        named(machines, Some(false)).map(|names| format!("{names} AVX2 alone")),
        named(machines, None).map(|names| format!("of {names} we don't know")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.join("; ")
}

/// Says on which of the machines NumPy exponentiates numbers of `f64` in vector instructions, as it does only with AVX-512.
fn numpy_exponentials(machines: &[&Machine]) -> String {
    let mut text = "Our exponentials are made in vector instructions everywhere. NumPy's of `f64` need AVX-512 for that"
        .to_owned();
    if let Some(names) = named(machines, Some(false)) {
        text += &format!(
            ", so on {names} it computes them one by one, which is part of its ratio there"
        );
    }
    if let Some(names) = named(machines, None) {
        text += &format!("; we don't know whether {names} has it");
    }
    text + "."
}

/// A line for each machine that was measured with and without AVX-512.
fn by_width_of_vectors(
    page: &mut Page,
    records: &[Record],
    without_avx512: &[Record],
) -> Result<()> {
    let (mut rows, mut leads) = (vec![], vec![]);
    for without in without_avx512 {
        let with = records.iter().find(|with| with.machine.is_same(&without.machine));
        let Some(with) = with else { continue };
        let means = facts::without_avx512(with, without)?;
        leads.push(means[3]);
        let means = means.map(|mean| fixed(mean, 2));
        rows.push([&[with.machine.processor()][..], &means].concat());
    }
    let (least, most) = least_and_most(leads);
    page.value("avx2-least", fixed(least, 2));
    page.value("avx2-most", fixed(most, 2));
    let header = [
        "machine",
        "PyTorch, fused: time with AVX2 / with AVX-512",
        "ours: time with AVX2 / with AVX-512",
        "PyTorch / ours, both with AVX-512",
        "PyTorch / ours, both with AVX2",
    ];
    page.table("without-avx512", &header, &rows);
    Ok(())
}

/// Returns the ratios with this number of threads, this pass and this kind.
fn group<'a>(
    ratios: &[Ratio<'a>],
    threads: usize,
    pass: &str,
    (d, mask): (u64, &str),
) -> Vec<Ratio<'a>> {
    let is_in = |r: &&Ratio| r.cell == Cell { threads, d, mask, pass, n: r.cell.n };
    ratios.iter().filter(is_in).copied().collect()
}

fn means(page: &mut Page, counted: &[Ratio]) {
    let mut rows = vec![];
    for threads in counted.iter().map(|r| r.cell.threads).collect::<BTreeSet<_>>() {
        for pass in PASSES {
            let means =
                KINDS.map(|kind| fixed(mean(&group(counted, threads, pass, kind)), 2));
            let start = [integer(threads), pass.replace('+', " + ")];
            rows.push(start.into_iter().chain(means).collect());
        }
    }
    let header = ["threads", "pass", "d = 64", "64, causal", "d = 128", "128, causal"];
    page.table("means", &header, &rows);
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
    // PyTorch's attention as separate products and a softmax, and NumPy's.
    let written = peers[1].iter().chain(&peers[2]).filter(|r| r.cell.d == 64);
    let (least, most) = least_and_most(written.map(|r| r.ratio));
    page.value("written-least", fixed(least, 1));
    page.value("written-most", fixed(most, 0));
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
        let group = group(fused, 1, pass, (d, mask));
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
    use crate::records::tests::committed;

    /// A machine whose compiler gives this name for its design, and which tells no caches.
    fn machine(design: &str) -> Machine {
        let [record] = committed().of_one_machine(["peers"]).unwrap();
        let mut machine = record.machine;
        machine.cpu = "Abacus".to_owned();
        machine.caches.clear();
        machine.microarchitecture = Some(design.to_owned());
        machine
    }

    #[test]
    fn numpy_exponentiates_one_by_one_where_avx512_is_missing() {
        let (wide, narrow, unknown) =
            (machine("znver4"), machine("znver3"), machine("beads"));
        let of = |machines: &[&Machine]| numpy_exponentials(machines);
        assert!(of(&[&wide]).ends_with("need AVX-512 for that."));
        let says = "so on Abacus (Zen 3) it computes them one by one";
        assert!(of(&[&wide, &narrow]).contains(says));
        let says = "we don't know whether Abacus (beads) has it";
        assert!(of(&[&unknown]).contains(says));
    }

    #[test]
    fn machines_are_sorted_by_their_instructions() {
        let machines = ["znver3", "znver5", "znver4", "beads"].map(machine);
        assert_eq!(
            with_avx512(&machines.each_ref()),
            "Abacus (Zen 5) and Abacus (Zen 4) can use both; Abacus (Zen 3) AVX2 alone; of Abacus (beads) we don't know"
        );
    }

    #[test]
    fn figures_are_told_as_they_are_drawn() {
        let point = |d, n, ratio| {
            let cell = Cell { threads: 1, d, mask: "causal", pass: "forward", n };
            Ratio { cell, ratio, spread: 0.1 }
        };
        let told = chart_in_words(&[point(64, 512, 1.2), point(128, 512, 1.1)]);
        assert!(told.starts_with("All points"));
        assert!(told.ends_with("highest at 512 tokens."));
        let told = chart_in_words(&[point(64, 512, 0.9), point(128, 256, 1.1)]);
        assert!(told.starts_with("1 of 2 points"));
        assert!(told.ends_with("512 tokens for d = 64 and 256 for d = 128."));
    }
}
