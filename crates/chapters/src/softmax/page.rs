//! The chapter's page: values, tables and figures.

use super::facts;
use crate::figures::format::{fixed, matrix, scientific, tuple};
use crate::figures::{Axis, BLUE, Line, Marks, TEXT, line_chart};
use crate::output::{Page, sum_of_products};
use anyhow::Result;
use nalgebra::DVector;

pub fn generate(page: &mut Page) -> Result<()> {
    example(page)?;
    overflow(page)?;
    smooth_maximum(page)
}

fn example(page: &mut Page) -> Result<()> {
    let e = facts::example()?;
    let row = |(name, digits): (&str, usize), numbers: &DVector<f64>, sum: String| {
        let cells: Vec<_> = numbers.iter().map(|&x| fixed(x, digits)).collect();
        [&[name.to_owned()][..], &cells, &[sum]].concat()
    };
    let header = ["", "first", "second", "third", "sum"];
    let exponentials = e.scores.map(f64::exp);
    let rows = [
        row(("score", 1), &e.scores, String::new()),
        row(("exponential", 3), &exponentials, fixed(exponentials.sum(), 3)),
        row(("weight", 3), &e.weights, fixed(e.weights.sum(), 0)),
    ];
    page.table("steps", &header, &rows);
    let ratio = exponentials[0] / exponentials[1];
    page.value("ratio", format!("{ratio:.7}")[..5].to_owned()); // cut, not rounded
    page.value("jacobian", matrix(&e.jacobian, 4));
    let terms = e.grad_weights.iter().zip(&e.weights);
    let terms = terms.map(|(&g, &p)| (fixed(g, 1), fixed(p, 4)));
    let sum = sum_of_products(terms, fixed(e.mean, 4));
    page.value("g", tuple(&e.grad_weights, 1));
    page.value("mean-by-terms", format!("\\langle g, p \\rangle = {sum}"));
    let difference = e.grad_weights.add_scalar(-e.mean);
    let rows = [
        row(("$g$", 1), &e.grad_weights, String::new()),
        row(("$g - \\langle g, p \\rangle$", 4), &difference, String::new()),
        row(("weight $p$", 4), &e.weights, String::new()),
        row(
            ("gradient of the score", 4),
            &e.grad_scores,
            fixed(e.grad_scores.sum().abs(), 0),
        ),
    ];
    page.table("backward", &header, &rows);
    Ok(())
}

/// The scores at which the exponential leaves the range of a type.
fn overflow(page: &mut Page) -> Result<()> {
    let row = |(name, max): (&str, f64)| {
        vec![format!("`{name}`"), format!("${}$", scientific(max, 2)), fixed(max.ln(), 2)]
    };
    let header = ["type", "largest number", "the largest score whose exponential fits"];
    page.table("overflow", &header, &facts::LARGEST.map(row));
    let (weights, log_sum_exp) = facts::of_large_scores()?;
    page.value("thousand", tuple(&weights, 4));
    page.value("thousand-lse", fixed(log_sum_exp, 4));
    Ok(())
}

fn smooth_maximum(page: &mut Page) -> Result<()> {
    page.value("smooth-gap", fixed(facts::smooth_maximum(0.0)?, 3));
    let mut smooth = Line::new("log-sum-exp(t, 0)", BLUE, []);
    let mut corner = Line::new("max(t, 0)", TEXT, []).dashed();
    for t in (-60..=60).map(|i| 0.1 * f64::from(i)) {
        smooth.points.push((t, facts::smooth_maximum(t)?));
        corner.points.push((t, t.max(0.0)));
    }
    page.figure(
        "smooth-maximum",
        (
            "Log-sum-exp of t and 0 against their maximum",
            "The log-sum-exp is a smooth curve just above the corner of the maximum; far from the corner both agree.",
        ),
        (520, 310),
        |area| {
            let x = Axis::linear("t", -6.0..6.0);
            let y = Axis::linear("value", 0.0..6.0);
            line_chart(area, &x, &y, &[smooth, corner], Marks::default())
        },
    )
}
