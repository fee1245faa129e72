//! The chapter's page: values, tables and figures.

mod backward;
mod banks;
mod compiled;
mod decoding;
mod fragments;
mod ladder;
mod machine;
mod measured;
mod pictures;
mod pipeline;
mod short;

use super::ladder::{Step, backward_on_tensor_cores, steps};
use super::published::{self, Published};
use super::{machine::H100, race, source};
use crate::figures::format::{fixed, integer, percent};
use crate::output::Page;
use anyhow::{Context, Result};
#[cfg(test)]
pub use measured::{overlap_of, shares};

pub fn generate(page: &mut Page) -> Result<()> {
    let steps = steps();
    let [times] = page.records.of_one_machine(["gpu"])?;
    machine::generate(page)?;
    pictures::generate(page)?;
    race(page)?;
    banks::generate(page)?;
    let shares = measured::shares(&times, &steps)?;
    ladder::generate(page, &steps, shares)?;
    backward::generate(page, &times, shares[4])?;
    fragments::generate(page)?;
    pipeline::generate(page);
    let kernels = page.records.of_no_machine("kernels")?;
    page.file("compiled.md", compiled::in_words(&kernels)?);
    short::generate(page, &times, &kernels)?;
    let decoding = decoding::generate(page, &times, &kernels)?;
    let backward = backward_on_tensor_cores();
    let waiting = [
        [kernel(&backward), predicted(&backward)],
        ["7 **decode**".to_owned(), format!("{decoding} of a copy")],
    ];
    measured::generate(page, &times, &steps, &waiting)?;
    published(page);
    Ok(())
}

/// The numbers between which the share of the roof is predicted: "12 to 17 %".
fn predicted(step: &Step) -> String {
    let (least, most) = step.predicted();
    let decimals = if most < 0.1 { 1 } else { 0 };
    format!("{} to {}", fixed(100.0 * least, decimals), percent(most, decimals))
}

/// The share of the roof that was measured.
fn told(share: f64) -> String {
    percent(share, if share < 0.1 { 1 } else { 0 })
}

/// The number of a kernel, and its name in bold.
fn kernel(step: &Step) -> String {
    format!("{} **{}**", step.number, name(step))
}

fn name(step: &Step) -> String {
    step.name.replace('_', " ")
}

/// The two lines of kernel 1 between which there has to be a barrier.
fn race(page: &mut Page) -> Result<()> {
    let races = race::lines(race::REPORT)?;
    let [write, read] = *races.first().context("no race is reported")?;
    page.value("race-write-line", integer(write));
    page.value("race-read-line", integer(read));
    let written = source::line(write)?;
    let target = written.split(" = ").next().unwrap_or_default();
    page.value("race-write", format!("{target} = …`"));
    page.value("race-read", source::line(read)?);
    Ok(())
}

/// Published speeds of other kernels.
fn published(page: &mut Page) {
    use published::{CUDNN, FLASH_2, FLASH_3, UNFUSED};
    let row = |published: Published| {
        let cells =
            |i: usize| [fixed(published.speeds[i], 0), percent(published.shares()[i], 0)];
        let name = [published.who.to_owned(), integer(published.tokens)];
        [name, cells(0), cells(1)].concat()
    };
    let header = ["program", "tokens", "TFLOP/s", "of the roof", "causal", "of the roof"];
    page.table("published", &header, &[UNFUSED, FLASH_2, CUDNN, FLASH_3].map(row));
    page.value("published-machine", H100.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_as_a_range() {
        assert_eq!(predicted(&Step::made_up()), "20 to 33\u{202f}%");
    }
}
