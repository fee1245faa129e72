//! Why √d_k: how dot products spread as they get longer, and what softmax makes of that.

use crate::figure::{Axis, BLUE, GREEN, Line, VERMILION, histogram, line_chart, svg};
use crate::format::{fixed, integer, percent, scientific, table};
use crate::output::Page;
use anyhow::Result;
use attention::softmax;
use nalgebra::DVector;
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
    let count = 20_000;
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let row = |&d: &usize| {
        let products = products(d, count, rng);
        let (mean, variance) = mean_and_variance(&products);
        let standard_error = (variance / count as f64).sqrt();
        let scaled: Vec<f64> = products.iter().map(|s| s / (d as f64).sqrt()).collect();
        vec![
            integer(d),
            format!("{} ± {}", fixed(mean, 2), fixed(standard_error, 2)),
            fixed(variance, 1),
            fixed(variance / d as f64, 2),
            fixed(mean_and_variance(&scaled).1, 2),
        ]
    };
    let rows: Vec<_> = [8, 64, 512, 2048].iter().map(row).collect();
    let header = [
        "d_k",
        "mean of q·k",
        "variance of q·k",
        "variance / d_k",
        "variance of q·k / √d_k",
    ];
    page.file(
        "moments.md",
        table(
            &header.map(|h| h.replace("d_k", "$d_k$")).each_ref().map(String::as_str),
            &rows,
        ),
    );
    page.value("moments-count", integer(count));
    Ok(())
}

/// Where 4 000 scores lie, unscaled and scaled, with the normal density over them.
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
            let bins = if name == "scaled" { 32 } else { 80 };
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
            let bars: Vec<_> = counts.iter().enumerate().map(bar).collect();
            let points = (-200..=200).map(|i| reach * f64::from(i) / 200.0);
            let curve = Line {
                name: String::new(),
                colour: VERMILION,
                dashed: false,
                points: points.map(|x| (x, normal(x, deviation))).collect(),
            };
            let label = if name == "scaled" { "q·k / √d" } else { "q·k" };
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

/// What rows of weights look like: averages over many rows of n random scores.
#[derive(Clone, Copy, Default)]
struct Rows {
    largest: f64,
    entropy: f64,
    above: f64,
    jacobian: f64,
    flat: f64,
}

/// The dot products of one random query with `n` random keys of width `d`, for each of 200 rows.
fn raw_rows(n: usize, d: usize) -> Vec<DVector<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64((1000 * n + d) as u64);
    let mut row = || {
        let q = draw(d, rng);
        DVector::from_fn(n, |_, _| q.dot(&draw(d, rng)))
    };
    (0..200).map(|_| row()).collect()
}

/// The Frobenius norm of softmax's Jacobian, √(Σ_ij (p_i δ_ij − p_i p_j)²), without building it.
fn jacobian_norm(p: &DVector<f64>) -> f64 {
    let power = |k: i32| p.iter().map(|p| p.powi(k)).sum::<f64>();
    // the diagonal's p_i² − 2 p_i³ + p_i⁴, and p_i² p_j² beside it
    (power(2) - 2.0 * power(3) + power(2).powi(2)).max(0.0).sqrt()
}

/// Averages over rows of weights whose scores are these dot products, divided.
fn averages(raw: &[DVector<f64>], divisor: f64) -> Result<Rows> {
    let mut sum = Rows::default();
    for products in raw {
        let p = softmax(&(products / divisor))?;
        let jacobian = jacobian_norm(&p);
        let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
        sum.largest += p.max();
        sum.entropy += entropy / (p.len() as f64).ln();
        sum.above += f64::from(p.max() > 0.99);
        sum.jacobian += jacobian;
        sum.flat += f64::from(jacobian < 0.01);
    }
    let mean = |x: f64| x / raw.len() as f64;
    Ok(Rows {
        largest: mean(sum.largest),
        entropy: mean(sum.entropy),
        above: mean(sum.above),
        jacobian: mean(sum.jacobian),
        flat: mean(sum.flat),
    })
}

/// Largest weight, entropy and Jacobian against d and n, unscaled, divided by √d and by d.
fn saturation(page: &mut Page) -> Result<()> {
    let widths = [4, 8, 16, 32, 64, 128, 256, 512];
    let lengths = [(8, GREEN), (64, BLUE), (512, VERMILION)];
    let mut largest = vec![];
    let mut jacobian = vec![];
    let mut table_rows = vec![];
    for (n, colour) in lengths {
        let raw = widths.map(|d| (d, raw_rows(n, d)));
        for (how, power, dashed) in [("unscaled", 0.0, false), ("scaled", 0.5, true)] {
            let divisor = |d: usize| (d as f64).powf(power);
            let rows = raw.iter().map(|(d, raw)| averages(raw, divisor(*d)));
            let rows = rows.collect::<Result<Vec<_>>>()?;
            let line = |of: fn(&Rows) -> f64| Line {
                name: format!("n = {n}, {how}"),
                colour,
                dashed,
                points: widths
                    .iter()
                    .map(|&d| d as f64)
                    .zip(rows.iter().map(of))
                    .collect(),
            };
            largest.push(line(|rows| rows.largest));
            jacobian.push(line(|rows| rows.jacobian));
            if n == 64 {
                page.value(format!("jacobian-64-{how}"), fixed(rows[4].jacobian, 3));
            }
            if how == "unscaled" {
                page.value(format!("largest-{n}"), fixed(rows[7].largest, 2));
                page.value(format!("above-{n}"), percent(rows[7].above, 0));
                page.value(format!("flat-{n}"), percent(rows[7].flat, 0));
            } else {
                page.value(format!("largest-{n}-scaled"), fixed(rows[7].largest, 2));
                page.value(format!("flat-{n}-scaled"), percent(rows[7].flat, 0));
            }
        }
        for (d, raw) in raw.iter().filter(|(d, _)| [64, 512].contains(d)) {
            for (how, power) in [("1", 0.0), ("\\sqrt d", 0.5), ("d", 1.0)] {
                let rows = averages(raw, (*d as f64).powf(power))?;
                table_rows.push(vec![
                    integer(n),
                    integer(*d),
                    format!("${how}$"),
                    fixed(rows.largest, 3),
                    fixed(rows.entropy, 2),
                    percent(rows.above, 0),
                    fixed(rows.jacobian, 3),
                    percent(rows.flat, 0),
                ]);
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
                    line_chart(area, &x, &y, lines, &[])
                },
            )?,
        );
    }

    let header = [
        "$n$",
        "$d$",
        "divided by",
        "largest weight",
        "entropy $/ \\ln n$",
        "rows with a weight above 0.99",
        "Jacobian norm",
        "rows with a norm below 0.01",
    ];
    page.file("saturation.md", table(&header, &table_rows));
    Ok(())
}

/// Queries and keys that agree: q = ρ k + √(1 − ρ²) z.
fn correlated(page: &mut Page) -> Result<()> {
    let count = 20_000;
    let mut rows = vec![];
    for d in [64, 1024] {
        for rho in [0.0, 0.1, 0.5_f64] {
            let rng = &mut ChaCha8Rng::seed_from_u64(d as u64);
            let scores: Vec<f64> = (0..count / d * 64)
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
