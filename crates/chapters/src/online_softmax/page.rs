//! The chapter's page: values, tables and figures.

use super::drawings;
use super::facts::{self, TILE, VALUE_WIDTH, harmonic};
use crate::figures::format::{fixed, integer, percent, significant};
use crate::figures::{Axis, BLUE, Line, Marks, VERMILION, line_chart};
use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("tile", integer(TILE));
    page.value("d-v", integer(VALUE_WIDTH));
    page.value("exponent-f64", fixed(facts::largest_exponent_f64(), 0));
    page.value("quiz-sum", fixed(1.5 + (-1.0_f64).exp(), 3));
    sweeps(page)?;
    by_hand(page)?;
    staircase(page)?;
    drawings::mergings(page)?;
    changes(page);
    costs(page);
    Ok(())
}

/// The sweeps of each program over a row that doesn't fit.
fn sweeps(page: &mut Page) -> Result<()> {
    let names = [
        "maximum; sum; divide; average",
        "maximum; both sums; divide once, at the end",
        "both sums and a running maximum",
    ];
    let times = |count: u128| fixed(count as f64 / facts::LONG as f64, 0);
    let rows = names.iter().zip(facts::sweeps()?).map(|(name, (_, counts))| {
        vec![(*name).to_owned(), times(counts.read), times(counts.written)]
    });
    let header = ["sweeps", "the row is read", "and written"];
    page.table("sweeps", &header, &rows.collect::<Vec<_>>());
    Ok(())
}

fn by_hand(page: &mut Page) -> Result<()> {
    let (steps, output) = facts::by_hand()?;
    page.table_of(
        "by-hand",
        &steps,
        &[
            ("key", &|step| step.token.to_owned()),
            ("$s$", &|step| fixed(step.score, 3)),
            ("$v$", &|step| fixed(step.value, 1)),
            ("$m$", &|step| fixed(step.after.max, 3)),
            ("$e^{s-m}$", &|step| fixed(step.term(), 3)),
            ("$\\ell$", &|step| fixed(step.after.sum, 3)),
            ("$o$", &|step| fixed(step.after.weighted, 3)),
            ("$o / \\ell$", &|step| fixed(step.after.output(), 3)),
        ],
    );
    let scores: Vec<_> = steps.iter().map(|step| fixed(step.score, 3)).collect();
    page.value("row", scores.join(", "));
    let river = steps.iter().find(|step| step.token == "river");
    if let Some(step) = river {
        page.value("river-correction", fixed(step.correction(), 3));
        for (which, state) in [("old", step.before), ("new", step.after)] {
            page.value(format!("river-{which}-max"), fixed(state.max, 3));
            page.value(format!("river-{which}-sum"), fixed(state.sum, 3));
            page.value(format!("river-{which}-weighted"), fixed(state.weighted, 3));
        }
    }
    page.value("output", fixed(output, 3));
    Ok(())
}

/// Scores as they come, their running maximum, and log-sum-exp.
fn staircase(page: &mut Page) -> Result<()> {
    let staircase = facts::staircase();
    let steps = staircase.steps();
    page.value("stairs", integer(steps.len()));
    page.value("stairs-n", integer(staircase.scores.len()));
    let keys = || (1..=staircase.scores.len()).map(|key| key as f64);
    let dots: Vec<_> = keys().zip(staircase.scores.iter().copied()).collect();
    let mut stairs = Line::new("running maximum m", VERMILION, []);
    let mut log_sum_exp = Line::new("m + ln ℓ so far", BLUE, []);
    let mut before = staircase.states[0];
    for (key, &state) in keys().zip(&staircase.states) {
        stairs.points.extend([(key, before.max), (key, state.max)]);
        log_sum_exp.points.push((key, state.log_sum_exp()));
        before = state;
    }
    stairs.points.dedup();
    page.figure(
        "staircase",
        (
            "The running maximum and log-sum-exp of scores that come one at a time",
            "Dots are scattered around zero. A staircase rises in a few steps and lies on the highest dot so far. A line \
             above it rises with every key, most of all in the beginning.",
        ),
        (520, 340),
        |area| {
            let x = Axis::linear("keys seen", 0.0..65.0);
            let y = Axis::linear("score", -3.0..6.0);
            let marks = Marks { dots: &dots, ..Marks::default() };
            line_chart(area, &x, &y, &[stairs, log_sum_exp], marks)
        },
    )
}

// ------------------------------------------------------------------------------------------------ cost

fn changes(page: &mut Page) {
    let gap = harmonic(facts::CHANGES_N) - (facts::CHANGES_N as f64).ln();
    page.value("changes-n", integer(facts::CHANGES_N));
    page.value("changes-gap", fixed(gap, 2));
}

/// The work on a row beyond that of plain softmax.
fn costs(page: &mut Page) {
    page.table_of(
        "cost",
        &facts::costs(),
        &[
            ("keys in a tile, $c$", &|cost| integer(cost.tile)),
            ("extra exponentials", &|cost| {
                let decimals = if cost.exponentials < 0.1 { 1 } else { 0 };
                percent(cost.exponentials, decimals)
            }),
            ("extra operations per score", &|cost| significant(cost.operations, 3)),
            ("compared with plain attention", &|cost| percent(cost.share, 1)),
        ],
    );
}
