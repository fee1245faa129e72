//! The chapter's page: values, tables and figures.

use super::facts::{Facts, Head, SENTENCE, STRETCH, most};
use crate::figures::format::{fixed, integer, percent};
use crate::figures::{
    Axis, BLUE, Color as _, GREEN, Line, MUTED, Marks, RGBColor, TEXT, VERMILION,
};
use crate::figures::{filled, framed, label, line_chart};
use crate::output::Page;
use anyhow::Result;
use model::Measurement;

pub fn generate(page: &mut Page) -> Result<()> {
    let facts = Facts::compute()?;
    let heads = facts.heads()?;
    looks(page, &facts, &heads)?;
    blocks(page, &facts, &heads)?;
    maps(page, &facts, &heads)?;
    missed(page, &facts, &heads)?;
    without(page, &facts, &heads)?;
    rounded(page, &facts)?;
    readings(page, &facts)?;
    entropies(page, &facts)?;
    gradients(page, &facts)
}

/// Where each head looks, and what it is worth.
fn looks(page: &mut Page, facts: &Facts, heads: &[Head]) -> Result<()> {
    for (name, shown) in [
        ("looks", chosen(heads).into_iter().collect::<Vec<_>>()),
        ("looks-all", heads.iter().collect()),
    ] {
        page.table_of(
            name,
            &shown,
            &[
                ("head", &|head| head.name()),
                ("itself", &|head| percent(head.itself, 0)),
                ("one back", &|head| percent(head.one_back, 0)),
                ("two back", &|head| percent(head.two_back, 0)),
                ("further", &|head| percent(head.further, 0)),
                ("loss rises by", &|head| fixed(head.rise, 2)),
            ],
        );
    }
    let [first, _] = most_expensive(heads);
    let (even_first, even_distance) = facts.of_even_weights();
    page.value("even-first", percent(even_first, 1));
    page.value("even-distance", integer(even_distance.round() as usize));
    page.value("most-expensive", first.name());
    for (key, of) in [
        ("largest-first", (|head| head.first) as fn(&Head) -> f64),
        ("largest-copy", |head| head.after_same_place),
    ] {
        page.value(key, percent(heads.iter().map(of).fold(0.0, f64::max), 1));
    }
    Ok(())
}

/// The two heads without which the loss rises most.
pub fn most_expensive(heads: &[Head]) -> [&Head; 2] {
    let first = most(heads, |head| head.rise);
    let second = most(heads, |head| if head.rise < first.rise { head.rise } else { 0.0 });
    [first, second]
}

/// How far the heads of each block look back, and what those of block 3 are worth together.
fn blocks(page: &mut Page, facts: &Facts, heads: &[Head]) -> Result<()> {
    let count = heads.iter().map(|head| head.block).max().unwrap_or(0) + 1;
    let mut rows = vec![];
    for block in 0..count {
        let heads: Vec<_> = heads.iter().filter(|head| head.block == block).collect();
        let sum = |of: fn(&Head) -> f64| heads.iter().map(|head| of(head)).sum::<f64>();
        let n = heads.len() as f64;
        if block == 2 {
            let off: Vec<_> = heads.iter().map(|head| (head.block, head.head)).collect();
            page.value("one-by-one", fixed(sum(|head| head.rise), 2));
            page.value("together", fixed(facts.rise(&off)?, 2));
        }
        rows.push(vec![
            (block + 1).to_string(),
            fixed(sum(|head| head.distance) / n, 1),
            percent(sum(|head| head.further) / n, 0),
        ]);
    }
    let header = ["block", "characters back, on average", "more than two back"];
    page.table("blocks", &header, &rows);
    Ok(())
}

/// The heads of the maps: the two that are worth most, the one whose spaces look most at themselves of those that are left in the first block, and the
/// one that looks furthest.
fn chosen(heads: &[Head]) -> [&Head; 4] {
    let [first, second] = most_expensive(heads);
    let spaces = |head: &Head| if head.block == 0 { head.space_on_itself } else { 0.0 };
    [first, second, most(heads, spaces), most(heads, |head| head.distance)]
}

/// The maps of four heads, and what they do at some characters.
fn maps(page: &mut Page, facts: &Facts, heads: &[Head]) -> Result<()> {
    const CELL: i32 = 11;
    let chosen = chosen(heads);
    let n = SENTENCE.chars().count() as i32;
    let side = n * CELL;
    let words = (
        "The weights of four heads for one sentence",
        "Four lower triangles of weights. In the first two, dark cells run one or two below the diagonal. In the third, spaces are dark on the diagonal, and other rows are pale. In the fourth most rows are pale, and some have one dark cell.",
    );
    page.figure("maps", words, (640, (2 * (side + 40)) as u32), |area| {
        for (place, head) in chosen.iter().enumerate() {
            let weights = facts.map(head)?;
            let (left, top) =
                (50 + 320 * (place as i32 % 2), 4 + (side + 40) * (place as i32 / 2));
            let mut row = 0;
            for word in SENTENCE.split(' ') {
                let rows = word.len() as i32;
                label(area, (left - 26, top + (2 * row + rows) * CELL / 2), word, TEXT)?;
                row += rows + 1;
            }
            for i in 0..n {
                let y = top + i * CELL;
                for j in 0..=i {
                    let x = left + j * CELL;
                    let colour = BLUE.mix(weights[(i as usize, j as usize)].min(1.0));
                    filled(area, [(x, y), (x + CELL, y + CELL)], colour)?;
                }
            }
            framed(area, [(left - 1, top - 1), (left + side, top + side)], MUTED)?;
            let name = format!("head {}", head.name());
            label(area, (left + side / 2, top + side + 16), &name, TEXT)?;
        }
        Ok(())
    })?;
    for (key, head) in ["first", "second", "spaces", "far"].iter().zip(chosen) {
        page.value(*key, head.name());
    }
    page.table_of(
        "queries",
        &chosen,
        &[
            ("head", &|head| head.name()),
            ("a space looks at itself", &|head| percent(head.space_on_itself, 0)),
            ("an e looks one back", &|head| percent(head.e_one_back, 0)),
            ("an e looks two back", &|head| percent(head.e_two_back, 0)),
        ],
    );
    Ok(())
}

/// Where the two heads that are worth most are missed.
fn missed(page: &mut Page, facts: &Facts, heads: &[Head]) -> Result<()> {
    let [first, second] = most_expensive(heads).map(|it| (it.block, it.head));
    let name = |(block, head): (usize, usize)| format!("{}.{}", block + 1, head + 1);
    let mut rows = vec![];
    for (off, heads) in [
        (name(first), vec![first]),
        (name(second), vec![second]),
        ("both".to_owned(), vec![first, second]),
    ] {
        let rises = facts.rises_after(&heads)?.map(|rise| fixed(rise, 1));
        rows.push([vec![off], rises.to_vec()].concat());
    }
    let header = ["off", "after a space", "after an e", "after any other"];
    page.table("missed", &header, &rows);
    let [first, _, spaces, _] = chosen(heads);
    for (key, head) in [("first-worth", first), ("spaces-worth", spaces)] {
        let [after_space, ..] = facts.rises_after(&[(head.block, head.head)])?;
        page.value(key, fixed(after_space, 2));
    }
    Ok(())
}

/// How the text of the page's figure goes on, with all heads and without some.
fn without(page: &mut Page, facts: &Facts, heads: &[Head]) -> Result<()> {
    let [first, second] = most_expensive(heads);
    let of_block = |block| heads.iter().filter(move |head| head.block == block);
    let mut rows = vec![];
    for (name, off) in [
        ("all heads".to_owned(), vec![]),
        (format!("without {} and {}", first.name(), second.name()), vec![first, second]),
        ("without block 1".to_owned(), of_block(0).collect()),
    ] {
        let off: Vec<_> = off.iter().map(|head| (head.block, head.head)).collect();
        let (model, mut text) = (facts.model().without_heads(&off), PROMPT.to_owned());
        facts.task.go_on(&model, PROMPT, (60, 0.5, 0), |letter| {
            text.push(if letter == '\n' { ' ' } else { letter });
            Ok(())
        })?;
        rows.push([name, text]);
    }
    let lines = rows.iter().map(|[name, text]| format!("- {name}: “{text}…”"));
    page.file("without.md", lines.collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// The text that the page's figure begins with.
const PROMPT: &str = "the softmax of the sc";

/// What the model loses when its parameters are rounded to eight bits.
fn rounded(page: &mut Page, facts: &Facts) -> Result<()> {
    let [exact, rounded] = facts.losses_of_rounding()?;
    page.value("loss", fixed(exact, 2));
    page.value("loss-exact", fixed(exact, 4));
    page.value("loss-rounded", fixed(rounded, 4));
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
    let y = Axis::linear("share of the largest entropy", 0.0..1.0);
    chart(page, facts, "entropies", words, &y, &lines)
}

/// Lines over the steps.
fn chart(
    page: &mut Page,
    facts: &Facts,
    name: &str,
    words: (&str, &str),
    y: &Axis,
    lines: &[Line],
) -> Result<()> {
    let x = Axis::linear("steps", 0.0..facts.opened.trained.plan.steps as f64);
    page.figure(name, words, (640, 320), |area| {
        line_chart(area, &x, y, lines, Marks::default())
    })
}

/// The norm of a projection's gradients in all blocks together; before the first step there is none.
pub fn norm_of(at: &Measurement, projection: &str) -> Option<f64> {
    let squares = at.gradients.iter().filter(|(name, _)| name.ends_with(projection));
    let sum: f64 = squares.map(|(_, norm)| f64::from(norm * norm)).sum();
    (sum > 0.0).then(|| sum.sqrt())
}

/// The norms of the gradients of each projection over the steps, all blocks together.
fn gradients(page: &mut Page, facts: &Facts) -> Result<()> {
    let names = ["w_q", "w_k", "w_v", "w_o"];
    let lines = names.iter().zip(COLOURS).enumerate().map(|(i, (name, colour))| {
        let norm = move |at: &Measurement| norm_of(at, name);
        let line = Line::new(name.to_uppercase(), colour, over_steps(facts, norm));
        if i % 2 == 1 { line.dashed() } else { line }
    });
    let lines: Vec<_> = lines.collect();
    let words = (
        "The norms of the gradients of four projections over the steps",
        "Four curves on a logarithmic scale. Those of the queries and the keys lie below those of the values and the outputs.",
    );
    let y = Axis::log("norm", 10.0, 0.01..10.0);
    chart(page, facts, "gradients", words, &y, &lines)
}
