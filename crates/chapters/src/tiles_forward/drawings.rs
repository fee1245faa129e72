//! The walk over the tiles, and what masks leave of them.

use super::facts::Masked;
use crate::figures::format::subscript;
use crate::figures::{
    Area, BLUE, Color, KEY, MUTED, QUERY, RGBColor, TEXT, filled, framed, label, line,
    text, text_box,
};
use crate::output::Page;
use anyhow::Result;
use attention::mask::Visibility;

/// The steps from the corner of one tile of the walk to that of the next, and the size of a tile.
const STEP: (i32, i32) = (50, 42);
const SIZE: (i32, i32) = (STEP.0 - 4, STEP.1 - 4);
/// The corner of the first tile.
const CORNER: (i32, i32) = (92, 74);
/// The number of tiles: rows, columns.
const TILES: (i32, i32) = (5, 6);
/// The place of the walk: row, column.
const HERE: (i32, i32) = (2, 3);

/// The matrix of scores, cut into strips of complete rows.
pub fn strip(page: &mut Page) -> Result<()> {
    page.figure(
        "strip",
        (
            "A strip of queries meets all keys",
            "Five strips lie one below the other, as wide as all keys and values, which stand above them. Two strips are done; the \
             third is filled, with its queries to the left and its output to the right; the others are to come.",
        ),
        (520, 300),
        |area| {
            let width = STEP.0 * TILES.1 - 4;
            let (x, y) = tile(0, 0);
            text_box(area, (x, y - 58), (width, SIZE.1), "all keys and values", KEY)?;
            for i in 0..TILES.0 {
                queries_and_output(area, i)?;
                let (x, y) = tile(i, 0);
                let corners = [(x, y), (x + width, y + SIZE.1)];
                if i == HERE.0 {
                    text_box(area, (x, y), (width, SIZE.1), "r complete rows of scores", TEXT)?;
                } else {
                    if i < HERE.0 {
                        filled(area, corners, MUTED.mix(0.2))?;
                    }
                    framed(area, corners, MUTED.mix(0.5))?;
                }
            }
            Ok(())
        },
    )
}

/// The corner of a tile.
fn tile(i: i32, j: i32) -> (i32, i32) {
    (CORNER.0 + STEP.0 * j, CORNER.1 + STEP.1 * i)
}

/// The labels to the left and to the right of a row.
fn queries_and_output(area: &Area, i: i32) -> Result<()> {
    let (x, y) = tile(i, 0);
    let name = |name: &str| format!("{name}{}", subscript(i as usize + 1));
    block(area, (x - 66, y), &name("Q"), QUERY, i == HERE.0)?;
    block(area, (x + STEP.0 * TILES.1 + 16, y), &name("O"), BLUE, i == HERE.0)
}

/// A block of a matrix, in colour if it is at work now.
fn block(
    area: &Area,
    corner: (i32, i32),
    text: &str,
    colour: RGBColor,
    now: bool,
) -> Result<()> {
    if now {
        return text_box(area, corner, SIZE, text, colour);
    }
    framed(area, corners(corner), MUTED.mix(0.5))?;
    label(area, (corner.0 + SIZE.0 / 2, corner.1 + SIZE.1 / 2), text, MUTED)
}

fn corners(corner: (i32, i32)) -> [(i32, i32); 2] {
    [corner, (corner.0 + SIZE.0, corner.1 + SIZE.1)]
}

/// The steps from one tile to the next in the grids of [`kinds`], and from one grid to the next.
const CELL: i32 = 19;
const PANEL: i32 = 8 * CELL + 32;

/// The tiles that are computed, those of them that are looked at entry by entry, and those that are skipped.
pub fn kinds(page: &mut Page, masks: &[Masked]) -> Result<()> {
    page.figure(
        "kinds",
        (
            "Tiles of three masks: full, partial and hidden",
            "Three grids of eight by eight tiles. Causal: all tiles below the diagonal are full, those on it partial, those above it \
             hidden. Window: three diagonals, of which the middle one is full and the others are partial. Padding: four full columns, a \
             partial one, three hidden ones.",
        ),
        (3 * PANEL as u32 - 24, 8 * CELL as u32 + 72),
        |area| {
            for (panel, masked) in (0..).zip(masks) {
                let left = 4 + PANEL * panel;
                label(area, (left + 4 * CELL, 14), masked.name, TEXT)?;
                for (i, row) in (0..).zip(masked.kinds.0.row_iter()) {
                    for (j, &kind) in (0..).zip(row.iter()) {
                        draw_kind(area, (left + CELL * j, 30 + CELL * i), kind)?;
                    }
                }
            }
            let y = 30 + 8 * CELL + 16;
            for (x, kind, name) in [
                (40, Visibility::Full, "full"),
                (180, Visibility::Partial, "partial"),
                (340, Visibility::Hidden, "hidden, skipped"),
            ] {
                draw_kind(area, (x, y), kind)?;
                text(area, (x + 26, y + CELL / 2 - 1), name)?;
            }
            Ok(())
        },
    )
}

/// Full is filled, partial is half as strong and struck through, hidden is an empty frame.
fn draw_kind(area: &Area, (x, y): (i32, i32), kind: Visibility) -> Result<()> {
    let corners = [(x, y), (x + CELL - 2, y + CELL - 2)];
    match kind {
        Visibility::Full => filled(area, corners, BLUE.mix(0.75)),
        Visibility::Partial => {
            filled(area, corners, BLUE.mix(0.25))?;
            line(area, &corners, BLUE.stroke_width(2))
        }
        Visibility::Hidden => framed(area, corners, MUTED.mix(0.4)),
    }
}
