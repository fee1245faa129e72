//! The run: checks what the kernels compute, and lets them take turns with PyTorch's.

use crate::arguments::TimeOptions;
use crate::grid::{Cell, Contestant, cells};
use crate::measured::{Measured, MeasuredCell, Roofs};
use crate::ours::{Device, Entry, Ours, Timed};
use crate::report::Report;
use crate::table;
use crate::torch::{Torch, script};
use anyhow::{Context, Result};
use record::statistics::median;
use std::time::{Duration, Instant};

/// Cells between two looks at what there is, for a run that is cut off.
const CELLS_BETWEEN: usize = 4;

/// How long it should take, in seconds.
fn limit(quick: bool) -> f64 {
    if quick { 50.0 } else { 300.0 }
}

/// Measures all cells, and writes the record.
///
/// # Errors
/// There is no GPU, a kernel computes something else than it should, or the record cannot be written.
pub fn time(options: &TimeOptions) -> Result<()> {
    let begun = Instant::now();
    let cells = cells(options)?;
    let mut ours = Ours::open()?;
    println!("{}", ours.gpu.device().name);
    let mut torch = start_torch(options);
    let report =
        Report::of_times(options.record.as_deref(), ours.gpu.device(), torch.as_ref())?;
    let end = begun + Duration::from_secs_f64(limit(options.quick));
    let measured = run(&cells, &mut ours, torch.as_mut(), end, &report)?;
    println!("{}", table::tables(&measured));
    report.finish(&measured)?;
    println!("{:.1} minutes", begun.elapsed().as_secs_f64() / 60.0);
    Ok(())
}

/// PyTorch, or loudly nothing.
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

/// Measures all cells, the last one to be done by `end` if that can be.
///
/// # Errors
/// A kernel computes something else than it should, or fails.
pub fn run(
    cells: &[Cell],
    ours: &mut dyn Device,
    torch: Option<&mut Torch>,
    end: Instant,
    report: &Report,
) -> Result<Measured> {
    let measured = measure(cells, ours, torch, end, report);
    measured.inspect_err(|error| report.withdraw(error))
}

fn measure(
    cells: &[Cell],
    ours: &mut dyn Device,
    mut torch: Option<&mut Torch>,
    end: Instant,
    report: &Report,
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
    println!("{}", table::roofs(&measured.roofs));
    for (i, cell) in cells.iter().enumerate() {
        let left: usize = cells[i..].iter().map(|cell| cell.contestants.len()).sum();
        let share = share(end.saturating_duration_since(Instant::now()), left);
        let rounds = turns(cell, ours, torch.as_deref_mut(), share)?;
        let done = MeasuredCell { cell: cell.clone(), rounds };
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "[{:>2}/{}, {seconds:>3.0} s] {}",
            i + 1,
            cells.len(),
            table::line(&done)
        );
        measured.cells.push(done);
        if measured.cells.len().is_multiple_of(CELLS_BETWEEN) {
            report.keep(&measured)?;
        }
    }
    Ok(measured)
}

/// How many seconds of launches each contestant of a cell may have, if that many are still to come. The other half is for
/// checks and for copies to the device.
fn share(left: Duration, contestants: usize) -> f64 {
    (0.5 * left.as_secs_f64() / contestants.max(1) as f64).clamp(0.02, 1.0)
}

/// Who is ready for turns.
enum Ready {
    Ours(Box<dyn Timed>),
    Torch,
}

/// Lets the contestants take turns, in rounds, and returns the times of their rounds.
fn turns(
    cell: &Cell,
    ours: &mut dyn Device,
    mut torch: Option<&mut Torch>,
    share: f64,
) -> Result<Vec<(Contestant, Vec<f64>)>> {
    let mut take = |contestant, ready: &mut Ready, warm_up, launches| {
        let seconds = match (contestant, ready) {
            (Contestant::Torch(backend), _) => match torch.as_mut() {
                Some(torch) => torch.attention(backend, cell, warm_up, launches),
                None => Err("there is no PyTorch".to_owned()),
            },
            (Contestant::Ours(program), Ready::Ours(kernel)) => Ok(kernel
                .time(warm_up, launches)
                .with_context(|| format!("{program}, {}", cell.name()))?),
            (Contestant::Ours(_), Ready::Torch) => Err("it is not ready".to_owned()),
        };
        Ok::<_, anyhow::Error>(seconds)
    };
    let is_absent = |contestant: Contestant, reason: &str| {
        eprintln!("absent: {}, {}: {reason}", contestant.name(), cell.name());
    };
    let mut entries = vec![];
    for &contestant in &cell.contestants {
        let mut ready = match contestant {
            Contestant::Torch(_) => Ready::Torch,
            Contestant::Ours(program) => {
                let at = || format!("{program}, {}", cell.name());
                match ours.prepare(program, cell).with_context(at)? {
                    Entry::Ready(kernel) => Ready::Ours(kernel),
                    Entry::Absent(reason) => {
                        is_absent(contestant, &reason);
                        continue;
                    }
                }
            }
        };
        // Ours ran when they were checked; PyTorch's first time is mostly the time to get going.
        let warm_up = usize::from(!contestant.is_ours());
        match take(contestant, &mut ready, warm_up, 1)? {
            Ok(first) => {
                let seconds = first.into_iter().fold(f64::INFINITY, f64::min);
                entries.push((contestant, ready, Plan::new(seconds, share), vec![]));
            }
            Err(reason) => is_absent(contestant, &reason),
        }
    }
    for round in 0..Plan::MOST_ROUNDS {
        let count = entries.len();
        for turn in 0..count {
            // Nobody always follows the same one.
            let (contestant, ready, plan, rounds) = &mut entries[(round + turn) % count];
            // Who refused once is not asked again.
            if round < plan.rounds && rounds.len() == round {
                match take(*contestant, ready, plan.warm_up, plan.launches)? {
                    Ok(seconds) => rounds.push(median(&seconds)),
                    Err(reason) => is_absent(*contestant, &reason),
                }
            }
        }
    }
    let whole =
        entries.into_iter().filter(|(_, _, plan, rounds)| rounds.len() == plan.rounds);
    Ok(whole.map(|(contestant, _, _, rounds)| (contestant, rounds)).collect())
}

/// How the time of one contestant is spent on a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    /// Launches of a turn that do not count.
    warm_up: usize,
    /// Launches of a turn that count.
    launches: usize,
    rounds: usize,
}

impl Plan {
    const MOST_ROUNDS: usize = 5;
    /// What takes longer, in seconds, outlasts the noise by itself.
    const LONG: f64 = 0.25;

    /// For a launch that takes so many seconds, with so many seconds for all of them. Ten launches a round are the least
    /// for what is short enough that they fit.
    fn new(seconds: f64, share: f64) -> Self {
        let rounds = if seconds > Self::LONG { 3 } else { Self::MOST_ROUNDS };
        let fitting = (share / rounds as f64 / seconds) as usize;
        let least = if seconds < 0.004 { 10 } else { 1 };
        let warm_up = if seconds > Self::LONG {
            0
        } else if seconds > 0.01 {
            1
        } else {
            3
        };
        Self { warm_up, launches: fitting.clamp(least, 100), rounds }
    }
}

#[cfg(test)]
pub mod tests;
