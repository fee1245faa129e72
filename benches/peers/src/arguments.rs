//! The command line.

use crate::grid::{Cell, base, kernels};
use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};
use itertools::{Itertools, iproduct};
use std::path::PathBuf;
use worker::{Kernel, Kind, Mask, Pass, Problem, VariantArray};

pub const HEADS: usize = 8;

/// Times the crate's attention beside PyTorch, NumPy and candle: same data, same threads, in turns
#[derive(Debug, Parser)]
#[command(
    name = "peers",
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  cargo xtask bench --peers --n 512,2048 --d 64 --threads 1 --pass forward"
)]
pub struct Arguments {
    /// A small grid, measured in a hurry and badly
    #[arg(long)]
    pub quick: bool,
    /// Compare the peers' outputs and gradients, and time nothing
    #[arg(long)]
    pub check_only: bool,
    /// Hold this crate, PyTorch and NumPy to AVX2 on a processor that has AVX-512: two lengths, beside PyTorch's fused kernel,
    /// if nothing else is asked for
    #[arg(long)]
    pub avx2: bool,
    /// Tell which cells would be measured, and measure nothing
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    selection: Selection,
    /// The Python that has what requirements.txt asks for
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    /// The program candle-peer; if it is not named, the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    pub candle: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The parts of the grid that are to be measured; all of what is not named.
#[derive(Debug, Default, PartialEq, Args)]
struct Selection {
    /// attention (in f32), layer (in f64)
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = named::<Kind>)]
    kind: Vec<Kind>,
    /// Numbers of tokens
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = positive)]
    n: Vec<usize>,
    /// Widths of a head
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = positive)]
    d: Vec<usize>,
    /// Numbers of threads
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = positive)]
    threads: Vec<usize>,
    /// full, causal
    #[arg(long, value_name = "MASKS", value_delimiter = ',', value_parser = named::<Mask>)]
    mask: Vec<Mask>,
    /// forward, forward+backward
    #[arg(long, value_name = "PASSES", value_delimiter = ',', value_parser = named::<Pass>)]
    pass: Vec<Pass>,
    /// Peers to compare with: pytorch-fused, pytorch-written, numpy, candle-flash, candle-written, naive
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = named::<Kernel>)]
    peers: Vec<Kernel>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// This crate as a peer
    #[command(hide = true)]
    Worker {
        threads: usize,
        #[arg(long)]
        avx2: bool,
    },
}

/// Something by the name that it has in records.
fn named<T: for<'de> serde::Deserialize<'de>>(name: &str) -> Result<T, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it must be a whole number above 0".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// Returns the values that were asked for, or else the default ones.
fn chosen<T: Copy + Ord>(chosen: &[T], default: &[T]) -> Vec<T> {
    let values = if chosen.is_empty() { default } else { chosen };
    values.iter().copied().sorted().dedup().collect()
}

impl Arguments {
    /// The cells of the grid, in the order in which they are measured: peers are restarted when the number of threads
    /// changes, and given new numbers when the problem changes.
    ///
    /// # Errors
    /// A problem is too large, or nothing is left to measure.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let Selection { threads, mask, pass, .. } = &self.selection;
        let threads = chosen(threads, if self.quick { &[1] } else { &[1, 2] });
        let problems = self.problems();
        problems.iter().try_for_each(Problem::check)?;
        let (masks, passes) =
            (chosen(mask, Mask::VARIANTS), chosen(pass, Pass::VARIANTS));
        let cell = |(threads, problem, mask, pass)| {
            let kernels = self.kernels(problem, pass);
            Cell { problem, mask, pass, threads, kernels }
        };
        let all = iproduct!(threads, problems, masks, passes).map(cell);
        let cells: Vec<_> = all.filter(|cell| cell.kernels.len() > 1).collect();
        ensure!(!cells.is_empty(), "no peer takes part in any of these cells");
        Ok(cells)
    }

    fn problems(&self) -> Vec<Problem> {
        let Selection { kind, n, d, .. } = &self.selection;
        let mut problems = vec![];
        for kind in chosen(kind, &[Kind::Attention, Kind::Layer]) {
            let lengths: &[usize] = match (kind, self.quick) {
                (Kind::Attention, false) if self.avx2 => &[512, 2048],
                (Kind::Attention, false) => &[256, 512, 1024, 2048, 4096, 8192],
                (Kind::Attention, true) => &[256, 1024],
                (Kind::Layer, false) => &[256, 512, 1024],
                (Kind::Layer, true) => &[256],
            };
            let widths = chosen(d, if self.quick { &[64] } else { &[64, 128] });
            problems.extend(
                iproduct!(widths, chosen(n, lengths)).map(|(d, n)| Problem {
                    kind,
                    n,
                    heads: HEADS,
                    d,
                }),
            );
        }
        problems
    }

    /// Returns the kernels that can take part and are wanted.
    fn kernels(&self, problem: Problem, pass: Pass) -> Vec<Kernel> {
        let by_default: &[Kernel] =
            if self.avx2 { &[Kernel::PytorchFused] } else { Kernel::VARIANTS };
        let peers = chosen(&self.selection.peers, by_default);
        let mut kernels = kernels(problem, pass);
        kernels.retain(|kernel| *kernel == base(problem.kind) || peers.contains(kernel));
        kernels
    }

    /// The record that the measurements belong to.
    pub fn topic(&self) -> &'static str {
        if self.avx2 { "peers-avx2" } else { "peers" }
    }

    /// Returns `true` if all of the grid is measured, and well.
    pub fn is_complete(&self) -> bool {
        let Self { quick, check_only, selection, .. } = self;
        !quick && !check_only && *selection == Selection::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Arguments {
        Arguments::try_parse_from(["peers"].into_iter().chain(line.split_whitespace()))
            .unwrap()
    }

    #[track_caller]
    fn refused(line: &str, says: &str) {
        let words = ["peers"].into_iter().chain(line.split_whitespace());
        let message = Arguments::try_parse_from(words).unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_whole_grid_is_there_by_default() {
        let arguments = parse("");
        let cells = arguments.cells().unwrap();
        assert_eq!(cells.len(), 2 * 2 * (6 + 3) * 2 * 2); // threads, d, n, masks, passes
        assert!(arguments.is_complete());
        assert!(cells.is_sorted_by_key(|cell| cell.threads));
    }

    #[test]
    fn held_to_avx2_there_is_a_smaller_grid_and_another_record() {
        let arguments = parse("--avx2");
        let cells = arguments.cells().unwrap();
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 2); // threads, d, n, masks, passes
        let kernels = [Kernel::Flash, Kernel::PytorchFused];
        assert!(cells.iter().all(|cell| cell.kernels == kernels));
        assert!(arguments.is_complete());
        assert_eq!([arguments.topic(), parse("").topic()], ["peers-avx2", "peers"]);
    }

    #[test]
    fn cells_can_be_selected() {
        let line = "--kind attention --n 2048,512 --d 64 --threads 1 --pass forward --mask causal --peers numpy";
        let arguments = parse(line);
        let cells = arguments.cells().unwrap();
        assert_eq!(
            cells.iter().map(|cell| cell.problem.n).collect::<Vec<_>>(),
            [512, 2048]
        );
        assert!(cells.iter().all(|cell| cell.kernels == [Kernel::Flash, Kernel::Numpy]));
        assert!(
            cells
                .iter()
                .all(|cell| (cell.mask, cell.pass) == (Mask::Causal, Pass::Forward))
        );
        assert!(!arguments.is_complete() && !parse("--quick").is_complete());
        assert!(!parse("--check-only").is_complete());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        refused("--n 0", "it must be a whole number above 0");
        refused("--threads two", "it must be a whole number above 0");
        refused("--mask window", "unknown variant `window`, expected `full` or `causal`");
        refused("--pass backward", "expected `forward` or `forward+backward`");
        refused("--peers jax", "expected one of `flash`, `pytorch-fused`");
        assert!(parse("--kind layer --n 4096").cells().is_err()); // would take tens of gigabytes
        let error = parse("--n 8192 --peers numpy").cells().unwrap_err().to_string();
        assert_eq!(error, "no peer takes part in any of these cells");
    }
}
