//! The chapter's page: values, tables and figures.

use super::drawings;
use super::facts::{self, Changes, TILE, VALUE_WIDTH, harmonic};
use super::rounding::{self, Errors, LONGEST, Spread, Way};
use crate::output::Page;
use anyhow::Result;
use figures::format::{fixed, integer, percent, significant};
use figures::{
    Axis, BLUE, GREEN, Line, MUTED, Marks, Side, Spot, TEXT, VERMILION, line_chart,
};

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("tile", integer(TILE));
    page.value("d-v", integer(VALUE_WIDTH));
    page.value("exponent-f64", fixed(facts::largest_exponent_f64(), 0));
    page.value("quiz-sum", fixed(1.5 + (-1.0_f64).exp(), 3));
    sweeps(page)?;
    by_hand(page)?;
    staircase(page)?;
    drawings::mergings(page)?;
    rounding(page)?;
    orders(page);
    changes(page)?;
    costs(page);
    Ok(())
}

/// The passes of each program over a row that doesn't fit.
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
            ("$\\alpha$", &|step| fixed(step.correction(), 3)),
            ("$e^{s-m}$", &|step| fixed(step.term(), 3)),
            ("$\\ell$", &|step| fixed(step.after.sum, 3)),
            ("$o$", &|step| fixed(step.after.weighted, 3)),
            ("$o / \\ell$", &|step| fixed(step.after.output(), 3)),
        ],
    );
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

// ------------------------------------------------------------------------------------------------ rounding

/// The error against the number of keys, for each way of splitting them.
fn rounding(page: &mut Page) -> Result<()> {
    let errors = rounding::errors_in_f64();
    errors_over_length(page, &errors)?;
    let longest = &errors[errors.len() - 1].1;
    page.value("rounding-n", integer(LONGEST));
    for (key, way) in [("rising", Way::Rising), ("rising-plain", Way::RisingPlain)] {
        page.value(format!("rounding-{key}"), significant(longest[&way], 2));
    }
    let row = |(name, way): (&str, Way)| {
        vec![name.to_owned(), format!("$ {}\\, u $", significant(longest[&way], 2))]
    };
    let rows = [
        ("one key at a time", Way::ONE),
        ("plain softmax", Way::Plain),
        ("tiles of 64", Way::TILES),
        ("a tree of tiles", Way::Tree),
        ("plain softmax, both sums as trees", Way::PlainTree),
    ];
    page.table("rounding", &["the row is taken", "error"], &rows.map(row));
    Ok(())
}

fn errors_over_length(page: &mut Page, errors: &[(usize, Errors)]) -> Result<()> {
    let line = |name: &str, colour, way| {
        let points = errors.iter().map(|(n, errors)| (*n as f64, errors[&way]));
        Line::new(name, colour, points)
    };
    let lines = [
        line("one key at a time", BLUE, Way::ONE),
        line("plain softmax", TEXT, Way::Plain).dashed(),
        line("plain, sums as trees", MUTED, Way::PlainTree).dashed(),
        line("tiles of 64", VERMILION, Way::TILES),
        line("a tree of tiles of 64", GREEN, Way::Tree),
    ];
    let mut spots = vec![];
    for (n, errors) in rounding::errors_in_f32() {
        for (way, colour) in Way::ONLINE.iter().zip([BLUE, VERMILION, GREEN]) {
            let (name, place) = (String::new(), (n as f64, errors[way]));
            spots.push(Spot { name, place, colour, side: Side::Right });
        }
    }
    page.figure(
        "rounding",
        (
            "Rounding errors of the output against the number of keys, for several ways to split a row",
            "Two lines, one key at a time and plain softmax, rise side by side with the square root of the number of \
             keys. The line of tiles rises far more slowly. That of a tree of tiles stays level, and beside it that of \
             plain softmax whose sums are taken as trees. Dots for f32, in the colours of the three solid lines, lie on \
             these or not far off.",
        ),
        (520, 424),
        |area| {
            let x = Axis::log("keys n (logarithmic)", 2.0, 64.0..16384.0);
            let y = Axis::log("error in units of u (logarithmic)", 2.0, 0.5..64.0);
            line_chart(area, &x, &y, &lines, Marks { spots: &spots, ..Marks::default() })
        },
    )
}

/// Many ways to split one row, in any order.
fn orders(page: &mut Page) {
    page.value("ways", integer(rounding::ORDERS));
    page.value("ways-n", integer(rounding::N_OF_ORDERS));
    let (doubles, singles) =
        rayon::join(rounding::spreads::<f64>, rounding::spreads::<f32>);
    let names = ["whole, by plain softmax", "one at a time", "split anywhere"];
    let row = |(name, (double, single)): (&&str, (&Spread, &Spread))| {
        let errors = [double.median, double.largest, single.median, single.largest];
        let errors = errors.map(|error| significant(error, 2));
        [vec![(*name).to_owned()], errors.into()].concat()
    };
    let rows = names.iter().zip(doubles.iter().zip(&singles)).map(row);
    let header =
        ["the row is taken", "`f64`: median", "largest", "`f32`: median", "largest"];
    page.table("ways", &header, &rows.collect::<Vec<_>>());
}

// ------------------------------------------------------------------------------------------------ cost

fn changes(page: &mut Page) -> Result<()> {
    let changes = facts::changes();
    let last = changes[changes.len() - 1];
    let n = last.n as f64;
    page.value("changes-rows", integer(facts::ROWS_OF_CHANGES));
    page.value("changes-n", integer(last.n));
    page.value("changes-gap", fixed(harmonic(last.n) - n.ln(), 2));
    changes_over_length(page, &changes)?;

    let row = |name: &str, one, in_tiles| vec![name.to_owned(), one, in_tiles];
    let counted = |name, scores: &[f64]| {
        let count = |tile| integer(facts::changes_of_maximum(scores, tile));
        row(name, count(1), count(TILE))
    };
    let rising: Vec<f64> = (0..last.n).map(|j| j as f64).collect();
    let falling: Vec<f64> = rising.iter().rev().copied().collect();
    let expected = |tile| fixed(harmonic(last.n / tile), 1);
    let mean = format!("random, mean of {} rows", integer(facts::ROWS_OF_CHANGES));
    let rows = [
        counted("falling", &falling),
        row("random, expected", expected(1), expected(TILE)),
        row(&mean, fixed(last.one_at_a_time, 1), fixed(last.in_tiles, 1)),
        counted("rising", &rising),
    ];
    page.table("changes", &["scores", "one key at a time", "in tiles of 64"], &rows);
    Ok(())
}

fn changes_over_length(page: &mut Page, changes: &[Changes]) -> Result<()> {
    let longest = changes[changes.len() - 1].n;
    let expected = |name: &str, colour, tile| {
        Line::new(name, colour, facts::expected_changes(longest, tile))
    };
    let logarithm = changes.iter().map(|of| (of.n as f64, (of.n as f64).ln()));
    let lines = [
        expected("one key at a time: Hₙ", BLUE, 1),
        expected("tiles of 64: H of n / 64", VERMILION, TILE),
        Line::new("ln n", TEXT, logarithm).dashed(),
    ];
    let mut dots = vec![];
    for of in changes {
        dots.push((of.n as f64, of.one_at_a_time));
        if of.n >= TILE {
            dots.push((of.n as f64, of.in_tiles));
        }
    }
    page.figure(
        "changes",
        (
            "How often the maximum of random scores changes, against the number of keys",
            "One key at a time, the number of changes follows the harmonic number, a nearly straight line over the \
             logarithm of the number of keys, a little above ln n. In tiles of 64 it is a line as steep, which starts at 1 \
             where the first tile is full.",
        ),
        (520, 360),
        |area| {
            let x = Axis::log("keys n (logarithmic)", 2.0, 1.0..4096.0);
            let y = Axis::linear("changes of the maximum", 0.0..10.0);
            line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
        },
    )
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
            ("extra multiplications per score", &|cost| {
                significant(cost.multiplications, 3)
            }),
            ("of those in both products", &|cost| percent(cost.share_of_products, 1)),
        ],
    );
}
