//! The chapter's page: tables and figures.

use crate::figures::format::{fixed, integer, significant};
use crate::figures::{
    Axis, BLUE, GREEN, Line, MUTED, Marks, RGBColor, VERMILION, line_chart,
};
use crate::output::Page;
use crate::trained::REPEATED;
use anyhow::{Context as _, Result};
use serde::Deserialize;

/// All trainings.
#[derive(Deserialize)]
pub struct Recorded {
    run: model::Run,
    /// The step at which entropy and gradients were looked at.
    pub look: usize,
    pub models: Vec<Run>,
}

/// The training of one model.
#[derive(Deserialize)]
pub struct Run {
    pub name: String,
    /// Steps and the loss of unseen texts that are read whole.
    pub losses: Vec<(f64, f64)>,
    /// The last of them, for texts that are read token by token.
    pub by_token: f64,
    /// The mean entropy of the weights' rows, as a share of the largest possible.
    pub entropy: f64,
    /// The norm of the gradients of all W_Q over that of all W_V.
    pub q_over_v: f64,
}

impl Run {
    pub fn last(&self) -> f64 {
        self.losses.last().map_or(f64::NAN, |&(_, loss)| loss)
    }
}

pub fn recorded() -> Result<Recorded> {
    Ok(serde_json::from_str(include_str!("../../../model/trained/hidden-faults.json"))?)
}

pub fn run<'a>(runs: &'a [Run], name: &str) -> Result<&'a Run> {
    runs.iter()
        .find(|run| run.name == name)
        .with_context(|| format!("no run is called {name}"))
}

pub fn generate(page: &mut Page) -> Result<()> {
    let Recorded { run: taken, look, models: runs } = recorded()?;
    curves(
        page,
        &runs,
        "leaks",
        (
            "The loss of the right program and of two faulty ones",
            "The curve of the right program falls to zero. Those of the two faulty ones fall, too, more slowly, and end far above it.",
        ),
        &[
            ("right", BLUE),
            ("softmax over the wrong axis", VERMILION),
            ("heads merged without a transpose", GREEN),
        ],
    )?;
    curves(
        page,
        &runs,
        "scale",
        (
            "The loss with and without the scale, at two widths",
            "The curves with the scale fall to zero. Those without it stay high.",
        ),
        &[
            ("right, 64 wide", BLUE),
            ("no scale, 64 wide", VERMILION),
            ("right, 512 wide", GREEN),
            ("no scale, 512 wide", MUTED),
        ],
    )?;
    let steps = runs[0].losses.last().map_or(0.0, |&(step, _)| step);
    page.value("steps", integer(steps as usize));
    for width in ["64", "512"] {
        let without = run(&runs, &format!("no scale, {width} wide"))?;
        page.value(format!("without-{width}"), fixed(without.last(), 1));
    }
    page.table_of(
        "signs",
        &runs,
        &[
            ("program", &|run| match run.name.contains("wide") {
                true => run.name.clone(),
                false => format!("{}, 32 wide", run.name),
            }),
            ("entropy", &|run| match run.name.contains("axis") {
                true => "–".to_owned(),
                false => fixed(run.entropy, 2),
            }),
            ("gradient of $W_Q$ over that of $W_V$", &|run| significant(run.q_over_v, 2)),
            ("loss at the end", &|run| fixed(run.last(), 2)),
        ],
    );
    for (key, name) in
        [("collapsed-64", "no scale, 64 wide"), ("healthy-64", "right, 64 wide")]
    {
        page.value(key, fixed(run(&runs, name)?.entropy, 2));
    }
    let one_block = crate::trained::open("repeated-one-block")?.trained.history;
    let one_block = one_block.last().map_or(f32::NAN, |at| at.held_out);
    page.value("one-block", fixed(f64::from(one_block), 1));
    page.value("ignorant", fixed((REPEATED.vocabulary as f64).ln(), 2));
    page.value("look", integer(look));
    page.value("taken", crate::trained::took(&taken));
    page.table_of(
        "readings",
        &runs[..3],
        &[
            ("program", &|run| run.name.clone()),
            ("loss, read whole", &|run| fixed(run.last(), 2)),
            ("loss, token by token", &|run| fixed(run.by_token, 2)),
        ],
    );
    Ok(())
}

/// The losses of some runs over the steps.
fn curves(
    page: &mut Page,
    runs: &[Run],
    name: &str,
    words: (&str, &str),
    shown: &[(&str, RGBColor)],
) -> Result<()> {
    let lines = shown.iter().enumerate().map(|(i, (name, colour))| {
        let line = Line::new(*name, *colour, run(runs, name)?.losses.iter().copied());
        Ok(if i % 2 == 1 { line.dashed() } else { line })
    });
    let lines = lines.collect::<Result<Vec<_>>>()?;
    let steps = runs[0].losses.last().map_or(0.0, |&(step, _)| step);
    page.figure(name, words, (640, 320), |area| {
        let x = Axis::linear("steps", 0.0..steps);
        let y = Axis::linear("nats per token", 0.0..5.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}
