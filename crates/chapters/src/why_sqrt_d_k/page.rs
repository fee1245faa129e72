//! The chapter's page: values, tables and figures.

use super::facts::{self, Histogram, Responses, histogram, normal_density};
use super::saturation::{
    self, LENGTHS, ROWS, Row, WIDTHS, draw_all, largest_first, logarithmic_sizes, mean,
    median, rows, rows_of_eight, share, starved,
};
use crate::figures::format::{fixed, integer, percent, scientific};
use crate::figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart};
use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    draw_all(largest_first()); // the slow ones, side by side

    four_scores(page)?;
    page.value("rows", integer(ROWS));
    page.value("aligned-ratio", scientific(facts::aligned_mean(0.5, 1024).exp(), 0));
    histograms(page)?;
    largest_weights(page)?;
    page.value("starved", percent(starved(&rows_of_eight().unscaled), 0));
    saturation_tables(page);
    spread_of_gradients(page)
}

/// Four scores before and after the division, with what their weights respond.
fn four_scores(page: &mut Page) -> Result<()> {
    let [undivided, divided] = facts::four_scores()?;
    let row = |i: usize| {
        let cells = |of: &Responses, digits| {
            let response = of.weights[i] * (1.0 - of.weights[i]);
            [fixed(of.scores[i], digits), fixed(of.weights[i], 3), fixed(response, 3)]
        };
        let key = ["first", "second", "third", "fourth"][i].to_owned();
        [&[key][..], &cells(&undivided, 0), &cells(&divided, 1)].concat()
    };
    let responses = [(&undivided, 1.0, "1"), (&divided, 8.0, "1/8")];
    page.table(
        "responses",
        &["divided by", "softmax responds by", "times $1 / a$", "together"],
        &responses.map(|(of, divisor, factor)| {
            let response = of.weights[0] * (1.0 - of.weights[0]);
            let together = fixed(response / divisor, 3);
            vec![
                integer(divisor as usize),
                fixed(response, 3),
                factor.to_owned(),
                together,
            ]
        }),
    );
    let half = ["score", "weight $p$", "$p\\,(1 - p)$"];
    let header = [&["key"][..], &half, &["divided by 8"], &half[1..]].concat();
    page.table("four", &header, &[0, 1, 2, 3].map(row));
    Ok(())
}

/// The distribution of dot products, with the normal density over it.
fn histograms(page: &mut Page) -> Result<()> {
    let (reach, bins, most) = (80.0, 160, 0.16);
    for d in [8_usize, 512] {
        let deviation = (d as f64).sqrt();
        let products = facts::many_products(d);
        let Histogram { width, bars } =
            histogram(products.as_slice(), -reach..reach, bins);
        let points = (-200..=200).map(|i| reach * f64::from(i) / 200.0);
        let normal = points.map(|x| (x, normal_density(x, deviation)));
        let title = format!("Dot products for d = {d}, unscaled");
        let says = "A histogram in which the bars fill a bell whose standard deviation is the square root of d, with the \
                    normal density over it.";
        let name = format!("histogram-{d}-unscaled");
        page.figure(&name, (&title, says), (360, 260), |area| {
            let x = Axis::linear("s", -reach..reach);
            let y = Axis::linear("density", 0.0..most);
            let curve = Line::new("normal density", VERMILION, normal);
            let marks = Marks { bars: (width, &bars), ..Marks::default() };
            line_chart(area, &x, &y, &[curve], marks)
        })?;
    }
    Ok(())
}

/// The mean largest weight of a row against d, for each n, unscaled and scaled.
fn largest_weights(page: &mut Page) -> Result<()> {
    let mut lines = vec![];
    for (n, colour) in LENGTHS.into_iter().zip([GREEN, BLUE, VERMILION]) {
        let largest = |rows: &[Row]| mean(rows, |row| row.largest);
        let unscaled = WIDTHS.map(|d| (d as f64, largest(&rows(n, d).unscaled)));
        let scaled = WIDTHS.map(|d| (d as f64, largest(&rows(n, d).scaled)));
        lines.push(Line::new(format!("n = {n}, unscaled"), colour, unscaled));
        lines.push(Line::new(format!("n = {n}, scaled"), colour, scaled).dashed());
    }
    page.figure(
        "largest",
        (
            "The mean largest weight of a row against d, for three numbers of keys, unscaled and scaled",
            "Without scaling the largest weight climbs towards one as d grows, for each n. With scaling it stays where it \
             was, low for large n.",
        ),
        (520, 400),
        |area| {
            let x = Axis::log("width d (logarithmic)", 2.0, 4.0..512.0);
            let y = Axis::linear("mean largest weight", 0.0..1.0);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}

/// Returns a number for maths, with two digits that count.
fn small(x: f64) -> String {
    if x < 0.01 { format!("${}$", scientific(x, 1)) } else { format!("${x:.2}$") }
}

/// The sizes of the gradients of rows beside their mean, unscaled and scaled.
fn spread_of_gradients(page: &mut Page) -> Result<()> {
    let all = rows_of_eight();
    let (least, most) = (-4.0, 1.0);
    for (name, rows, says) in [
        (
            "unscaled",
            &all.unscaled,
            "Bars over the whole width. Many rows lie more than two powers of ten below the mean, and the \
             leftmost bar, of all that is smaller still, is the highest.",
        ),
        ("scaled", &all.scaled, "One narrow hill around the mean."),
    ] {
        let sizes: Vec<f64> =
            logarithmic_sizes(rows).iter().map(|x| x.max(least)).collect();
        let Histogram { width, bars } = histogram(&sizes, least..most, 25);
        let title = format!("The gradients of rows beside their mean, {name}");
        page.figure(&format!("gradients-{name}"), (&title, says), (360, 260), |area| {
            let x = Axis::linear("log₁₀(gradient / mean)", least..most);
            let y = Axis::linear("density", 0.0..2.5);
            let marks = Marks { bars: (width, &bars), ..Marks::default() };
            line_chart(area, &x, &y, &[], marks)
        })?;
    }
    Ok(())
}

/// Sharpness and gradients of the widest rows of eight, with scores undivided, divided by √d and by d.
fn saturation_tables(page: &mut Page) {
    let all = rows_of_eight();
    let by_divisor =
        [("1", &all.unscaled), ("\\sqrt d", &all.scaled), ("d", &all.divided_by_d)];
    let powers = [0.0, 0.5, 1.0];
    let through = [0, 1, 2]
        .map(|it| saturation::mean_through_softmax(by_divisor[it].1, 512, powers[it]));
    page.value("softmax-less", integer((through[1] / through[0]).round() as usize));
    page.table_of(
        "short",
        &by_divisor,
        &[
            ("divided by", &|(divisor, _)| format!("${divisor}$")),
            ("largest weight", &|(_, rows)| fixed(mean(rows, |row| row.largest), 3)),
            ("entropy", &|(_, rows)| fixed(mean(rows, |row| row.entropy), 2)),
            ("rows with a weight above 0.99", &|(_, rows)| {
                percent(share(rows, |row| row.largest > 0.99), 0)
            }),
        ],
    );
    page.table_of(
        "short-gradients",
        &by_divisor,
        &[
            ("divided by", &|(divisor, _)| format!("${divisor}$")),
            ("mean norm", &|(_, rows)| small(mean(rows, |row| row.grad_query))),
            ("median norm", &|(_, rows)| small(median(rows, |row| row.grad_query))),
            ("starved rows", &|(_, rows)| percent(starved(rows), 0)),
            ("what passes softmax (mean norm times $a$)", &|(divisor, _)| {
                let it = by_divisor.iter().position(|(other, _)| other == divisor);
                small(through[it.expect("a divisor of the table")])
            }),
        ],
    );
    let sizes = [(64, 64), (512, 64), (512, 512)];
    page.table_of(
        "silent",
        &sizes,
        &[
            ("keys", &|(n, _)| integer(*n)),
            ("width", &|(_, d)| integer(*d)),
            ("starved rows", &|(n, d)| percent(starved(&rows(*n, *d).unscaled), 0)),
            ("scores that hardly move", &|(n, d)| {
                percent(mean(&rows(*n, *d).unscaled, |row| row.faint_scores), 0)
            }),
        ],
    );
}
