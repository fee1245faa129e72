//! What was measured, in words.

use crate::grid::{Cell, Contestant, Pass};
use crate::measured::{Measured, MeasuredCell, Roofs};
use attention::cuda::Shape;
use itertools::Itertools;
use std::fmt::Write;

/// The roofs in one line.
pub fn roofs(roofs: &Roofs) -> String {
    let mut line = format!("roofs: copies of {:.0} GB/s", roofs.copy / 1e9);
    for (dtype, _) in &roofs.products {
        let tflops = roofs.flops(dtype).unwrap_or(f64::NAN) / 1e12;
        let _ = write!(line, ", products of {tflops:.0} TFLOP/s in {dtype}");
    }
    line
}

/// A cell in one line, as it is done.
pub fn line(measured: &MeasuredCell) -> String {
    let tflops = |contestant: &Contestant| {
        let seconds = measured.rounds.seconds(*contestant)?;
        Some(format!("{contestant} {:.1}", measured.cell.tflops(seconds)))
    };
    let speeds: Vec<_> = measured.cell.contestants.iter().filter_map(tflops).collect();
    let speeds = if speeds.is_empty() { "nothing".to_owned() } else { speeds.join(", ") };
    format!("{}: {speeds} TFLOP/s", measured.cell)
}

/// A table for each pass and precision.
pub fn tables(measured: &Measured) -> String {
    let mut text = roofs(&measured.roofs) + "\n";
    let same = |a: &MeasuredCell, b: &MeasuredCell| {
        (a.cell.pass, a.cell.precision) == (b.cell.pass, b.cell.precision)
    };
    for cells in measured.cells.chunk_by(same) {
        text += &table(cells, &measured.roofs);
    }
    text
}

/// Speeds, and for each of our kernels its part of the roof and how many times as long each of PyTorch's backends took.
fn table(cells: &[MeasuredCell], roofs: &Roofs) -> String {
    let Some(first) = cells.first() else { return String::new() };
    let Cell { pass, precision, .. } = first.cell;
    let roof = roofs.flops(&precision.to_string());
    let convention = match pass {
        Pass::Forward => "4 · heads · n² · d operations, half if causal",
        Pass::Backward => "10 · heads · n² · d operations, half if causal",
    };
    let roof_named = roof.map_or("an unknown roof".to_owned(), |roof| {
        format!("the product's {:.0} TFLOP/s", roof / 1e12)
    });
    let mut text = format!(
        "\n{pass}, {precision}: TFLOP/s by {convention}; in % of {roof_named}; then time(theirs) / time(ours)\n\
         {:>4} {:>6} {:>6}",
        "d", "mask", "n"
    );
    let columns = columns(cells, roof);
    for (head, _) in &columns {
        let _ = write!(text, "  {head}");
    }
    text.push('\n');
    for measured in cells {
        let Shape { d, n_q, .. } = measured.cell.shape;
        let _ = write!(text, "{d:>4} {:>6} {n_q:>6}", measured.cell.mask());
        for (head, entry) in &columns {
            let entry = entry(measured).unwrap_or("–".to_owned());
            let _ = write!(text, "  {entry:>width$}", width = head.chars().count());
        }
        text.push('\n');
    }
    text
}

/// What stands over a column, and what stands in it in the row of a cell.
type Column = (String, Box<dyn Fn(&MeasuredCell) -> Option<String>>);

/// The speeds of all, then parts of the roof of each of our kernels, and ratios.
fn columns(cells: &[MeasuredCell], roof: Option<f64>) -> Vec<Column> {
    let contestants = cells.iter().flat_map(|measured| &measured.cell.contestants);
    let contestants: Vec<Contestant> = contestants.copied().unique().collect();
    let (ours, theirs): (Vec<_>, Vec<_>) =
        contestants.iter().copied().partition(|contestant| contestant.is_ours());
    let speed = |contestant: Contestant| -> Column {
        let entry = move |measured: &MeasuredCell| {
            let tflops = measured.cell.tflops(measured.rounds.seconds(contestant)?);
            Some(format!("{tflops:.1}"))
        };
        (format!("{contestant:>6}"), Box::new(entry))
    };
    let of_roof = |own: Contestant| -> Column {
        let entry = move |measured: &MeasuredCell| {
            let flops = measured.cell.flops() / measured.rounds.seconds(own)?;
            Some(format!("{:.1}", 100.0 * flops / roof?))
        };
        (format!("{own} %"), Box::new(entry))
    };
    let mut columns: Vec<_> = ours.iter().chain(&theirs).copied().map(speed).collect();
    columns.extend(ours.iter().copied().map(of_roof));
    // The first of our kernels are steps of a ladder: how the last one stands is what the ratios are about.
    if let Some(&own) = ours.last() {
        columns.extend(theirs.into_iter().map(|other| -> Column {
            let entry = move |measured: &MeasuredCell| {
                Some(format!("{:.2}", measured.rounds.ratio(other, own)?.0))
            };
            (format!("{other}/{own}"), Box::new(entry))
        }));
    }
    columns
}
