//! The run: starts the peers, checks what they compute, and interleaves them.

use crate::arguments::Arguments;
use crate::check;
use crate::data;
use crate::grid::{BASE, Cell, RIVAL};
use crate::measured::{Measured, MeasuredCell};
use crate::programs::{Program, start};
use crate::question::{Kernel, Problem, Question, Task};
use anyhow::{Context, Result};
use record::statistics::median;
use recorder::rounds::{Rounds, interleave};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use worker::Process;

/// Measures all cells.
///
/// # Errors
/// A peer is not there, fails, or computes something else than the others.
pub fn run(arguments: &Arguments, cells: &[Cell]) -> Result<Measured> {
    // Beside this program, where the next run writes over what an interrupted one leaves.
    let folder = std::env::current_exe()?.with_file_name("exchange");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut measured = Measured { cells: vec![], versions: BTreeMap::new() };
    for by_threads in cells.chunk_by(|a, b| a.threads == b.threads) {
        let mut bench = Bench::start(arguments, by_threads, &folder)?;
        for peer in bench.peers.values() {
            measured.versions.extend(peer.versions.clone());
        }
        for cell in by_threads {
            let (off, seconds) = bench.check(cell)?;
            if arguments.check_only {
                println!("{cell}: off by at most {off:.1e} of the largest entry");
                continue;
            }
            let rounds = bench.measure(cell, &seconds, arguments.quick)?;
            let done = MeasuredCell { cell: cell.clone(), rounds };
            println!("{done}");
            measured.cells.push(done);
        }
    }
    fs::remove_dir_all(&folder)?;
    Ok(measured)
}

/// The peers with a number of threads, at one problem after the other.
struct Bench<'a> {
    peers: BTreeMap<Program, Process>,
    /// The problem that each has in memory.
    loaded: BTreeMap<Program, Problem>,
    /// The problem that lies in the folder.
    written: Option<Problem>,
    folder: &'a Path,
    threads: usize,
    /// Whose turn it was last.
    last: Option<Program>,
}

/// The time that a peer's threads spin when they have nothing left to do, and a bit. To make them
/// sleep at once would cost no time here, but it would cost them time in their own turns.
fn settles(program: Program, threads: usize) -> Duration {
    Duration::from_millis(match program {
        _ if threads == 1 => 1,
        Program::NumPy => 60,   // OpenBLAS
        Program::PyTorch => 15, // OpenMP
        Program::Ours => 2,
    })
}

impl<'a> Bench<'a> {
    fn start(arguments: &Arguments, cells: &[Cell], folder: &'a Path) -> Result<Self> {
        let threads = cells.first().context("there is nothing to measure")?.threads;
        let kernels = cells.iter().flat_map(|cell| cell.kernels);
        let programs: BTreeSet<_> = kernels.map(|kernel| Program::of(*kernel)).collect();
        let start = |program| Ok((program, start(program, threads, arguments)?));
        let peers = programs.into_iter().map(start).collect::<Result<_>>()?;
        let (loaded, written, last) = (BTreeMap::new(), None, None);
        Ok(Self { peers, loaded, written, folder, threads, last })
    }

    fn ask(&mut self, kernel: Kernel, question: &Question) -> Result<Vec<f64>> {
        let peer = self.peers.get_mut(&Program::of(kernel));
        peer.with_context(|| format!("{kernel} is not there"))?.ask(question)
    }

    /// Gives the problem to a peer that has another one.
    fn load(&mut self, problem: Problem, kernel: Kernel) -> Result<()> {
        let file = self.folder.join("problem");
        if self.written != Some(problem) {
            data::write(problem, &file)?;
            self.written = Some(problem);
        }
        if self.loaded.insert(Program::of(kernel), problem) != Some(problem) {
            self.ask(kernel, &Question::Load { problem, file })?;
        }
        Ok(())
    }

    /// Lets each peer compute once, and compares. Returns how far they are at most from what was expected, and how long each
    /// took.
    fn check(&mut self, cell: &Cell) -> Result<(f64, BTreeMap<Kernel, f64>)> {
        let (mut off, mut times) = (0.0_f64, BTreeMap::new());
        let file = self.folder.join("results");
        let mut expected = None;
        for &kernel in cell.kernels {
            self.load(cell.problem, kernel)?;
            let at = || format!("{kernel}, {cell}");
            let question =
                Question::Check { task: task(cell, kernel), file: file.clone() };
            let seconds = self.ask(kernel, &question).with_context(at)?;
            times.insert(kernel, median(&seconds));
            let results = check::read(cell, &file).with_context(at)?;
            if let Some(expected) = &expected {
                off = off.max(check::compare(cell, kernel, &results, expected)?);
            } else {
                // This crate, which comes first, is what the others are compared with.
                expected = Some(results);
            }
        }
        Ok((off, times))
    }

    /// Interleaves the peers, in rounds; the first time of each is known.
    fn measure(
        &mut self,
        cell: &Cell,
        first: &BTreeMap<Kernel, f64>,
        quick: bool,
    ) -> Result<Rounds<Kernel>> {
        let mut plans = vec![];
        for (&kernel, &first) in first {
            let twice =
                Question::Time { task: task(cell, kernel), warm: false, samples: 2 };
            // The first time of a fast one is mostly the time to get going.
            let is_fast = first < 2.0 * WARM_BELOW;
            let times = if is_fast { self.ask(kernel, &twice)? } else { vec![] };
            let seconds = times.into_iter().fold(first, f64::min);
            // The comparison is mainly about these two.
            let is_main = [BASE, RIVAL].contains(&kernel);
            plans.push((kernel, Plan::new(seconds, is_main, quick)));
        }
        let most = plans.iter().map(|(_, plan)| plan.rounds).max().unwrap_or_default();
        for (kernel, plan) in &mut plans {
            if *kernel == BASE {
                plan.rounds = most; // each of the others is compared with it
            }
        }
        interleave(
            plans,
            |plan| plan.rounds,
            |kernel, plan| {
                let Plan { warm, samples, .. } = *plan;
                let question = Question::Time { task: task(cell, kernel), warm, samples };
                self.turn(kernel, &question).map(Some)
            },
        )
    }

    /// One peer's turn, after the threads of the one before have gone to sleep.
    fn turn(&mut self, kernel: Kernel, question: &Question) -> Result<Vec<f64>> {
        let program = Program::of(kernel);
        if let Some(last) = self.last.replace(program) {
            sleep(settles(last, self.threads));
        }
        self.ask(kernel, question)
    }
}

fn task(cell: &Cell, kernel: Kernel) -> Task {
    Task { kernel, mask: cell.mask, pass: cell.pass }
}

/// The computations of a peer on a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// `true` if a turn begins with a computation that does not count.
    warm: bool,
    /// The computations of a turn that count.
    samples: usize,
    /// The number of turns.
    rounds: usize,
}

/// A computation longer than this, in seconds, does not gain by a warm-up.
const WARM_BELOW: f64 = 0.25;

/// A computation longer than this, in seconds, outlasts the noise.
const LONG: f64 = 2.0;

impl Plan {
    /// For a computation that takes about so many seconds: at least five turns, and more as long as all together take
    /// about a second and a half. Three are enough for what takes seconds, and for a slow one that is not what the comparison is
    /// about.
    fn new(seconds: f64, is_main: bool, quick: bool) -> Self {
        let warm = seconds < WARM_BELOW;
        let (turn, all, least, most) = match (quick, warm || is_main && seconds < LONG) {
            (true, _) => (0.01, 0.1, 3, 3),
            (false, true) => (0.06, 1.5, 5, 11),
            (false, false) => (0.06, 1.5, 3, 11),
        };
        let samples = ((turn / seconds) as usize).clamp(1, 40);
        let one_turn = seconds * (samples + usize::from(warm)) as f64;
        Self { warm, samples, rounds: ((all / one_turn) as usize).clamp(least, most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_repeat_within_a_turn_and_the_slow_take_five_turns() {
        assert_eq!(
            Plan::new(0.001, true, false),
            Plan { warm: true, samples: 40, rounds: 11 }
        );
        assert_eq!(
            Plan::new(0.05, true, false),
            Plan { warm: true, samples: 1, rounds: 11 }
        );
        assert_eq!(
            Plan::new(0.2, true, false),
            Plan { warm: true, samples: 1, rounds: 5 }
        );
        assert_eq!(
            Plan::new(12.0, true, false),
            Plan { warm: false, samples: 1, rounds: 3 }
        );
        assert_eq!(Plan::new(1.0, true, false).rounds, 5);
        assert_eq!(Plan::new(1.0, false, false).rounds, 3);
        assert_eq!(Plan::new(0.2, false, false).rounds, 5);
        assert_eq!(Plan::new(0.2, true, true).rounds, 3);
    }
}
