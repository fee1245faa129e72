//! Shared memory: which banks the lanes of a warp ask, and how many clocks that takes.
//!
//! The addresses are those of the kernels, whose lines stand here as strings, so that a change there is noticed.

use super::machine::{BANKS, WARP};
use super::source;
use crate::output::Page;
use anyhow::{Result, ensure};
use figures::format::{integer, table};
use figures::{BLUE, Color, MUTED, TEXT, filled, label, svg, text};
use std::collections::BTreeSet;

/// The head dimension of all examples.
pub const D: usize = 128;

/// What a lane asks for: `words` of four bytes, from `address` on, which is counted in words.
#[derive(Clone, Copy, PartialEq)]
pub struct Ask {
    pub address: usize,
    pub words: usize,
}

impl Ask {
    fn words(self) -> impl Iterator<Item = usize> {
        self.address..self.address + self.words
    }
}

/// Clocks of one load. A bank gives one word a clock, to as many lanes as ask for it. Of one word a lane, the warp is served
/// at once; of four, a quarter of it at a time, or a half where all neighbours, or all lanes that lie two apart, ask for the same.
pub fn clocks(asks: &[Ask]) -> usize {
    assert_eq!(asks.len(), WARP, "a warp");
    let paired = |by: usize| (0..WARP).all(|lane| asks[lane] == asks[lane ^ by]);
    let at_once = match asks[0].words {
        1 => WARP,
        4 if paired(1) || paired(2) => WARP / 2,
        4 => WARP / 4,
        words => panic!("no load has {words} words a lane"),
    };
    asks.chunks(at_once).map(busiest_bank).sum()
}

/// How many different words the busiest bank is asked for.
fn busiest_bank(asks: &[Ask]) -> usize {
    let mut banks = vec![BTreeSet::new(); BANKS];
    for word in asks.iter().flat_map(|ask| ask.words()) {
        banks[word % BANKS].insert(word);
    }
    banks.iter().map(BTreeSet::len).max().unwrap_or(0)
}

pub fn warp(ask: impl Fn(usize) -> Ask) -> Vec<Ask> {
    (0..WARP).map(ask).collect()
}

fn word(address: usize) -> Ask {
    Ask { address, words: 1 }
}

fn quad(address: usize) -> Ask {
    Ask { address, words: 4 }
}

/// Kernel 1: a column of the queries, and of the keys.
pub fn tiled_loads(stride: usize) -> [Vec<Ask>; 2] {
    const THREADS_A_ROW: usize = 4;
    [
        warp(|lane| word(lane / THREADS_A_ROW * stride)),
        warp(|lane| word(lane % THREADS_A_ROW * stride)),
    ]
}

/// Kernel 2: a float4 of the queries, the keys, the weights and the values.
pub fn register_loads(padding: usize, swizzled: bool) -> [Vec<Ask>; 4] {
    const KEYS: usize = 128;
    let columns = D / (KEYS * D / 4 / 1024); // of a chunk of keys
    let lane_column = |lane: usize| lane / 2;
    let row_of_block = |lane: usize| lane % 2;
    let key_of_tile = |lane: usize| 4 * lane_column(lane);
    let place_in_chunk = |width: usize, row: usize, column: usize| {
        row * width + if swizzled { column ^ (row / 4 % 8) } else { column }
    };
    let output_lanes = D / 8;
    let splits = 16 / output_lanes;
    let split = |lane: usize| lane_column(lane) / output_lanes;
    assert_eq!(splits, 1, "at this width all sixteen lanes have columns of their own");
    [
        warp(|lane| quad(row_of_block(lane) * (D + padding))),
        warp(|lane| quad(4 * place_in_chunk(columns / 4, key_of_tile(lane), 0))),
        warp(|lane| quad(row_of_block(lane) * (KEYS + padding) + 16 * split(lane))),
        warp(|lane| quad(4 * place_in_chunk(D / 4, 16 * split(lane), lane_column(lane)))),
    ]
}

/// Kernel 3: the eight rows of 16 bytes of each of the four small matrices that `ldmatrix` brings, of keys.
pub fn matrix_loads(swizzled: bool) -> Vec<Ask> {
    let chunks = D / 8;
    let at = |row: usize, chunk: usize| {
        quad(4 * (row * chunks + if swizzled { chunk ^ (row % 8) } else { chunk }))
    };
    warp(|lane| at(lane / 16 * 8 + lane % 8, lane / 8 % 2))
}

pub fn generate(page: &mut Page) -> Result<()> {
    source::has(
        "tiled.cu",
        &[
            "shared.q[row][c] * shared.k[j][c]",
            "float k[KEYS][D + 1];",
            "threadIdx.x / THREADS_A_ROW",
        ],
    )?;
    source::has(
        "registers.cu",
        &[
            "return row * width + (column ^ row / 4 % 8);",
            "float q[QUERIES][D + 4];",
            "return threadIdx.x % 32 / 2;",
        ],
    )?;
    source::has("tensor_cores.cu", &["return &chunks[row][chunk ^ row % 8];"])?;
    let sum =
        |loads: &[Vec<Ask>]| loads.iter().map(|load| clocks(load)).collect::<Vec<_>>();
    let [plain, padded] = [D, D + 1].map(|stride| sum(&tiled_loads(stride)));
    let [straight, turned] = [(0, false), (4, true)]
        .map(|(padding, swizzled)| sum(&register_loads(padding, swizzled)));
    let [in_rows, in_turns] =
        [false, true].map(|swizzled| clocks(&matrix_loads(swizzled)));
    ensure!(
        padded == [1, 1] && turned == [2; 4] && in_turns == 4,
        "no conflict is left: {padded:?} {turned:?} {in_turns}"
    );
    ensure!(
        plain == [8, 4] && straight[1] == 16 && in_rows == 32,
        "{plain:?} {straight:?} {in_rows}"
    );
    let row = |what: &str, how: &str, before: usize, after: usize| {
        vec![what.to_owned(), how.to_owned(), integer(before), integer(after)]
    };
    let rows = [
        row("1: a word of 8 queries", "a word of padding a row", plain[0], padded[0]),
        row("1: a word of 4 keys", "the same", plain[1], padded[1]),
        row(
            "2: four words of 2 queries",
            "four words of padding",
            straight[0],
            turned[0],
        ),
        row("2: four words of 16 keys", "swizzle", straight[1], turned[1]),
        row(
            "2: four words of a value by 16 lanes",
            "none needed",
            straight[3],
            turned[3],
        ),
        row("3: four matrices of 8 × 8 keys, in bf16", "swizzle", in_rows, in_turns),
    ];
    let header = ["kernel, and what a warp loads", "remedy", "clocks without", "with it"];
    page.file("banks.md", table(&header, &rows));
    // 16 lanes times 16 bytes are two clocks, whatever the order.
    ensure!(straight[3] == 2 && turned[3] == 2);
    page.value("conflict-matrix", integer(in_rows));
    // For the reader to work out by hand.
    for padding in [4, 8, 16] {
        let [queries, _] = tiled_loads(D + padding).map(|load| clocks(&load));
        page.value(format!("padding-{padding}"), integer(queries));
    }
    let [by_four, by_eight, by_sixteen] =
        [4, 8, 16].map(|padding| clocks(&tiled_loads(D + padding)[0]));
    ensure!((by_four, by_eight, by_sixteen) == (1, 2, 4), "the chapter says why");
    page.value("conflict-matrix-swizzled", integer(in_turns));
    drawing(page)
}

/// Eight rows of a tile, one below the other, and the banks in which a piece of each lies.
fn drawing(page: &mut Page) -> Result<()> {
    const CELL: i32 = 13;
    const LEFT: i32 = 70;
    let first_eight =
        |asks: Vec<Ask>| asks.into_iter().step_by(4).take(8).collect::<Vec<_>>();
    let plain = first_eight(tiled_loads(D)[0].clone());
    let padded = first_eight(tiled_loads(D + 1)[0].clone());
    let matrix = |swizzled| matrix_loads(swizzled)[..8].to_vec();
    let panels = [
        ("a word each, rows 128 words apart", plain),
        ("a word each, rows 129 words apart", padded),
        ("16 bytes each, rows of 128 bf16", matrix(false)),
        ("the same, swizzled", matrix(true)),
    ];
    ensure!(D == 128, "the headings say so");
    let height = CELL * 8 + 46;
    let drawn = svg(
        "gpu-banks",
        "Banks of shared memory that eight rows of a tile fall into",
        "Four panels, each with eight rows and a column for each of the 32 banks. In the first, the same bank is marked in all \
         rows. In the second, each row is one bank further to the right. In the third, the same four banks are marked in all rows. \
         In the fourth, each row has four other banks, and all 32 are marked once.",
        (
            (LEFT + CELL * BANKS as i32 + 12) as u32,
            (height * panels.len() as i32 + 26) as u32,
        ),
        |area| {
            for (i, (heading, asks)) in (0..).zip(&panels) {
                let top = height * i + 30;
                text(area, (LEFT, top - 14), heading)?;
                for (row, ask) in (0..).zip(asks) {
                    let y = top + CELL * row;
                    for bank in 0..BANKS as i32 {
                        let x = LEFT + CELL * bank;
                        let corners = [(x, y), (x + CELL - 2, y + CELL - 2)];
                        let asked = ask.words().any(|word| word % BANKS == bank as usize);
                        let fill = if asked { BLUE.mix(1.0) } else { MUTED.mix(0.15) };
                        filled(area, corners, fill)?;
                    }
                }
                let busiest = busiest_bank(asks);
                let clocks = if busiest == 1 {
                    "1 clock".to_owned()
                } else {
                    format!("{busiest} clocks")
                };
                label(area, (LEFT / 2 - 2, top + CELL * 4), &clocks, TEXT)?;
            }
            label(
                area,
                (LEFT + CELL * BANKS as i32 / 2, height * panels.len() as i32 + 14),
                "bank 0 … 31",
                MUTED,
            )
        },
    )?;
    page.file("banks.svg", drawn);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_gives_a_word_a_clock_to_all_who_ask_for_it() {
        assert_eq!(clocks(&warp(word)), 1); // 32 neighbours
        assert_eq!(clocks(&warp(|_| word(7))), 1); // all the same
        assert_eq!(clocks(&warp(|lane| word(2 * lane))), 2);
        assert_eq!(clocks(&warp(|lane| word(32 * lane))), 32);
        assert_eq!(clocks(&warp(|lane| quad(4 * lane))), 4);
        assert_eq!(clocks(&warp(|lane| quad(lane / 2 * 4))), 2);
        assert_eq!(clocks(&warp(|lane| quad(128 * lane))), 32);
    }
}
