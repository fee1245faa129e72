//! The chapter's page: values, tables and figures.

use super::facts::{self, allowed, everything_hidden, masked_after_softmax};
use crate::figures::HeatMap;
use crate::figures::format::{fixed, integer, percent, scientific, tuple};
use crate::output::Page;
use crate::sentences::{BOAT, LEFT};
use anyhow::Result;
use attention::{Mask, example};
use half::f16;
use nalgebra::DVector;

pub fn generate(page: &mut Page) -> Result<()> {
    four_masks(page)?;
    alignment(page)?;
    causal_sentence(page)?;
    after_softmax(page)?;
    large_and_negative(page)
}

fn four_masks(page: &mut Page) -> Result<()> {
    let sentence = example::river().tokens;
    let short = ["the", "boat", "left", "–", "–", "–"];
    let padding = Mask::padding(&short.map(|token| token != "–"))?;
    for (name, says, rows, mask) in [
        (
            "causal",
            "Row by row one more cell is filled, from the left.",
            &sentence,
            Mask::causal(),
        ),
        (
            "window",
            "A diagonal band, three cells wide, that ends at the diagonal.",
            &sentence,
            Mask::window(3)?,
        ),
        (
            "padding",
            "The first three columns are filled, in every row.",
            &short,
            padding.clone(),
        ),
        (
            "both",
            "The first three rows grow from one cell to three; the last three have the first three cells.",
            &short,
            Mask::causal().and(padding),
        ),
    ] {
        let matrix = allowed(&mask, 6, 6, f64::NAN)?;
        let title = format!("Which keys each of six queries may see: {name}");
        page.heat_map(name, (&title, says), &HeatMap::pattern(&matrix, rows))?;
    }
    Ok(())
}

/// A causal mask of the last two queries.
fn alignment(page: &mut Page) -> Result<()> {
    let matrix = allowed(&Mask::causal(), 2, 6, f64::NAN)?;
    let words = (
        "A causal mask of two queries over six keys",
        "River sees the first five keys, bank all six.",
    );
    page.heat_map("aligned-ends", words, &HeatMap::pattern(&matrix, &["river", "bank"]))
}

/// The running example, with its hand-made projections, under a causal mask.
fn causal_sentence(page: &mut Page) -> Result<()> {
    let [causal, free] = facts::causal_and_free()?;
    let labels = &example::river().tokens;
    let mask = Mask::causal();
    let mask = mask.sized(6, 6)?;
    let (added, masked) = (mask.additive(), mask.apply(causal.scores.clone())?);
    for (name, title, says, map) in [
        (
            "mask",
            "The causal mask M of six tokens",
            "Zeros on and below the diagonal, minus infinity above it.",
            HeatMap { decimals: Some(0), ..HeatMap::of_tokens(&added, labels, 1.0) },
        ),
        (
            "scores",
            "The scores of “the boat left the river bank” with the mask added",
            "Numbers on and below the diagonal, minus infinity above it. Bank scores boat, river and bank high.",
            HeatMap::of_tokens(&masked, labels, causal.scores.amax()),
        ),
        (
            "weights-free",
            "Weights of “the boat left the river bank” without a mask",
            "A full six by six grid. The first row, “the”, is nearly even.",
            HeatMap::of_tokens(&free.weights, labels, 0.75),
        ),
    ] {
        page.heat_map(name, (title, says), &map)?;
    }
    page.value("left-boat-free", percent(free.weights[(LEFT, BOAT)], 0));
    page.value("left-boat-causal", percent(causal.weights[(LEFT, BOAT)], 0));
    Ok(())
}

/// Weights that are multiplied by 0 after softmax.
fn after_softmax(page: &mut Page) -> Result<()> {
    let weights = masked_after_softmax(&example::river().x)?;
    let changed = masked_after_softmax(&facts::with_a_longer_last_word())?;
    page.value("boat-before", fixed(weights[(BOAT, BOAT)], 2));
    page.value("boat-after", fixed(changed[(BOAT, BOAT)], 2));
    Ok(())
}

/// −10⁹ in the place of −∞, in three types.
fn large_and_negative(page: &mut Page) -> Result<()> {
    let (double, double_weights) = everything_hidden(-1e9_f64)?;
    let (single, single_weights) = everything_hidden(-1e9_f32)?;
    let (_, infinite_weights) = everything_hidden(f64::NEG_INFINITY)?;
    let number = |score| format!("$ {} $", fixed(score, 0));
    let weights = |weights: &DVector<f64>| format!("$ {} $", tuple(weights, 3));
    let rows = [
        ["$-10^9$ in `f64`", &number(double[0]), &weights(&double_weights)],
        [
            "$-10^9$ in `f32`",
            &number(single[0].into()),
            &weights(&single_weights.map(f64::from)),
        ],
        ["$-10^9$ in `f16`", "$−\\infty$", "NaN, three times"],
        ["$-\\infty$, the library", "$−\\infty$", &weights(&infinite_weights)],
    ];
    let header = ["hidden by adding", "the score 2 becomes", "weights"];
    page.table("finite", &header, &rows.map(|row| row.map(str::to_owned).to_vec()));
    page.value("f16-max", integer(f16::MAX.to_f64() as usize));
    let (double, single) = facts::spacing();
    page.value("spacing-64", scientific(double, 1));
    page.value("spacing-32", fixed(single.into(), 0));
    Ok(())
}
