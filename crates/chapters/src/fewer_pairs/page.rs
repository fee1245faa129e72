//! The chapter's page: values, tables and figures.

use super::facts::{self, Cost, D, DISTANCES, DRAWN, N, SYMBOLS, Text};
use crate::output::Page;
use crate::records::provenance;
use anyhow::Result;
use figures::format::{
    bytes, duration, fixed, integer, percent, scientific, significant,
};
use figures::{
    Axis, BLUE, GREEN, Line, MUTED, Marks, VERMILION, filled, framed, label, line_chart,
};
use laboratory::fewer_pairs::Method;

pub fn generate(page: &mut Page) -> Result<()> {
    sizes(page);
    patterns(page)?;
    features(page)?;
    capacity(page)?;
    losses(page)?;
    costs(page)
}

/// The sizes of the methods.
fn sizes(page: &mut Page) {
    for (key, number) in [
        ("n", N),
        ("d", D),
        ("symbols", SYMBOLS),
        ("width", Method::WIDTH),
        ("sinks", Method::SINKS),
        ("step", Method::STEP),
        ("block", Method::BLOCK),
        ("bucket", Method::BUCKET),
        ("rounds", Method::ROUNDS),
        ("chunk", Method::CHUNK),
        ("features", Method::FEATURES),
    ] {
        page.value(key, integer(number));
    }
    let of_state = (D * (D + 1)) as f64 / (2 * D) as f64; // numbers, against those of a token
    page.value("state-tokens", integer(of_state.round() as usize));
    page.value("pairs", scientific((65_536.0_f64).powi(2) / 2.0, 0));
}

/// Four patterns, side by side.
fn patterns(page: &mut Page) -> Result<()> {
    const CELL: i32 = 6;
    const SIDE: i32 = DRAWN as i32 * CELL;
    let patterns = facts::patterns()?;
    let words = (
        "Which keys a query sees, in four patterns",
        "Four lower triangles. The first has a band along the diagonal and two full columns at the left. The second has stripes along the diagonal. The third has square blocks along the diagonal and broad columns. The fourth has scattered cells.",
    );
    page.figure("patterns", words, (640, 180), |area| {
        for (number, (name, seen)) in patterns.iter().enumerate() {
            let left = 8 + number as i32 * (SIDE + 16);
            for i in 0..DRAWN {
                for j in (0..DRAWN).filter(|j| seen[(i, *j)]) {
                    let (x, y) = (left + j as i32 * CELL, i as i32 * CELL + 2);
                    filled(area, [(x, y), (x + CELL - 1, y + CELL - 1)], BLUE)?;
                }
            }
            framed(area, [(left - 1, 1), (left + SIDE, SIDE + 2)], MUTED)?;
            label(area, (left + SIDE / 2, SIDE + 20), name, figures::TEXT)?;
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
    let points = |method: Method| -> Result<Vec<(f64, f64)>> {
        let point = |n: usize| Ok((n as f64, facts::found_anywhere(method, n)?));
        lengths.clone().map(point).collect()
    };
    let lines = [
        Line::new("full", BLUE, points(Method::Full)?),
        Line::new("linear", VERMILION, points(Method::Linear)?).dashed(),
        Line::new("random features", GREEN, points(Method::RandomFeatures)?),
    ];
    let words = (
        "How often a token is found, by the length of the text",
        "The line of full attention stays at one. Those of linear attention and of random features fall as the text grows.",
    );
    page.figure("capacity", words, (640, 320), |area| {
        let x = Axis::log("tokens", 2.0, 8.0..2048.0);
        let y = Axis::linear("share found", 0.0..1.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}

/// What each method loses.
fn losses(page: &mut Page) -> Result<()> {
    let (spread, near) = (Text::spread(), Text::near());
    let mut rows = vec![];
    for method in Method::ALL.map(Some).into_iter().chain([None]) {
        let error = |text: &Text| -> Result<String> {
            let output = method.map_or_else(|| text.means(), |way| text.attend(way))?;
            let error = text.error(&output)?;
            Ok(if error < 0.005 { "0".to_owned() } else { significant(error, 2) })
        };
        let name = method.map_or("plain mean", Method::name);
        let mut row = vec![name.to_owned(), error(&spread)?, error(&near)?];
        for distance in DISTANCES {
            row.push(percent(facts::found_at(method, distance)?, 0));
        }
        rows.push(row);
    }
    let header = DISTANCES.map(|distance| format!("{} back", integer(distance)));
    let mut names = vec!["", "error, spread", "error, near"];
    names.extend(header.iter().map(String::as_str));
    page.table("losses", &names, &rows);
    Ok(())
}

/// What each method costs.
pub fn costs(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["fewer_pairs"])?;
    let costs = facts::costs_of(&record)?;
    let shown = |cost: &Cost| -> Vec<(u64, f64)> {
        [0, cost.seconds.len() - 1].map(|place| cost.seconds[place]).to_vec()
    };
    let lengths: Vec<_> =
        shown(&costs[0]).iter().map(|(n, _)| integer(*n as usize)).collect();
    let mut rows = vec![];
    for cost in &costs {
        let mut row = vec![cost.method.name().to_owned()];
        row.extend(shown(cost).iter().map(|(_, seconds)| duration(*seconds)));
        row.push(match (cost.method, cost.pays_from) {
            (Method::Full, _) => String::new(),
            (_, Some(n)) if n == cost.seconds[0].0 => {
                format!("{} or less", integer(n as usize))
            }
            (_, Some(n)) => integer(n as usize),
            (_, None) => "never".to_owned(),
        });
        row.push(bytes(cost.bytes as u128));
        rows.push(row);
    }
    let mut header = vec![""];
    header.extend(lengths.iter().map(String::as_str));
    header.extend(["faster from", "memory"]);
    page.table("costs", &header, &rows);
    page.value("longest", lengths[lengths.len() - 1].clone());
    page.value("where", provenance(&record));
    Ok(())
}
