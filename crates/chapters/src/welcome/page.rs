//! The first page's values, files and figure.

use super::facts::manifest_lines;
use crate::output::Page;
use crate::sentences;
use anyhow::Result;
use attention::{example, heat_map};
use figures::HeatMap;

pub fn generate(page: &mut Page) -> Result<()> {
    let river = example::river();
    let weights = sentences::unprojected(&river.x)?.weights;
    page.value("output", heat_map(&weights, &river.tokens, &river.tokens)?.trim_end());
    page.file("cargo.md", format!("```toml\n{}\n```\n", manifest_lines()?));
    page.heat_map(
        "weights",
        (
            "Attention weights of “the boat left the river bank”",
            "A six by six grid. Each row is a word and shows how much it attends to each word of the sentence. “bank” attends most to itself, then to “river”.",
        ),
        &HeatMap::of_tokens(&weights, &river.tokens, 0.5),
    )
}
