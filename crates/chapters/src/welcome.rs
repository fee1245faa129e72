//! The picture on the first page: who looks at whom in the running example.

use crate::output::Page;
use anyhow::Result;
use attention::{Mask, attention, example};
use figures::{HeatMap, svg};

pub fn generate(page: &mut Page) -> Result<()> {
    let sentence = example::river();
    let (_, cache) = attention(&sentence.x, &sentence.x, &sentence.x, &Mask::none())?;
    let map = HeatMap {
        matrix: &cache.weights,
        rows: &sentence.tokens,
        columns: &sentence.tokens,
        decimals: Some(2),
        full: 0.5,
    };
    let figure = svg(
        "welcome-weights",
        "Attention weights of “the boat left the river bank”",
        "A six by six grid. Each row is a word and shows how much it attends to each word of the sentence.",
        map.size(),
        |area| map.draw(area),
    )?;
    page.file("weights.svg", figure);
    Ok(())
}
