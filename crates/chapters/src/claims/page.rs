//! All claims in the order of the chapter, and their summary.

use super::verdict::{Claim, HOLDS, NOT, WHEN};
use super::{counts, draws, examples, flash, formats, numbers, roofline, traffic};
use crate::output::Page;
use anyhow::{Result, ensure};
use figures::format::table;

pub fn generate(page: &mut Page) -> Result<()> {
    // The slow ones, side by side.
    let (small, largest) = rayon::join(draws::small_gradients, draws::largest_weights);
    let claims = [
        flash::claim_approximate(page)?,
        formats::claim_large_negative(page)?,
        draws::claim_small_gradients(page, &small),
        counts::claim_backward(page),
        counts::claim_heads(page)?,
        roofline::claim_ridge(page)?,
        roofline::claim_short_and_long(page)?,
        traffic::claim_crossings(page)?,
        traffic::claim_growth(page)?,
        flash::claim_work_and_memory(page)?,
        counts::claim_backward_memory(page),
        numbers::claim_spread(page)?,
        draws::claim_largest_weight(page, &largest?)?,
        draws::claim_reach(page)?,
        numbers::claim_three_measurements(page)?,
        examples::claim_four_scores(page)?,
        examples::claim_three_queries(page)?,
        counts::claim_core_and_projections(page)?,
        counts::claim_layer_in_numbers(page)?,
    ];
    summary(page, &claims);
    tally(page, &claims)
}

fn summary(page: &mut Page, claims: &[Claim]) {
    let mut rows = vec![];
    for (number, claim) in (1..).zip(claims) {
        let said = format!("[{number}](#{}) {}", claim.section, claim.said);
        rows.push(vec![said, claim.verdict.clone()]);
        page.value(format!("claim-{number}"), &claim.said);
        page.value(format!("verdict-{number}"), &claim.verdict);
    }
    let table = table(&["claim", "verdict"], &rows);
    // Sentences are aligned to the left.
    page.file("summary.md", table.replacen("| :-- | --: |", "| :-- | :-- |", 1));
}

/// The number of verdicts of each kind, in words.
fn tally(page: &mut Page, claims: &[Claim]) -> Result<()> {
    let count = |is: fn(&str) -> bool| claims.iter().filter(|c| is(&c.verdict)).count();
    let when = count(|v| v.starts_with(WHEN));
    let not = count(|v| v.starts_with(NOT));
    let part = count(|v| v.starts_with(HOLDS) && !v.starts_with(WHEN) && v.contains(NOT));
    ensure!(when + not + part == claims.len(), "a claim holds as it stands: say so");
    const WORDS: [&str; 13] = [
        "none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
        "ten", "eleven", "twelve",
    ];
    for (name, count) in [("when", when), ("not", not), ("part", part)] {
        page.value(format!("count-{name}"), WORDS[count]);
    }
    Ok(())
}
