//! The chapter's page: values, tables and figures.

use super::facts;
use super::task::{BACK, D_MODEL, HEADS, Model, Positions, STEPS, TRAINED};
use crate::figures::HeatMap;
use crate::figures::format::{fixed, integer, percent};
use crate::output::Page;
use anyhow::Result;
use attention::positions::sinusoidal_positions;

pub fn generate(page: &mut Page) -> Result<()> {
    equals(page)?;
    periods(page);
    waves(page)?;
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

/// After how many tokens the fastest and the slowest pair of a rotary head of width 64 come round.
fn periods(page: &mut Page) {
    let period = |c: f64| std::f64::consts::TAU * 10_000_f64.powf(2.0 * c / 64.0);
    page.value("fastest-period", fixed(period(0.0), 0));
    page.value(
        "slowest-period",
        integer((period(31.0) / 1000.0).round() as usize * 1000),
    );
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
