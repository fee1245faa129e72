//! The chapter's page: values, tables and figures.

use super::facts::{self, Allocated, Masked, TILE};
use super::rounding::{self, Errors};
use super::{drawings, traffic};
use crate::figures::format::{bytes, fixed, integer, percent, significant};
use crate::figures::{Axis, BLUE, GREEN, Line, MUTED, Marks, VERMILION, line_chart};
use crate::output::Page;
use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, Pass, chunked, fused, naive, tiled,
};
use crate::tiles_traffic::page::{capacity, chart, factor, over_lengths, tokens};
use anyhow::Result;
use attention::mask::Visibility;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("tile", integer(TILE));
    drawings::strip(page)?;
    masks(page)?;
    memory(page)?;
    rounding(page)?;
    traffic_by_length(page)?;
    traffic_by_capacity(page)?;
    traffic_over_tokens(page)
}

fn masks(page: &mut Page) -> Result<()> {
    let masked = facts::masked()?;
    page.value("kinds-n", integer(facts::MASKED_N));
    page.value("kinds-window", integer(facts::WINDOW));
    page.value("kinds-valid", integer(facts::VALID));
    let row = |Masked { name, kinds, visible }: &Masked| {
        vec![
            (*name).to_owned(),
            kinds.count(Visibility::Full).to_string(),
            kinds.count(Visibility::Partial).to_string(),
            kinds.count(Visibility::Hidden).to_string(),
            percent(kinds.computed(), 1),
            percent(*visible, 1),
        ]
    };
    let header = ["mask", "full", "partial", "hidden", "computed", "visible pairs"];
    page.table("kinds", &header, &masked.each_ref().map(row));
    drawings::kinds(page, &masked[..3])
}

/// The bytes that three programs allocate.
fn memory(page: &mut Page) -> Result<()> {
    let counted = facts::allocated()?;
    let last = &counted[counted.len() - 1];
    page.value("memory-n", integer(last.n));
    page.value("memory-naive", bytes(last.naive as u128));
    page.value("memory-tiled", bytes(last.tiled as u128));
    let line = |name: &str, colour, of: fn(&Allocated) -> usize| {
        Line::new(name, colour, counted.iter().map(|at| (at.n as f64, of(at) as f64)))
    };
    let lines = [
        line("naive", VERMILION, |at| at.naive),
        line("strips of 64 queries", MUTED, |at| at.strips),
        line("tiles of 64 × 64", BLUE, |at| at.tiled),
        line("the result itself", GREEN, |at| at.result).dashed(),
    ];
    page.figure(
        "memory",
        (
            "Bytes allocated against the number of tokens, for three programs",
            "The naive program rises with the square of n. Strips rise in proportion to n, far below it. Tiles lie lower still, and \
             approach the line of the result from above.",
        ),
        (520, 400),
        |area| {
            let x = Axis::log("tokens n (logarithmic)", 2.0, 128.0..4096.0);
            let y = Axis::log("bytes (logarithmic)", 10.0, 1e4..1e9);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}

/// Against attention in twice the digits.
fn rounding(page: &mut Page) -> Result<()> {
    let errors = rounding::errors()?;
    let row = |n, name: &str, errors: &Errors| {
        let cells = errors.map(|error| significant(error, 2));
        [integer(n), name.to_owned()].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = errors
        .iter()
        .flat_map(|(n, [single, double])| {
            [row(*n, "`f32`", single), row(*n, "`f64`", double)]
        })
        .collect();
    let header = [
        "$n$",
        "type",
        "naive",
        "$B_k = 1$",
        "$B_k = 16$",
        "$B_k = 64$",
        "$B_k = 256$",
        "in parts",
    ];
    page.table("rounding", &header, &rows);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- traffic

/// The traffic of tiles in the fast memory of the chapter, beside that of the programs that store the matrix.
fn traffic_by_length(page: &mut Page) -> Result<()> {
    capacity(page);
    page.value("d", integer(D));
    page.value("long", integer(LONG));
    let more = factor(naive(LONG, CAPACITY)?, tiled(LONG, CAPACITY)?);
    page.value("naive-over-tiled", more);
    let moved = traffic::moved_with(TILE) / tiled(LONG, CAPACITY)?;
    page.value("moved-64", fixed(moved, 1));
    let [naive, tiled] = traffic::intensities()?;
    page.value("intensity-naive", fixed(naive, 1));
    page.value("intensity-tiled", fixed(tiled, 0));
    Ok(())
}

/// The traffic in other fast memories.
fn traffic_by_capacity(page: &mut Page) -> Result<()> {
    page.value("break-even-kib", integer((D * D * ELEMENT) >> 10));
    let longest = traffic::linear_to(traffic::THIRD_CACHE)?;
    page.value("linear-32768", integer(longest));
    Ok(())
}

fn traffic_over_tokens(page: &mut Page) -> Result<()> {
    let lines = [
        over_lengths("naive", VERMILION, |n| naive(n, CAPACITY))?,
        over_lengths("fused", VERMILION, |n| fused(n, CAPACITY))?.dashed(),
        over_lengths("strips", MUTED, |n| chunked(n, CAPACITY))?,
        over_lengths("tiles", BLUE, |n| tiled(n, CAPACITY))?,
        over_lengths("each once", GREEN, |n| Ok(Pass::Forward.each_once(n)))?.dashed(),
    ];
    let rings = traffic::counted()?;
    let words = (
        "Bytes between slow and fast memory against the number of tokens, for four programs",
        "The naive and the fused program rise with the square of n. Strips begin below them, rise \
         with the cube, and cross both. The tiled program runs along the line of each matrix once until it needs a \
         second tile of queries, and then turns to the square of n too, but far below the others. Rings mark counts \
         on the lines of strips and tiles.",
    );
    let marks = Marks { rings: &rings, ..Marks::default() };
    chart(page, ("tokens", words), (tokens(), 1e4..1e12), &lines, marks)
}
