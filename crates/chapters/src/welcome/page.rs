//! The first page's values and files.

use super::facts::manifest_lines;
use crate::output::Page;
use crate::sentences;
use anyhow::Result;
use attention::{example, inspect::heat_map};

pub fn generate(page: &mut Page) -> Result<()> {
    let river = example::river();
    let weights = sentences::unprojected(&river.x)?.weights;
    page.value("printed", heat_map(&weights, &river.tokens, &river.tokens)?.trim_end());
    page.file("cargo.md", format!("```toml\n{}\n```\n", manifest_lines()?));
    Ok(())
}
