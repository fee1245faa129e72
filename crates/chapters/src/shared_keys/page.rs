//! The chapter's page: values, tables and a figure.

use super::facts::{HEADS, Kept, LATENT, LATENT_HEADS, LAYERS, WIDTH};
use crate::figures::format::{bytes, fixed, integer, significant};
use crate::figures::{KEY, MUTED, QUERY, TEXT, label, line, text_box};
use crate::output::Page;
use anyhow::Result;
use laboratory::hardware::H100;

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
        "numbers per token and layer",
        "one token",
        "4,096 tokens",
        "FLOP per byte",
    ];
    page.table("kept", &header, &rows.map(row));
    page.table("latent", &header, &[row(("latent", LATENT))]);
    let [many, latent] = [Kept::Heads(HEADS), LATENT].map(Kept::operations);
    page.value("absorbed", significant(latent as f64 / many as f64, 3));
    page.value("latent-own", fixed(LATENT.intensity_with(LATENT_HEADS), 0));
    page.value("ridge", fixed(H100.bf16 / H100.bandwidth, 0));
    page.value("latent-numbers", integer(LATENT.numbers() as usize));
    page.value("all-numbers", integer(Kept::Heads(HEADS).numbers() as usize));
    page.value("layers", integer(LAYERS as usize));
    page.value("heads", integer(HEADS as usize));
    page.value("width", integer(WIDTH as usize));
    page.value("all", bytes(u128::from(Kept::Heads(HEADS).bytes(4096))));
    groups(page)
}

/// Four heads and the key-value heads that serve them: four, two and one.
fn groups(page: &mut Page) -> Result<()> {
    const QUERY_HEADS: i32 = 4;
    const BOX: (i32, i32) = (42, 30);
    let words = (
        "Four heads that ask, with four, two and one key-value heads",
        "Three panels. In each, four boxes for queries stand above boxes for keys and values, to which lines lead. In the first every query has a box of its own, in the second two share one, in the third all share one.",
    );
    let panels = [("multi-head", 4), ("grouped-query", 2), ("multi-query", 1)];
    page.figure("groups", words, (648, 190), |area| {
        for (panel, (name, kv_heads)) in (0..).zip(panels) {
            let left = 10 + 217 * panel;
            let middle = |slot: f64| left + (slot * 50.0) as i32 + BOX.0 / 2;
            for head in 0..QUERY_HEADS {
                let group = QUERY_HEADS / kv_heads;
                let first = head / group * group;
                let below = middle(f64::from(first) + f64::from(group - 1) / 2.0);
                let above = middle(f64::from(head));
                line(area, &[(above, 20 + BOX.1), (below, 100)], MUTED)?;
                let number = format!("q{}", head + 1);
                text_box(area, (above - BOX.0 / 2, 20), BOX, &number, QUERY)?;
                if head == first {
                    let number = format!("k, v {}", head / group + 1);
                    text_box(area, (below - 23, 100), (46, BOX.1), &number, KEY)?;
                }
            }
            label(area, (middle(1.5), 160), name, TEXT)?;
        }
        Ok(())
    })
}
