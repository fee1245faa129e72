//! The chapter's page: values, tables and figures.

use crate::figures::format::{fixed, integer, significant};
use crate::figures::{Axis, BLUE, Line, MUTED, Marks, TEXT, VERMILION};
use crate::figures::{arrow, label, line, line_chart, text_box};
use crate::output::Page;
use crate::trained::{self, Opened};
use anyhow::{Context as _, Result};
use attention::NamedParameters as _;
use model::{Characters, Plan};
use serde::Deserialize;

pub fn generate(page: &mut Page) -> Result<()> {
    block(page)?;
    let opened = trained::open("book")?;
    let task = trained::book()?;
    curves(page, &opened, &task)?;
    let samples = samples(&opened, &task)?;
    let lines = samples.iter().map(|Sample { temperature, text }| {
        format!("- {}: “{}…”", fixed(*temperature, 1), text.trim().replace('\n', " / "))
    });
    page.file("samples.md", lines.collect::<Vec<_>>().join("\n"));
    page.file("run.md", trained::ran(&opened.trained));
    sizes(page, &opened.trained.plan, task.length());
    show_speed(page)
}

/// The sizes of the model and of a step.
fn sizes(page: &mut Page, plan: &Plan, length: usize) {
    let sizes = plan.sizes;
    let rows = [
        ("different characters", integer(sizes.vocabulary)),
        ("width of the stream", integer(sizes.d_model)),
        ("heads in a block", integer(sizes.n_heads)),
        ("key-value heads in a block", integer(sizes.n_kv_heads)),
        ("hidden width of the MLP", integer(sizes.d_hidden)),
        ("characters of a text", integer(length)),
        ("texts of a step", integer(plan.batch)),
        ("steps", integer(plan.steps as usize)),
        ("largest learning rate", format!("{}", plan.rate)),
    ];
    let rows = rows.map(|(what, size)| vec![what.to_owned(), size]);
    page.table("sizes", &["what", "size"], &rows);
}

/// Two blocks along the residual stream.
fn block(page: &mut Page) -> Result<()> {
    const Y: i32 = 150; // of the stream
    let words = (
        "Two blocks along the residual stream",
        "A line from left to right. Four times a branch leaves it, runs through a norm and a layer, and returns to the line at a plus sign: attention, MLP, attention, MLP.",
    );
    page.figure("block", words, (640, 190), |area| {
        label(area, (30, Y - 16), "tokens", TEXT)?;
        arrow(area, &[(8, Y), (632, Y)], MUTED)?;
        label(area, (604, Y - 16), "logits", TEXT)?;
        for (i, layer) in ["attention", "MLP", "attention", "MLP"].iter().enumerate() {
            let left = 64 + 130 * i as i32;
            let colour = if i % 2 == 0 { BLUE } else { VERMILION };
            line(area, &[(left, Y), (left, 113)], colour)?;
            text_box(area, (left - 30, 89), (60, 24), "norm", MUTED)?;
            line(area, &[(left, 89), (left, 64)], colour)?;
            text_box(area, (left - 44, 40), (98, 24), layer, colour)?;
            arrow(
                area,
                &[(left, 40), (left, 16), (left + 78, 16), (left + 78, Y - 2)],
                colour,
            )?;
            label(area, (left + 78, Y + 18), "+", TEXT)?;
        }
        Ok(())
    })
}

/// The loss over the steps, and what it says.
fn curves(page: &mut Page, opened: &Opened, task: &Characters) -> Result<()> {
    let Opened { trained, model } = opened;
    let history = &trained.history;
    let last = history.last().context("nothing was measured")?;
    let learned = history.iter().filter_map(|at| Some((at.step as f64, at.loss?.into())));
    let unseen = history.iter().map(|at| (at.step as f64, at.held_out.into()));
    let lines = [
        Line::new("learned from", BLUE, learned),
        Line::new("unseen", VERMILION, unseen),
    ];
    let words = (
        "The loss over the steps",
        "Two curves fall steeply at first and then slowly. That of unseen text flattens earlier and stays above the other.",
    );
    page.figure("loss", words, (640, 320), |area| {
        let x = Axis::linear("steps", 0.0..trained.plan.steps as f64);
        let y = Axis::linear("nats per character", 0.0..5.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })?;
    let parameters: usize = model.named().iter().map(|(_, matrix)| matrix.len()).sum();
    let read = trained.plan.steps as usize * trained.plan.batch * task.length();
    for (key, number) in [
        ("characters", task.characters()),
        ("vocabulary", task.alphabet.len()),
        ("parameters", parameters),
        ("blocks", trained.plan.sizes.n_blocks),
        ("epochs", read / task.characters()),
    ] {
        page.value(key, integer(number));
    }
    page.value("ignorant", fixed((task.alphabet.len() as f64).ln(), 2));
    page.value("held-out", fixed(last.held_out.into(), 2));
    page.value("choices", fixed(f64::from(last.held_out).exp(), 1));
    page.value("learned", fixed(last.loss.context("no step was taken")?.into(), 2));
    Ok(())
}

/// What the model writes at a temperature.
pub struct Sample {
    pub temperature: f64,
    pub text: String,
}

/// What the model writes, at three temperatures.
pub fn samples(opened: &Opened, task: &Characters) -> Result<Vec<Sample>> {
    const PROMPT: &str = "Attention is";
    const CHARACTERS: usize = 160;
    let mut samples = vec![];
    for temperature in [0.2, 0.7, 1.2] {
        let mut text = PROMPT.to_owned();
        task.go_on(&opened.model, PROMPT, (CHARACTERS, temperature, 0), |character| {
            text.push(character);
            Ok(())
        })?;
        samples.push(Sample { temperature, text });
    }
    Ok(samples)
}

/// Training steps beside PyTorch's, from benches/peers/train.py.
#[derive(Deserialize)]
struct Speed {
    processor: String,
    torch: String,
    date: String,
    runs: Vec<SpeedOfThreads>,
}

#[derive(Deserialize)]
struct SpeedOfThreads {
    threads: usize,
    ours: f64,
    theirs: f64,
    ratio: f64,
}

fn speed() -> Result<Speed> {
    Ok(serde_json::from_str(include_str!("../../../model/trained/speed.json"))?)
}

fn show_speed(page: &mut Page) -> Result<()> {
    let speed = speed()?;
    page.table_of(
        "speed",
        &speed.runs,
        &[
            ("threads", &|run| run.threads.to_string()),
            ("our tokens a second", &|run| integer(run.ours.round() as usize)),
            ("PyTorch's", &|run| integer(run.theirs.round() as usize)),
            ("ratio", &|run| significant(run.ratio, 3)),
        ],
    );
    page.value(
        "speed-where",
        format!(
            "{}, PyTorch {}, eager, in `f32`, on {}",
            speed.processor, speed.torch, speed.date
        ),
    );
    Ok(())
}
