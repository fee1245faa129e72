//! The timeline of kernel 4, drawn.

use crate::figures::format::{integer, percent, subscript};
use crate::figures::{
    Area, BLUE, GREEN, MUTED, RGBColor, TEXT, VERMILION, label, line, text, text_box,
};
use crate::gpu::pipeline::{SHOWN, of_hopper};
use crate::output::Page;
use anyhow::Result;
use laboratory::gpu::{ARRIVAL, CONSUMERS, Plan, STAGES, Span};

pub fn generate(page: &mut Page) -> Result<()> {
    let (lengths, plan) = of_hopper();
    page.value("plan-arrival", integer(ARRIVAL));
    page.value("plan-entries", integer(lengths.entries));
    page.value("plan-product", integer(lengths.product));
    page.value("plan-two-products", integer(2 * lengths.product));
    page.value("plan-exponentials", integer(lengths.exponentials));
    page.value("plan-others", integer(lengths.others));
    page.value("plan-correction", integer(lengths.correction));
    page.value("plan-softmax", integer(lengths.softmax()));
    page.value("plan-slack", integer(lengths.longest_softmax(true) - lengths.softmax()));
    page.value("plan-waited-for", integer(lengths.softmax() + lengths.correction));
    page.value("plan-slack-both", integer(lengths.longest_softmax(true)));
    page.value("plan-softmax-busy", percent(lengths.softmax_busy(), 0));
    page.value("plan-busy-alone", percent(lengths.busy(1, false), 0));
    page.value("plan-busy-overlap", percent(lengths.busy(1, true), 0));
    page.value("plan-busy", percent(plan.busy(), 0));
    page.figure(
        "pipeline",
        (
            "The planned timeline of kernel 4",
            "Seven rows over time. In the first, the tensor cores are idle until the first keys have come and again after the first scores; from S₁ on \
             they go without a gap from the scores and the output of one consumer to those of the other. In the next two, each consumer's softmax lies beside the products of the other. The last four show \
             how long each stage of keys and of values is taken by a tile.",
        ),
        ((LEFT + WIDTH + 12) as u32, (BASE + 50) as u32),
        |area| draw(area, &plan),
    )
}

/// Returns the place of a clock on an axis that ends with the clock `end`.
fn place(clock: usize, end: usize) -> i32 {
    LEFT + (WIDTH as usize * clock.min(end) / end) as i32
}

/// The axis, at this height.
fn clocks(area: &Area, base: i32, end: usize) -> Result<()> {
    line(area, &[(LEFT, base), (LEFT + WIDTH, base)], MUTED)?;
    for clock in (0..=end).step_by(1000) {
        let x = place(clock, end);
        line(area, &[(x, base), (x, base + 5)], MUTED)?;
        label(area, (x, base + 16), &integer(clock), TEXT)?;
    }
    label(area, (LEFT + WIDTH / 2, base + 34), "clocks", TEXT)
}

const LEFT: i32 = 118;
const WIDTH: i32 = 760;
const TOP: i32 = 16;
const ROW: i32 = 40;
const ROWS: [&str; 7] = [
    "tensor cores",
    "consumer 0",
    "consumer 1",
    "keys, stage 0",
    "keys, stage 1",
    "values, stage 0",
    "values, stage 1",
];
/// The height of the axis.
const BASE: i32 = TOP + ROW * ROWS.len() as i32 + 2;

fn draw(area: &Area, plan: &Plan) -> Result<()> {
    let end = plan.scores[CONSUMERS - 1][SHOWN].to;
    let bars = |row: usize, spans: &[Span], name: &str, colour: RGBColor| {
        for span in spans.iter().filter(|span| span.from < end) {
            let (left, right) = (place(span.from, end) + 1, place(span.to, end) - 1);
            let stage = if row < 3 { 0 } else { span.tile % STAGES };
            let corner = (left, TOP + ROW * (row + stage) as i32);
            let text = format!("{name}{}", subscript(span.tile));
            let text = if span.to > end { "" } else { &text };
            text_box(area, corner, (right - left, ROW - 10), text, colour)?;
        }
        anyhow::Ok(())
    };
    for (i, name) in (0..).zip(ROWS) {
        text(area, (2, TOP + ROW * i + (ROW - 10) / 2), name)?;
    }
    for (consumer, colour) in [BLUE, VERMILION].into_iter().enumerate() {
        bars(0, &plan.scores[consumer], "S", colour)?;
        bars(0, &plan.outputs[consumer], "O", colour)?;
        bars(1 + consumer, &plan.softmax[consumer], "A", colour)?;
    }
    bars(3, &plan.keys, "K", GREEN)?;
    bars(5, &plan.values, "V", MUTED)?;
    clocks(area, BASE, end)
}
