//! The time-line of kernel 4, drawn.

use crate::gpu::pipeline::{ARRIVAL, CONSUMERS, Plan, SHOWN, STAGES, Span, of_hopper};
use crate::output::Page;
use anyhow::Result;
use figures::format::{integer, percent};
use figures::{
    Area, BLUE, Block, GREEN, MUTED, RGBColor, TEXT, VERMILION, label, line, text,
};

pub fn generate(page: &mut Page) -> Result<()> {
    let (lengths, plan) = of_hopper()?;
    page.value("plan-arrival", integer(ARRIVAL));
    page.value("plan-entries", integer(lengths.entries));
    page.value("plan-product", integer(lengths.product));
    page.value("plan-two-products", integer(2 * lengths.product));
    page.value("plan-exponentials", integer(lengths.exponentials));
    page.value("plan-others", integer(lengths.others));
    page.value("plan-softmax", integer(lengths.softmax()));
    page.value("plan-correction", integer(lengths.correction));
    page.value("plan-waited-for", integer(lengths.softmax() + lengths.correction));
    page.value("plan-slack-turns", integer(lengths.longest_softmax(false)));
    page.value("plan-slack-both", integer(lengths.longest_softmax(true)));
    page.value("plan-busy-alone", percent(lengths.busy(1, false), 0));
    page.value("plan-busy-overlap", percent(lengths.busy(1, true), 0));
    page.value("plan-gap", integer(plan.gap()));
    page.value("plan-busy", percent(plan.busy(), 0));
    page.figure(
        "pipeline",
        (
            "The planned time-line of kernel 4",
            "Seven rows over time. In the first, the tensor cores are idle until the first keys have come and again after the first scores; from S₁ on \
             they go without a gap from the scores and the output of one consumer to those of the other. In the next two, each consumer's softmax lies beside the products of the other. The last four show \
             how long each stage of keys and of values is taken by a tile.",
        ),
        ((LEFT + WIDTH + 12) as u32, (BASE + 50) as u32),
        |area| draw(area, &plan),
    )
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
/// Where the axis lies.
const BASE: i32 = TOP + ROW * ROWS.len() as i32 + 2;

fn draw(area: &Area, plan: &Plan) -> Result<()> {
    let end = plan.scores[CONSUMERS - 1][SHOWN].to;
    let x = |clock: usize| LEFT + (WIDTH as usize * clock.min(end) / end) as i32;
    let bars = |row: usize, spans: &[Span], name: &str, colour: RGBColor| {
        for span in spans.iter().filter(|span| span.from < end) {
            let (left, right) = (x(span.from) + 1, x(span.to) - 1);
            let stage = if row < 3 { 0 } else { span.tile % STAGES };
            let corner = (left, TOP + ROW * (row + stage) as i32);
            let text = format!("{name}{}", subscript(span.tile));
            let text = if span.to > end { "" } else { &text };
            Block::new(corner, (right - left, ROW - 10), text, colour).draw(area)?;
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
    line(area, &[(LEFT, BASE), (LEFT + WIDTH, BASE)], MUTED)?;
    for clock in (0..=end).step_by(1000) {
        line(area, &[(x(clock), BASE), (x(clock), BASE + 5)], MUTED)?;
        label(area, (x(clock), BASE + 16), &integer(clock), TEXT)?;
    }
    label(area, (LEFT + WIDTH / 2, BASE + 34), "clocks", TEXT)
}

fn subscript(i: usize) -> char {
    char::from_u32(0x2080 + i as u32).unwrap_or('?')
}
