//! The run: starts the peers, checks what they compute, and lets them take turns.

use crate::arguments::Arguments;
use crate::data;
use crate::grid::{Cell, base, rival};
use crate::measured::{Measured, MeasuredCell};
use crate::process::{Program, start};
use crate::reference::{self, References};
use crate::table;
use anyhow::{Context, Result};
use record::statistics::median;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
use tempfile::TempDir;
use worker::{Kernel, Problem, Process, Question, Task};

/// Beyond this, what goes on beside the peer at work is worth a warning: as a part of one core.
const DISTURBING: f64 = 0.05;

/// Measures all cells.
///
/// # Errors
/// A peer is not there, fails, or computes something else than the others.
pub fn run(arguments: &Arguments, cells: &[Cell]) -> Result<Measured> {
    let folder = tempfile::Builder::new().prefix("peers-").tempdir()?;
    leave_nothing_behind(&folder)?;
    let mut measured =
        Measured { cells: vec![], versions: BTreeMap::new(), warnings: vec![] };
    measured.warnings.extend(disturbance());
    let mut references = References::default();
    let mut idle = Idle::default();
    for by_threads in cells.chunk_by(|a, b| a.threads == b.threads) {
        let mut bench = Bench::start(arguments, by_threads, folder.path())?;
        measured.versions.extend(bench.versions());
        let mut head = None;
        for cell in by_threads {
            let Checked { differences, seconds } = bench.check(cell, &mut references)?;
            let rounds = if arguments.check_only {
                BTreeMap::new()
            } else {
                bench.measure(cell, &seconds, arguments.quick, &mut idle)?
            };
            let done = MeasuredCell { cell: cell.clone(), differences, rounds };
            if !arguments.check_only {
                if head.replace(cell.problem.kind) != Some(cell.problem.kind) {
                    println!("{}", table::head(cell.problem.kind));
                }
                println!("{}", table::row(&done));
            }
            measured.cells.push(done);
        }
    }
    measured.warnings.extend(idle.warning());
    Ok(measured)
}

/// On Ctrl-C the temporary folder goes, and the program with it; the peers follow when nobody asks any more.
fn leave_nothing_behind(folder: &TempDir) -> Result<()> {
    let folder = folder.path().to_owned();
    ctrlc::set_handler(move || {
        let _ = std::fs::remove_dir_all(&folder);
        eprintln!("interrupted; no record was written");
        std::process::exit(130);
    })
    .context("Ctrl-C cannot be caught")
}

/// Whether the machine is at work on something else before anything begins.
fn disturbance() -> Option<String> {
    let mut system = System::new();
    system.refresh_cpu_usage();
    sleep(Duration::from_millis(500));
    system.refresh_cpu_usage();
    let cores = system.cpus().len() as f64;
    let busy = f64::from(system.global_cpu_usage()) / 100.0 * cores;
    (busy > DISTURBING * cores).then(|| {
        format!("something else was at work when this began: {busy:.1} of {cores} cores were busy")
    })
}

/// The peers with a number of threads, at one problem after the other.
struct Bench<'a> {
    peers: BTreeMap<Program, Process>,
    /// What each has in memory.
    loaded: BTreeMap<Program, Problem>,
    /// What lies in the folder.
    written: Option<Problem>,
    folder: &'a Path,
    threads: usize,
    /// Whose turn it was last.
    last: Option<Program>,
}

/// What came of computing once.
#[derive(Default)]
struct Checked {
    /// How far each peer is from what was expected.
    differences: BTreeMap<Kernel, f64>,
    /// How long it took.
    seconds: BTreeMap<Kernel, f64>,
}

/// How long a peer's threads go on turning in circles when they have nothing to do any more, and a bit. To make them
/// sleep at once would cost no time here, but it would cost them time in their own turns.
fn settles(program: Program, threads: usize) -> Duration {
    Duration::from_millis(match program {
        _ if threads == 1 => 1,
        Program::NumPy => 60,   // OpenBLAS
        Program::PyTorch => 15, // OpenMP
        Program::Ours | Program::Candle => 2,
    })
}

impl<'a> Bench<'a> {
    fn start(arguments: &Arguments, cells: &[Cell], folder: &'a Path) -> Result<Self> {
        let threads = cells.first().context("there is nothing to measure")?.threads;
        let kernels = cells.iter().flat_map(|cell| &cell.kernels);
        let programs: BTreeSet<_> = kernels.map(|kernel| Program::of(*kernel)).collect();
        let start = |program| Ok((program, start(program, threads, arguments)?));
        let peers = programs.into_iter().map(start).collect::<Result<_>>()?;
        Ok(Self {
            peers,
            loaded: BTreeMap::new(),
            written: None,
            folder,
            threads,
            last: None,
        })
    }

    fn versions(&self) -> BTreeMap<String, String> {
        self.peers.values().flat_map(|peer| peer.versions.clone()).collect()
    }

    fn peer(&mut self, kernel: Kernel) -> Result<&mut Process> {
        self.peers
            .get_mut(&Program::of(kernel))
            .with_context(|| format!("{} is not there", kernel.name()))
    }

    /// Gives the problem to a peer that has another one.
    fn load(&mut self, problem: Problem, kernel: Kernel) -> Result<()> {
        let file = self.folder.join("problem");
        if self.written != Some(problem) {
            data::write(problem, &file)?;
            self.written = Some(problem);
        }
        if self.loaded.insert(Program::of(kernel), problem) != Some(problem) {
            self.peer(kernel)?.ask(&Question::Load { problem, file })?;
        }
        Ok(())
    }

    /// Lets each peer compute once, and compares.
    fn check(&mut self, cell: &Cell, references: &mut References) -> Result<Checked> {
        let (problem, pass) = (cell.problem, cell.pass);
        let file = self.folder.join("results");
        let mut expected = references.of(cell)?.cloned();
        let mut checked = Checked::default();
        for &kernel in &cell.kernels {
            self.load(problem, kernel)?;
            let task = task(cell, kernel);
            let at = || format!("{}, {}", kernel.name(), cell.name());
            let question = Question::Check { task, file: file.clone() };
            let seconds = self.peer(kernel)?.ask(&question).with_context(at)?;
            checked.seconds.insert(kernel, median(&seconds));
            let results = reference::read(problem, pass, &file).with_context(at)?;
            match &expected {
                Some(expected) => {
                    let difference =
                        reference::compare(cell, kernel, &results, expected)?;
                    checked.differences.insert(kernel, difference);
                }
                // Without a reference, this crate, which comes first, is what the others are compared with.
                None => expected = Some(results),
            }
        }
        Ok(checked)
    }

    /// Lets the peers take turns, in rounds, and returns the time of each round.
    fn measure(
        &mut self,
        cell: &Cell,
        first: &BTreeMap<Kernel, f64>,
        quick: bool,
        idle: &mut Idle,
    ) -> Result<BTreeMap<Kernel, Vec<f64>>> {
        let mut plans = HashMap::new();
        for (&kernel, &first) in first {
            let twice =
                Question::Time { task: task(cell, kernel), warm: false, samples: 2 };
            // The first time of a fast one is mostly the time to get going.
            let is_fast = first < 2.0 * WARM_BELOW;
            let times = if is_fast { self.peer(kernel)?.ask(&twice)? } else { vec![] };
            let seconds = times.into_iter().fold(first, f64::min);
            plans.insert(kernel, Plan::new(seconds, is_protagonist(kernel, cell), quick));
        }
        let rounds = plans.values().map(|plan| plan.rounds).max().unwrap_or_default();
        let ours = base(cell.problem.kind);
        let mut times: BTreeMap<Kernel, Vec<f64>> = BTreeMap::new();
        for round in 0..rounds {
            let mut turns = cell.kernels.clone();
            turns.rotate_left(round % cell.kernels.len()); // nobody is always first after somebody else
            for kernel in turns {
                let Plan { warm, samples, rounds } = plans[&kernel];
                if round < rounds || kernel == ours {
                    let question =
                        Question::Time { task: task(cell, kernel), warm, samples };
                    let seconds = self.turn(kernel, &question, idle)?;
                    times.entry(kernel).or_default().push(median(&seconds));
                }
            }
        }
        Ok(times)
    }

    /// One peer's turn, after the threads of the one before have gone to sleep.
    fn turn(
        &mut self,
        kernel: Kernel,
        question: &Question,
        idle: &mut Idle,
    ) -> Result<Vec<f64>> {
        sleep(
            self.last
                .replace(Program::of(kernel))
                .map_or(Duration::ZERO, |last| settles(last, self.threads)),
        );
        let others =
            self.peers.iter().filter(|(program, _)| **program != Program::of(kernel));
        let others: Vec<_> = others
            .map(|(program, process)| (*program, Pid::from_u32(process.id())))
            .collect();
        let (before, begun) = (idle.cpu(&others), Instant::now());
        let seconds = self.peer(kernel)?.ask(question)?;
        let (after, wall) = (idle.cpu(&others), begun.elapsed().as_secs_f64());
        idle.wall += wall;
        for (((program, _), after), before) in others.iter().zip(after).zip(before) {
            *idle.spent.entry(*program).or_default() += after - before;
        }
        Ok(seconds)
    }
}

/// Whether it is this crate, or the one that this crate wants to outrun.
fn is_protagonist(kernel: Kernel, cell: &Cell) -> bool {
    [base(cell.problem.kind), rival(cell.problem.kind)].contains(&kernel)
}

fn task(cell: &Cell, kernel: Kernel) -> Task {
    Task { kernel, mask: cell.mask, pass: cell.pass }
}

/// How a peer's time is spent on a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Whether a turn begins with a computation that does not count.
    warm: bool,
    /// How many computations of a turn count.
    samples: usize,
    /// How many turns there are.
    rounds: usize,
}

/// Who computes longer than this, in seconds, does not gain by a warm-up.
const WARM_BELOW: f64 = 0.25;

/// Who computes longer than this, in seconds, outlasts the noise by itself.
const LONG: f64 = 2.0;

impl Plan {
    /// For a computation that takes about so many seconds: at least five turns, and more as long as all together take
    /// about a second and a half. Three are enough for what takes seconds, and for a slow one that is not what the comparison is
    /// about.
    fn new(seconds: f64, protagonist: bool, quick: bool) -> Self {
        let warm = seconds < WARM_BELOW;
        let (turn, all, least, most) =
            match (quick, warm || protagonist && seconds < LONG) {
                (true, _) => (0.01, 0.1, 3, 3),
                (false, true) => (0.06, 1.5, 5, 11),
                (false, false) => (0.06, 1.5, 3, 11),
            };
        let samples = ((turn / seconds) as usize).clamp(1, 40);
        let one_turn = seconds * (samples + usize::from(warm)) as f64;
        Self { warm, samples, rounds: ((all / one_turn) as usize).clamp(least, most) }
    }
}

/// How much the peers compute while it is not their turn.
#[derive(Default)]
struct Idle {
    system: System,
    /// Seconds of processors, by peer.
    spent: BTreeMap<Program, f64>,
    /// Seconds of turns.
    wall: f64,
}

impl Idle {
    /// How many seconds of processors each of these processes has used.
    fn cpu(&mut self, processes: &[(Program, Pid)]) -> Vec<f64> {
        let ids: Vec<_> = processes.iter().map(|(_, id)| *id).collect();
        let what = ProcessRefreshKind::nothing().with_cpu().without_tasks();
        self.system.refresh_processes_specifics(
            ProcessesToUpdate::Some(&ids),
            false,
            what,
        );
        let milliseconds =
            |id: &Pid| self.system.process(*id).map_or(0, |p| p.accumulated_cpu_time());
        ids.iter().map(|id| milliseconds(id) as f64 / 1000.0).collect()
    }

    fn warning(&self) -> Option<String> {
        let percent = |seconds: f64| 100.0 * seconds / self.wall;
        let all: f64 = self.spent.values().sum();
        let part = |(program, seconds): (&Program, &f64)| {
            format!("{} on {:.1} % of a core", program.name(), percent(*seconds))
        };
        let parts: Vec<_> = self.spent.iter().map(part).collect();
        (percent(all) > 100.0 * DISTURBING).then(|| {
            format!("peers were at work when it was not their turn: {}", parts.join(", "))
        })
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

    #[test]
    fn who_works_out_of_turn_is_found_out() {
        let mut idle = Idle { wall: 100.0, ..Idle::default() };
        idle.spent.extend([(Program::PyTorch, 0.2), (Program::NumPy, 0.0)]);
        assert_eq!(idle.warning(), None);
        idle.spent.insert(Program::PyTorch, 20.0);
        let warning = idle.warning().unwrap();
        assert!(
            warning.contains("PyTorch on 20.0 % of a core, NumPy on 0.0 %"),
            "{warning}"
        );
    }

    /// This process has used some processor time by now, and uses more in a loop.
    #[test]
    fn processor_time_is_counted() {
        let mut idle = Idle::default();
        let own = [(Program::Ours, Pid::from_u32(std::process::id()))];
        let before = idle.cpu(&own)[0];
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let spent = idle.cpu(&own)[0] - before;
        assert!(spent >= 0.03, "{spent}");
    }
}
