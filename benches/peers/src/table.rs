//! Tables of what was measured.

use crate::grid::{self, Cell, base, rival};
use crate::measured::MeasuredCell;
use itertools::{Itertools, iproduct};
use record::statistics::geometric_mean;
use std::fmt::Write;
use worker::{Kernel, Kind, Mask, Pass, Problem, VariantArray};

/// From this n on, cells count for the means: below, what is measured is mostly the cost of a call.
pub const COUNTS_FROM: usize = 512;

fn columns(kind: Kind) -> Vec<Kernel> {
    match kind {
        Kind::Attention => Kernel::VARIANTS
            .iter()
            .copied()
            .filter(|kernel| *kernel != base(kind))
            .collect(),
        Kind::Layer => vec![Kernel::Numpy],
    }
}

/// Names of the columns.
pub fn head(kind: Kind) -> String {
    let title = match kind {
        Kind::Attention => {
            "Attention, f32, 8 heads. How long flash takes, then how many times as long each peer takes."
        }
        Kind::Layer => {
            "The layer, f64, 8 heads. How long naive takes, then how many times as long NumPy takes."
        }
    };
    let names = ["threads", "d", "n", "mask", "pass", "ms", "GFLOP/s"].map(str::to_owned);
    format!("\n{title}\n{}", line(kind, &names, |kernel| kernel.to_string()))
}

/// A cell in one line.
pub fn row(MeasuredCell { cell, rounds, .. }: &MeasuredCell) -> String {
    let Cell { problem: Problem { kind, n, d, .. }, mask, pass, threads, .. } = cell;
    let seconds = rounds.seconds(base(*kind)).unwrap_or(f64::NAN);
    let words = [
        threads.to_string(),
        d.to_string(),
        n.to_string(),
        mask.to_string(),
        pass.to_string(),
        format!("{:.3}", 1e3 * seconds),
        format!("{:.1}", cell.flops() / seconds / 1e9),
    ];
    line(*kind, &words, |kernel| {
        let ratio = rounds.ratio(kernel, base(*kind));
        ratio.map_or("–".to_owned(), |(ratio, _)| format!("{ratio:.2}"))
    })
}

fn line(kind: Kind, words: &[String; 7], entry: impl Fn(Kernel) -> String) -> String {
    let [threads, d, n, mask, pass, ms, speed] = words;
    let mut line = format!("{threads:>7} {d:>4} {n:>4}  {mask:6}  {pass:16} {ms:>10}");
    if kind == Kind::Attention {
        let _ = write!(line, " {speed:>8}");
    }
    for kernel in columns(kind) {
        let _ =
            write!(line, "  {:>width$}", entry(kernel), width = kernel.to_string().len());
    }
    line
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
    let counted = cells.iter().filter(|MeasuredCell { cell, .. }| {
        cell.problem.kind == kind && cell.problem.n >= COUNTS_FROM
    });
    let ratios: Vec<_> = counted
        .filter_map(|MeasuredCell { cell, rounds, .. }| {
            Some((cell, rounds.ratio(kernel, base(kind))?.0))
        })
        .collect();
    let Some((worst, lowest)) = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return String::new();
    };
    let mean = |chosen: &dyn Fn(&Cell) -> bool| {
        let chosen = ratios.iter().filter(|(cell, _)| chosen(cell));
        let chosen: Vec<_> = chosen.map(|(_, ratio)| *ratio).collect();
        (geometric_mean(&chosen), chosen.len())
    };
    let not_slower = ratios.iter().filter(|(_, ratio)| *ratio >= 1.0).count();
    let (all, count) = mean(&|_| true);
    let mut text = format!(
        "\ntime({kernel}) / time({}), cells with n ≥ {COUNTS_FROM}: geometric mean {all:.2} of {count}, \
         at least 1 in {not_slower}, lowest {lowest:.2} at {worst}\n",
        base(kind)
    );
    if kernel != rival(kind) {
        return text;
    }
    let threads = ratios.iter().map(|(cell, _)| cell.threads).sorted().dedup();
    for (threads, &pass, &mask) in iproduct!(threads, Pass::VARIANTS, Mask::VARIANTS) {
        let group =
            |cell: &Cell| (cell.threads, cell.pass, cell.mask) == (threads, pass, mask);
        let (mean, count) = mean(&group);
        if count > 0 {
            let name = format!("{}, {pass}, {mask}", grid::threads(threads));
            let _ = writeln!(text, "  {name:36} {mean:6.2} of {count}");
        }
    }
    text
}

/// How far the peers are from the reference: the worst of all cells, for each of them.
pub fn checks(cells: &[MeasuredCell]) -> String {
    let mut text = String::from("Largest differences, as parts of the largest entry:");
    for (kind, kernel) in iproduct!([Kind::Attention, Kind::Layer], Kernel::VARIANTS) {
        let of_kind = cells.iter().filter(|measured| measured.cell.problem.kind == kind);
        let found: Vec<_> = of_kind
            .filter_map(|measured| {
                Some((&measured.cell, *measured.differences.get(kernel)?))
            })
            .collect();
        if let Some((cell, worst)) = found.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let count = found.len();
            let _ = write!(text, "\n{kernel:16} {worst:.1e} of {count} cells, at {cell}");
        }
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::grid::tests::cell;
    use record::rounds::Rounds;
    use std::collections::BTreeMap;

    pub fn measured(n: usize, mask: Mask, ours: &[f64], fused: &[f64]) -> MeasuredCell {
        let rounds =
            vec![(Kernel::Flash, ours.to_vec()), (Kernel::PytorchFused, fused.to_vec())];
        MeasuredCell {
            cell: cell(n, mask, Pass::Forward),
            differences: BTreeMap::from([(Kernel::Numpy, n as f64 * 1e-10)]),
            rounds: Rounds(rounds),
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
