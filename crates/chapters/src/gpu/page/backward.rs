//! Kernel 6: the registers of a consumer, a tile's way through the tensor cores and the threads, and what both wait for.

use super::told;
use crate::figures::format::{integer, percent, significant};
use crate::figures::{Area, BLUE, GREEN, MUTED, TEXT, label, line, text, text_box};
use crate::gpu::backward::{Loads, Plan, Registers, Threads};
use crate::gpu::ladder::{Step, backward_on_tensor_cores};
use crate::gpu::machine::N;
use crate::gpu::machine::{COMPARISONS, EXPONENTIALS, LANES};
use crate::gpu::measured::{find, speed};
use crate::output::Page;
use anyhow::Result;
use gpu::tiles::backward_hopper::{CONSUMER_REGISTERS, KEYS, QUERIES, STAYING};
use laboratory::gpu::ROWS;
use record::{Record, Unit};

/// The page's tables, values and picture; `of_kernel_4` is the share of its roof that kernel 4 was measured to reach.
pub fn generate(page: &mut Page, times: &Record, of_kernel_4: f64) -> Result<()> {
    let step = backward_on_tensor_cores();
    super::ladder::demands_of(page, &step, &measured(times, &step)?);
    let (_, most) = step.predicted();
    let expected = most * of_kernel_4;
    page.value("backward-limit", percent(most, 0));
    page.value("backward-expected", percent(expected, 0));
    page.value("backward-tflops", significant(expected * step.roof() / 1e12, 2));
    page.value("backward-staying", integer(STAYING));
    registers_table(page);
    loads_table(page);
    page.value("backward-registers", integer(CONSUMER_REGISTERS));
    page.value("backward-too-many", integer(Registers::new(2 * QUERIES, 2).all()));
    let plans = Plan::of_functions();
    let more = |plan: &Plan| plan.of_tile() as f64 / plan.products() as f64 - 1.0;
    for (function, plan) in ["keys", "queries"].into_iter().zip(&plans) {
        page.value(format!("backward-lockstep-{function}"), percent(more(plan), 0));
        page.value(format!("backward-product-{function}"), integer(plan.product));
    }
    let loads = Loads::of_functions().map(|loads| integer(loads.all() as usize));
    let row = |what: &str, of: fn(&Plan) -> usize| {
        let clocks = plans.each_ref().map(|plan| integer(of(plan)));
        [vec![what.to_owned()], clocks.into()].concat()
    };
    let rows = [
        row("tensor cores, its products", Plan::products),
        [vec!["shared memory, its loads".to_owned()], loads.into()].concat(),
        row("its threads and products, as in the figure, if it is alone", Plan::of_tile),
    ];
    let tile = |passing: usize| format!("{ROWS} × {passing}");
    let names = [
        "clocks for a tile of".to_owned(),
        format!("`backward_keys`, {}", tile(QUERIES)),
        format!("`backward_queries`, {}", tile(KEYS)),
    ];
    let names = names.each_ref().map(String::as_str);
    page.table("clocks-of-kernel-6", &names, &rows);
    threads_table(page);
    let says = "Two rows over time, the tensor cores above and the threads of one consumer below. The tensor cores compute dK of tile 4 and \
                the scores of tile 5, while the threads wait. They compute dA of tile 5, and the threads A; then dV of tile 5, and the \
                threads dS. Then dK of tile 5 and the scores of tile 6 begin the next round.";
    page.figure("life", ("A tile's way through a consumer", says), (640, 190), draw)
}

/// The share of the roof at the longest sequences, if a GPU has run the kernel.
fn measured(times: &Record, step: &Step) -> Result<String> {
    let what = format!("backward/{}", step.name);
    let found = find(times, &what, step.dtype, (N as u64, 128, "full"), Unit::Seconds);
    let Some(found) = found else { return Ok("not yet".to_owned()) };
    Ok(told(speed(found, "backward")? / step.roof()))
}

/// What the threads of a consumer do for a tile.
fn threads_table(page: &mut Page) {
    let of = Threads::of_functions();
    let row = |what: &str, rate: usize, of_one: fn(&Threads) -> usize| {
        let clocks = of.each_ref().map(|threads| match of_one(threads) {
            0 => "–".to_owned(),
            clocks => integer(clocks),
        });
        [vec![what.to_owned(), integer(rate)], clocks.into()].concat()
    };
    let rows = [
        row("$S$ times a factor, less $L$", LANES, |of| of.scaled),
        row("its exponential", EXPONENTIALS, |of| of.exponentials),
        row("$A$ to bf16, two at once", COMPARISONS, |of| of.converted),
        row("$dA - D$, times $A$", LANES, |of| of.d_scores),
        row("$dS$ to bf16, two at once", COMPARISONS, |of| of.d_converted),
    ];
    let names =
        ["clocks for a tile", "rate, per clock", "`backward_keys`", "`backward_queries`"];
    page.table("threads-of-kernel-6", &names, &rows);
}

/// The registers of a thread, matrix by matrix, in both functions.
fn registers_table(page: &mut Page) {
    let [keys, queries] = [Registers::new(QUERIES, 2), Registers::new(KEYS, 1)];
    let mut rows: Vec<_> = [
        ("sums, in `f32`", keys.sums, queries.sums),
        ("$S$, which becomes $A$, in `f32`", keys.entries, queries.entries),
        ("$dA$, in `f32`", keys.entries, queries.entries),
        ("left factors of the sums, in bf16", keys.factors, queries.factors),
    ]
    .map(|(what, x, y)| vec![what.to_owned(), integer(x), integer(y)])
    .into();
    let all = [&keys, &queries].map(|of| format!("**{}**", of.all()));
    rows.push([vec!["**all**".to_owned()], all.into()].concat());
    let names = ["registers of a thread", "`backward_keys`", "`backward_queries`"];
    page.table("registers-of-kernel-6", &names, &rows);
}

/// The clocks of shared memory, beside those of the tensor cores.
fn loads_table(page: &mut Page) {
    let [keys, queries] = Loads::of_functions();
    let cell = |clocks: f64| match clocks as usize {
        0 => "–".to_owned(),
        clocks => integer(clocks),
    };
    let products = Plan::of_functions().map(|plan| plan.products() as f64);
    let rows = [
        ("both factors of $S$ and $dA$", [keys.factors, queries.factors]),
        ("right factors of the sums", [keys.of_sums, queries.of_sums]),
        ("tiles that arrive", [keys.arriving, queries.arriving]),
        ("numbers of the queries", [keys.numbers, queries.numbers]),
        ("**shared memory**", [keys.all(), queries.all()]),
        ("**tensor cores**", products),
    ]
    .map(|(what, [x, y])| vec![what.to_owned(), cell(x), cell(y)]);
    let names =
        ["clocks for a tile of a consumer", "`backward_keys`", "`backward_queries`"];
    page.table("loads-of-kernel-6", &names, &rows);
}

/// A round of the loop and the beginning of the next, to scale.
fn draw(area: &Area) -> Result<()> {
    const LEFT: i32 = 104;
    const ROWS: [i32; 2] = [30, 90];
    let [plan, _] = Plan::of_functions();
    let x = |clock: usize| LEFT + (clock * 21 / 64) as i32;
    let bar = |row: usize, (from, to): (usize, usize), name: &str, colour| {
        let (left, right) = (x(from), x(to));
        text_box(area, (left, ROWS[row]), (right - left - 3, 40), name, colour)
    };
    let product = |number: usize| (number * plan.product, (number + 1) * plan.product);
    for (row, name) in [(0, "tensor cores"), (1, "threads")] {
        text(area, (0, ROWS[row] + 20), name)?;
    }
    bar(0, product(0), "dK, tile 4", MUTED)?;
    bar(0, product(1), "S, tile 5", BLUE)?;
    bar(0, product(2), "dA, tile 5", BLUE)?;
    let weights = 2 * plan.product;
    let sum = weights + plan.weights;
    bar(1, (weights, sum), "A, tile 5", GREEN)?;
    bar(0, (sum, sum + plan.product), "dV, tile 5", BLUE)?;
    bar(1, (sum, sum + plan.d_scores), "dS", GREEN)?;
    let next = plan.of_tile();
    bar(0, (next, next + plan.product), "dK, tile 5", BLUE)?;
    bar(0, (next + plan.product, next + 2 * plan.product), "S, tile 6", MUTED)?;
    for clock in [0, next] {
        line(area, &[(x(clock) - 2, 20), (x(clock) - 2, 146)], MUTED)?;
        label(area, (x(clock).max(20), 160), &integer(clock), TEXT)?;
    }
    label(area, ((x(0) + x(next)) / 2, 160), "clocks of a consumer that is alone", MUTED)
}
