//! Two ways to merge four tiles.

use crate::figures::{BLUE, TEXT, VERMILION, arrow, text_box};
use crate::output::Page;
use anyhow::Result;

/// The size of a box that stands for a state.
const SIZE: (i32, i32) = (64, 34);
/// The corners of the four tiles.
const TILES: [(i32, i32); 4] = [(8, 8), (90, 8), (172, 8), (254, 8)];

/// Three times two boxes are joined to one with a name and a corner of its own.
pub fn mergings(page: &mut Page) -> Result<()> {
    let [a, b, c, d] = TILES;
    let [first, second, third] = [(49, 74), (115, 140), (185, 206)];
    let [left, right, both] = [(49, 107), (213, 107), (131, 206)];
    for (name, title, says, joined) in [
        (
            "chain",
            "Four tiles merged one after the other",
            "Four boxes in a row. The first two are joined, the third is joined to the result, and the fourth to the result \
             of that: three steps, each of which waits for the one before.",
            [
                ("1–2", [a, b], first),
                ("1–3", [first, c], second),
                ("1–4", [second, d], third),
            ],
        ),
        (
            "tree",
            "Four tiles merged as a tree",
            "Four boxes in a row. The first two are joined, and so are the last two; the two results are joined: three \
             steps, of which the first two need not wait for each other.",
            [("1–2", [a, b], left), ("3–4", [c, d], right), ("1–4", [left, right], both)],
        ),
    ] {
        page.figure(name, (title, says), (336, 250), |area| {
            for (corner, name) in TILES.into_iter().zip(["1", "2", "3", "4"]) {
                text_box(area, corner, SIZE, name, BLUE)?;
            }
            for (name, _, corner) in joined {
                text_box(area, corner, SIZE, name, VERMILION)?;
            }
            for (_, from, to) in joined {
                for corner in from {
                    let start = (corner.0 + SIZE.0 / 2, corner.1 + SIZE.1);
                    arrow(area, &[start, (to.0 + SIZE.0 / 2, to.1 - 2)], TEXT)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
