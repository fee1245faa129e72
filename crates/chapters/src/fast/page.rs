//! How the chapter says and draws it.

use super::facts::{ROUNDING, error_of_taylor};
use super::ladder::{self, Ladder};
use super::peers;
use crate::output::Page;
use crate::records::{provenance, provenance_of};
use anyhow::{Context, Result};
use figures::format::fixed;
use figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart};

pub fn generate(page: &mut Page) -> Result<()> {
    let [ladder, parts, roofline] =
        page.records.of_one_machine(["ladder", "parts", "roofline"])?;
    let others = [("the parts by themselves", &parts), ("the roofline", &roofline)];
    page.value("where", provenance_of(&ladder, &others));
    let ladder = Ladder::of(ladder, parts, &roofline)?;
    page.value("roof", fixed(ladder.roof / 1e9, 0));
    let machines = page.records.of_each_machine("peers")?;
    let record = machines.first().context("no machine has the record peers")?;
    page.value("peers-where", provenance(record));
    let beside = record.machine.is_same(&ladder.steps.machine).then_some(record);
    ladder::generate(page, &ladder, beside)?;
    polynomial(page)?;
    peers::generate(page, &machines)
}

/// How far Taylor's polynomial is off, over its number of terms.
fn polynomial(page: &mut Page) -> Result<()> {
    let points = (2..=14).map(|terms| (f64::from(terms), error_of_taylor(terms)));
    let [single, double] = ROUNDING.map(|level| [(2.0, level), (14.0, level)]);
    let lines = [
        Line::new("polynomial", BLUE, points),
        Line::new("rounding, f32", VERMILION, single).dashed(),
        Line::new("rounding, f64", GREEN, double).dashed(),
    ];
    page.figure(
        "taylor",
        (
            "Largest relative error of Taylor's polynomial of 2 to the x, over its number of terms",
            "The error falls about a hundredfold with each further term or two, and passes the rounding of f32 at eight terms.",
        ),
        (520, 360),
        |area| {
            let x = Axis::linear("terms", 2.0..14.0);
            let y = Axis::log("largest relative error", 10.0, 1e-17..1.0);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}
