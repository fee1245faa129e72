//! Why √d_k: how dot products spread as they get longer, and what softmax makes of that.

use crate::output::Page;
use anyhow::Result;
use attention::{softmax, softmax_backward};
use figures::format::{fixed, integer, percent, scientific, table};
use figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, histogram, line_chart, svg};
use nalgebra::{DMatrix, DVector};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::f64::consts::TAU;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("sigma-64", fixed(64.0_f64.sqrt(), 0));
    moments(page)?;
    histograms(page)?;
    saturation(page)?;
    correlated(page)
}

/// A vector of independent standard normal numbers.
fn draw(d: usize, rng: &mut ChaCha8Rng) -> DVector<f64> {
    DVector::from_fn(d, |_, _| StandardNormal.sample(rng))
}

/// Dot products of independent vectors of width d.
fn products(d: usize, count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..count).map(|_| draw(d, rng).dot(&draw(d, rng))).collect()
}

fn mean_and_variance(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64)
}

/// Mean and variance of q·k, measured, for growing d_k.
fn moments(page: &mut Page) -> Result<()> {
    let count = 50_000;
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let row = |&d: &usize| {
        let products = products(d, count, rng);
        let (mean, variance) = mean_and_variance(&products);
        let standard_error = (variance / count as f64).sqrt();
        let variance_error = ((2.0 + 6.0 / d as f64) / count as f64).sqrt();
        let scaled: Vec<f64> = products.iter().map(|s| s / (d as f64).sqrt()).collect();
        vec![
            integer(d),
            format!("{} ± {}", fixed(mean, 2), fixed(standard_error, 2)),
            // E[s⁴] = 3 d² + 6 d for normal entries, so that the variance of s² is 2 d² + 6 d
            format!("{} ± {}", fixed(variance, 1), fixed(variance_error * d as f64, 1)),
            format!(
                "{} ± {}",
                fixed(mean_and_variance(&scaled).1, 3),
                fixed(variance_error, 3)
            ),
        ]
    };
    let rows: Vec<_> = [8, 64, 512, 2048].iter().map(row).collect();
    let header =
        ["$d_k$", "mean of $s$", "variance of $s$", "variance of $s / \\sqrt{d_k}$"];
    page.file("moments.md", table(&header, &rows));
    page.value("moments-count", integer(count));
    page.value("rows", integer(ROWS));
    Ok(())
}

/// Where dot products lie, unscaled and scaled, with the normal density over them.
fn histograms(page: &mut Page) -> Result<()> {
    let normal = |x: f64, deviation: f64| {
        (-(x / deviation).powi(2) / 2.0).exp() / (deviation * TAU.sqrt())
    };
    for d in [8_usize, 512] {
        let root = (d as f64).sqrt();
        let products = products(d, 20_000, &mut ChaCha8Rng::seed_from_u64(d as u64));
        for (name, factor, deviation, says) in [
            ("unscaled", 1.0, root, "the bars spread as far as the square root of d"),
            ("scaled", 1.0 / root, 1.0, "the bars fill a bell of standard deviation one"),
        ] {
            let reach = if name == "scaled" { 4.0 } else { 80.0 };
            let bins = if name == "scaled" { 32 } else { 160 };
            let width = 2.0 * reach / f64::from(bins);
            let mut counts = vec![0_usize; bins as usize];
            for product in &products {
                let bin = ((product * factor + reach) / width).floor();
                if (0.0..f64::from(bins)).contains(&bin) {
                    counts[bin as usize] += 1;
                }
            }
            let bar = |(i, &count): (usize, &usize)| {
                (
                    -reach + width * i as f64,
                    count as f64 / (products.len() as f64 * width),
                )
            };
            let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let bars: Vec<_> = filled.map(bar).collect();
            let points = (-200..=200).map(|i| reach * f64::from(i) / 200.0);
            let curve = Line {
                name: String::new(),
                colour: VERMILION,
                dashed: false,
                points: points.map(|x| (x, normal(x, deviation))).collect(),
            };
            let label = if name == "scaled" { "s / √d" } else { "s" };
            let most = if name == "scaled" { 0.45 } else { 0.16 };
            page.file(
                format!("histogram-{d}-{name}.svg"),
                svg(
                    &format!("scaling-histogram-{d}-{name}"),
                    &format!("Dot products for d = {d}, {name}"),
                    &format!(
                        "A histogram in which {says}, with the normal density over it."
                    ),
                    (360, 260),
                    |area| {
                        let x = Axis::linear(label, -reach..reach);
                        let y = Axis::linear("density", 0.0..most);
                        histogram(area, &x, &y, (width, &bars), curve)
                    },
                )?,
            );
        }
    }
    Ok(())
}

pub const ROWS: usize = 2000;

/// A gradient below this is next to none, as [Claims, checked](crate::claims) has it.
pub const FAINT: f64 = 1e-6;

/// One row of weights, seen from several sides.
#[derive(Clone, Copy)]
pub struct Row {
    largest: f64,
    /// Divided by ln n, the most it can be.
    entropy: f64,
    /// The norm of softmax's Jacobian.
    jacobian: f64,
    /// The norm of the gradient with respect to the query.
    pub grad_query: f64,
    /// The share of the row's scores whose gradient is below [`FAINT`].
    pub faint_scores: f64,
}

/// Rows of weights: each of one random query and `n` random keys of width `d`, with scores that are
/// divided by `d` to each of `powers`.
pub fn rows<const P: usize>(
    n: usize,
    d: usize,
    powers: [f64; P],
) -> Result<[Vec<Row>; P]> {
    let rng = &mut ChaCha8Rng::seed_from_u64((1000 * n + d) as u64);
    let mut rows = [const { vec![] }; P];
    for _ in 0..ROWS {
        let q = draw(d, rng);
        let keys = DMatrix::from_fn(d, n, |_, _| StandardNormal.sample(rng)); // a column a key
        let products = keys.tr_mul(&q); // (n)
        let grad_p = draw(n, rng); // the gradient that the weights are handed
        for (rows, power) in rows.iter_mut().zip(powers) {
            let divisor = (d as f64).powf(power);
            let p = softmax(&(&products / divisor))?;
            let grad_scores = softmax_backward(&p, &grad_p)?;
            let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
            let faint = grad_scores.iter().filter(|grad| grad.abs() < FAINT).count();
            rows.push(Row {
                faint_scores: faint as f64 / n as f64,
                largest: p.max(),
                entropy: entropy / (n as f64).ln(),
                jacobian: jacobian_norm(&p),
                grad_query: (&keys * grad_scores).norm() / divisor, // scores = keysᵀ q / divisor
            });
        }
    }
    Ok(rows)
}

pub fn mean(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(of).sum::<f64>() / rows.len() as f64
}

/// The share of rows whose gradient is below one hundredth of the root mean square of all.
fn left_out(rows: &[Row]) -> String {
    let root_mean_square = mean(rows, |row| row.grad_query.powi(2)).sqrt();
    share(rows, |row| row.grad_query < 0.01 * root_mean_square)
}

pub fn median(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    let mut values: Vec<f64> = rows.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// For maths, with two digits that count.
fn small(x: f64) -> String {
    if x < 0.01 { format!("${}$", scientific(x, 1)) } else { format!("${x:.2}$") }
}

/// The share of rows of which this is true.
fn share(rows: &[Row], is: impl Fn(&Row) -> bool) -> String {
    percent(mean(rows, |row| f64::from(is(row))), 0)
}

/// The Frobenius norm of softmax's Jacobian, √(Σ_ij (p_i δ_ij − p_i p_j)²), without building it.
fn jacobian_norm(p: &DVector<f64>) -> f64 {
    let power = |k: i32| p.iter().map(|p| p.powi(k)).sum::<f64>();
    // the diagonal's p_i² − 2 p_i³ + p_i⁴, and p_i² p_j² beside it
    (power(2) - 2.0 * power(3) + power(2).powi(2)).max(0.0).sqrt()
}

/// Sharpness and gradients against d and n, with scores undivided, divided by √d and by d.
fn saturation(page: &mut Page) -> Result<()> {
    let widths = [4, 8, 16, 32, 64, 128, 256, 512];
    let lengths = [(8, GREEN), (64, BLUE), (512, VERMILION)];
    let (mut largest, mut jacobian) = (vec![], vec![]);
    let (mut sharpness, mut gradients) = (vec![], vec![]);
    for (n, colour) in lengths {
        let by_width = widths.map(|d| rows(n, d, [0.0, 0.5, 1.0]));
        let by_width = by_width.into_iter().collect::<Result<Vec<_>>>()?;
        for (how, which, dashed) in [("unscaled", 0, false), ("scaled", 1, true)] {
            let line = |of: fn(&Row) -> f64| {
                let point = |(&d, rows): (&usize, &[Vec<Row>; 3])| {
                    (d as f64, mean(&rows[which], of))
                };
                let points = widths.iter().zip(&by_width).map(point).collect();
                Line { name: format!("n = {n}, {how}"), colour, dashed, points }
            };
            largest.push(line(|row| row.largest));
            jacobian.push(line(|row| row.jacobian));
            let (middle, widest) = (&by_width[4][which], &by_width[7][which]);
            if n == 64 {
                let norm = fixed(mean(middle, |row| row.jacobian), 3);
                page.value(format!("jacobian-64-{how}"), norm);
                continue;
            }
            let mut value =
                |what: &str, text| page.value(format!("{what}-{n}-{how}"), text);
            value("largest", fixed(mean(widest, |row| row.largest), 2));
            value("flat", left_out(widest));
            if n == 8 {
                value("median", small(median(widest, |row| row.grad_query)));
                value("mean", small(mean(widest, |row| row.grad_query)));
            }
        }
        // What the chapter says in words.
        for (d, [unscaled, scaled, _]) in widths.iter().zip(&by_width) {
            let larger = |of: fn(&Row) -> f64| mean(unscaled, of) > mean(scaled, of);
            assert!(
                *d < 64 || larger(|row| row.grad_query),
                "n = {n}, d = {d}: mean gradient"
            );
            assert!(n != 512 || larger(|row| row.jacobian), "n = {n}, d = {d}: Jacobian");
            assert!(larger(|row| row.largest), "n = {n}, d = {d}: largest weight");
        }
        let shown = widths.iter().zip(&by_width).filter(|(d, _)| [64, 512].contains(*d));
        for (d, by_power) in shown {
            for (how, rows) in ["1", "\\sqrt d", "d"].iter().zip(by_power) {
                let start = vec![integer(n), integer(*d), format!("${how}$")];
                let sharp = vec![
                    fixed(mean(rows, |row| row.largest), 3),
                    fixed(mean(rows, |row| row.entropy), 2),
                    share(rows, |row| row.largest > 0.99),
                ];
                let gradient = vec![
                    fixed(mean(rows, |row| row.jacobian), 2),
                    small(mean(rows, |row| row.grad_query)),
                    small(median(rows, |row| row.grad_query)),
                    left_out(rows),
                ];
                sharpness.push([start.clone(), sharp].concat());
                gradients.push([start, gradient].concat());
            }
        }
    }
    for (name, id, lines, most, label, says) in [
        (
            "largest",
            "scaling-largest",
            &largest,
            1.0,
            "mean largest weight",
            "Without scaling the largest weight climbs towards one as d grows, for each n. With scaling it stays where \
             it was, low for large n.",
        ),
        (
            "jacobian",
            "scaling-jacobian",
            &jacobian,
            0.4,
            "mean Jacobian norm",
            "Without scaling the norm falls with d for n = 8, and rises before it falls for n = 64 and 512. With scaling \
             it stays level, and is smallest for n = 512.",
        ),
    ] {
        page.file(
            format!("{name}.svg"),
            svg(
                id,
                &format!("The {label} of a row against d, for three lengths, unscaled and scaled"),
                says,
                (520, 400),
                |area| {
                    let x = Axis::log("width d (logarithmic)", 2.0, 4.0..512.0);
                    let y = Axis::linear(label, 0.0..most);
                    line_chart(area, &x, &y, lines, Marks::default())
                },
            )?,
        );
    }

    let start = ["$n$", "$d$", "divided by"];
    let header = ["largest weight", "entropy", "rows with a weight above 0.99"];
    page.file("sharpness.md", table(&[&start[..], &header].concat(), &sharpness));
    let header =
        ["mean $\\lVert J \\rVert$", "mean gradient", "median gradient", "rows left out"];
    page.file("gradients.md", table(&[&start[..], &header].concat(), &gradients));
    Ok(())
}

/// Queries and keys that agree: q = ρ k + √(1 − ρ²) z.
fn correlated(page: &mut Page) -> Result<()> {
    let count = 20_000;
    let mut rows = vec![];
    for d in [64, 1024] {
        for rho in [0.0, 0.1, 0.5_f64] {
            let rng = &mut ChaCha8Rng::seed_from_u64(d as u64);
            let scores: Vec<f64> = (0..count)
                .map(|_| {
                    let k = draw(d, rng);
                    let q = &k * rho + draw(d, rng) * (1.0 - rho * rho).sqrt();
                    q.dot(&k) / (d as f64).sqrt()
                })
                .collect();
            let (mean, variance) = mean_and_variance(&scores);
            rows.push(vec![
                integer(d),
                fixed(rho, 1),
                fixed(mean, 2),
                fixed(rho * (d as f64).sqrt(), 2),
                fixed(variance, 2),
                fixed(1.0 + rho * rho, 2),
            ]);
            if d == 1024 && rho == 0.5 {
                page.value("correlated-mean", fixed(mean, 1));
                page.value("correlated-ratio", scientific(mean.exp(), 0));
            }
        }
    }
    page.value("correlated-count", integer(count));
    let header = [
        "$d_k$",
        "$\\rho$",
        "mean score",
        "$\\rho \\sqrt{d_k}$",
        "variance",
        "$1 + \\rho^2$",
    ];
    page.file("correlated.md", table(&header, &rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::softmax_jacobian;

    #[test]
    fn the_short_way_to_the_norm_agrees_with_the_matrix() {
        let p = softmax(&draw(7, &mut ChaCha8Rng::seed_from_u64(0))).unwrap();
        assert!((jacobian_norm(&p) - softmax_jacobian(&p).unwrap().norm()).abs() < 1e-14);
    }
}
