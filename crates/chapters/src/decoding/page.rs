//! The chapter's page: values and tables.

use super::facts::{Steps, scores};
use crate::output::Page;
use crate::records::{least_and_most, provenance};
use anyhow::Result;
use figures::format::{bytes, duration, fixed, integer, scientific, significant};

pub fn generate(page: &mut Page) -> Result<()> {
    work(page);
    steps(page)
}

/// How much a cache saves.
fn work(page: &mut Page) {
    let rows = [64_u128, 1024, 16_384].map(|n| {
        let (again, cached) = scores(n);
        let times = again as f64 / cached as f64;
        vec![
            integer(n as usize),
            format!("${}$", scientific(again as f64, 1)),
            format!("${}$", scientific(cached as f64, 1)),
            integer(times.round() as usize),
        ]
    });
    page.table("work", &["tokens", "all again", "with a cache", "times as many"], &rows);
}

/// What a step waits for.
fn steps(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["decoding"])?;
    let Steps { steps, n, heads, width, bandwidth } = Steps::of(&record)?;
    let rows: Vec<_> = steps
        .iter()
        .map(|step| {
            vec![
                step.kv_heads.to_string(),
                significant(step.flops / step.bytes, 2),
                bytes(step.bytes as u128),
                duration(step.reading),
                duration(step.seconds),
                integer((1.0 / step.seconds).round() as usize),
            ]
        })
        .collect();
    let header = [
        "key-value heads",
        "FLOP per byte",
        "read per step",
        "predicted",
        "measured",
        "steps per second",
    ];
    page.table("steps", &header, &rows);
    let (many, few) = (&steps[0], &steps[steps.len() - 1]);
    page.value("n", integer(n as usize));
    page.value("heads", integer(heads as usize));
    page.value("width", integer(width as usize));
    page.value("bandwidth", fixed(bandwidth / 1e9, 0));
    page.value("over-many", fixed(many.seconds / many.reading, 1));
    page.value("over-few", fixed(few.seconds / few.reading, 1));
    let rests = steps.iter().map(|step| 1e3 * (step.seconds - step.reading));
    let (least, most) = least_and_most(rests);
    page.value("rest-least", fixed(least, 1));
    page.value("rest-most", fixed(most, 1));
    page.value("gain", fixed(many.seconds / few.seconds, 1));
    page.value("fewer-bytes", integer((many.bytes / few.bytes).round() as usize));
    page.value("where", provenance(&record));
    Ok(())
}
