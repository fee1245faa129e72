//! The run: checks what the kernels compute, and interleaves them with PyTorch's.

use crate::arguments::TimeOptions;
use crate::device::{Device, OwnKernels, Timed};
use crate::grid::{Backend, Cell, Contestant, cells};
use crate::measured::{Measured, MeasuredCell, Roofs};
use crate::report::{measurements, of_times};
use crate::state::{Blind, Sampler, State, Watch};
use crate::torch::{Torch, script};
use anyhow::{Context, Result};
use attention::cuda::{Function, Program};
use recorder::rounds::{Rounds, interleave};
use recorder::write_file;
use std::time::{Duration, Instant};

/// The time that it should take, in seconds.
fn limit(quick: bool) -> f64 {
    if quick { 50.0 } else { 300.0 }
}

/// Measures all cells, and writes the record after each of them.
///
/// # Errors
/// There is no GPU, a kernel computes something else than it should, or the record cannot be written.
pub fn time(options: &TimeOptions) -> Result<()> {
    let begun = Instant::now();
    let cells = cells(options)?;
    let mut ours = OwnKernels::open()?;
    println!("{}", ours.gpu.device().name);
    let mut torch = start_torch(options);
    // Asked for before anything is measured: an error here must not cost the measurements.
    let mut record = of_times(ours.gpu.device(), torch.as_ref())?;
    let end = begun + Duration::from_secs_f64(limit(options.quick));
    // A run that is cut off has the record of what was measured until then.
    let keep = |measured: &Measured| {
        record.measurements = measurements(measured);
        record.check()?;
        options.record.as_ref().map_or(Ok(()), |file| write_file(file, &record))
    };
    let watch = watch(&ours);
    run(&cells, &mut ours, torch.as_mut(), &*watch, end, keep)?;
    println!("{:.1} minutes", begun.elapsed().as_secs_f64() / 60.0);
    Ok(())
}

/// NVML, or a warning.
fn watch(ours: &OwnKernels) -> Box<dyn Watch> {
    match Sampler::start(&ours.gpu) {
        Ok(sampler) => Box::new(sampler),
        Err(error) => {
            eprintln!("WARNING: neither clock nor power is recorded: {error:#}");
            Box::new(Blind)
        }
    }
}

/// PyTorch, or nothing and a warning.
fn start_torch(options: &TimeOptions) -> Option<Torch> {
    match script().and_then(|script| Torch::start(&options.python, &script)) {
        Ok(torch) => Some(torch),
        Err(error) => {
            eprintln!(
                "WARNING: nothing is compared with PyTorch, and no roof of arithmetic is known: {error:#}"
            );
            None
        }
    }
}

/// Measures all cells, the last one to be done by `end` if that can be. After each of them, `keep` gets what there is.
///
/// # Errors
/// A kernel computes something else than it should, or fails, or `keep` does.
pub fn run(
    cells: &[Cell],
    ours: &mut dyn Device,
    mut torch: Option<&mut Torch>,
    watch: &dyn Watch,
    end: Instant,
    mut keep: impl FnMut(&Measured) -> Result<()>,
) -> Result<Measured> {
    let begun = Instant::now();
    let copy = ours.copy_bandwidth().context("the copy from the device to itself")?;
    let mut measured =
        Measured { roofs: Roofs { copy, products: vec![] }, cells: vec![] };
    for dtype in ["bf16", "f32"] {
        match torch.as_mut().map(|torch| torch.product(dtype, 20)) {
            Some(Ok(seconds)) => measured.roofs.products.push((dtype, seconds)),
            Some(Err(reason)) => eprintln!("absent: the product in {dtype}: {reason}"),
            None => {}
        }
    }
    println!("{}", measured.roofs);
    for (i, cell) in cells.iter().enumerate() {
        let left: usize = cells[i..].iter().map(|cell| cell.contestants.len()).sum();
        let share = share(end.saturating_duration_since(Instant::now()), left);
        let (rounds, states, parts) =
            turns(cell, ours, torch.as_deref_mut(), watch, share)?;
        let done = MeasuredCell { cell: cell.clone(), rounds, states, parts };
        let seconds = begun.elapsed().as_secs_f64();
        let (number, count, line) = (i + 1, cells.len(), done.line(&measured.roofs));
        println!("[{number:>2}/{count}, {seconds:>3.0} s] {line}");
        measured.cells.push(done);
        keep(&measured)?;
    }
    Ok(measured)
}

/// The seconds of launches that each contestant of a cell may have, if that many are still to come. The other half is for
/// checks and for copies to the device.
fn share(left: Duration, contestants: usize) -> f64 {
    (0.5 * left.as_secs_f64() / contestants.max(1) as f64).clamp(0.02, 1.0)
}

/// The kernel of a turn.
enum Runner {
    Ours(Program, Timed),
    Torch(Backend),
}

impl Runner {
    /// The seconds of each launch; nothing, after saying why, if PyTorch refuses.
    fn time(
        &mut self,
        torch: Option<&mut Torch>,
        cell: &Cell,
        warm_up: usize,
        launches: usize,
    ) -> Result<Option<Vec<f64>>> {
        let backend = match self {
            Self::Torch(backend) => *backend,
            Self::Ours(program, kernel) => {
                let seconds = kernel(None, warm_up, launches);
                return seconds.map(Some).with_context(|| at(*program, cell));
            }
        };
        let seconds = match torch {
            Some(torch) => torch.attention(backend, cell, warm_up, launches),
            None => Err("there is no PyTorch".to_owned()),
        };
        let absent =
            |reason: &String| say_absent(Contestant::Torch(backend), cell, reason);
        Ok(seconds.inspect_err(absent).ok())
    }

    /// The seconds of each function alone, if it is one of several: in the launches of one round.
    fn parts(&mut self, cell: &Cell, plan: Plan) -> Result<Parts> {
        let Self::Ours(program, kernel) = self else { return Ok(vec![]) };
        let functions = program.source().functions;
        if functions.len() < 2 {
            return Ok(vec![]);
        }
        let time = |function: &Function| {
            let seconds = kernel(Some(function.0), plan.warm_up, plan.launches);
            Ok((function.0, seconds.with_context(|| at(*program, cell))?))
        };
        functions.iter().map(time).collect()
    }
}

/// Functions, and the seconds of each launch of them.
pub type Parts = Vec<(&'static str, Vec<f64>)>;

fn at(program: Program, cell: &Cell) -> String {
    format!("{program}, {cell}")
}

fn say_absent(contestant: Contestant, cell: &Cell, reason: &str) {
    eprintln!("absent: {contestant}, {cell}: {reason}");
}

/// The times of a cell, the device's median state in the turns of each contestant, and the times of the functions of each.
type Turns = (Rounds<Contestant>, Vec<(Contestant, State)>, Vec<(Contestant, Parts)>);

/// Interleaves the contestants, in rounds. One that refuses once is not asked again.
fn turns(
    cell: &Cell,
    ours: &mut dyn Device,
    mut torch: Option<&mut Torch>,
    watch: &dyn Watch,
    share: f64,
) -> Result<Turns> {
    let (mut ready, mut parts) = (vec![], vec![]);
    for &contestant in &cell.contestants {
        let mut runner = match contestant {
            Contestant::Torch(backend) => Runner::Torch(backend),
            Contestant::Ours(program) => {
                match ours.prepare(program, cell).with_context(|| at(program, cell))? {
                    Ok(kernel) => Runner::Ours(program, kernel),
                    Err(reason) => {
                        say_absent(contestant, cell, &reason);
                        continue;
                    }
                }
            }
        };
        // Ours ran when they were checked; PyTorch's first time is mostly the time to get going.
        let warm_up = usize::from(!contestant.is_ours());
        if let Some(first) = runner.time(torch.as_deref_mut(), cell, warm_up, 1)? {
            let seconds = first.into_iter().fold(f64::INFINITY, f64::min);
            let plan = Plan::new(seconds, share);
            parts.push((contestant, runner.parts(cell, plan)?));
            ready.push((contestant, (runner, plan)));
        }
    }
    let mut states: Vec<(Contestant, Vec<State>)> = vec![];
    let rounds = interleave(
        ready,
        |(_, plan)| plan.rounds,
        |contestant, (runner, plan)| {
            let begin = Instant::now();
            let torch = torch.as_deref_mut();
            let seconds = runner.time(torch, cell, plan.warm_up, plan.launches);
            let found = watch.between(begin, Instant::now());
            match states.iter_mut().find(|(known, _)| *known == contestant) {
                Some((_, all)) => all.extend(found),
                None => states.push((contestant, found)),
            }
            seconds
        },
    )?;
    let of_all = states.into_iter().filter_map(|(contestant, all)| {
        State::median_of(&all).map(|state| (contestant, state))
    });
    let states = of_all.filter(|(one, _)| rounds.seconds(*one).is_some()).collect();
    Ok((rounds, states, parts))
}

/// The launches of one contestant on a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Launches of a turn that do not count.
    warm_up: usize,
    /// Launches of a turn that count.
    launches: usize,
    rounds: usize,
}

impl Plan {
    /// A launch that takes longer, in seconds, outlasts the noise.
    const LONG: f64 = 0.25;

    /// For a launch that takes so many seconds, with so many seconds for all of them. Ten launches a round are the least
    /// for what is short enough that they fit.
    fn new(seconds: f64, share: f64) -> Self {
        let rounds = if seconds > Self::LONG { 3 } else { 5 };
        let fitting = (share / rounds as f64 / seconds) as usize;
        let least = if seconds < 0.004 { 10 } else { 1 };
        let warm_up = match seconds {
            ..=0.01 => 3,
            ..=Self::LONG => 1,
            _ => 0,
        };
        Self { warm_up, launches: fitting.clamp(least, 100), rounds }
    }
}

#[cfg(test)]
pub mod tests;
