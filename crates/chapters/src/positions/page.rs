//! The chapter's page: values, tables and figures.

use super::facts::{self, FURTHEST, WIDTH};
use super::task::{BACK, D_MODEL, HEADS, Model, Positions, STEPS, TRAINED};
use crate::figures::format::{fixed, integer, percent, scientific};
use crate::figures::{Axis, BLUE, GREEN, HeatMap, Line, Marks, VERMILION, line_chart};
use crate::output::Page;
use anyhow::Result;
use attention::positions::sinusoidal_positions;

pub fn generate(page: &mut Page) -> Result<()> {
    equals(page)?;
    waves(page)?;
    by_distance(page)?;
    angles(page)?;
    beyond(page)
}

/// The weights of tokens that are all alike.
fn equals(page: &mut Page) -> Result<()> {
    let weights = facts::weights_of_equals()?;
    let labels = ["1", "2", "3", "4", "5", "6"];
    for (matrix, name, title, says) in [
        (
            &weights[0],
            "equals",
            "Weights of six equal tokens under a causal mask",
            "A lower triangle: row i has i equal weights.",
        ),
        (
            &weights[1],
            "alibi",
            "Weights of six equal tokens with a bias by distance",
            "A lower triangle whose rows grow towards the diagonal.",
        ),
    ] {
        let visible = matrix.map(|weight| if weight > 0.0 { weight } else { f64::NAN });
        let map = HeatMap::of_tokens(&visible, &labels, 1.0);
        page.heat_map(name, (title, says), &map)?;
    }
    Ok(())
}

/// Sinusoidal rows.
fn waves(page: &mut Page) -> Result<()> {
    let rows = sinusoidal_positions::<f64>(12, 16)?;
    let labels: Vec<_> = (0..12).map(|position| position.to_string()).collect();
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    let map = HeatMap {
        columns: &[],
        decimals: None,
        ..HeatMap::of_tokens(&rows, &labels, 1.0)
    };
    let words = (
        "Sinusoidal positions: a row for each of twelve positions",
        "The columns at the left change sign every few rows, those at the right hardly change at all.",
    );
    page.heat_map("waves", words, &map)
}

/// What distance does to the product of two vectors that are alike.
fn by_distance(page: &mut Page) -> Result<()> {
    let points =
        |values: Vec<f64>| values.into_iter().enumerate().map(|(d, y)| (d as f64, y));
    let waves = Line::new("sinusoidal", BLUE, points(facts::product_of_waves()?));
    let turned =
        Line::new("rotary", VERMILION, points(facts::product_of_turned()?)).dashed();
    let straight = |distance: usize| 1.0 - distance as f64 / 32.0;
    let falling: Vec<_> = (0..=FURTHEST).map(|d| straight(d).max(-0.25)).collect();
    let bias = Line::new("bias, slope 1/32", GREEN, points(falling));
    let words = (
        "What distance does to a score",
        "The lines for sinusoidal and rotary positions are the same: they fall from one within five tokens and then wave. The bias falls along a straight line.",
    );
    page.figure("distance", words, (640, 320), |area| {
        let x = Axis::linear("distance in tokens", 0.0..FURTHEST as f64);
        let y = Axis::linear("score", -0.25..1.0);
        line_chart(area, &x, &y, &[bias, waves, turned], Marks::default())
    })
}

/// Angles in few bits.
fn angles(page: &mut Page) -> Result<()> {
    let (exact, rounded) = facts::cosines(257)?;
    page.value("cosine", fixed(exact, 2));
    page.value("cosine-rounded", fixed(rounded, 2));
    page.value("off-in-single", scientific(facts::off_in_single(100_000)?, 0));
    page.value("width", integer(WIDTH));
    Ok(())
}

/// The task at lengths that were trained, and at others.
fn beyond(page: &mut Page) -> Result<()> {
    let lengths = [TRAINED, 2 * TRAINED, 8 * TRAINED];
    let mut rows = vec![];
    for (positions, model) in Positions::ALL.into_iter().zip(Model::all_trained()) {
        if positions == Positions::Rotary {
            let (wrong, weight) = model.largest_wrong_distance(8 * TRAINED)?;
            let further = wrong - BACK;
            page.value("wrong-distance", integer(wrong));
            page.value("wrong-further", integer(further));
            page.value("wrong-weight", percent(weight, 0));
            page.value("turns", fixed(further as f64 / std::f64::consts::TAU, 2));
        }
        let mut row = vec![positions.name().to_owned()];
        for n in lengths {
            row.push(fixed(model.loss(n)?, 2));
        }
        rows.push(row);
    }
    let header = lengths.map(|n| format!("{n} tokens"));
    let header: Vec<_> =
        std::iter::once("positions").chain(header.iter().map(String::as_str)).collect();
    page.table("beyond", &header, &rows);
    page.value("trained", integer(TRAINED));
    page.value("steps", integer(STEPS));
    page.value("d-model", integer(D_MODEL));
    page.value("heads", integer(HEADS));
    Ok(())
}
