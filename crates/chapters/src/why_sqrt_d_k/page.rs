//! How the chapter says and draws it.

use super::facts::{self, Correlated, Histogram, Moments, histogram, normal_density};
use super::saturation::{
    LENGTHS, ROWS, Row, WIDTHS, compute_rows, left_out, mean, median, rows, share,
};
use crate::output::Page;
use anyhow::Result;
use figures::format::{fixed, integer, percent, scientific};
use figures::{Area, Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart, svg};

pub fn generate(page: &mut Page) -> Result<()> {
    // The slow ones, side by side.
    let all = LENGTHS.iter().flat_map(|&n| WIDTHS.map(|d| (n, d))).collect();
    let other = || rayon::join(facts::moments, facts::correlated);
    let (computed, (moments, scores)) = rayon::join(|| compute_rows(all), other);
    computed?;

    page.value("sigma-64", fixed(64.0_f64.sqrt(), 0));
    page.value("rows", integer(ROWS));
    show_moments(page, &moments);
    correlated(page, &scores);
    histograms(page)?;
    saturation(page)?;
    figure(
        page,
        "largest",
        (
            "The mean largest weight of a row against d, for three lengths, unscaled and scaled",
            "Without scaling the largest weight climbs towards one as d grows, for each n. With scaling it stays where \
             it was, low for large n.",
        ),
        (520, 400),
        |area| {
            by_width(area, Axis::linear("mean largest weight", 0.0..1.0), |row| {
                row.largest
            })
        },
    )?;
    figure(
        page,
        "jacobian",
        (
            "The mean Jacobian norm of a row against d, for three lengths, unscaled and scaled",
            "Without scaling the norm falls with d for n = 8, and rises before it falls for n = 64 and 512. With scaling \
             it stays level, and is smallest for n = 512.",
        ),
        (520, 400),
        |area| {
            by_width(area, Axis::linear("mean Jacobian norm", 0.0..0.4), |row| {
                row.jacobian
            })
        },
    )
}

fn figure(
    page: &mut Page,
    name: &str,
    (title, description): (&str, &str),
    size: (u32, u32),
    draw: impl FnOnce(&Area) -> Result<()>,
) -> Result<()> {
    let drawn = svg(&format!("scaling-{name}"), title, description, size, draw)?;
    page.file(format!("{name}.svg"), drawn);
    Ok(())
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

/// Where dot products lie, unscaled and scaled, with the normal density over them.
fn histograms(page: &mut Page) -> Result<()> {
    for d in [8_usize, 512] {
        let root = (d as f64).sqrt();
        let unscaled = histogram(d, 1.0, 80.0, 160);
        let scaled = histogram(d, 1.0 / root, 4.0, 32);
        figure(
            page,
            &format!("histogram-{d}-unscaled"),
            (
                &format!("Dot products for d = {d}, unscaled"),
                "A histogram in which the bars spread as far as the square root of d, with the normal density over it.",
            ),
            (360, 260),
            |area| {
                draw_histogram(
                    area,
                    Axis::linear("s", -80.0..80.0),
                    0.16,
                    &unscaled,
                    root,
                )
            },
        )?;
        figure(
            page,
            &format!("histogram-{d}-scaled"),
            (
                &format!("Dot products for d = {d}, scaled"),
                "A histogram in which the bars fill a bell of standard deviation one, with the normal density over it.",
            ),
            (360, 260),
            |area| {
                draw_histogram(
                    area,
                    Axis::linear("s / √d", -4.0..4.0),
                    0.45,
                    &scaled,
                    1.0,
                )
            },
        )?;
    }
    Ok(())
}

fn draw_histogram(
    area: &Area,
    x: Axis,
    most: f64,
    Histogram { width, bars }: &Histogram,
    deviation: f64,
) -> Result<()> {
    let reach = x.range.end;
    let points = (-200..=200).map(|i| reach * f64::from(i) / 200.0);
    let normal = points.map(|x| (x, normal_density(x, deviation)));
    let y = Axis::linear("density", 0.0..most);
    figures::histogram(area, &x, &y, (*width, bars), Line::new("", VERMILION, normal))
}

/// A mean over rows against d, for each n, unscaled and scaled.
fn by_width(area: &Area, y: Axis, of: fn(&Row) -> f64) -> Result<()> {
    let mut lines = vec![];
    for (n, colour) in LENGTHS.into_iter().zip([GREEN, BLUE, VERMILION]) {
        let mut unscaled = Line::new(format!("n = {n}, unscaled"), colour, []);
        let mut scaled = Line::new(format!("n = {n}, scaled"), colour, []).dashed();
        for d in WIDTHS {
            let rows = rows(n, d)?;
            unscaled.points.push((d as f64, mean(&rows.unscaled, of)));
            scaled.points.push((d as f64, mean(&rows.scaled, of)));
        }
        lines.extend([unscaled, scaled]);
    }
    let x = Axis::log("width d (logarithmic)", 2.0, 4.0..512.0);
    line_chart(area, &x, &y, &lines, Marks::default())
}

/// For maths, with two digits that count.
fn small(x: f64) -> String {
    if x < 0.01 { format!("${}$", scientific(x, 1)) } else { format!("${x:.2}$") }
}

/// Sharpness and gradients against d and n, with scores undivided, divided by √d and by d.
fn saturation(page: &mut Page) -> Result<()> {
    let middle = rows(64, 64)?;
    for (how, rows) in [("unscaled", &middle.unscaled), ("scaled", &middle.scaled)] {
        let norm = fixed(mean(rows, |row| row.jacobian), 3);
        page.value(format!("jacobian-64-{how}"), norm);
    }
    for n in [8, 512] {
        let widest = rows(n, 512)?;
        for (how, rows) in [("unscaled", &widest.unscaled), ("scaled", &widest.scaled)] {
            let mut value =
                |what: &str, text| page.value(format!("{what}-{n}-{how}"), text);
            value("largest", fixed(mean(rows, |row| row.largest), 2));
            value("flat", percent(left_out(rows), 0));
            if n == 8 {
                value("median", small(median(rows, |row| row.grad_query)));
                value("mean", small(mean(rows, |row| row.grad_query)));
            }
        }
    }
    saturation_tables(page)
}

fn saturation_tables(page: &mut Page) -> Result<()> {
    let (mut sharpness, mut gradients) = (vec![], vec![]);
    for (n, d) in LENGTHS.into_iter().flat_map(|n| [(n, 64), (n, 512)]) {
        let all = rows(n, d)?;
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
            sharpness.push([&start[..], &sharp].concat());
            gradients.push([&start[..], &gradient].concat());
        }
    }
    let start = ["$n$", "$d$", "divided by"];
    let header = ["largest weight", "entropy", "rows with a weight above 0.99"];
    page.table("sharpness", &[&start[..], &header].concat(), &sharpness);
    let header =
        ["mean $\\lVert J \\rVert$", "mean gradient", "median gradient", "rows left out"];
    page.table("gradients", &[&start[..], &header].concat(), &gradients);
    Ok(())
}

fn correlated(page: &mut Page, scores: &[Correlated]) {
    let row = |of: &Correlated| {
        vec![
            integer(of.d),
            fixed(of.rho, 1),
            fixed(of.mean, 2),
            fixed(of.expected_mean, 2),
            fixed(of.variance, 2),
            fixed(of.expected_variance, 2),
        ]
    };
    let header = [
        "$d_k$",
        "$\\rho$",
        "mean score",
        "$\\rho \\sqrt{d_k}$",
        "variance",
        "$1 + \\rho^2$",
    ];
    page.table("correlated", &header, &scores.iter().map(row).collect::<Vec<_>>());
    page.value("correlated-count", integer(facts::CORRELATED_COUNT));
    // The last one: the widest vectors, and those that agree most.
    if let Some(Correlated { mean, .. }) = scores.last() {
        page.value("correlated-mean", fixed(*mean, 1));
        page.value("correlated-ratio", scientific(mean.exp(), 0));
    }
}
