//! The chapter's page: values and tables.

use super::facts::{HEADS, Kept, LATENT, LAYERS, WIDTH};
use crate::output::Page;
use anyhow::Result;
use figures::format::{bytes, integer, significant};

pub fn generate(page: &mut Page) -> Result<()> {
    let rows = [
        ("multi-head", Kept::Heads(HEADS)),
        ("grouped, 8 key-value heads", Kept::Heads(8)),
        ("multi-query, 1 key-value head", Kept::Heads(1)),
    ];
    let row = |(name, kept): (&str, Kept)| {
        vec![
            name.to_owned(),
            integer(kept.numbers() as usize),
            bytes(u128::from(kept.bytes(1))),
            bytes(u128::from(kept.bytes(4096))),
            significant(kept.intensity(), 2),
        ]
    };
    let header = [
        "attention",
        "numbers a layer keeps of a token",
        "one token",
        "4,096 tokens",
        "FLOP per byte",
    ];
    page.table("kept", &header, &rows.map(row));
    page.table("latent", &header, &[row(("latent", LATENT))]);
    page.value("layers", integer(LAYERS as usize));
    page.value("heads", integer(HEADS as usize));
    page.value("width", integer(WIDTH as usize));
    page.value("all", bytes(u128::from(Kept::Heads(HEADS).bytes(4096))));
    Ok(())
}
