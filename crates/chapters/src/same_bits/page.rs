//! The chapter's page: values and tables.

use super::facts::{self, Run, Text};
use crate::figures::format::{fixed, integer, percent, significant};
use crate::figures::{BLUE, Color, MUTED, TEXT, VERMILION, arrow, filled, label, line};
use crate::output::Page;
use crate::records::provenance;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    kept(page)?;
    middle(page)?;
    written(page)?;
    costs(page)
}

/// Two neighbouring values of bf16, the middle between them, and two numbers around it. Only their order is drawn as it is.
fn middle(page: &mut Page) -> Result<()> {
    const Y: i32 = 96;
    const LOW: i32 = 70;
    const MIDDLE: i32 = 320;
    const HIGH: i32 = 570;
    let words = (
        "A middle between two values of bf16",
        "A line from 1 to 1 + 2⁻⁷, with the middle marked. Two numbers stand close to the middle, one on each side. From the left one an arrow \
         leads to 1, from the right one an arrow to 1 + 2⁻⁷.",
    );
    page.figure("middle", words, (640, 150), |area| {
        line(area, &[(LOW, Y), (HIGH, Y)], MUTED)?;
        for (x, name) in [(LOW, "1"), (MIDDLE, "1 + 2⁻⁸"), (HIGH, "1 + 2⁻⁷")] {
            let half = if x == MIDDLE { 16 } else { 10 };
            line(area, &[(x, Y - half), (x, Y + half)], TEXT)?;
            label(area, (x, Y + 32), name, TEXT)?;
        }
        for (side, to, colour, name) in
            [(-1, LOW + 4, BLUE, "2⁻²³ below"), (1, HIGH - 4, VERMILION, "2⁻²³ above")]
        {
            let x = MIDDLE + 14 * side;
            filled(area, [(x - 4, Y - 4), (x + 4, Y + 4)], colour.mix(1.0))?;
            arrow(area, &[(x, Y - 10), (x, Y - 40), (to, Y - 40), (to, Y - 14)], colour)?;
            label(area, ((x + to) / 2, Y - 56), name, TEXT)?;
        }
        Ok(())
    })
}

/// Which changes leave the bits of a row alone.
fn kept(page: &mut Page) -> Result<()> {
    let word = |holds: bool| if holds { "same" } else { "differs" }.to_owned();
    page.table_of(
        "kept",
        &facts::kept()?,
        &[
            ("what changes", &|row| row.change.to_string()),
            ("`ByWeights`", &|row| word(row.holds[0])),
            ("`Tiled`", &|row| word(row.holds[1])),
            ("`Flash`", &|row| word(row.holds[2])),
            ("`Flash`, batch-invariant", &|row| word(row.holds[3])),
        ],
    );
    Ok(())
}

/// Texts that were written alone and together.
fn written(page: &mut Page) -> Result<()> {
    let written = facts::written()?;
    let [single, half, one_order] = &written.runs;
    let rows: Vec<(&str, &Run)> = vec![
        ("`f32`", single),
        ("`bf16` between blocks", half),
        ("`bf16`, batch-invariant", one_order),
    ];
    page.table_of(
        "written",
        &rows,
        &[
            ("numbers", &|(name, _)| (*name).to_owned()),
            ("tokens whose logits kept their bits", &|(_, run)| {
                percent(run.same_bits(), 0)
            }),
            ("largest difference of a logit", &|(_, run)| {
                significant(run.largest_difference(), 1)
            }),
            ("texts that diverged", &|(_, run)| {
                format!("{} of {}", run.parted(), run.texts.len())
            }),
        ],
    );
    let first = half.first()?;
    page.value("beginning", first.text.clone());
    page.value("parted", integer(first.parted.unwrap_or_default() + 1));
    let [alone, together] = first.leads.map(|lead| fixed(lead, 3));
    page.value("lead-alone", alone);
    page.value("lead-together", together);
    page.file("alone.txt", shown(first, &first.alone));
    page.file("together.txt", shown(first, &first.together));
    page.value("texts", integer(half.texts.len()));
    page.value("others", integer(half.texts.len() - 1));
    page.value("tokens", integer(written.tokens));
    page.value("slower", fixed(one_order.seconds_alone / half.seconds_alone, 1));
    let day = written.date.split('T').next().unwrap_or_default();
    page.value("written-on", format!("on {}, on {day}", written.processor));
    Ok(())
}

/// A text up to where it parted, and what came next.
fn shown(text: &Text, next: &str) -> String {
    let words = format!("{}{}{next}", text.text, text.before);
    words.split_whitespace().collect::<Vec<_>>().join(" ") + "…"
}

/// What one order costs.
pub fn costs(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["same_bits"])?;
    let micro =
        |seconds: f64| format!("{} µs", integer((1e6 * seconds).round() as usize));
    let costs = facts::costs(&record)?;
    page.table_of(
        "costs",
        &costs,
        &[
            ("one thread, `f32`", &|cost| cost.what.to_owned()),
            ("default", &|cost| micro(cost.default)),
            ("batch-invariant", &|cost| micro(cost.one_order)),
            ("times as long", &|cost| fixed(cost.one_order / cost.default, 2)),
        ],
    );
    let ratios = costs.iter().map(|cost| cost.one_order / cost.default);
    page.value("most", significant(ratios.fold(0.0, f64::max), 2));
    page.value("where", provenance(&record));
    Ok(())
}
