//! The chapter's page: values, tables and figures.

use super::facts::{
    self, Bytes, CAPACITY, CAPACITY_N, D, ELEMENT, N, Runs, crossings, intensity,
    kibibytes, operations,
};
use crate::counting::{self, ridge};
use crate::figures::format::{fixed, integer, percent};
use crate::figures::{
    Area, BLUE, GREEN, Line, MUTED, Marks, TEXT, VERMILION, arrow, label, text_box,
};
use crate::output::Page;
use crate::tiles_traffic::page::{chart, fast_memory, mebibytes, tokens};
use anyhow::{Context, Result};
use laboratory::hardware::H100;
use laboratory::traffic::{Counts, Report};

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("d", integer(D));
    page.value("n", integer(N));
    page.value("capacity-kib", fixed(kibibytes(CAPACITY), 0));
    let runs = facts::runs()?;
    let run = runs.last().context("nothing ran")?;
    passes(page, &run.naive)?;
    naive_in_words(page, &run.naive)?;
    fused(page, run)?;
    on_a_thread(page)?;
    over_tokens(page, &runs)?;
    over_capacity(page)?;
    backward(page, &run.naive)
}

/// The naive program, sweep by sweep.
fn passes(page: &mut Page, naive: &Report) -> Result<()> {
    let row = |name: &str, matrix: Counts, all: Counts, operations| -> Result<_> {
        let intensity = intensity(operations, all);
        let decimals = match intensity {
            0.0 => 0,
            x if x < 1.0 => 3,
            _ => 1,
        };
        Ok(vec![
            name.to_owned(),
            crossings(matrix.read)?.to_string(),
            crossings(matrix.written)?.to_string(),
            integer((all.all() - matrix.all()) as usize),
            mebibytes(all.all() as f64),
            fixed(intensity, decimals),
        ])
    };
    let mut rows = vec![];
    for pass in naive.passes() {
        rows.push(row(
            pass,
            naive.of(pass, "scores"),
            naive.pass(pass),
            operations(pass)?,
        )?);
    }
    let operations = facts::all_operations(naive.passes())?;
    rows.push(row("**all**", naive.matrix("scores"), naive.total(), operations)?);
    let header = [
        "sweep",
        "$(n, n)$ read",
        "$(n, n)$ written",
        "numbers of $Q, K, V, O$",
        "MiB",
        "operations per byte",
    ];
    page.table("passes", &header, &rows);
    draw_crossings(page, "crossings", "naive", naive)
}

/// An arrow for each time that the matrix crosses between the memories, sweep by sweep.
fn draw_crossings(
    page: &mut Page,
    name: &str,
    program: &str,
    report: &Report,
) -> Result<()> {
    const PASS: i32 = 124;
    let title = format!("Crossings of the (n, n) matrix in the {program} program");
    let says = "Slow memory above, fast memory below, the sweeps between them from left to right. An arrow upwards is a \
                time that the matrix is written, an arrow downwards one that it is read.";
    let passes = report.passes();
    let width = PASS * passes.len() as i32;
    page.figure(name, (&title, says), (width as u32 + 20, 204), |area: &Area| {
        text_box(area, (10, 6), (width, 34), "slow memory", VERMILION)?;
        text_box(area, (10, 136), (width, 34), "fast memory", GREEN)?;
        for (i, pass) in (0..).zip(passes) {
            let matrix = report.of(pass, "scores");
            let centre = 10 + PASS / 2 + PASS * i;
            label(area, (centre, 190), pass, TEXT)?;
            // Downwards to the left of the centre, upwards to the right.
            for (numbers, side, ends, colour) in [
                (matrix.read, -12, [44, 132], BLUE),
                (matrix.written, 12, [132, 44], MUTED),
            ] {
                for k in 1..=crossings(numbers)? as i32 {
                    arrow(area, &ends.map(|y| (centre + side * k, y)), colour)?;
                }
            }
        }
        Ok(())
    })
}

/// The numbers of the naive program.
fn naive_in_words(page: &mut Page, naive: &Report) -> Result<()> {
    let (total, matrix) = (naive.total(), naive.matrix("scores"));
    let strip = facts::strip(CAPACITY);
    page.value("strip", integer(strip));
    page.value("strips", integer(N.div_ceil(strip)));
    page.value("total", integer(total.all() as usize));
    // The ridges of a GPU.
    page.value("gpu-ridge", fixed(H100.ridge_f32(), 0));
    page.value("gpu-ridge-bf16", fixed(H100.ridge_bf16(), 0));
    let (moved, work) = facts::middle(naive)?;
    page.value("middle-moved", percent(moved, 0));
    page.value("middle-work", percent(work, 1));
    page.value("matrix-share", percent(matrix.all() as f64 / total.all() as f64, 1));
    page.value("inputs-mib", integer((4 * N * D * ELEMENT) >> 20));
    Ok(())
}

/// The savings of fusing.
fn fused(page: &mut Page, run: &Runs) -> Result<()> {
    let crossings = |report: &Report| crossings(report.matrix("scores").all());
    draw_crossings(page, "crossings-fused", "fused", &run.fused)?;
    page.value("crossings-naive", crossings(&run.naive)?.to_string());
    page.value("crossings-with-mask", (crossings(&run.naive)? + 1).to_string());
    page.value("crossings-fused", crossings(&run.fused)?.to_string());
    page.value("fused-saves", percent(facts::saved_by_fusing(run), 0));
    page.value("naive-mib", mebibytes(run.naive.total().all() as f64));
    Ok(())
}

/// The measurements on the thread of the chapter Roofline: its ridge, and what fusing could save at most.
pub fn on_a_thread(page: &mut Page) -> Result<()> {
    let records = counting::records(page)?;
    page.value("cpu-ridge", fixed(ridge(&records[2])?, 1));
    page.value("cpu-name", records[0].machine.processor());
    let [times, _, steps] = records;
    let step = |name: &str| steps.seconds(name, "f32", 4096);
    let removed = step("steps/scale")? + step("steps/causal mask")?;
    let whole = times.seconds("attention/forward causal", "f32", 4096)?;
    page.value("fusable-share", percent(removed / whole, 0));
    Ok(())
}

/// The lines of both figures, against tokens or against capacities.
fn lines(points: &[(f64, &Bytes)]) -> [Line; 4] {
    let line = |name, colour, part: fn(&Bytes) -> f64| {
        Line::new(name, colour, points.iter().map(|(x, bytes)| (*x, part(bytes))))
    };
    [
        line("(n, n), naive", VERMILION, |bytes| bytes.matrix),
        line("(n, n), fused", VERMILION, |bytes| bytes.fused_matrix).dashed(),
        line("K and V", BLUE, |bytes| bytes.keys_and_values),
        line("inputs and output, once", GREEN, |bytes| bytes.inputs_and_output).dashed(),
    ]
}

fn over_tokens(page: &mut Page, runs: &[Runs]) -> Result<()> {
    let predicted = facts::over_tokens();
    let points: Vec<_> = predicted.iter().map(|(n, bytes)| (*n as f64, bytes)).collect();
    let lines = lines(&points);
    let rings = runs.iter().flat_map(|run| run.bytes().map(|y| (run.n as f64, y)));
    let rings: Vec<_> = rings.collect();
    let (largest, bytes) = predicted.last().context("no lengths")?;
    page.value("largest", integer(*largest));
    let ratio = bytes.matrix / bytes.inputs_and_output;
    page.value("largest-ratio", integer(ratio as usize));
    let words = (
        "Bytes between slow and fast memory against the number of tokens",
        "Both lines of the (n, n) matrix rise with the square of n, the fused one at half the height of the naive one. \
         Inputs and output rise in proportion to n and fall far behind. Keys and values first run beside them and \
         turn towards the square when they have to be read in several strips.",
    );
    let marks = Marks { rings: &rings, ..Marks::default() };
    chart(page, ("tokens", words), (tokens(), 1e4..1e10), &lines, marks)
}

fn over_capacity(page: &mut Page) -> Result<()> {
    let predicted = facts::over_capacity();
    let even = predicted.iter().find(|(_, bytes)| bytes.keys_and_values <= bytes.matrix);
    let (even, _) = even.context("the matrix never costs more than keys and values")?;
    page.value("capacity-n", integer(CAPACITY_N));
    page.value("row-fits-kib", fixed(kibibytes(CAPACITY_N), 0));
    page.value("keys-less-kib", fixed(kibibytes(*even), 0));
    let points = predicted.iter().map(|(m, bytes)| (kibibytes(*m), bytes));
    let lines = lines(&points.collect::<Vec<_>>());
    let words = (
        "Bytes between slow and fast memory against the capacity of fast memory",
        "The line of keys and values falls steeply as the capacity grows, until each is read once only. The lines of the \
         (n, n) matrix have one small step down where a row of scores fits, and are level on both sides of it.",
    );
    let axes = (fast_memory(1.0), 1e6..1e10);
    chart(page, ("capacity", words), axes, &lines, Marks::default())
}

fn backward(page: &mut Page, naive: &Report) -> Result<()> {
    let backward = facts::backward()?;
    let row =
        |name: &str, weights: Counts, gradients: Counts, all: Counts| -> Result<_> {
            let mut row = vec![name.to_owned()];
            for numbers in [weights.read, gradients.read, gradients.written] {
                row.push(crossings(numbers)?.to_string());
            }
            row.push(mebibytes(all.all() as f64));
            Ok(row)
        };
    let mut rows = vec![];
    for pass in backward.passes() {
        let [weights, gradients] =
            ["scores", "grad_scores"].map(|name| backward.of(pass, name));
        rows.push(row(pass, weights, gradients, backward.pass(pass))?);
    }
    let [weights, gradients] = ["scores", "grad_scores"].map(|m| backward.matrix(m));
    rows.push(row("**all**", weights, gradients, backward.total())?);
    let header = ["sweep", "weights read", "gradients read", "gradients written", "MiB"];
    page.table("backward", &header, &rows);
    let of_backward = crossings(weights.all() + gradients.all())?;
    let both = of_backward + crossings(naive.matrix("scores").all())?;
    page.value("crossings-backward", of_backward.to_string());
    page.value("crossings-both", both.to_string());
    Ok(())
}
