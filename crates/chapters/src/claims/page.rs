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
        flash::tell_approximate(page)?,
        formats::tell_large_negative(page)?,
        draws::tell_small_gradients(page, &small),
        counts::tell_backward(page),
        counts::tell_heads(page)?,
        roofline::tell_ridge(page)?,
        roofline::tell_short_and_long(page)?,
        traffic::tell_crossings(page)?,
        traffic::tell_growth(page)?,
        flash::tell_work_and_memory(page)?,
        counts::tell_backward_memory(page),
        numbers::tell_spread(page)?,
        draws::tell_largest_weight(page, &largest?)?,
        draws::tell_reach(page)?,
        numbers::tell_three_measurements(page)?,
        examples::tell_four_scores(page)?,
        examples::tell_three_queries(page)?,
        counts::tell_core_and_projections(page)?,
        counts::tell_layer_in_numbers(page)?,
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
