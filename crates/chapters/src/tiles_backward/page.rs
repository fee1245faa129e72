//! The chapter's page: values, tables and figures.

use super::drawings;
use super::facts::{self, Kept, Recompute, Steps};
use super::rounding::{self, UNIT, Varied};
use crate::figures::format::{bytes, fixed, integer, percent, scientific, significant};
use crate::figures::{BLUE, GREEN, Marks, VERMILION};
use crate::output::Page;
use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, Pass, naive_backward, tiled_backward,
};
use crate::tiles_traffic::page::{capacity, chart, mebibytes, over_lengths, tokens};
use crate::{counting, records};
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    drawings::walk(page)?;
    drawings::one_tile(page)?;
    layer(page);
    operations(page)?;
    keep_or_recompute(page)?;
    weights(page)?;
    orders_of_a_sum(page)?;
    traffic_of_long(page)?;
    traffic_over_tokens(page)
}

/// Returns the bytes of so many numbers, as text.
fn size(numbers: usize) -> String {
    bytes((ELEMENT * numbers) as u128)
}

/// Layers of a realistic size.
fn layer(page: &mut Page) {
    let (n, heads, layers) = (4096, 32, 24);
    let kept = Kept::new(n);
    let of_layer = |numbers| size(heads * numbers);
    page.value("width", integer(D));
    page.value("kept-naive", size(kept.naive()));
    page.value("kept-tiled", size(kept.tiled()));
    page.value("layer-n", integer(n));
    page.value("layer-heads", integer(heads));
    page.value("layer-layers", integer(layers));
    page.value("layer-all-naive", of_layer(layers * kept.naive()));
    page.value("layer-all-tiled", of_layer(layers * kept.tiled()));
}

fn operations(page: &mut Page) -> Result<()> {
    let row = |n| {
        let (steps, kept) = (Steps::new(n)?, Kept::new(n));
        let billions = |operations: f64| significant(operations / 1e9, 3);
        Ok(vec![
            integer(n),
            billions(steps.naive),
            billions(steps.tiled),
            size(kept.naive()),
            size(kept.tiled()),
            significant(kept.ratio(), 3),
        ])
    };
    let rows = facts::LENGTHS.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    let header = ["$n$", "GFLOP, naive", "tiled", "kept, naive", "tiled", "ratio"];
    page.table("operations", &header, &rows);
    let steps = Steps::new(LONG)?;
    page.value("more-counted", percent(steps.more(), 1));
    Ok(())
}

/// The cost of a weight that is fetched, and of one that is computed again.
pub fn keep_or_recompute(page: &mut Page) -> Result<()> {
    let [_, _, roof] = counting::records(page)?;
    let thread = Recompute::new(counting::ridge(&roof)?, ELEMENT);
    let name = format!(
        "{} of the {} in [Counting](counting.md#the-roofline), `f32`",
        records::threads(&roof),
        roof.machine.processor()
    );
    let row = |name: &str, of: &Recompute| {
        vec![
            name.to_owned(),
            significant(of.ridge, 3),
            fixed(of.even, 2),
            significant(of.ratio(), 2),
        ]
    };
    let [single, half] = facts::of_h100();
    let rows = [
        row(&name, &thread),
        row("H100, `f32`, no tensor cores", &single),
        row("H100, bf16, tensor cores", &half),
    ];
    let header = ["machine", "ridge", "even at", "fetched / computed"];
    page.table("recompute", &header, &rows);
    page.value("recompute-operations", integer(facts::OPERATIONS));
    page.value("recompute-bytes", integer(2 * ELEMENT));
    page.value("recompute-even", fixed(thread.even, 2));
    Ok(())
}

/// The errors of weights that were computed by softmax, and of those computed again from the log-sum-exp, in `f32`.
fn weights(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    for weights in rounding::weights()? {
        let largest = weights.largest_log_sum_exp();
        rows.push(vec![
            fixed(largest, 0),
            bound(weights.softmax_error()?),
            bound(weights.again_error()),
            bound(UNIT * largest),
        ]);
    }
    let header = ["largest $L$", "softmax", "$e^{S - L}$", "$u L$"];
    page.table("rounding", &header, &rows);
    Ok(())
}

/// The next power of two that is not smaller.
fn bound(x: f64) -> String {
    format!("$2^{{{}}}$", fixed(x.log2().ceil(), 0))
}

/// Returns a number in scientific notation, with one digit.
fn one_digit(x: f64) -> String {
    format!("${}$", scientific(x, 0))
}

/// The gradient of some queries as a sum over tiles of keys, rounded in `f32` in many orders.
fn orders_of_a_sum(page: &mut Page) -> Result<()> {
    page.table_of(
        "order",
        &rounding::sums()?.map(|sums| (Varied::of(&sums), sums)),
        &[
            ("tiles", &|(_, sums)| integer(sums.tiles)),
            ("entries that vary", &|(varied, _)| percent(varied.share, 0)),
            ("values of an entry", &|(varied, _)| fixed(varied.mean, 1)),
            ("largest spread", &|(varied, _)| one_digit(varied.spread)),
        ],
    );
    page.value("order-count", integer(rounding::ORDERS));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- traffic

/// The traffic of both programs in the fast memory of the chapter.
fn traffic_of_long(page: &mut Page) -> Result<()> {
    capacity(page);
    page.value("naive-mib", mebibytes(naive_backward(LONG, CAPACITY)?));
    page.value("tiled-mib", mebibytes(tiled_backward(LONG, CAPACITY)?));
    page.value("formula-mib", mebibytes(facts::by_formula(LONG, CAPACITY)));
    Ok(())
}

fn traffic_over_tokens(page: &mut Page) -> Result<()> {
    let lines = [
        over_lengths("naive", VERMILION, |n| naive_backward(n, CAPACITY))?,
        over_lengths("tiled", BLUE, |n| tiled_backward(n, CAPACITY))?,
        over_lengths("each once", GREEN, |n| Ok(Pass::Backward.each_once(n)))?.dashed(),
    ];
    let rings = facts::counted()?;
    let words = (
        "Bytes between slow and fast memory in the backward pass against the number of tokens",
        "The naive program rises with the square of n. The tiled one begins below it, not far above the line of \
         each matrix once, and stays below, though it too rises with the square of n in the end.",
    );
    let marks = Marks { rings: &rings, ..Marks::default() };
    chart(page, ("tokens", words), (tokens(), 1e4..1e11), &lines, marks)
}
