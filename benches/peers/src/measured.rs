//! The measurements, and the tables of them.

use crate::grid::{BASE, Cell};
use crate::question::Kernel;
use recorder::rounds::Rounds;
use std::collections::BTreeMap;
use std::fmt;

/// The measurements of a run.
pub struct Measured {
    pub cells: Vec<MeasuredCell>,
    /// Of the peers' libraries.
    pub versions: BTreeMap<String, String>,
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
        let milliseconds = 1e3 * rounds.seconds(BASE).unwrap_or(f64::NAN);
        write!(f, "{cell}: {BASE} {milliseconds:.3} ms")?;
        for &kernel in cell.kernels.iter().filter(|kernel| **kernel != BASE) {
            if let Some((ratio, _)) = rounds.ratio(kernel, BASE) {
                write!(f, ", {kernel} × {ratio:.2}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::grid::tests::cell;
    use crate::question::{Mask, Pass};

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
}
