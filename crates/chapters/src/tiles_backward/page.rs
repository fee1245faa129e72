//! The chapter's page: values, tables and figures.

use super::drawings;
use super::facts::{self, Kept, Recompute, Steps};
use super::gradients::{self, Problem};
use super::rounding::{self, UNIT, Varied};
use crate::output::Page;
use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, NAMED, Pass, kibibytes, naive, naive_backward, tiled,
    tiled_backward,
};
use crate::tiles_traffic::page::{
    chart, factor, fast_memory, formula, machine, mebibytes, over_capacities,
    over_lengths, over_tiles, tokens,
};
use crate::{complexity, records};
use anyhow::Result;
use figures::format::{bytes, fixed, integer, percent, scientific, significant};
use figures::{Axis, BLUE, GREEN, Line, MUTED, Marks, VERMILION, line_chart};

pub fn generate(page: &mut Page) -> Result<()> {
    drawings::walk(page)?;
    drawings::one_tile(page)?;
    kept(page)?;
    layer(page);
    operations(page)?;
    keep_or_recompute(page)?;
    weights(page)?;
    checked(page)?;
    orders_of_a_sum(page)?;
    traffic_by_length(page)?;
    traffic_over_tokens(page)?;
    traffic_over_capacity(page)?;
    loop_orders(page)
}

/// Returns the bytes of so many numbers, as text.
fn size(numbers: usize) -> String {
    bytes((ELEMENT * numbers) as u128)
}

/// Bytes over the length: a square, and two straight lines.
fn kept(page: &mut Page) -> Result<()> {
    let line = |name: &str, colour, of: fn(&Kept) -> usize| {
        let lengths = (6..=16).map(|power| 1 << power);
        let point = |n| (n as f64, (ELEMENT * of(&Kept::new(n))) as f64);
        Line::new(name, colour, lengths.map(point))
    };
    let lines = [
        line("A", VERMILION, |kept| kept.weights),
        line("Q, K, V, O", MUTED, |kept| kept.linear).dashed(),
        line("L", BLUE, |kept| kept.log_sum_exp),
    ];
    page.value("kept-width", integer(D));
    page.figure(
        "kept",
        (
            "Bytes that one head keeps for the backward pass, against the number of tokens",
            "On logarithmic axes the line of the weights is twice as steep as the two others. It crosses that of queries, keys, \
             values and output at 256 tokens. The log-sum-exp runs far below, parallel to the latter.",
        ),
        (520, 400),
        |area| {
            let x = Axis::log("tokens n (logarithmic)", 2.0, 64.0..65_536.0);
            let y = Axis::log("bytes (logarithmic)", 10.0, 100.0..1e11);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}

/// A layer of a realistic size.
fn layer(page: &mut Page) {
    let (n, heads, layers) = (4096, 32, 24);
    let kept = Kept::new(n);
    let of_layer = |numbers| size(heads * numbers);
    let row = |what: &str, naive, tiled| vec![what.to_owned(), naive, tiled];
    let both = |what, numbers| row(what, of_layer(numbers), of_layer(numbers));
    let none = || "–".to_owned();
    let rows = [
        both("$Q$, $K$, $V$", kept.linear / 4 * 3),
        both("$O$", kept.linear / 4),
        row("$A$", of_layer(kept.weights), none()),
        row("$L$", none(), of_layer(kept.log_sum_exp)),
        row("together", of_layer(kept.naive()), of_layer(kept.tiled())),
    ];
    page.table("layer", &["", "naive", "tiled"], &rows);
    page.value("layer-n", integer(n));
    page.value("layer-heads", integer(heads));
    page.value("layer-layers", integer(layers));
    page.value("layer-all-naive", of_layer(layers * kept.naive()));
    page.value("layer-all-tiled", of_layer(layers * kept.tiled()));
    page.value("layer-ratio", fixed(kept.ratio(), 0));
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
    let [_, _, roof] = complexity::records(page)?;
    let thread = Recompute::new(complexity::ridge(&roof)?, ELEMENT);
    let name = format!(
        "{} of the {} in [Complexity](complexity.md#the-roofline), `f32`",
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
    let [single, half] = facts::of_a100();
    let rows = [
        row(&name, &thread),
        row("A100 SXM, `f32`, no tensor cores", &single),
        row("A100 SXM, bf16, tensor cores", &half),
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

/// Central differences under every mask, at a step where truncation is all there is, so that the digits are the same on
/// every machine.
fn checked(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    for (name, mask) in &gradients::masks()? {
        let errors = Problem::new().worst(gradients::tiled, mask, 1e-3)?;
        rows.push([vec![(*name).to_owned()], errors.map(one_digit).into()].concat());
    }
    page.table("checked", &["mask", "$dQ$", "$dK$", "$dV$"], &rows);
    Ok(())
}

/// The gradient of some queries as a sum over blocks of keys, rounded in `f32` in many orders.
fn orders_of_a_sum(page: &mut Page) -> Result<()> {
    page.table_of(
        "order",
        &rounding::sums()?.map(|sums| (Varied::of(&sums), sums)),
        &[
            ("blocks", &|(_, sums)| integer(sums.blocks)),
            ("entries that vary", &|(varied, _)| percent(varied.share, 0)),
            ("values of an entry", &|(varied, _)| fixed(varied.mean, 1)),
            ("largest spread", &|(varied, _)| one_digit(varied.spread)),
            ("error", &|(_, sums)| one_digit(sums.error(&sums.in_order))),
        ],
    );
    page.value("order-count", integer(rounding::ORDERS));
    let saturated = rounding::saturated()?;
    page.value("saturated-keys", integer(rounding::LARGE_KEYS as usize));
    page.value("saturated-naive", fixed(f64::from(saturated.naive.amax()), 0));
    let power = saturated.row_norm().log10().round();
    page.value("saturated-tiled", format!("10^{{{}}}", fixed(power, 0)));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- traffic

/// The traffic of both programs in the fast memory of the chapter, and with tiles of several sizes.
fn traffic_by_length(page: &mut Page) -> Result<()> {
    machine(page);
    for n in NAMED {
        let [naive, tiled, naive_back, tiled_back] =
            [naive, tiled, naive_backward, tiled_backward]
                .map(|program| program(n, CAPACITY));
        let (naive_back, tiled_back) = (naive_back?, tiled_back?);
        page.value(format!("naive-over-tiled-{n}"), factor(naive_back, tiled_back));
        page.value(format!("naive-mib-{n}"), mebibytes(naive_back));
        page.value(format!("tiled-mib-{n}"), mebibytes(tiled_back));
        let both = tiled? + tiled_back;
        page.value(format!("both-naive-{n}"), factor(naive? + naive_back, both));
    }
    over_tiles(page, &facts::sizes()?);
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

fn traffic_over_capacity(page: &mut Page) -> Result<()> {
    formula(page, Pass::Backward)?;
    let all = facts::capacities_backward();
    let pays = Pass::Backward.pays_from(LONG, all[0], naive_backward)?;
    page.value("pays-against-naive-kib", fixed(kibibytes(pays), 1));
    let formula = |m| Ok(Pass::Backward.by_capacity(LONG, m));
    let once = |_| Ok(Pass::Backward.each_once(LONG));
    let lines = [
        over_capacities("naive", VERMILION, &all, |m| naive_backward(LONG, m))?,
        over_capacities("7nd + 16n²d²/R", BLUE, &all, formula)?,
        over_capacities("each matrix once", GREEN, &all, once)?.dashed(),
    ];
    let rings = over_capacities("tiled", BLUE, &all, |m| tiled_backward(LONG, m))?.points;
    let words = (
        "Bytes between slow and fast memory in the backward pass against the capacity of fast memory",
        "The rings of the tiled program lie a little above the falling line of the formula, further above it in the \
         smallest memories and where only a few blocks are left, and come down to a level that is not far above \
         each matrix once. In the smallest memories they lie above the line of the naive program, \
         which soon is almost level.",
    );
    let marks = Marks { rings: &rings, ..Marks::default() };
    chart(page, ("capacity", words), (fast_memory(4.0), 1e6..1e11), &lines, marks)
}

fn loop_orders(page: &mut Page) -> Result<()> {
    let [keys_outside, queries_outside, two_sweeps] = facts::loop_orders()?;
    let row = |name: &str, numbers, products: &str| {
        vec![name.to_owned(), mebibytes(numbers), products.to_owned()]
    };
    let rows = [
        row("keys outside", keys_outside, "5"),
        row("queries outside", queries_outside, "5"),
        row("two sweeps, one of each", two_sweeps, "7"),
    ];
    let header = ["order of the loops", "MiB", "products of a tile"];
    page.table("orders", &header, &rows);
    Ok(())
}
