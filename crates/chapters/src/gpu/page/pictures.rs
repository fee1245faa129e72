//! Pictures of an idea: threads in their groups, loads of a warp, a square of scores in registers, the owners of sums.

use crate::figures::{
    Area, BLUE, Color, GREEN, KEY, MUTED, QUERY, RGBColor, TEXT, VERMILION, arrow,
    filled, framed, label, line, text, text_box,
};
use crate::gpu::ladder::sectors_of_a_load;
use crate::gpu::machine::WARP;
use crate::output::Page;
use anyhow::Result;
use std::collections::BTreeSet;

pub fn generate(page: &mut Page) -> Result<()> {
    page.figure(
        "threads",
        (
            "A grid, a thread block, a warp",
            "On the left a grid of thread blocks: a row for each of two heads, a column for each query. One block leads by an arrow to \
             its four warps. One warp leads to its 32 lanes.",
        ),
        (640, 222),
        draw_threads,
    )?;
    page.figure(
        "loads",
        (
            "What a warp moves for one load",
            "Above: lanes 0 to 5 each ask for one word in a row of their own, and each moves a sector of eight words. Below: all 32 lanes \
             ask for neighbouring words of one row, which fill four sectors.",
        ),
        (560, 262),
        draw_loads,
    )?;
    page.figure(
        "square",
        (
            "A square of scores in the registers of one thread",
            "Eight words of queries stand to the left of a square of 8 times 8 scores, eight words of keys above it. Lines mark one \
             query and one key; they meet in one score.",
        ),
        (430, 300),
        draw_square,
    )?;
    page.figure(
        "owners",
        (
            "The owners of the three gradients",
            "Two squares of scores, with queries down and keys across. In the left one a column of tiles is marked, with an arrow \
             downwards: a thread block owns some keys. In the right one a row of tiles is marked, with an arrow to the right: a thread \
             block owns some queries.",
        ),
        (620, 262),
        draw_owners,
    )?;
    page.figure(
        "ring",
        (
            "A ring of two stages",
            "Two rows over time, one for each stage. In the upper row tiles 0, 2 and 4 follow one another, in the lower row tiles 1 \
             and 3. Each tile first arrives and is then read. Between the two stands the barrier “full”, at the end the barrier “empty”. \
             Below each tile stands its phase.",
        ),
        (640, 250),
        draw_ring,
    )
}

fn cell(area: &Area, (x, y): (i32, i32), side: i32, colour: impl Color) -> Result<()> {
    filled(area, [(x, y), (x + side - 2, y + side - 2)], colour)
}

fn draw_threads(area: &Area) -> Result<()> {
    const CELL: i32 = 30;
    label(area, (105, 8), "grid: a block per query", TEXT)?;
    for (head, top) in [(0, 40), (1, 40 + CELL)] {
        text(area, (0, top + CELL / 2 - 1), &format!("head {head}"))?;
        for i in 0..4 {
            let chosen = (head, i) == (0, 3);
            let strength = if chosen { 0.7 } else { 0.16 };
            cell(area, (60 + CELL * i, top), CELL, BLUE.mix(strength))?;
        }
        label(area, (60 + CELL * 4 + 12, top + CELL / 2 - 4), "…", TEXT)?;
    }
    text(area, (0, 120), "query")?;
    for i in 0..4 {
        label(area, (60 + CELL * i + CELL / 2 - 1, 120), &i.to_string(), TEXT)?;
    }
    let middle = 60 + CELL * 3 + CELL / 2;
    arrow(area, &[(middle, 38), (middle, 27), (210, 27), (210, 53), (224, 53)], MUTED)?;

    label(area, (290, 14), "thread block: 4 warps", TEXT)?;
    framed(area, [(226, 34), (354, 186)], BLUE)?;
    for warp in 0..4 {
        let colour = if warp == 1 { VERMILION } else { MUTED };
        let name = format!("warp {warp}");
        text_box(area, (234, 42 + 28 * warp), (112, 24), &name, colour)?;
    }
    label(area, (290, 168), "shared memory", MUTED)?;
    arrow(area, &[(346, 82), (390, 82)], MUTED)?;

    label(area, (516, 14), "warp: 32 lanes, one instruction", TEXT)?;
    for lane in 0..WARP as i32 {
        let (x, y) = (396 + 30 * (lane % 8), 42 + 28 * (lane / 8));
        filled(area, [(x, y), (x + 28, y + 24)], VERMILION.mix(0.16))?;
        label(area, (x + 14, y + 12), &lane.to_string(), TEXT)?;
    }
    label(area, (516, 168), "shuffles", MUTED)?;
    label(area, (290, 208), "barrier: __syncthreads()", MUTED)?;
    label(area, (516, 208), "barrier: __syncwarp()", MUTED)
}

/// Words in a row of a matrix, as far as it is drawn.
const WORDS: usize = 32;

fn draw_loads(area: &Area) -> Result<()> {
    const CELL: i32 = 14;
    const LEFT: i32 = 72;
    let row = |top: i32, asked: &BTreeSet<usize>| {
        let moved: BTreeSet<usize> = asked.iter().map(|word| word / 8).collect();
        (0..WORDS).try_for_each(|word| {
            let colour = match (asked.contains(&word), moved.contains(&(word / 8))) {
                (true, _) => BLUE.mix(1.0),
                (false, true) => BLUE.mix(0.3),
                (false, false) => MUTED.mix(0.12),
            };
            let gap = 6 * (word / 8) as i32;
            cell(area, (LEFT + CELL * word as i32 + gap, top), CELL, colour)
        })
    };
    let words = |sectors: usize| format!("{sectors} sectors for 32 words");
    let heading = format!(
        "a row of its own for each lane: {}",
        words(sectors_of_a_load(|lane| lane * 128))
    );
    text(area, (LEFT, 14), &heading)?;
    for lane in 0..6 {
        let top = 32 + (CELL + 2) * lane;
        text(area, (0, top + CELL / 2), &format!("lane {lane}"))?;
        row(top, &BTreeSet::from([5]))?;
    }
    text(area, (0, 32 + (CELL + 2) * 6 + 6), "…")?;
    let heading = format!("side by side: {}", words(sectors_of_a_load(|lane| lane)));
    text(area, (LEFT, 168), &heading)?;
    text(area, (0, 186 + CELL / 2), "all lanes")?;
    row(186, &(0..WARP).collect())?;
    let legend = [(1.0, "asked for"), (0.3, "moved with it")];
    for (i, (strength, words)) in (0..).zip(legend) {
        let left = LEFT + 160 * i;
        cell(area, (left, 232), CELL, BLUE.mix(strength))?;
        text(area, (left + CELL + 6, 232 + CELL / 2), words)?;
    }
    Ok(())
}

fn draw_square(area: &Area) -> Result<()> {
    const CELL: i32 = 26;
    const CORNER: (i32, i32) = (140, 64);
    let (row, column) = (2, 5);
    let at = |i: i32, j: i32| (CORNER.0 + CELL * j, CORNER.1 + CELL * i);
    let shade = |marked: bool| if marked { 0.7 } else { 0.18 };
    for i in 0..8 {
        let (x, y) = at(i, 0);
        cell(area, (x - CELL - 10, y), CELL, QUERY.mix(shade(i == row)))?;
        let (x, y) = at(0, i);
        cell(area, (x, y - CELL - 10), CELL, KEY.mix(shade(i == column)))?;
        for j in 0..8 {
            let marked = (i, j) == (row, column);
            cell(area, at(i, j), CELL, BLUE.mix(shade(marked)))?;
        }
    }
    let centre = |(x, y): (i32, i32)| (x + CELL / 2 - 1, y + CELL / 2 - 1);
    let ((x, y), (left, top)) =
        (centre(at(row, column)), centre((CORNER.0 - CELL - 10, CORNER.1 - CELL - 10)));
    arrow(area, &[(left + 8, y), (x - 8, y)], QUERY)?;
    arrow(area, &[(x, top + 8), (x, y - 8)], KEY)?;
    label(area, (CORNER.0 + CELL * 4, 12), "8 words of keys", TEXT)?;
    text(area, (0, CORNER.1 + CELL * 3 + 14), "8 words")?;
    text(area, (0, CORNER.1 + CELL * 4 + 10), "of queries")?;
    label(
        area,
        (CORNER.0 + CELL * 4, CORNER.1 + CELL * 8 + 18),
        "16 loads, 64 multiply-adds",
        TEXT,
    )
}

fn draw_owners(area: &Area) -> Result<()> {
    const TILES: i32 = 5;
    const TILE: i32 = 30;
    let draw = |left: i32,
                name: &str,
                owned: fn(i32, i32) -> bool,
                colour: RGBColor|
     -> Result<()> {
        let corner = (left + 70, 62);
        label(area, (corner.0 + TILES * TILE / 2, 14), name, TEXT)?;
        label(area, (corner.0 + TILES * TILE / 2, 44), "keys", MUTED)?;
        text(area, (left, corner.1 + TILES * TILE / 2), "queries")?;
        for (i, j) in (0..TILES).flat_map(|i| (0..TILES).map(move |j| (i, j))) {
            let place = (corner.0 + TILE * j, corner.1 + TILE * i);
            let strength = if owned(i, j) { 0.45 } else { 0.12 };
            cell(area, place, TILE, colour.mix(strength))?;
        }
        Ok(())
    };
    let (first, second) = (KEY, QUERY);
    draw(20, "backward_keys", |_, j| j == 2, first)?;
    draw(330, "backward_queries", |i, _| i == 2, second)?;
    let middle = |left: i32| left + 70 + 2 * TILE + TILE / 2 - 1;
    arrow(area, &[(middle(20), 68), (middle(20), 62 + TILES * TILE - 8)], first)?;
    let y = 62 + 2 * TILE + TILE / 2 - 1;
    arrow(area, &[(406, y), (330 + 70 + TILES * TILE - 8, y)], second)?;
    label(area, (165, 236), "adds up dK, dV of its keys", TEXT)?;
    label(area, (475, 236), "adds up dQ of its queries", TEXT)?;
    line(area, &[(310, 8), (310, 250)], MUTED.mix(0.4))
}

/// Tiles that arrive in two stages and are read there. The lengths are for the eye: a tile is under way for as long as the tile before it
/// is read.
fn draw_ring(area: &Area) -> Result<()> {
    const LEFT: i32 = 62;
    const TURN: i32 = 97;
    for stage in 0..2 {
        let top = 40 + 104 * stage;
        text(area, (0, top + 17), &format!("stage {stage}"))?;
        for phase in 0..3 - stage {
            let tile = 2 * phase + stage;
            let left = LEFT + TURN * tile - if tile == 0 { 0 } else { 4 * tile };
            let (arriving, reading) = ((left, top), (left + TURN - 4, top));
            text_box(area, arriving, (TURN - 8, 34), &format!("{tile} arrives"), GREEN)?;
            text_box(area, reading, (TURN - 8, 34), &format!("{tile} is read"), BLUE)?;
            for (x, name) in [(reading.0 - 2, "full"), (reading.0 + TURN - 6, "empty")] {
                line(area, &[(x, top - 8), (x, top + 42)], VERMILION.stroke_width(2))?;
                label(area, (x, top - 18), name, MUTED)?;
            }
            let words = format!("phase {phase}, parity {}", phase % 2);
            label(area, (reading.0 - 2, top + 54), &words, TEXT)?;
        }
    }
    label(area, (LEFT + 280, 236), "time →", MUTED)
}
