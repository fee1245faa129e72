//! How the chapter says and draws its peers.

use super::facts::{self, Cell, Ratio, largest, mean, ratio_in, smallest};
use super::words::*;
use crate::output::Page;
use crate::records::{Compared, least_and_most};
use anyhow::{Context, Result, ensure};
use figures::format::{duration, fixed, integer, percent, significant};
use figures::{Axis, BLUE, Line, MUTED, Marks, VERMILION, line_chart};
use record::Record;
use record::statistics::geometric_mean;
use std::collections::BTreeSet;
use std::ops::Range;

const PASSES: [&str; 2] = ["forward", "forward+backward"];

/// Widths and masks.
const KINDS: [(u64, &str); 4] =
    [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")];

const PEERS: [(&str, &str); 6] = [
    ("pytorch-fused", "PyTorch, fused"),
    ("pytorch-written", "PyTorch, written out"),
    ("numpy", "NumPy"),
    ("candle-flash", "candle, fused"),
    ("candle-written", "candle, written out"),
    ("naive", "this crate, naive"),
];

/// `panel`: how many rows a panel of this crate has, and how many numbers it meets at a time.
pub fn generate(page: &mut Page, record: &Record, panel: (u64, u64)) -> Result<()> {
    let fused = facts::against_pytorch(record)?;
    let (counted, short): (Vec<_>, Vec<_>) =
        fused.iter().copied().partition(|r| r.cell.n >= 512);
    page.value("peers-short-mean", fixed(mean(&short), 2));
    summary(page, &counted)?;
    // Cells that could have come out the other way: by their spread, or by another statistic.
    let within = counted.iter().filter(|r| (r.ratio - 1.0).abs() < r.spread).count();
    page.value("peers-within", integer(within));
    let turned = facts::turned(record, &counted)?;
    let of_short = facts::turned(record, &short)?.len();
    page.value("peers-turned", turned_in_words(&turned, of_short));
    means(page, &counted);
    times(page, record)?;
    charts(page, &fused)?;
    hidden(page, &fused, panel)?;
    layers(page, record)
}

fn summary(page: &mut Page, counted: &[Ratio]) -> Result<()> {
    page.value("peers-cells", integer(counted.len()));
    let below = match counted.iter().filter(|r| r.ratio < 1.0).count() {
        0 => "none".to_owned(),
        below => integer(below),
    };
    page.value("peers-below", below);
    let mean = mean(counted);
    page.value("peers-mean", fixed(mean, 2));
    let than =
        Compared::of(mean, 1.0).choose("slower than", "about as fast as", "faster than");
    page.value("than-pytorch", than);
    page.value("worth", worth_in_words(mean));
    let best = largest(counted)?;
    for (key, found) in [("worst", smallest(counted)?), ("best", best)] {
        page.value(format!("peers-{key}"), fixed(found.ratio, 2));
        page.value(format!("peers-{key}-cell"), describe(found.cell));
    }
    page.value("peers-causal", causal_in_words(best.cell));
    Ok(())
}

/// Of some threads, this pass and this kind.
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

/// This crate's times, at a width of 64 on one thread, and how many times as long everybody else took.
fn times(page: &mut Page, record: &Record) -> Result<()> {
    let peers = PEERS.map(|(name, _)| facts::shown(record, name));
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
                let ratio = ratio_in(ratios, cell);
                row.push(ratio.map_or_else(dash, |ratio| fixed(ratio, 2)));
            }
            rows.push(row);
        }
        let names = PEERS.map(|(_, name)| name);
        let header = [&["mask", "$n$", "this crate", "GFLOP/s"][..], &names[..]].concat();
        page.table(file, &header, &rows);
    }
    let written = peers[1..].iter().flatten().map(|r| r.cell.n);
    page.value("peers-up-to", integer(written.max().unwrap_or(0) as usize));
    let candle = facts::shown(record, "candle-flash")?;
    let candle: Vec<_> = candle.iter().map(|r| r.ratio).collect();
    page.value("candle", candle_in_words(&candle));
    // The same comparison as the ladder's, from this record.
    let naive = facts::shown(record, "naive")?;
    for (key, pass) in ["naive-forward", "naive-both"].into_iter().zip(PASSES) {
        let ratio = ratio_in(&naive, Cell::of_ladder(pass));
        let ratio = ratio.context("no naive program")?;
        page.value(format!("peers-{key}"), significant(ratio, 2));
    }
    Ok(())
}

/// What causal masks cost both sides in scores that are computed and then hidden, and what that predicts.
fn hidden(page: &mut Page, fused: &[Ratio], panel: (u64, u64)) -> Result<()> {
    page.value("split-keys", integer(facts::split_sizes(512).1 as usize));
    let hidden = facts::hidden(fused, panel)?;
    page.table_of(
        "hidden",
        &hidden,
        &[
            ("$n$", &|h| integer(h.n as usize)),
            ("PyTorch", &|h| percent(h.computed[0], 0)),
            ("this crate", &|h| percent(h.computed[1], 0)),
            ("this crate, backward", &|h| percent(h.computed[2], 0)),
            ("forward, predicted", &|h| fixed(h.forecasts[0].predicted, 2)),
            ("measured", &|h| fixed(h.forecasts[0].measured, 2)),
            ("forward + backward, predicted", &|h| fixed(h.forecasts[1].predicted, 2)),
            ("measured", &|h| fixed(h.forecasts[1].measured, 2)),
        ],
    );
    let peaks = [0, 1].map(|pass| {
        let forecasts = hidden.iter().map(|hidden| hidden.forecasts[pass]);
        facts::peaks(&forecasts.collect::<Vec<_>>())
    });
    page.value("hidden-peaks", peaks_in_words(peaks));
    let forecasts = hidden.iter().flat_map(|hidden| hidden.forecasts);
    let off: Vec<_> = forecasts.map(|f| f.predicted / f.measured - 1.0).collect();
    page.value("hidden-off", off_in_words(&off));
    Ok(())
}

/// PyTorch's time over ours, against n.
fn charts(page: &mut Page, fused: &[Ratio]) -> Result<()> {
    // The highest point of the second figure at 256 tokens.
    let at_256 = fused.iter().copied().filter(|r| {
        (r.cell.threads, r.cell.pass, r.cell.n) == (1, "forward+backward", 256)
    });
    let highest = largest(&at_256.collect::<Vec<_>>());
    let highest = highest.context("the record `peers` has no cell of 256 tokens")?;
    page.value("peers-wild", wild_in_words(highest));
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

/// The naive layer in f64 beside the same layer in NumPy.
fn layers(page: &mut Page, record: &Record) -> Result<()> {
    let found: Vec<_> = record.all("layer/numpy / naive", "f64").collect();
    ensure!(!found.is_empty(), "no layer beside NumPy's");
    let lengths: BTreeSet<_> = found.iter().filter_map(|m| m.sizes.get("n")).collect();
    for (key, n) in [("shortest", lengths.first()), ("longest", lengths.last())] {
        page.value(format!("layer-{key}"), integer(**n.context("no n")? as usize));
    }
    let ratios: Vec<_> = found.iter().map(|m| m.median).collect();
    let mean = geometric_mean(&ratios);
    let (least, _) = least_and_most(ratios.iter().copied());
    page.value("layer", layer_in_words(mean));
    page.value("layer-cells", integer(ratios.len()));
    let wins = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    page.value("layer-wins", integer(wins));
    page.value("layer-least", fixed(least, 2));
    page.value("layer-mean", fixed(mean, 2));
    Ok(())
}
