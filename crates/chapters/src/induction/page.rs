//! The chapter's page: values, tables and figures.

use super::facts;
use crate::figures::format::{fixed, integer, percent};
use crate::figures::{
    Axis, BLUE, Color as _, GREEN, Line, MUTED, Marks, TEXT, VERMILION,
};
use crate::figures::{filled, framed, label, line_chart};
use crate::output::Page;
use crate::trained::{self, Opened, REPEATED};
use anyhow::{Context as _, Result};
use model::{HeadScores, Measurement};

pub fn generate(page: &mut Page) -> Result<()> {
    let [two, one] = [trained::open("repeated")?, trained::open("repeated-one-block")?];
    sizes(page, &two);
    losses(page, &two, &one)?;
    births(page, &two)?;
    maps(page, &two)?;
    ablations(page, &two)?;
    page.file("run.md", trained::ran(&two.trained));
    Ok(())
}

fn sizes(page: &mut Page, two: &Opened) {
    let sizes = two.trained.plan.sizes;
    for (key, number) in [
        ("vocabulary", REPEATED.vocabulary),
        ("shortest", REPEATED.periods.0),
        ("longest", REPEATED.periods.1),
        ("tokens", REPEATED.tokens),
        ("batch", two.trained.plan.batch),
        ("width", sizes.d_model),
        ("heads", sizes.n_heads),
    ] {
        page.value(key, integer(number));
    }
    page.value("seconds", integer(two.trained.run.seconds.round() as usize));
    page.value("ignorant", fixed((REPEATED.vocabulary as f64).ln(), 1));
    page.value("guessing", fixed(facts::loss_of_guessing_among_the_repeated(), 1));
}

/// The losses of both models over the steps.
fn losses(page: &mut Page, two: &Opened, one: &Opened) -> Result<()> {
    let unseen = |opened: &Opened| -> Vec<(f64, f64)> {
        let history = opened.trained.history.iter();
        history.map(|at| (at.step as f64, at.held_out.into())).collect()
    };
    let lines = [
        Line::new("one block", VERMILION, unseen(one)).dashed(),
        Line::new("two blocks", BLUE, unseen(two)),
    ];
    let words = (
        "The loss of one block and of two",
        "The dashed curve of one block falls slowly to three. The curve of two blocks runs beside it for about two hundred steps, then drops to zero.",
    );
    page.figure("loss", words, (640, 320), |area| {
        let x = Axis::linear("steps", 0.0..two.trained.plan.steps as f64);
        let y = Axis::linear("nats per token", 0.0..5.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })?;
    let last = |opened: &Opened| -> Result<f64> {
        Ok(opened.trained.history.last().context("nothing was measured")?.held_out.into())
    };
    page.value("one-block", fixed(last(one)?, 1));
    page.value("steps", integer(two.trained.plan.steps as usize));
    // The fall: from when the loss was last above 3, and until it was first below a tenth.
    let history = &two.trained.history;
    let above = history.iter().rfind(|at| at.held_out > 3.0).context("it began lower")?;
    let below = history.iter().find(|at| at.held_out < 0.1).context("it never fell")?;
    page.value("fall-begins", integer(above.step as usize));
    page.value("fall-ends", integer(below.step as usize));
    Ok(())
}

/// The scores of the heads over the steps, as long as they change.
fn births(page: &mut Page, two: &Opened) -> Result<()> {
    const SHOWN: u64 = 500;
    let over_steps = |block: usize, head: usize, score: fn(&HeadScores) -> f32| {
        let point = move |at: &Measurement| {
            (at.step as f64, f64::from(score(&at.heads[block][head])))
        };
        let history = two.trained.history.iter().take_while(|at| at.step <= SHOWN);
        history.map(point).collect::<Vec<_>>()
    };
    let before: fn(&HeadScores) -> f32 = |head| head.previous;
    let after: fn(&HeadScores) -> f32 = |head| head.after_copy;
    let lines = [
        Line::new("block 1, head 1: token before", GREEN, over_steps(0, 0, before)),
        Line::new("block 1, head 2: token before", VERMILION, over_steps(0, 1, before)),
        Line::new("block 2, head 1: after the copy", BLUE, over_steps(1, 0, after))
            .dashed(),
        Line::new("block 2, head 2: after the copy", MUTED, over_steps(1, 1, after))
            .dashed(),
    ];
    let words = (
        "The scores of four heads over the steps",
        "All four curves stay near a tenth for the first hundred and fifty steps and rise within the next hundred. Those of block 2 end above nine tenths, those of block 1 lower.",
    );
    page.figure("births", words, (640, 360), |area| {
        let x = Axis::linear("steps", 0.0..SHOWN as f64);
        let y = Axis::linear("mean weight", 0.0..1.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}

/// The weights of the two heads in one text.
fn maps(page: &mut Page, two: &Opened) -> Result<()> {
    let maps = facts::maps(&two.model)?;
    let n = maps.weights[0].nrows() as i32;
    let cell = 288 / n;
    let words = (
        "Two heads that work together",
        "Two lower triangles of weights. In the left one the cells just below the diagonal are dark. In the right one, in the lower half, a line of dark cells runs parallel to the diagonal, a period less one below it.",
    );
    page.figure("maps", words, (640, (n * cell + 40) as u32), |area| {
        for (block, weights) in maps.weights.iter().enumerate() {
            let left = 8 + 320 * block as i32;
            for (i, j) in (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let (x, y) = (left + j * cell, 4 + i * cell);
                let weight = weights[(i as usize, j as usize)];
                filled(area, [(x, y), (x + cell, y + cell)], BLUE.mix(weight.min(1.0)))?;
            }
            framed(area, [(left - 1, 3), (left + n * cell, 4 + n * cell)], MUTED)?;
            let name = format!("block {}, head {}", block + 1, maps.heads[block] + 1);
            label(area, (left + n * cell / 2, n * cell + 24), &name, TEXT)?;
        }
        Ok(())
    })?;
    page.value("map-period", integer(maps.period));
    Ok(())
}

/// What is left without some heads.
fn ablations(page: &mut Page, two: &Opened) -> Result<()> {
    let ablations = facts::ablations(&two.model)?;
    page.table_of(
        "ablations",
        &ablations,
        &[
            ("heads that are off", &|it| it.name.to_owned()),
            ("loss", &|it| fixed(it.loss, 2)),
            ("block 2: weight on what followed the copy, better head", &|it| {
                percent(it.after_copy, 0)
            }),
        ],
    );
    Ok(())
}
