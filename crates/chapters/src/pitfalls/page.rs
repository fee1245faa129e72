//! How the chapter says it.

use super::facts::{self, REAL, padded};
use crate::output::Page;
use anyhow::Result;
use attention::example;
use figures::format::{fixed, integer, percent, tuple};
use nalgebra::DMatrix;

pub fn generate(page: &mut Page) -> Result<()> {
    scale(page)?;
    leaking_masks(page)?;
    hidden_rows(page)?;
    sentences(page)?;
    heads(page)?;
    page.value("stale-off", percent(facts::off_by_stale_cache()?, 0));
    Ok(())
}

fn row(matrix: &DMatrix<f64>, i: usize) -> String {
    tuple(matrix.row(i).iter(), 2)
}

fn scale(page: &mut Page) -> Result<()> {
    for d in [4, 512] {
        let largest = facts::largest_weight(d, 1.0)?;
        page.value(format!("unscaled-{d}"), fixed(largest.wrong, 2));
        page.value(format!("scaled-{d}"), fixed(largest.right, 2));
    }
    page.value("scale-rows", integer(facts::ROWS));
    page.value("scale-keys", integer(facts::KEYS));
    let largest = facts::largest_weight_by_model()?;
    page.value("scale-by-model", fixed(largest.wrong, 2));
    page.value("scale-by-head", fixed(largest.right, 2));
    Ok(())
}

/// Where more is seen than should be.
fn leaking_masks(page: &mut Page) -> Result<()> {
    let columns = facts::softmax_of_columns()?;
    page.value("columns-first", fixed(columns.weights[(0, 0)], 2));
    page.value("columns-last", fixed(columns.weights.row(5).sum(), 2));
    page.value("columns-moved", fixed(columns.moved, 2));
    let after = facts::masked_after_softmax()?;
    page.value("after-boat", fixed(after.weights.row(1).sum(), 2));
    page.value("after-moved", fixed(after.moved, 3));
    let (seen, pairs) = facts::future_seen()?;
    page.value("first-row-seen", integer(seen));
    page.value("first-row-pairs", integer(pairs));
    Ok(())
}

/// Where what should be seen is hidden, in part or all of it.
fn hidden_rows(page: &mut Page) -> Result<()> {
    page.value("inverted-output", row(&padded(REAL.map(|real| !real))?.0, 5));
    page.value("inverted-right", row(&padded(REAL)?.0, 5));
    page.value("finite-double", tuple(facts::finite_mask::<f64>()?.row(0).iter(), 3));
    let gap = facts::gap_at_a_billion();
    page.value("finite-gap", integer(gap));
    page.value("finite-half-gap", integer(gap / 2));
    let last = facts::last_query()?;
    page.value("alignment-right", row(&last.right, 0));
    page.value("alignment-wrong", row(&last.wrong, 0));
    Ok(())
}

/// Sentences with filling, and two of them in one batch.
fn sentences(page: &mut Page) -> Result<()> {
    let (output, _) = padded(REAL)?;
    page.value("filling-right", tuple(&output.rows(0, 6).row_mean(), 3));
    page.value("filling-wrong", tuple(&output.row_mean(), 3));
    let stacked = facts::stacked()?;
    page.value("stacked-share", percent(stacked.share_elsewhere, 0));
    page.value("stacked-wrong", row(&stacked.outputs.wrong, 5));
    page.value("stacked-right", row(&stacked.outputs.right, 5));
    let words = [example::river().tokens, example::city().tokens].concat();
    let every_other: Vec<_> = words.into_iter().step_by(2).collect();
    page.value("swapped", every_other.join(" "));
    Ok(())
}

fn heads(page: &mut Page) -> Result<()> {
    let entropies = facts::head_entropies()?;
    page.value("averaged-live", fixed(entropies.live, 2));
    page.value("averaged-flat", fixed(entropies.flat, 2));
    page.value("averaged-mean", fixed(entropies.averaged, 2));
    page.value("averaged-ln", fixed(entropies.most, 2));
    let sums = facts::dropout_sums()?;
    page.value("dropout-right", fixed(sums.right, 2));
    page.value("dropout-wrong", fixed(sums.wrong, 2));
    page.value("dropout-seeds", integer(facts::SEEDS as usize));
    Ok(())
}
