//! Softmax in numbers: one example to the last digit, where it overflows, and what its Jacobian costs.

use crate::figure::{Axis, BLUE, GREEN, Line, Marks, TEXT, VERMILION, line_chart, svg};
use crate::format::{
    duration, fixed, integer, matrix, scientific, significant, table, tuple,
};
use crate::output::Page;
use crate::records::{Compared, provenance};
use anyhow::{Context, Result};
use attention::{log_sum_exp, softmax, softmax_backward, softmax_jacobian};
use nalgebra::{DVector, dvector};
use record::Unit;
use std::collections::BTreeMap;

pub fn generate(page: &mut Page) -> Result<()> {
    example(page)?;
    sharpness(page)?;
    overflow(page)?;
    smooth_maximum(page)?;
    jacobian_cost(page)?;
    columns(page)
}

/// The time of softmax down the columns and along the rows, as it was recorded.
fn columns(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["softmax"])?;
    let mut rows = vec![];
    let mut ratio_at = BTreeMap::new();
    for down in record.all("softmax of rows/down the columns", "f32") {
        let n = *down.sizes.get("n").context("softmax of rows has no n")?;
        let along = record.seconds("softmax of rows/along the rows", "f32", n)?;
        let down = record.in_unit(down, Unit::Seconds)?;
        let ratio = along / down;
        ratio_at.insert(n, ratio);
        rows.push(vec![
            integer(n as usize),
            duration(down),
            duration(along),
            format!("{}×", significant(ratio, 2)),
        ]);
    }
    let at = |n| {
        ratio_at.get(&n).copied().with_context(|| format!("softmax of rows has no {n}"))
    };
    let ratios: Vec<_> = ratio_at.values().copied().collect();
    page.value("columns-faster", columns_in_words(&ratios));
    page.value("columns-power", power_in_words(at(2048)? / at(2000)?));
    let header = ["$n$", "down the columns", "along the rows", "ratio"];
    page.file("columns.md", table(&header, &rows));
    page.value("columns-where", provenance(&record));
    Ok(())
}

/// How many times as long as down the columns it takes along the rows, at each length.
fn columns_in_words(ratios: &[f64]) -> String {
    let faster = ratios
        .iter()
        .filter(|ratio| Compared::of(**ratio, 1.0) == Compared::More)
        .count();
    match faster {
        0 => "On the machine of this record it gains nothing.".to_owned(),
        _ if faster == ratios.len() => {
            "Down the columns is the faster way at every length.".to_owned()
        }
        _ => format!(
            "Down the columns is the faster way at {faster} of the {} lengths.",
            ratios.len()
        ),
    }
}

/// The ratio for a stride of a power of two, divided by that for another one.
fn power_in_words(times: f64) -> &'static str {
    match times {
        times if times > 2.0 => "That is why 2048 is far worse than 2000.",
        times if times > 1.1 => "That is why 2048 is worse than 2000.",
        _ => "On the machine of this record they do not: 2048 is no worse than 2000.",
    }
}

/// The scores and the gradient that the chapter computes with.
pub fn scores() -> DVector<f64> {
    dvector![2.0, 1.0, 0.1]
}

fn example(page: &mut Page) -> Result<()> {
    let (x, g) = (scores(), dvector![0.5, -0.3, 0.2]);
    let p = softmax(&x)?;
    page.value("x", tuple(x.iter().copied(), 1));
    page.value("g", tuple(g.iter().copied(), 1));
    page.value("exponentials", tuple(x.iter().map(|x| x.exp()), 5));
    page.value("sum", fixed(x.iter().map(|x| x.exp()).sum(), 5));
    page.value("p", tuple(p.iter().copied(), 4));
    page.value("ratio", format!("{:.7}", (x[0] - x[1]).exp())[..5].to_owned()); // cut, not rounded
    page.value("shifted", tuple(x.iter().map(|t| t - x.max()), 1));
    page.value("shifted-exponentials", tuple(x.iter().map(|t| (t - x.max()).exp()), 3));
    page.value("lse", fixed(log_sum_exp(&x)?, 4));
    let jacobian = softmax_jacobian(&p)?;
    page.value("jacobian", matrix(&jacobian, 4));
    page.value("mean", fixed(g.dot(&p), 4));
    page.value("centred", tuple(g.iter().map(|g_i| g_i - g.dot(&p)), 4));
    page.value("gradient", tuple(softmax_backward(&p, &g)?.iter().copied(), 4));
    assert!((softmax_backward(&p, &g)? - jacobian * g).amax() < 1e-14);
    Ok(())
}

/// All scores times one factor: from equal shares to all for one.
fn sharpness(page: &mut Page) -> Result<()> {
    let factors: Vec<f64> = (0..=120).map(|i| 0.05 * f64::from(i)).collect();
    let mut lines = vec![];
    for (i, colour, name) in
        [(0, BLUE, "x = 2.0"), (1, VERMILION, "x = 1.0"), (2, GREEN, "x = 0.1")]
    {
        let weight = |&factor: &f64| Ok((factor, softmax(&(scores() * factor))?[i]));
        let points = factors.iter().map(weight).collect::<Result<_>>()?;
        lines.push(Line { name: name.to_owned(), colour, dashed: false, points });
    }
    page.value("sharp-1", fixed(softmax(&scores())?[0], 2));
    page.value("sharp-5", fixed(softmax(&(scores() * 5.0))?[0], 3));
    page.file(
        "sharpness.svg",
        svg(
            "softmax-sharpness",
            "The weights of three scores as all scores are multiplied by one factor",
            "At factor zero all three weights are one third. As the factor grows the weight of the largest score rises \
             to one and the others fall to zero.",
            (520, 320),
            |area| {
                let x = Axis::linear("factor on all scores", 0.0..6.0);
                let y = Axis::linear("weight", 0.0..1.0);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    Ok(())
}

/// Where the exponential leaves the numbers that a type can hold.
fn overflow(page: &mut Page) -> Result<()> {
    let largest_f16 = 65504.0_f64;
    let rows = [("f16", largest_f16), ("f32", f64::from(f32::MAX)), ("f64", f64::MAX)];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, max)| {
            vec![
                format!("`{name}`"),
                format!("${}$", scientific(*max, 2)),
                fixed(max.ln(), 2),
            ]
        })
        .collect();
    page.file(
        "overflow.md",
        table(
            &["type", "largest number", "its logarithm: larger scores overflow"],
            &rows,
        ),
    );
    let p = softmax(&dvector![1000.0, 999.0, 0.0])?;
    page.value("thousand", tuple(p.iter().copied(), 4));
    page.value("thousand-lse", fixed(log_sum_exp(&dvector![1000.0, 999.0, 0.0])?, 4));
    Ok(())
}

/// ln(e^t + e^0) against max(t, 0).
fn smooth_maximum(page: &mut Page) -> Result<()> {
    let grid: Vec<f64> = (-60..=60).map(|i| 0.1 * f64::from(i)).collect();
    let smooth = grid
        .iter()
        .map(|&t| Ok((t, log_sum_exp(&dvector![t, 0.0])?)))
        .collect::<Result<_>>()?;
    let lines = [
        Line {
            name: "log-sum-exp(t, 0)".to_owned(),
            colour: BLUE,
            dashed: false,
            points: smooth,
        },
        Line {
            name: "max(t, 0)".to_owned(),
            colour: TEXT,
            dashed: true,
            points: grid.iter().map(|&t| (t, t.max(0.0))).collect(),
        },
    ];
    page.value("smooth-gap", fixed(log_sum_exp(&dvector![0.0, 0.0])?, 3));
    page.file(
        "smooth-maximum.svg",
        svg(
            "softmax-smooth-maximum",
            "Log-sum-exp of t and 0 against their maximum",
            "The log-sum-exp is a smooth curve just above the corner of the maximum; far from the corner both agree.",
            (520, 310),
            |area| {
                let x = Axis::linear("t", -6.0..6.0);
                let y = Axis::linear("value", 0.0..6.0);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    Ok(())
}

fn memory(bytes: usize) -> String {
    match bytes / 1024 {
        kib if kib >= 1024 => format!("{} MiB", kib / 1024),
        kib => format!("{kib} KiB"),
    }
}

/// Multiplications and memory for one row of n weights, with and without the Jacobian.
fn jacobian_cost(page: &mut Page) -> Result<()> {
    let row = |n: usize| {
        let build = n * n; // p pᵀ
        let multiply = n * n; // times g
        let direct = n + n; // ⟨g, p⟩, and p ⊙ (…)
        vec![
            integer(n),
            integer(build + multiply),
            integer(direct),
            integer((build + multiply) / direct),
            memory(n * n * 8),
        ]
    };
    let rows: Vec<_> = [64, 512, 4096].map(row).into();
    let header = [
        "n",
        "multiplications with the Jacobian",
        "directly",
        "ratio",
        "the Jacobian, `f64`",
    ];
    page.file("jacobian-cost.md", table(&header, &rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_praised_as_far_as_they_are_faster() {
        assert!(columns_in_words(&[1.5, 2.0]).contains("every length"));
        assert!(columns_in_words(&[0.9, 2.0]).contains("1 of the 2 lengths"));
        assert!(columns_in_words(&[0.9, 1.0]).contains("gains nothing"));
        assert!(power_in_words(3.0).contains("far worse"));
        assert!(power_in_words(1.5).contains("is worse"));
        assert!(power_in_words(1.0).contains("no worse"));
    }
}
