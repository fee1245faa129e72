//! Tables of what was measured.

use crate::grid::{self, Cell, base, rival};
use crate::measured::MeasuredCell;
use record::statistics::{geometric_mean, median, ratio};
use std::fmt::Write;
use worker::{Kernel, Kind, Mask, Pass};

/// From this n on, cells count for the means: below, what is measured is mostly the cost of a call.
pub const COUNTS_FROM: usize = 512;

fn columns(kind: Kind) -> Vec<Kernel> {
    match kind {
        Kind::Attention => {
            Kernel::ALL.into_iter().filter(|kernel| *kernel != base(kind)).collect()
        }
        Kind::Layer => vec![Kernel::Numpy],
    }
}

/// Names of the columns.
pub fn head(kind: Kind) -> String {
    let title = match kind {
        Kind::Attention => {
            "\nAttention, f32, 8 heads. How long flash takes, then how many times as long each peer takes."
        }
        Kind::Layer => {
            "\nThe layer, f64, 8 heads. How long naive takes, then how many times as long NumPy takes."
        }
    };
    let mut line = format!(
        "{title}\n{:>7} {:>4} {:>4}  {:6}  {:16}",
        "threads", "d", "n", "mask", "pass"
    );
    let _ = write!(line, " {:>10}", "ms");
    if kind == Kind::Attention {
        let _ = write!(line, " {:>8}", "GFLOP/s");
    }
    for kernel in columns(kind) {
        let _ = write!(line, "  {}", kernel.name());
    }
    line
}

/// A cell in one line.
pub fn row(measured: &MeasuredCell) -> String {
    let MeasuredCell { cell, rounds, .. } = measured;
    let Cell { problem, mask, pass, threads, .. } = cell;
    let seconds =
        rounds.get(&base(problem.kind)).map_or(f64::NAN, |rounds| median(rounds));
    let mut line = format!(
        "{threads:>7} {:>4} {:>4}  {:6}  {:16} {:>10.3}",
        problem.d,
        problem.n,
        mask.name(),
        pass.name(),
        1e3 * seconds
    );
    if problem.kind == Kind::Attention {
        let _ = write!(line, " {:>8.1}", cell.flops() / seconds / 1e9);
    }
    for kernel in columns(problem.kind) {
        let text = measured
            .ratio(kernel)
            .map_or("–".to_owned(), |(ratio, _)| format!("{ratio:.2}"));
        let _ = write!(line, "  {text:>width$}", width = kernel.name().len());
    }
    line
}

impl MeasuredCell {
    /// How many times as long as this crate a peer took, and the spread of that; `None` if it took no part.
    pub fn ratio(&self, kernel: Kernel) -> Option<(f64, f64)> {
        let ours = self.rounds.get(&base(self.cell.problem.kind))?;
        self.rounds.get(&kernel).map(|rounds| ratio(rounds, ours))
    }
}

/// Geometric means over all cells that count, and the worst cell, for each peer; for the rival also by groups of cells.
pub fn summary(cells: &[MeasuredCell]) -> String {
    let mut text = String::new();
    for kind in [Kind::Attention, Kind::Layer] {
        for kernel in columns(kind) {
            text += &summary_of(cells, kind, kernel);
        }
    }
    text
}

fn summary_of(cells: &[MeasuredCell], kind: Kind, kernel: Kernel) -> String {
    let counts = |cell: &&MeasuredCell| {
        cell.cell.problem.kind == kind && cell.cell.problem.n >= COUNTS_FROM
    };
    let counted = cells.iter().filter(counts);
    let ratios: Vec<_> =
        counted.filter_map(|cell| Some((&cell.cell, cell.ratio(kernel)?.0))).collect();
    let Some((worst, lowest)) = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return String::new();
    };
    let mean = |chosen: &dyn Fn(&Cell) -> bool| {
        let chosen: Vec<_> =
            ratios.iter().filter(|(cell, _)| chosen(cell)).map(|(_, r)| *r).collect();
        (!chosen.is_empty()).then(|| (geometric_mean(&chosen), chosen.len()))
    };
    let not_slower = ratios.iter().filter(|(_, ratio)| *ratio >= 1.0).count();
    let (all, count) = mean(&|_| true).unwrap_or((f64::NAN, 0));
    let mut text = format!(
        "\ntime({}) / time({}), cells with n ≥ {COUNTS_FROM}: geometric mean {all:.2} of {count}, \
         at least 1 in {not_slower}, lowest {lowest:.2} at {}\n",
        kernel.name(),
        base(kind).name(),
        worst.name()
    );
    if kernel != rival(kind) {
        return text;
    }
    let mut threads: Vec<_> = ratios.iter().map(|(cell, _)| cell.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    for threads in threads {
        for pass in [Pass::Forward, Pass::ForwardBackward] {
            for mask in [Mask::Full, Mask::Causal] {
                let group = |cell: &Cell| {
                    (cell.threads, cell.pass, cell.mask) == (threads, pass, mask)
                };
                if let Some((mean, count)) = mean(&group) {
                    let name = format!(
                        "{}, {}, {}",
                        grid::threads(threads),
                        pass.name(),
                        mask.name()
                    );
                    let _ = writeln!(text, "  {name:36} {mean:6.2} of {count}");
                }
            }
        }
    }
    text
}

/// How far the peers are from the reference: the worst of all cells, for each of them.
pub fn checks(cells: &[MeasuredCell]) -> String {
    let mut text = String::from("Largest differences, as parts of the largest entry:");
    for kind in [Kind::Attention, Kind::Layer] {
        for kernel in Kernel::ALL {
            let of_kind = cells.iter().filter(|cell| cell.cell.problem.kind == kind);
            let found: Vec<_> = of_kind
                .filter_map(|cell| Some((&cell.cell, *cell.differences.get(&kernel)?)))
                .collect();
            if let Some((cell, worst)) = found.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
                let name = kernel.name();
                let _ = write!(
                    text,
                    "\n{name:16} {worst:.1e} of {} cells, at {}",
                    found.len(),
                    cell.name()
                );
            }
        }
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::grid::tests::cell;
    use std::collections::BTreeMap;

    pub fn measured(n: usize, mask: Mask, ours: &[f64], fused: &[f64]) -> MeasuredCell {
        let rounds =
            [(Kernel::Flash, ours.to_vec()), (Kernel::PytorchFused, fused.to_vec())];
        MeasuredCell {
            cell: cell(n, mask, Pass::Forward),
            differences: BTreeMap::from([(Kernel::Numpy, n as f64 * 1e-10)]),
            rounds: rounds.into(),
        }
    }

    #[test]
    fn a_row_tells_time_speed_and_ratios() {
        // 4 · 8 · 1024² · 64 operations, half of them, in 10 ms
        let row =
            row(&measured(1024, Mask::Causal, &[0.010, 0.010, 0.011], &[0.015, 0.015]));
        let words: Vec<_> = row.split_whitespace().collect();
        let expected = [
            "1", "64", "1024", "causal", "forward", "10.000", "107.4", "1.50", "–", "–",
            "–", "–", "–",
        ];
        assert_eq!(words, expected);
        assert_eq!(
            head(Kind::Attention).lines().last().unwrap().chars().count(),
            row.chars().count()
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
        let summary = summary(&cells);
        for part in [
            "time(pytorch-fused) / time(flash), cells with n ≥ 512: geometric mean 2.00 of 3, at least 1 in 2, lowest \
             0.50 at n = 1024, d = 64, full, forward, 1 thread\n",
            "  1 thread, forward, full                1.00 of 2\n",
            "  1 thread, forward, causal              8.00 of 1\n",
        ] {
            assert!(summary.contains(part), "{summary}");
        }
        assert!(!summary.contains("numpy"));
    }

    #[test]
    fn checks_name_the_worst_cell_of_each_peer() {
        let cells =
            [measured(512, Mask::Full, &[], &[]), measured(1024, Mask::Full, &[], &[])];
        let expected = "numpy            1.0e-7 of 2 cells, at n = 1024, d = 64, full, forward, 1 thread";
        assert_eq!(checks(&cells).lines().last().unwrap(), expected);
    }
}
