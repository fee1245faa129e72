//! The chapter's page: values, tables and figures.

use super::check::EPSILON;
use super::faults::{FAULTS, Fault, Trial};
use super::step::{self, Curve, U};
use crate::figures::format::{fixed, integer, scientific};
use crate::figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart};
use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    let u = step::the_u()?;
    drawn_u(page, &u)?;
    best_steps(page, &u);
    page.value("u-entries", integer(u.entries));
    page.value("u-layers", integer(u.layers));
    planted_faults(page)
}

/// The errors of the slopes, against the step.
fn drawn_u(page: &mut Page, u: &U) -> Result<()> {
    let lines = [
        Line::new("central, f64", BLUE, u.double.measured.clone()),
        Line::new("central, f32", VERMILION, u.single.measured.clone()),
        Line::new("one-sided, f64", GREEN, u.one_sided.measured.clone()),
    ];
    let curves = [&u.double, &u.single, &u.one_sided];
    let rings: Vec<_> = curves.into_iter().flat_map(Curve::predicted).collect();
    page.figure(
        "u",
        (
            "The error of a measured slope against the step",
            "Two curves shaped like a U on logarithmic axes. From the right each falls with the square of the step, \
             reaches its lowest point and rises again as one over the step. In f64 the lowest point is deep and lies \
             near a step of one hundred-thousandth, in f32 it is shallow and lies near one hundredth. One-sided \
             differences in f64 fall more slowly and turn at a smaller step. Rings, the predictions, lie along all three.",
        ),
        (520, 440),
        |area| {
            let x = Axis::log("step ε (logarithmic)", 10.0, 1e-12..1.0);
            let y = Axis::log("error of the slope (logarithmic)", 10.0, 1e-12..1.0);
            let marks = Marks { rings: &rings, ..Marks::default() };
            line_chart(area, &x, &y, &lines, marks)
        },
    )
}

/// One column for each kind of difference: five columns would be too wide for a phone.
fn best_steps(page: &mut Page, u: &U) {
    let curves = [&u.double, &u.single, &u.one_sided];
    let small = |x: f64| format!("${}$", scientific(x, 0));
    let row = |what: &str, cell: &dyn Fn(&Curve) -> String| {
        [what.to_owned()].into_iter().chain(curves.map(cell)).collect()
    };
    let power = |curve: &Curve| format!("$2^{{{}}}$", fixed(curve.best().0.log2(), 0));
    let rows = [
        row("best $\\varepsilon$, predicted", &|curve| small(curve.prediction.best().0)),
        row("measured", &power),
        row("that is about", &|curve| small(curve.best().0)),
        row("error there, predicted", &|curve| small(curve.prediction.best().1)),
        row("measured", &|curve| small(curve.best().1)),
    ];
    let header = ["", "central, `f64`", "central, `f32`", "one-sided, `f64`"];
    page.table("best", &header, &rows);
}

fn planted_faults(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    for Fault { name, hidden_by, seen_by, case } in FAULTS {
        let seen = case(Trial { hides: false, planted: true })?;
        let error = fixed(seen.relative_error(EPSILON)?, 2);
        rows.push([name, hidden_by, seen_by, &error].map(str::to_owned).to_vec());
    }
    let header = ["the fault", "passes on", "caught on", "relative error there"];
    page.table("faults", &header, &rows);
    Ok(())
}
