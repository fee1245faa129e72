//! The chapter's page: values, tables and figures.

use super::facts;
use crate::fewer_pairs::{
    self,
    facts::{D, Way},
};
use crate::figures::format::{fixed, integer, scientific};
use crate::figures::{
    Axis, BLUE, Color, GREEN, Line, MUTED, Marks, VERMILION, filled, line_chart,
};
use crate::output::Page;
use anyhow::{Context, Result};
use laboratory::fewer_pairs::Method;

/// The methods of the chapter, after full attention.
const METHODS: [Method; 3] = [Method::Full, Method::Linear, Method::RandomFeatures];

pub fn generate(page: &mut Page) -> Result<()> {
    sizes(page);
    chunks(page)?;
    features(page)?;
    capacity(page)?;
    let [full, linear, random] = METHODS.map(Way::By);
    let ways = [full, linear, random, Way::DeltaRule, Way::PlainMean];
    fewer_pairs::losses(page, &ways)?;
    costs(page)
}

/// What the methods of the chapter cost.
pub fn costs(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["fewer_pairs"])?;
    let costs = fewer_pairs::costs_of(page, &record, &METHODS)?;
    let from = costs[1].pays_from.context("linear attention is never faster")?;
    page.value("faster-from", integer(from as usize));
    Ok(())
}

/// The sizes of the methods.
fn sizes(page: &mut Page) {
    for (key, number) in
        [("d", D), ("chunk", Method::CHUNK), ("features", Method::FEATURES)]
    {
        page.value(key, integer(number));
    }
    let of_state = D * D; // numbers, without z, which the models named there don't have
    page.value("state-tokens", integer(of_state / (2 * D)));
}

/// Which pairs are computed, of twelve tokens in chunks of four.
fn chunks(page: &mut Page) -> Result<()> {
    const CELL: i32 = 16;
    const CHUNK: i32 = 4;
    let words = (
        "The pairs of twelve tokens in chunks of four",
        "A lower triangle of twelve rows. Three small triangles along the diagonal are blue. Everything left of them is grey.",
    );
    page.figure("chunks", words, (640, 200), |area| {
        for (i, j) in (0..12).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            let (x, y) = (224 + j * CELL, 4 + i * CELL);
            let corners = [(x, y), (x + CELL - 2, y + CELL - 2)];
            let is_computed = i / CHUNK == j / CHUNK;
            let colour = if is_computed { BLUE.mix(1.0) } else { MUTED.mix(0.3) };
            filled(area, corners, colour)?;
        }
        Ok(())
    })
}

/// How far random features are off.
fn features(page: &mut Page) -> Result<()> {
    let rows: Vec<_> = facts::spread_of_features(4000)?
        .iter()
        .map(|spread| {
            vec![
                fixed(spread.squared, 0),
                fixed(spread.predicted, 2),
                fixed(spread.measured, 2),
                integer(spread.needed.round() as usize),
            ]
        })
        .collect();
    let header =
        ["$\\lvert q + k \\rvert^2$", "predicted", "measured", "features for a tenth"];
    page.table("features", &header, &rows);
    let needed = facts::features_for_a_tenth(16.0);
    page.value("needed", scientific(needed, 0));
    Ok(())
}

/// How many tokens a state holds.
fn capacity(page: &mut Page) -> Result<()> {
    let lengths = (3..=11).map(|power| 1 << power);
    let points = |way: Way| -> Result<Vec<(f64, f64)>> {
        let point = |n: usize| Ok((n as f64, facts::found_anywhere(way, n)?));
        lengths.clone().map(point).collect()
    };
    let lines = [
        Line::new("full", BLUE, points(Way::By(Method::Full))?),
        Line::new("linear", VERMILION, points(Way::By(Method::Linear))?).dashed(),
        Line::new("random features", GREEN, points(Way::By(Method::RandomFeatures))?),
        Line::new("delta rule", MUTED, points(Way::DeltaRule)?),
    ];
    let words = (
        "How often a token is found, by the length of the text",
        "The line of full attention stays at one. The others fall as the text grows. The delta rule stays above nine tenths up to 64 tokens, and falls below random features at 512.",
    );
    page.figure("capacity", words, (640, 320), |area| {
        let x = Axis::log("tokens", 2.0, 8.0..2048.0);
        let y = Axis::linear("share found", 0.0..1.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}
