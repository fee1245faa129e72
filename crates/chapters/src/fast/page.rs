//! The chapter's page: values, tables and figures.

use super::facts::{ROUNDING, error_of_taylor};
use super::ladder::{self, Ladder};
use super::peers;
use crate::figures::format::fixed;
use crate::figures::{
    Axis, BLUE, GREEN, KEY, Line, MUTED, Marks, QUERY, TEXT, VERMILION, arrow, label,
    line, line_chart, text, text_box,
};
use crate::output::Page;
use crate::records::{provenance, provenance_of};
use anyhow::{Context, Result};

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
    register_sums(page)?;
    ranges(page)?;
    let avx2 = page.records.of_each_machine("peers-avx2")?;
    peers::generate(page, &machines, &avx2)
}

/// The sums of the micro-kernel for AVX-512, and the order in which it reads a panel.
fn register_sums(page: &mut Page) -> Result<()> {
    let words = (
        "The 24 sums of the micro-kernel, and a panel in memory",
        "Three vectors of queries stand to the left of a grid of three rows and eight columns, a number of each of eight keys above it. One \
         vector and one number are marked, and the sum where they meet. Below, a panel in memory: the three vectors for c = 0, then the \
         three for c = 1, and so on.",
    );
    page.figure("register-sums", words, (640, 300), |area| {
        let (corner, cell) = ((190, 60), (52, 40));
        let (row, column) = (1, 4);
        let block =
            |(x, y), size, text: &str, colour| text_box(area, (x, y), size, text, colour);
        text(area, (0, corner.1 + 60), "entry c of")?;
        text(area, (0, corner.1 + 80), "48 queries")?;
        label(
            area,
            (corner.0 + 4 * cell.0, 8),
            "entry c of keys 0 to 7, each copied to all lanes",
            TEXT,
        )?;
        for i in 0..3 {
            let y = corner.1 + cell.1 * i;
            block(
                (corner.0 - 96, y),
                (84, cell.1 - 6),
                "16 queries",
                if i == row { QUERY } else { MUTED },
            )?;
            for j in 0..8 {
                let colour = if (i, j) == (row, column) { BLUE } else { MUTED };
                block(
                    (corner.0 + cell.0 * j, y),
                    (cell.0 - 6, cell.1 - 6),
                    "sum",
                    colour,
                )?;
            }
        }
        for j in 0..8 {
            let colour = if j == column { KEY } else { MUTED };
            block((corner.0 + cell.0 * j, 22), (cell.0 - 6, 28), &j.to_string(), colour)?;
        }
        text(area, (0, 246), "queries in memory")?;
        for k in 0..3 {
            for i in 0..3 {
                let colour = if i == row { QUERY } else { MUTED };
                let left = 144 + 152 * k + 48 * i;
                block((left, 230), (44, 32), "", colour)?;
            }
            label(area, (144 + 152 * k + 70, 280), &format!("c = {k}"), TEXT)?;
        }
        text(area, (596, 246), "…")
    })
}

/// Ranges of keys, their shares of dQ, and the sum in a fixed order.
fn ranges(page: &mut Page) -> Result<()> {
    let words = (
        "Four ranges of keys and their shares of dQ",
        "The keys of a head are cut into four ranges. An arrow leads from each to its own share of dQ, and from the four shares, one \
         after the other, to dQ.",
    );
    page.figure("ranges", words, (640, 250), |area| {
        text(area, (0, 26), "keys")?;
        text(area, (0, 126), "shares of dQ")?;
        for i in 0..4 {
            let left = 116 + 130 * i;
            let centre = left + 58;
            text_box(area, (left, 8), (116, 36), &format!("range {i}"), KEY)?;
            arrow(area, &[(centre, 48), (centre, 102)], MUTED)?;
            text_box(area, (left, 108), (116, 36), &format!("share {i}"), QUERY)?;
            if i > 0 {
                label(area, (left - 7, 126), "+", TEXT)?;
            }
        }
        line(area, &[(116, 152), (622, 152)], TEXT)?;
        arrow(area, &[(372, 152), (372, 202)], TEXT)?;
        text(area, (386, 174), "always in this order")?;
        text_box(area, (314, 208), (116, 36), "dQ", QUERY)
    })
}

/// The error of Taylor's polynomial, over its number of terms.
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
