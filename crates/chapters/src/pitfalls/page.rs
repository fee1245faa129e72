//! The chapter's page: values and tables.

use super::facts::{self, REAL, padded};
use crate::output::Page;
use anyhow::Result;
use attention::example;
use figures::format::{fixed, integer, percent, tuple};
use nalgebra::DMatrix;

pub fn generate(page: &mut Page) -> Result<()> {
    scale(page)?;
    leaking_mask(page)?;
    sentences(page)?;
    heads(page)?;
    let (least, most) = facts::off_by_stale_caches()?;
    page.value("stale-off", format!("{} to {}", percent(least, 0), percent(most, 0)));
    page.value("stale-layers", facts::STALE_SEEDS.to_string());
    Ok(())
}

fn row(matrix: &DMatrix<f64>, i: usize) -> String {
    tuple(matrix.row(i).iter(), 2)
}

fn scale(page: &mut Page) -> Result<()> {
    page.value("scale-keys", integer(facts::KEYS));
    let largest = facts::largest_weight_by_model()?;
    page.value("scale-by-model", fixed(largest.wrong, 2));
    page.value("scale-by-head", fixed(largest.right, 2));
    Ok(())
}

/// The places at which more is seen than should be.
fn leaking_mask(page: &mut Page) -> Result<()> {
    let (seen, pairs) = facts::future_seen()?;
    page.value("first-row-seen", integer(seen));
    page.value("first-row-pairs", integer(pairs));
    Ok(())
}

/// Sentences with padding, and two of them in one batch.
fn sentences(page: &mut Page) -> Result<()> {
    let output = padded(REAL)?.output;
    page.value("padding-right", tuple(&output.rows(0, 6).row_mean(), 3));
    page.value("padding-wrong", tuple(&output.row_mean(), 3));
    let (share_elsewhere, outputs) = facts::stacked()?;
    page.value("stacked-share", percent(share_elsewhere, 0));
    page.value("stacked-wrong", row(&outputs.wrong, 5));
    page.value("stacked-right", row(&outputs.right, 5));
    let words = [example::river().tokens, example::city().tokens].concat();
    let every_other: Vec<_> = words.into_iter().step_by(2).collect();
    page.value("swapped", every_other.join(" "));
    Ok(())
}

fn heads(page: &mut Page) -> Result<()> {
    let [live, flat, averaged] = facts::head_entropies()?;
    page.value("averaged-live", fixed(live, 2));
    page.value("averaged-flat", fixed(flat, 2));
    page.value("averaged-mean", fixed(averaged, 2));
    page.value("averaged-ln", fixed(facts::most_entropy(), 2));
    let sums = facts::dropout_sums()?;
    page.value("dropout-right", fixed(sums.right, 2));
    page.value("dropout-wrong", fixed(sums.wrong, 2));
    page.value("dropout-seeds", integer(facts::SEEDS as usize));
    Ok(())
}
