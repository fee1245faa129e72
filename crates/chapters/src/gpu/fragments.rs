//! Which lane of a warp holds which entry of a matrix, before and after `mma.m16n8k16`.

use super::source::has;
use crate::output::Page;
use anyhow::{Result, ensure};
use figures::{BLUE, Color, GREEN, MUTED, TEXT, VERMILION, filled, framed, label, svg};

/// A lane and its register, for each (row, column); PTX ISA, "Matrix Fragments for mma.m16n8k16".
type Holder = fn(usize, usize) -> (usize, usize);

/// C (16, 8) of f32: four registers a lane.
fn accumulator(row: usize, column: usize) -> (usize, usize) {
    (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2)
}

/// A (16, 16) of bf16: four registers a lane, two numbers in each; the second number of a pair counts a half.
fn left_factor(row: usize, column: usize) -> (usize, usize) {
    (row % 8 * 4 + column % 8 / 2, column / 8 * 2 + row / 8)
}

/// Two accumulators side by side, (16, 16): 16 queries against 16 keys. Eight registers a lane.
fn scores(row: usize, column: usize) -> (usize, usize) {
    let (lane, register) = accumulator(row, column % 8);
    (lane, column / 8 * 4 + register)
}

pub fn generate(page: &mut Page) -> Result<()> {
    has(
        "tensor_cores.cu",
        &[
            "const int half = part % 2;",
            "const float* pair = &s[r][j / 8 + part / 2][2 * half];",
        ],
    )?;
    for row in 0..16 {
        for column in 0..16 {
            let (from, register) = scores(row, column);
            let (to, part) = left_factor(row, column);
            ensure!(from == to, "({row}, {column}) is wanted by another lane");
            // As the kernel packs: `part` takes the pair part % 2 of accumulator part / 2.
            let (tile, pair, which) = (part / 2, part % 2, column % 2);
            ensure!(
                register == 4 * tile + 2 * pair + which,
                "({row}, {column}) is packed elsewhere"
            );
        }
    }
    page.file("fragments.svg", drawing()?);
    Ok(())
}

const LANE: usize = 5;

fn drawing() -> Result<String> {
    const CELL: i32 = 25;
    const TOP: i32 = 34;
    let side = CELL * 16;
    let one = |area: &figures::Area,
               left: i32,
               heading: &str,
               holder: Holder,
               per_register: usize|
     -> Result<()> {
        label(area, (left + side / 2, 14), heading, TEXT)?;
        for row in 0..16 {
            for column in 0..16 {
                let (lane, register) = holder(row, column);
                let (x, y) = (left + CELL * column as i32, TOP + CELL * row as i32);
                let corners = [(x, y), (x + CELL - 2, y + CELL - 2)];
                let colour = [BLUE, VERMILION, GREEN, MUTED][register / per_register % 4];
                let strength = if lane == LANE { 0.55 } else { 0.14 };
                filled(area, corners, colour.mix(strength))?;
                if lane == LANE {
                    framed(area, corners, TEXT)?;
                }
                label(area, (x + CELL / 2 - 1, y + CELL / 2), &lane.to_string(), TEXT)?;
            }
        }
        Ok(())
    };
    svg(
        "gpu-fragments",
        "Which lane holds which entry: two accumulators side by side, and a left factor",
        "Two grids of 16 rows and 16 columns, each cell with the number of a lane. In both, row r of the upper and of the lower \
         eight rows belongs to the lanes 4r to 4r + 3, each with two neighbouring columns of every eight. The two grids have the \
         same numbers in the same places. The eight cells of lane 5 are framed.",
        ((2 * side + 40) as u32, (TOP + side + 8) as u32),
        |area| {
            one(area, 6, "two accumulators of 16 × 8: scores", scores, 2)?;
            one(area, side + 34, "left factor, 16 × 16: weights", left_factor, 1)
        },
    )
}
