//! The cells of the grid: what is measured, and who takes part.

use std::fmt;
use worker::{Kernel, Kind, Mask, Pass, Problem, VariantArray};

/// The longest sequence whose scores are written out: beyond, all heads' n² scores are more than a gigabyte, and the
/// time they take tells nothing new.
pub const WRITTEN_UP_TO: usize = 2048;

/// A problem and the kernels that are measured on it: one row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub problem: Problem,
    pub mask: Mask,
    pub pass: Pass,
    pub threads: usize,
    /// The kernels that take part. The first is this crate's.
    pub kernels: Vec<Kernel>,
}

/// The kernel with which the others are compared.
pub fn base(kind: Kind) -> Kernel {
    match kind {
        Kind::Attention => Kernel::Flash,
        Kind::Layer => Kernel::Naive,
    }
}

/// The peer that the comparison is about.
pub fn rival(kind: Kind) -> Kernel {
    match kind {
        Kind::Attention => Kernel::PytorchFused,
        Kind::Layer => Kernel::Numpy,
    }
}

/// The kernels that can take part, this crate's first; not one that would write out the scores of a sequence that is too long.
pub fn kernels(problem: Problem, pass: Pass) -> Vec<Kernel> {
    let kernels: &[Kernel] = match (problem.kind, problem.n) {
        (Kind::Attention, ..=WRITTEN_UP_TO) => Kernel::VARIANTS,
        (Kind::Attention, _) => &[Kernel::Flash, Kernel::PytorchFused],
        (Kind::Layer, ..=WRITTEN_UP_TO) => &[Kernel::Naive, Kernel::Numpy],
        (Kind::Layer, _) => &[],
    };
    let has_pass =
        |kernel: &Kernel| *kernel != Kernel::CandleFlash || pass == Pass::Forward;
    kernels.iter().copied().filter(has_pass).collect()
}

/// In words: "n = 512, d = 64, causal, forward, 1 thread".
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { problem: Problem { kind, n, d, .. }, mask, pass, threads, .. } = self;
        let layer = if *kind == Kind::Layer { "the layer, " } else { "" };
        let s = if *threads == 1 { "" } else { "s" };
        write!(f, "{layer}n = {n}, d = {d}, {mask}, {pass}, {threads} thread{s}")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn cell(n: usize, mask: Mask, pass: Pass) -> Cell {
        let problem = Problem { kind: Kind::Attention, n, heads: 8, d: 64 };
        Cell { problem, mask, pass, threads: 1, kernels: kernels(problem, pass) }
    }

    #[test]
    fn who_has_no_backward_pass_and_who_writes_scores_out_stays_away() {
        let long = cell(4096, Mask::Full, Pass::Forward);
        assert_eq!(long.kernels, [Kernel::Flash, Kernel::PytorchFused]);
        assert_eq!(cell(2048, Mask::Full, Pass::Forward).kernels, Kernel::VARIANTS);
        let backward = cell(256, Mask::Full, Pass::ForwardBackward);
        assert!(!backward.kernels.contains(&Kernel::CandleFlash));
        assert_eq!(backward.kernels.len(), Kernel::VARIANTS.len() - 1);
    }

    #[test]
    fn a_cell_is_named_in_words() {
        let name = cell(512, Mask::Causal, Pass::Forward).to_string();
        assert_eq!(name, "n = 512, d = 64, causal, forward, 1 thread");
    }
}
