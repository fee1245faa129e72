//! The measurements, and the tables of them.

use crate::grid::{Cell, base};
use itertools::{Itertools, iproduct};
use record::rounds::Rounds;
use record::statistics::geometric_mean;
use std::collections::BTreeMap;
use std::fmt;
use worker::{Kernel, Kind, VariantArray};

/// From this n on, cells count for the means: below, what is measured is mostly the cost of a call.
const COUNTS_FROM: usize = 512;

/// The measurements of a run.
pub struct Measured {
    pub cells: Vec<MeasuredCell>,
    /// Of the peers' libraries.
    pub versions: BTreeMap<String, String>,
    /// Warnings of what may have spoilt the measurements.
    pub warnings: Vec<String>,
}

/// The measurements of one cell.
pub struct MeasuredCell {
    pub cell: Cell,
    pub rounds: Rounds<Kernel>,
}

/// In one line: how long this crate takes, and how many times as long each peer takes.
impl fmt::Display for MeasuredCell {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { cell, rounds } = self;
        let base = base(cell.problem.kind);
        let milliseconds = 1e3 * rounds.seconds(base).unwrap_or(f64::NAN);
        write!(f, "{cell}: {base} {milliseconds:.3} ms")?;
        for &kernel in cell.kernels.iter().filter(|kernel| **kernel != base) {
            if let Some((ratio, _)) = rounds.ratio(kernel, base) {
                write!(f, ", {kernel} × {ratio:.2}")?;
            }
        }
        Ok(())
    }
}

/// For each peer the geometric mean over all cells that count, and the worst of these cells.
pub fn summary(cells: &[MeasuredCell]) -> String {
    iproduct!([Kind::Attention, Kind::Layer], Kernel::VARIANTS)
        .filter_map(|(kind, kernel)| summary_of(cells, kind, *kernel))
        .join("\n")
}

fn summary_of(cells: &[MeasuredCell], kind: Kind, kernel: Kernel) -> Option<String> {
    let base = base(kind);
    let counted = cells.iter().filter(|MeasuredCell { cell, .. }| {
        let problem = cell.problem;
        kernel != base && problem.kind == kind && problem.n >= COUNTS_FROM
    });
    let (ratios, counted): (Vec<_>, Vec<_>) = counted
        .filter_map(|MeasuredCell { cell, rounds }| {
            Some((rounds.ratio(kernel, base)?.0, cell))
        })
        .unzip();
    let lowest = ratios.iter().copied().position_min_by(f64::total_cmp)?;
    let not_slower = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
    Some(format!(
        "time({kernel}) / time({base}), cells with n ≥ {COUNTS_FROM}: geometric mean {:.2} of {}, \
         at least 1 in {not_slower}, lowest {:.2} at {}",
        geometric_mean(&ratios),
        ratios.len(),
        ratios[lowest],
        counted[lowest],
    ))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::grid::tests::cell;
    use worker::{Mask, Pass};

    pub fn measured(n: usize, mask: Mask, ours: &[f64], fused: &[f64]) -> MeasuredCell {
        let rounds =
            vec![(Kernel::Flash, ours.to_vec()), (Kernel::PytorchFused, fused.to_vec())];
        MeasuredCell { cell: cell(n, mask, Pass::Forward), rounds: Rounds(rounds) }
    }

    #[test]
    fn a_line_tells_time_and_ratios() {
        let line = measured(1024, Mask::Causal, &[0.010, 0.010, 0.011], &[0.015, 0.015]);
        assert_eq!(
            line.to_string(),
            "n = 1024, d = 64, causal, forward, 1 thread: flash 10.000 ms, pytorch-fused × 1.50"
        );
    }

    #[test]
    fn the_summary_counts_from_512_on_and_names_the_worst_cell() {
        let cells = [
            measured(256, Mask::Full, &[1.0], &[0.1]),
            measured(512, Mask::Full, &[1.0], &[2.0]),
            measured(1024, Mask::Full, &[1.0], &[0.5]),
            measured(1024, Mask::Causal, &[1.0], &[8.0]),
        ];
        assert_eq!(
            summary(&cells),
            "time(pytorch-fused) / time(flash), cells with n ≥ 512: geometric mean 2.00 of 3, at least 1 in 2, lowest \
             0.50 at n = 1024, d = 64, full, forward, 1 thread"
        );
    }
}
