//! The lanes that hold the entries of a fragment, drawn.

use crate::figures::{
    Area, BLUE, Color, GREEN, MUTED, TEXT, VERMILION, filled, framed, label,
};
use crate::gpu::fragments::{Holder, left_factor, scores};
use crate::output::Page;
use anyhow::Result;

const CELL: i32 = 25;
const SIDE: i32 = CELL * 16;
const TOP: i32 = 34;
/// The lane whose cells are framed.
const LANE: usize = 5;

pub fn generate(page: &mut Page) -> Result<()> {
    page.figure(
        "fragments",
        (
            "Which lane holds which entry: two accumulators side by side, and a left factor",
            "Two grids of 16 rows and 16 columns, each cell with the number of a lane. In both, row r of the upper and of the lower \
             eight rows belongs to the lanes 4r to 4r + 3, each with two neighbouring columns of every eight. The two grids have the \
             same numbers in the same places. The eight cells of lane 5 are framed.",
        ),
        ((2 * SIDE + 40) as u32, (TOP + SIDE + 8) as u32),
        |area| {
            draw(area, 6, "two accumulators of 16 × 8: scores", |row, column| {
                let (lane, register) = scores(row, column);
                (lane, register / 2)
            })?;
            draw(area, SIDE + 34, "left factor, 16 × 16: weights", left_factor)
        },
    )
}

/// A matrix whose cells have the colour of their lane's register, or pair of registers.
fn draw(area: &Area, left: i32, heading: &str, holder: Holder) -> Result<()> {
    label(area, (left + SIDE / 2, 14), heading, TEXT)?;
    for (row, column) in (0..16).flat_map(|row| (0..16).map(move |column| (row, column)))
    {
        let (lane, colour) = holder(row, column);
        let (x, y) = (left + CELL * column as i32, TOP + CELL * row as i32);
        let corners = [(x, y), (x + CELL - 2, y + CELL - 2)];
        let colour = [BLUE, VERMILION, GREEN, MUTED][colour];
        let strength = if lane == LANE { 0.55 } else { 0.14 };
        filled(area, corners, colour.mix(strength))?;
        if lane == LANE {
            framed(area, corners, TEXT)?;
        }
        label(area, (x + CELL / 2 - 1, y + CELL / 2), &lane.to_string(), TEXT)?;
    }
    Ok(())
}
