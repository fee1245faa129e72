//! The chapter's page: values, tables and figures.

use super::facts::{
    self, Correlated, Histogram, Moments, Responses, histogram, normal_density,
};
use super::saturation::{
    LENGTHS, ROWS, Row, WIDTHS, WIDTHS_SHOWN, draw_all, largest_first, left_out,
    logarithmic_sizes, mean, median, rows, share,
};
use crate::output::Page;
use anyhow::Result;
use figures::format::{fixed, integer, percent, scientific};
use figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart};

pub fn generate(page: &mut Page) -> Result<()> {
    // The slow ones, side by side.
    let other = || rayon::join(facts::moments, facts::correlated);
    let (_, (moments, scores)) = rayon::join(|| draw_all(largest_first()), other);

    four_scores(page)?;
    page.value("rows", integer(ROWS));
    show_moments(page, &moments);
    correlated(page, &scores);
    histograms(page)?;
    saturation(page)?;
    by_width(
        page,
        "largest",
        Axis::linear("mean largest weight", 0.0..1.0),
        "Without scaling the largest weight climbs towards one as d grows, for each n. With scaling it stays where it \
         was, low for large n.",
        |row| row.largest,
    )?;
    by_width(
        page,
        "jacobian",
        Axis::linear("mean Jacobian norm", 0.0..0.4),
        "Without scaling the norm falls with d for n = 8, and rises before it falls for n = 64 and 512. With scaling it \
         stays level, and is smallest for n = 512.",
        |row| row.jacobian,
    )
}

fn show_moments(page: &mut Page, moments: &[Moments]) {
    let measured = |(x, error): (f64, f64), decimals| {
        format!("{} ± {}", fixed(x, decimals), fixed(error, decimals))
    };
    let row = |of: &Moments| {
        vec![
            integer(of.d),
            measured(of.mean, 2),
            measured(of.variance, 1),
            measured(of.scaled_variance, 3),
        ]
    };
    let header =
        ["$d_k$", "mean of $s$", "variance of $s$", "variance of $s / \\sqrt{d_k}$"];
    page.table("moments", &header, &moments.iter().map(row).collect::<Vec<_>>());
    page.value("moments-count", integer(facts::MOMENTS_COUNT));
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
    page.value("response", fixed(undivided.weights[0] * (1.0 - undivided.weights[0]), 3));
    page.value(
        "response-divided",
        fixed(divided.weights[0] * (1.0 - divided.weights[0]), 3),
    );
    let half = ["score", "weight $p$", "$p\\,(1 - p)$"];
    let header = [&["key"][..], &half, &["divided by 8"], &half[1..]].concat();
    page.table("four", &header, &[0, 1, 2, 3].map(row));
    Ok(())
}

/// The distribution of dot products, unscaled and scaled, with the normal density over it.
fn histograms(page: &mut Page) -> Result<()> {
    for d in [8_usize, 512] {
        let root = (d as f64).sqrt();
        let products = facts::many_products(d);
        for (name, label, says, (factor, deviation, reach, bins, most)) in [
            (
                "unscaled",
                "s",
                "the bars fill a bell whose standard deviation is the square root of d",
                (1.0, root, 80.0, 160, 0.16),
            ),
            (
                "scaled",
                "s / √d",
                "the bars fill a bell of standard deviation one",
                (1.0 / root, 1.0, 4.0, 32, 0.45),
            ),
        ] {
            let numbers = &products * factor;
            let Histogram { width, bars } =
                histogram(numbers.as_slice(), -reach..reach, bins);
            let points = (-200..=200).map(|i| reach * f64::from(i) / 200.0);
            let normal = points.map(|x| (x, normal_density(x, deviation)));
            let title = format!("Dot products for d = {d}, {name}");
            let says =
                format!("A histogram in which {says}, with the normal density over it.");
            let name = format!("histogram-{d}-{name}");
            page.figure(&name, (&title, &says), (360, 260), |area| {
                let x = Axis::linear(label, -reach..reach);
                let y = Axis::linear("density", 0.0..most);
                let curve = Line::new("normal density", VERMILION, normal);
                let marks = Marks { bars: (width, &bars), ..Marks::default() };
                line_chart(area, &x, &y, &[curve], marks)
            })?;
        }
    }
    Ok(())
}

/// A figure of a mean over rows against d, for each n, unscaled and scaled.
fn by_width(
    page: &mut Page,
    name: &str,
    y: Axis,
    says: &str,
    of: fn(&Row) -> f64,
) -> Result<()> {
    let mut lines = vec![];
    for (n, colour) in LENGTHS.into_iter().zip([GREEN, BLUE, VERMILION]) {
        let unscaled = WIDTHS.map(|d| (d as f64, mean(&rows(n, d).unscaled, of)));
        let scaled = WIDTHS.map(|d| (d as f64, mean(&rows(n, d).scaled, of)));
        lines.push(Line::new(format!("n = {n}, unscaled"), colour, unscaled));
        lines.push(Line::new(format!("n = {n}, scaled"), colour, scaled).dashed());
    }
    let what = y.label;
    let title = format!(
        "The {what} of a row against d, for three numbers of keys, unscaled and scaled"
    );
    page.figure(name, (&title, says), (520, 400), |area| {
        let x = Axis::log("width d (logarithmic)", 2.0, 4.0..512.0);
        line_chart(area, &x, &y, &lines, Marks::default())
    })
}

/// Returns a number for maths, with two digits that count.
fn small(x: f64) -> String {
    if x < 0.01 { format!("${}$", scientific(x, 1)) } else { format!("${x:.2}$") }
}

/// Sharpness and gradients against d and n, with scores undivided, divided by √d and by d.
fn saturation(page: &mut Page) -> Result<()> {
    let starved = left_out(&rows(8, 512).unscaled);
    page.value("flat-8-unscaled", percent(starved, 0));
    saturation_tables(page);
    spread_of_gradients(page)
}

/// The sizes of the gradients of rows beside their root mean square, unscaled and scaled.
fn spread_of_gradients(page: &mut Page) -> Result<()> {
    let all = rows(8, 512);
    let (least, most) = (-4.0, 1.0);
    for (name, rows, says) in [
        (
            "unscaled",
            &all.unscaled,
            "Bars over the whole width. Many rows lie more than two powers of ten below the root mean square, and the \
             leftmost bar, of all that is smaller still, is the highest.",
        ),
        ("scaled", &all.scaled, "One narrow hill around the root mean square."),
    ] {
        let sizes: Vec<f64> =
            logarithmic_sizes(rows).iter().map(|x| x.max(least)).collect();
        let Histogram { width, bars } = histogram(&sizes, least..most, 25);
        let title =
            format!("The gradients of rows beside their root mean square, {name}");
        page.figure(&format!("gradients-{name}"), (&title, says), (360, 260), |area| {
            let x = Axis::linear("log₁₀(gradient / r.m.s.)", least..most);
            let y = Axis::linear("density", 0.0..2.5);
            let marks = Marks { bars: (width, &bars), ..Marks::default() };
            line_chart(area, &x, &y, &[], marks)
        })?;
    }
    Ok(())
}

fn saturation_tables(page: &mut Page) {
    let (mut sharpness, mut gradients) = (vec![], vec![]);
    let (mut short, mut short_gradients) = (vec![], vec![]);
    for (n, d) in LENGTHS.into_iter().flat_map(|n| WIDTHS_SHOWN.map(|d| (n, d))) {
        let all = rows(n, d);
        let by_divisor =
            [("1", &all.unscaled), ("\\sqrt d", &all.scaled), ("d", &all.divided_by_d)];
        for (divisor, rows) in by_divisor {
            let start = [integer(n), integer(d), format!("${divisor}$")];
            let sharp = [
                fixed(mean(rows, |row| row.largest), 3),
                fixed(mean(rows, |row| row.entropy), 2),
                percent(share(rows, |row| row.largest > 0.99), 0),
            ];
            let gradient = [
                fixed(mean(rows, |row| row.jacobian), 2),
                small(mean(rows, |row| row.grad_query)),
                small(median(rows, |row| row.grad_query)),
                percent(left_out(rows), 0),
            ];
            if (n, d) == (8, 512) {
                short.push([&start[2..], &sharp].concat());
                short_gradients.push([&start[2..], &gradient[1..]].concat());
            }
            sharpness.push([&start[..], &sharp].concat());
            gradients.push([&start[..], &gradient].concat());
        }
    }
    let start = ["$n$", "$d$", "divided by"];
    let header = ["largest weight", "entropy", "rows with a weight above 0.99"];
    page.table("short", &[&start[2..], &header].concat(), &short);
    page.table("sharpness", &[&start[..], &header].concat(), &sharpness);
    let header = ["mean $\\lVert J \\rVert$", "mean norm", "median norm", "starved rows"];
    page.table(
        "short-gradients",
        &[&start[2..], &header[1..]].concat(),
        &short_gradients,
    );
    page.table("gradients", &[&start[..], &header].concat(), &gradients);
}

fn correlated(page: &mut Page, scores: &[Correlated]) {
    page.table_of(
        "correlated",
        scores,
        &[
            ("$d_k$", &|of| integer(of.d)),
            ("$\\rho$", &|of| fixed(of.rho, 1)),
            ("mean scaled score", &|of| fixed(of.measured.0, 2)),
            ("$\\rho \\sqrt{d_k}$", &|of| fixed(of.expected.0, 2)),
            ("variance", &|of| fixed(of.measured.1, 2)),
            ("$1 + \\rho^2$", &|of| fixed(of.expected.1, 2)),
        ],
    );
    page.value("correlated-count", integer(facts::CORRELATED_COUNT));
    // The last one: the widest vectors, and those that agree most.
    if let Some(Correlated { measured: (mean, _), .. }) = scores.last() {
        page.value("correlated-mean", fixed(*mean, 1));
        page.value("correlated-ratio", scientific(mean.exp(), 0));
    }
}
