//! The cells of the grid: what is measured, and who takes part.

use crate::arguments::Arguments;
use crate::question::{Kernel, Mask, Pass, Problem};
use itertools::iproduct;
use std::fmt;
use strum::VariantArray;

const HEADS: usize = 8;

/// The longest sequence whose scores are written out: beyond, all heads' n² scores are more than a gigabyte, and the
/// time they take tells nothing new.
const WRITTEN_UP_TO: usize = 2048;

/// A problem and the kernels that are measured on it: one row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub problem: Problem,
    pub mask: Mask,
    pub pass: Pass,
    pub threads: usize,
    /// The kernels that take part. The first is this crate's.
    pub kernels: &'static [Kernel],
}

/// The kernel with which the others are compared.
pub const BASE: Kernel = Kernel::Flash;

/// The peer that the comparison is about.
pub const RIVAL: Kernel = Kernel::PytorchFused;

/// The cells of the grid, in the order in which they are measured: peers are restarted when the number of threads
/// changes, and given new numbers when the problem changes.
pub fn cells(arguments: &Arguments) -> Vec<Cell> {
    let Arguments { quick, avx2, .. } = *arguments;
    let (threads, widths): (&[usize], &[usize]) =
        if quick { (&[1], &[64]) } else { (&[1, 2], &[64, 128]) };
    let lengths: &[usize] = match (quick, avx2) {
        (true, _) => &[256, 1024],
        (false, true) => &[512, 2048],
        (false, false) => &[256, 512, 1024, 2048, 4096, 8192],
    };
    let cell = |(&threads, &d, &n, &mask, &pass)| {
        let problem = Problem { n, heads: HEADS, d };
        Cell { problem, mask, pass, threads, kernels: kernels(n, avx2) }
    };
    let cells = iproduct!(threads, widths, lengths, Mask::VARIANTS, Pass::VARIANTS);
    cells.map(cell).collect()
}

/// The kernels that take part, this crate's first; not one that would write out the scores of a sequence that is too long.
fn kernels(n: usize, avx2: bool) -> &'static [Kernel] {
    if avx2 || n > WRITTEN_UP_TO { &[BASE, RIVAL] } else { Kernel::VARIANTS }
}

/// In words: "n = 512, d = 64, causal, forward, 1 thread".
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { problem: Problem { n, d, .. }, mask, pass, threads, .. } = self;
        let s = if *threads == 1 { "" } else { "s" };
        write!(f, "n = {n}, d = {d}, {mask}, {pass}, {threads} thread{s}")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser;

    pub fn cell(n: usize, mask: Mask, pass: Pass) -> Cell {
        let problem = Problem { n, heads: HEADS, d: 64 };
        Cell { problem, mask, pass, threads: 1, kernels: kernels(n, false) }
    }

    fn grid(line: &str) -> Vec<Cell> {
        let words = ["peers"].into_iter().chain(line.split_whitespace());
        cells(&Arguments::parse_from(words))
    }

    #[test]
    fn the_grid_is_whole_and_who_writes_scores_out_stays_away_from_long_ones() {
        let cells = grid("");
        assert_eq!(cells.len(), 2 * 2 * 6 * 2 * 2); // threads, d, n, masks, passes
        assert!(cells.is_sorted_by_key(|cell| cell.threads));
        for cell in &cells {
            let is_long = cell.problem.n > WRITTEN_UP_TO;
            assert_eq!(cell.kernels.len(), if is_long { 2 } else { 5 });
        }
    }

    #[test]
    fn held_to_avx2_there_is_a_smaller_grid() {
        let cells = grid("--avx2");
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 2); // threads, d, n, masks, passes
        let kernels = [Kernel::Flash, Kernel::PytorchFused];
        assert!(cells.iter().all(|cell| cell.kernels == kernels));
    }
}
