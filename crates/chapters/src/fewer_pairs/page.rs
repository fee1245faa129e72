//! The chapter's page: values, tables and figures.

use super::facts::{self, Cost, D, DISTANCES, DRAWN, N, SYMBOLS, Text, Way};
use crate::figures::format::{
    bytes, duration, integer, percent, scientific, significant,
};
use crate::figures::{
    BLUE, GREEN, MUTED, RGBColor, VERMILION, arrow, filled, framed, label,
};
use crate::output::Page;
use crate::records::provenance;
use anyhow::{Context, Result};
use laboratory::fewer_pairs::Method;
use record::Record;

pub fn generate(page: &mut Page) -> Result<()> {
    sizes(page);
    patterns(page)?;
    hashes(page)?;
    let ways = METHODS.map(Way::By).into_iter().chain([Way::PlainMean]);
    losses(page, &ways.collect::<Vec<_>>())?;
    costs(page)
}

/// The methods of the chapter, after full attention.
const METHODS: [Method; 5] =
    [Method::Full, Method::Window, Method::Dilated, Method::Blocks, Method::Hashed];

/// The lengths whose times are shown.
const SHOWN: [u64; 2] = [1024, 32_768];

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
    ] {
        page.value(key, integer(number));
    }
    page.value("noise", significant(facts::NOISE, 1));
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
            label(area, (left + SIDE / 2, SIDE + 20), name, crate::figures::TEXT)?;
        }
        Ok(())
    })
}

/// The directions of the plane by their buckets, for two rounds, with two neighbours that only the second round puts together.
fn hashes(page: &mut Page) -> Result<()> {
    const COLOURS: [RGBColor; 4] = [BLUE, VERMILION, GREEN, MUTED];
    const RADIUS: f64 = 80.0;
    let words = (
        "Buckets of directions, in two rounds of hashing",
        "Two circles, each cut into four coloured arcs. In the first, a border runs between two marked points. In the second, both lie on the same arc.",
    );
    let rounds = facts::buckets_of_directions()?;
    page.figure("hashes", words, (640, 230), |area| {
        for (round, buckets) in rounds.iter().enumerate() {
            let centre = (170 + 300 * round as i32, 100);
            let at = |direction: usize, radius: f64| {
                let (sin, cos) = facts::angle(direction).sin_cos();
                let [x, y] = [radius * cos, -radius * sin].map(|x| x.round() as i32);
                (centre.0 + x, centre.1 + y)
            };
            for (direction, &bucket) in buckets.iter().enumerate() {
                let (x, y) = at(direction, RADIUS);
                filled(area, [(x - 2, y - 2), (x + 3, y + 3)], COLOURS[bucket])?;
            }
            for direction in facts::NEIGHBOURS {
                arrow(
                    area,
                    &[centre, at(direction, RADIUS - 6.0)],
                    crate::figures::TEXT,
                )?;
            }
            let name = format!("round {}", round + 1);
            label(area, (centre.0, 215), &name, crate::figures::TEXT)?;
        }
        Ok(())
    })
}

/// What is lost in these ways.
pub fn losses(page: &mut Page, ways: &[Way]) -> Result<()> {
    let (spread, near) = (Text::spread(), Text::near());
    let mut rows = vec![];
    for &way in ways {
        let error = |text: &Text| -> Result<String> {
            if way == Way::DeltaRule {
                return Ok("–".to_owned()); // its output is no mean of values
            }
            let error = text.error(&way.output(text)?)?;
            Ok(if error < 0.005 { "0".to_owned() } else { significant(error, 2) })
        };
        let mut row = vec![way.name().to_owned(), error(&spread)?, error(&near)?];
        for distance in DISTANCES {
            row.push(percent(facts::found_at(way, distance)?, 0));
        }
        rows.push(row);
    }
    let header = DISTANCES.map(|distance| format!("{} back", integer(distance)));
    let mut names = vec!["", "error, spread", "error, near"];
    names.extend(header.iter().map(String::as_str));
    page.table("losses", &names, &rows);
    Ok(())
}

/// What the methods of the chapter cost.
pub fn costs(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["fewer_pairs"])?;
    let costs = costs_of(page, &record, &METHODS)?;
    page.value("shortest", integer(costs[0].seconds[0].0 as usize));
    Ok(())
}

/// What these methods cost, of which the first is full attention. Shows it, and returns it.
pub fn costs_of(
    page: &mut Page,
    record: &Record,
    methods: &[Method],
) -> Result<Vec<Cost>> {
    let costs = facts::costs(record, methods)?;
    let shown = |cost: &Cost| -> Vec<(u64, f64)> {
        cost.seconds.iter().copied().filter(|(n, _)| SHOWN.contains(n)).collect()
    };
    let lengths: Vec<_> =
        shown(&costs[0]).iter().map(|(n, _)| integer(*n as usize)).collect();
    let mut rows = vec![];
    for cost in &costs {
        let mut row = vec![cost.method.name().to_owned()];
        row.extend(shown(cost).iter().map(|(_, seconds)| duration(*seconds)));
        let longest = (shown(&costs[0]), shown(cost));
        let (n, full) = longest.0.last().copied().context("no length is shown")?;
        let (_, seconds) = longest.1.last().copied().context("no length is shown")?;
        let multiplications = |method| facts::multiplications(method, n);
        let gains = [
            multiplications(Method::Full) / multiplications(cost.method),
            full / seconds,
        ];
        let is_full = cost.method == Method::Full;
        row.extend(gains.map(|gain| match is_full {
            true => String::new(),
            false => significant(gain, 2) + "\u{202f}×",
        }));
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
    header.extend(["gain, counted", "gain, measured", "faster from", "memory"]);
    page.table("costs", &header, &rows);
    page.value("longest", lengths[lengths.len() - 1].clone());
    page.value("where", provenance(record));
    Ok(costs)
}
