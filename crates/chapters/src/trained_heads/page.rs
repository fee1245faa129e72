//! The chapter's page: values, tables and figures.

use super::facts::{Facts, Head, SENTENCE, STRETCH, most};
use crate::output::Page;
use anyhow::Result;
use figures::format::{fixed, integer, percent};
use figures::{
    Axis, BLUE, Color as _, GREEN, Line, MUTED, Marks, RGBColor, TEXT, VERMILION,
};
use figures::{filled, framed, label, line_chart};
use model::Measurement;

pub fn generate(page: &mut Page) -> Result<()> {
    let facts = Facts::compute()?;
    let heads = facts.heads()?;
    looks(page, &heads);
    blocks(page, &heads);
    maps(page, &facts, &heads)?;
    readings(page, &facts)?;
    entropies(page, &facts)?;
    gradients(page, &facts)
}

/// Where each head looks, and what it is worth.
fn looks(page: &mut Page, heads: &[Head]) {
    page.table_of(
        "looks",
        heads,
        &[
            ("head", &Head::name),
            ("one back", &|head| percent(head.before, 0)),
            ("two back", &|head| percent(head.two_back, 0)),
            ("last space", &|head| percent(head.space, 0)),
            ("before the last two words", &|head| percent(head.older, 0)),
            ("loss rises by", &|head| fixed(head.rise, 2)),
        ],
    );
    let (dear, cheap) = (most(heads, |head| head.rise), most(heads, |head| -head.rise));
    page.value("dear", dear.name());
    page.value("dear-rise", fixed(dear.rise, 1));
    page.value("cheap", cheap.name());
    page.value("cheap-rise", fixed(cheap.rise, 2));
    let first = heads.iter().map(|head| head.first).fold(0.0, f64::max);
    page.value("largest-first", percent(first, 0));
}

/// How far the heads of each block look back.
fn blocks(page: &mut Page, heads: &[Head]) {
    let count = heads.iter().map(|head| head.block).max().unwrap_or(0) + 1;
    let blocks: Vec<Vec<&Head>> = (0..count)
        .map(|block| heads.iter().filter(|head| head.block == block).collect())
        .collect();
    let mean = |heads: &[&Head], of: fn(&Head) -> f64| {
        heads.iter().map(|head| of(head)).sum::<f64>() / heads.len() as f64
    };
    page.table_of(
        "blocks",
        &blocks,
        &[
            ("block", &|heads| (heads[0].block + 1).to_string()),
            ("characters back, on average", &|heads| {
                fixed(mean(heads, |head| head.distance), 0)
            }),
            ("one or two back", &|heads| {
                percent(mean(heads, |head| head.before + head.two_back), 0)
            }),
            ("before the last two words", &|heads| {
                percent(mean(heads, |head| head.older), 0)
            }),
        ],
    );
}

/// The maps of four heads.
fn maps(page: &mut Page, facts: &Facts, heads: &[Head]) -> Result<()> {
    const CELL: i32 = 12;
    let chosen = [
        most(heads, |head| head.before),
        most(heads, |head| head.two_back),
        most(heads, |head| head.space - head.before),
        most(heads, |head| head.older),
    ];
    let n = SENTENCE.chars().count() as i32;
    let side = n * CELL;
    let words = (
        "The weights of four heads for one sentence",
        "Four lower triangles of weights. The first has dark cells just below the diagonal. In the second they lie two below it. In the third there are dark columns at spaces. In the fourth the weight is spread.",
    );
    page.figure("maps", words, (640, (2 * (side + 40)) as u32), |area| {
        for (place, head) in chosen.iter().enumerate() {
            let weights = facts.map(head)?;
            let (left, top) =
                (30 + 310 * (place as i32 % 2), 4 + (side + 40) * (place as i32 / 2));
            for (i, letter) in SENTENCE.chars().enumerate() {
                let y = top + i as i32 * CELL;
                label(area, (left - 12, y + CELL / 2), &letter.to_string(), TEXT)?;
                for j in 0..=i {
                    let x = left + j as i32 * CELL;
                    let colour = BLUE.mix(weights[(i, j)].min(1.0));
                    filled(area, [(x, y), (x + CELL, y + CELL)], colour)?;
                }
            }
            framed(area, [(left - 1, top - 1), (left + side, top + side)], MUTED)?;
            let name = format!("head {}", head.name());
            label(area, (left + side / 2, top + side + 16), &name, TEXT)?;
        }
        Ok(())
    })?;
    for (key, head) in ["one-back", "two-back", "on-spaces", "wide"].iter().zip(chosen) {
        page.value(*key, head.name());
    }
    Ok(())
}

/// What the model makes of a text that it reads for the second time.
fn readings(page: &mut Page, facts: &Facts) -> Result<()> {
    let [first, second] = facts.losses_of_readings()?;
    page.value("stretch", integer(STRETCH));
    page.value("first-reading", fixed(first, 2));
    page.value("second-reading", fixed(second, 2));
    Ok(())
}

const COLOURS: [RGBColor; 4] = [BLUE, VERMILION, GREEN, MUTED];

/// Something of each measurement, by its step.
fn over_steps(
    facts: &Facts,
    of: impl Fn(&Measurement) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let history = facts.opened.trained.history.iter();
    history.filter_map(|at| Some((at.step as f64, of(at)?))).collect()
}

/// The mean entropy of each block's heads over the steps.
fn entropies(page: &mut Page, facts: &Facts) -> Result<()> {
    let lines = COLOURS.iter().enumerate().map(|(block, colour)| {
        let mean = move |at: &Measurement| {
            let heads = &at.heads[block];
            let sum: f32 = heads.iter().map(|head| head.entropy).sum();
            Some(f64::from(sum) / heads.len() as f64)
        };
        let line =
            Line::new(format!("block {}", block + 1), *colour, over_steps(facts, mean));
        if block % 2 == 1 { line.dashed() } else { line }
    });
    let lines: Vec<_> = lines.collect();
    let words = (
        "The entropy of the heads' weights over the steps",
        "Four curves start near nine tenths and fall within two hundred steps. That of block 1 stays highest.",
    );
    page.figure("entropies", words, (640, 320), |area| {
        let x = Axis::linear("steps", 0.0..facts.opened.trained.plan.steps as f64);
        let y = Axis::linear("share of the largest entropy", 0.0..1.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}

/// The norms of the gradients of each projection over the steps, all blocks together.
fn gradients(page: &mut Page, facts: &Facts) -> Result<()> {
    let names = ["w_q", "w_k", "w_v", "w_o"];
    let lines = names.iter().zip(COLOURS).enumerate().map(|(i, (name, colour))| {
        let norm = move |at: &Measurement| {
            let squares = at.gradients.iter().filter(|(full, _)| full.ends_with(name));
            let sum: f64 = squares.map(|(_, norm)| f64::from(norm * norm)).sum();
            (sum > 0.0).then(|| sum.sqrt())
        };
        let line = Line::new(name.to_uppercase(), colour, over_steps(facts, norm));
        if i % 2 == 1 { line.dashed() } else { line }
    });
    let lines: Vec<_> = lines.collect();
    let words = (
        "The norms of the gradients of four projections over the steps",
        "Four curves on a logarithmic scale. Those of the queries and the keys lie below those of the values and the outputs.",
    );
    page.figure("gradients", words, (640, 320), |area| {
        let x = Axis::linear("steps", 0.0..facts.opened.trained.plan.steps as f64);
        let y = Axis::log("norm", 10.0, 0.01..10.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}
