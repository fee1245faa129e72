//! The lanes of a warp that hold the entries of a matrix, before and after `mma.m16n8k16`.

/// A lane and its register, for each (row, column); PTX ISA, "Matrix Fragments for mma.m16n8k16".
pub type Holder = fn(usize, usize) -> (usize, usize);

/// C (16, 8) of f32: four registers a lane.
pub fn accumulator(row: usize, column: usize) -> (usize, usize) {
    (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2)
}

/// The lane and register for each entry of a (16, 16) matrix of bf16: four registers per lane, two numbers in each.
pub fn left_factor(row: usize, column: usize) -> (usize, usize) {
    (row % 8 * 4 + column % 8 / 2, column / 8 * 2 + row / 8)
}

/// Two accumulators side by side, (16, 16): 16 queries against 16 keys. Eight registers a lane.
pub fn scores(row: usize, column: usize) -> (usize, usize) {
    let (lane, register) = accumulator(row, column % 8);
    (lane, column / 8 * 4 + register)
}
