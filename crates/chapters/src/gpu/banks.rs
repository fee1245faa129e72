//! Shared memory: which banks the lanes of a warp ask, and how many clocks that takes.

use gpu::tiles::{registers, tiled};
use laboratory::gpu::{Ask, clocks, warp};

/// The head dimension of all examples.
pub const D: usize = 128;

/// Kernel 1: a column of the queries, and of the keys.
pub fn tiled_loads(stride: usize) -> [Vec<Ask>; 2] {
    use tiled::THREADS_A_ROW;
    [
        warp(|lane| Ask::word(lane / THREADS_A_ROW * stride)),
        warp(|lane| Ask::word(lane % THREADS_A_ROW * stride)),
    ]
}

/// Kernel 2: a float4 of the queries, the keys, the weights and the values.
pub fn register_loads(padding: usize, swizzled: bool) -> [Vec<Ask>; 4] {
    use registers::KEYS;
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
        warp(|lane| Ask::quad(row_of_block(lane) * (D + padding))),
        warp(|lane| Ask::quad(4 * place_in_chunk(columns / 4, key_of_tile(lane), 0))),
        warp(|lane| Ask::quad(row_of_block(lane) * (KEYS + padding) + 16 * split(lane))),
        warp(|lane| {
            Ask::quad(4 * place_in_chunk(D / 4, 16 * split(lane), lane_column(lane)))
        }),
    ]
}

/// Kernel 3: the eight rows of 16 bytes of each of the four small matrices that `ldmatrix` brings, of keys.
pub fn matrix_loads(swizzled: bool) -> Vec<Ask> {
    let chunks = D / 8;
    let at = |row: usize, chunk: usize| {
        Ask::quad(4 * (row * chunks + if swizzled { chunk ^ (row % 8) } else { chunk }))
    };
    warp(|lane| at(lane / 16 * 8 + lane % 8, lane / 8 % 2))
}

/// Clocks of each load of kernels 1, 2 and 3.
pub struct Clocks {
    pub tiled: [usize; 2],
    pub registers: [usize; 4],
    pub matrices: usize,
}

impl Clocks {
    fn of(tiled_padding: usize, register_padding: usize, swizzled: bool) -> Self {
        let sum = |load: Vec<Ask>| clocks(&load);
        Clocks {
            tiled: tiled_loads(D + tiled_padding).map(sum),
            registers: register_loads(register_padding, swizzled).map(sum),
            matrices: clocks(&matrix_loads(swizzled)),
        }
    }

    pub fn without_remedies() -> Self {
        Clocks::of(0, 0, false)
    }

    /// Returns the clocks with the remedies that the kernels have.
    pub fn with_remedies() -> Self {
        Clocks::of(tiled::PADDING, registers::PADDING, true)
    }
}

/// Clocks of a column of queries whose rows lie so many words further apart than their width. The chapter asks for it.
pub fn clocks_with_padding(words: usize) -> usize {
    clocks(&tiled_loads(D + words)[0])
}

/// The words that eight rows of a tile ask for in kernel 3, without swizzle and with it.
pub fn eight_rows() -> [Vec<Ask>; 2] {
    [false, true].map(|swizzled| matrix_loads(swizzled)[..8].to_vec())
}
