//! Times of the ring, beside one process with as many threads as there are ranks; and of messages.

use crate::over_mpi::OverMpi;
use across::{Layout, Local, Network, Whole, ring};
use attention::Mask;
use attention::engine::Engine;
use attention::flash::Inputs;
use fast::Flash;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use nalgebra::DMatrix;
use record::statistics::{median, spread};
use record::{Measurement, Record, Unit};
use std::path::Path;
use std::time::{Duration, Instant};

const HEADS: usize = 8;
const WIDTH: usize = 64; // of a head
const DEADLINE: Duration = Duration::from_secs(120);

/// Bytes of the longest message that is timed, and the time that it is given in the background.
const LONGEST: usize = 1 << 26;
const PAUSE: Duration = Duration::from_millis(100);

/// What can go wrong: on any rank, in words.
type Result<T> = std::result::Result<T, String>;

/// What is timed of each length and number of ranks.
const NAMES: [&str; 4] =
    ["forward/threads", "forward/ring", "backward/threads", "backward/ring"];

/// Prints a table of times for 1 rank up to all; with `--record ROOT` writes a record of them for the project at `ROOT`: to the folder of
/// this machine in `records`, or if it was `--quick` in `target/records`.
pub fn run(world: &SimpleCommunicator, options: &[&str]) -> Result<()> {
    let (is_quick, root) = match options {
        [] => (false, None),
        ["--quick"] => (true, None),
        ["--record", root] => (false, Some(*root)),
        ["--quick", "--record", root] => (true, Some(*root)),
        _ => return Err(crate::USAGE.to_owned()),
    };
    let (lengths, rounds): (&[usize], _) =
        if is_quick { (&[512, 1024], 3) } else { (&[1024, 2048, 4096, 8192], 7) };
    let is_first = world.rank() == 0;
    // Asked for before anything is measured: an error here must not cost the measurements.
    let record = match root {
        Some(_) if is_first => Some(circumstances()?),
        _ => None,
    };
    let mut all = match first_ranks(world, world.size().min(2)) {
        Some(pair) => shifts(&pair)?,
        None => vec![],
    };
    wait_quietly(world);
    if is_first {
        println!("causal, f32, {HEADS} heads of {WIDTH}; ms, medians of {rounds}");
        println!("     n ranks | forward: threads   ring | backward: threads   ring");
    }
    let mut cases: Vec<_> = lengths
        .iter()
        .flat_map(|&n| (1..=world.size()).map(move |ranks| (n, ranks, Layout::Zigzag)))
        .collect();
    if let (Some(&longest), 2..) = (lengths.last(), world.size()) {
        cases.push((longest, 2, Layout::Contiguous)); // for comparison: the work is uneven
    }
    for (n, ranks, layout) in cases {
        if let Some(group) = first_ranks(world, ranks) {
            let times = measure(&group, n, layout, rounds)?;
            if is_first {
                let [a, b, c, d] = times.each_ref().map(|times| median(times) * 1e3);
                let name = name(layout);
                println!(
                    "{n:>6} {ranks:>5} | {a:>16.1} {b:>6.1} | {c:>17.1} {d:>6.1} {name}"
                );
                all.extend(measurements(n, ranks as usize, layout, &times));
            }
        }
        wait_quietly(world);
    }
    let (Some(root), Some(record)) = (root, record) else { return Ok(()) };
    let record = Record { measurements: all, ..record };
    words(record.check())?;
    let (folder, file) = words(recorder::write(Path::new(root), &record, !is_quick))?;
    println!("{file}: {}", recorder::how_to_show(&folder));
    Ok(())
}

/// The record without its measurements.
fn circumstances() -> Result<Record> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = ["attention", "fast", "mpi", "nalgebra"];
    let mut versions = words(recorder::versions(here, &packages))?;
    let library = mpi::environment::library_version().unwrap_or_default();
    let name = library.split(',').next().unwrap_or_default();
    versions.insert("mpi-library".to_owned(), name.trim_matches('\0').to_owned());
    words(recorder::circumstances("across", versions, vec![]))
}

fn name(layout: Layout) -> &'static str {
    if layout == Layout::Contiguous { "contiguous" } else { "zigzag" }
}

/// The four times of one length, number of ranks and layout.
fn measurements(
    n: usize,
    ranks: usize,
    layout: Layout,
    times: &[Vec<f64>; 4],
) -> Vec<Measurement> {
    let sizes = [("n", n), ("d", WIDTH), ("heads", HEADS)];
    let settings: [(&str, &dyn ToString); 2] =
        [("mask", &"causal"), ("layout", &name(layout))];
    let common = Measurement::common("f32", &sizes, &settings, ranks);
    let named = |(name, times): (&str, &Vec<f64>)| {
        common.named(name.to_owned(), Unit::Seconds, (median(times), spread(times)))
    };
    NAMES.into_iter().zip(times).map(named).collect()
}

/// A communicator of the first ranks, on these.
fn first_ranks(world: &SimpleCommunicator, ranks: i32) -> Option<SimpleCommunicator> {
    let takes_part = world.rank() < ranks;
    let color = if takes_part { Color::with_value(0) } else { Color::undefined() };
    world.split_by_color(color)
}

fn whole(n: usize, layout: Layout) -> Whole {
    Whole::new((n, n), (WIDTH, WIDTH), Mask::causal())
        .with_heads(HEADS, HEADS)
        .with_layouts(layout, layout)
}

/// Seconds of forward and backward passes: one process, the ring; one process, the ring. They are interleaved, so that what disturbs the
/// machine disturbs all.
fn measure(
    group: &SimpleCommunicator,
    n: usize,
    layout: Layout,
    rounds: usize,
) -> Result<[Vec<f64>; 4]> {
    let mut network = OverMpi::new(group, DEADLINE);
    let (rank, ranks) = (network.rank(), network.ranks());
    let matrix = |seed: usize| {
        DMatrix::from_fn(n, HEADS * WIDTH, |i, j| {
            let mixed = (i * 7919 + j * 104_729 + seed * 1_299_709) % 10_007;
            mixed as f32 / 5003.5 - 1.0
        })
    };
    let all = [0, 1, 2, 3].map(matrix);
    let rows = layout.rows(n, ranks, rank);
    let mine = all.each_ref().map(|matrix| matrix.select_rows(&rows));
    let local =
        Local { q: mine[0].as_view(), k: mine[1].as_view(), v: mine[2].as_view() };
    let (whole, alone) = (whole(n, layout), words(Flash::new().with_threads(1))?);
    let one = words(Flash::new().with_threads(ranks))?;
    let inputs = Inputs::grouped(&all[0], &all[1], &all[2], Mask::causal(), HEADS, HEADS);
    let inputs = words(inputs)?;
    let mut times = [const { vec![] }; 4];
    for round in 0..=rounds {
        let (mut seconds, mut expected) = ([0.0; 4], None);
        if rank == 0 {
            let (forward, time) = timed(|| one.forward(&inputs));
            let forward = words(forward)?;
            let (gradients, time_back) =
                timed(|| one.backward(&inputs, &forward, all[3].as_view()));
            expected = Some((forward.output, words(gradients)?.k));
            (seconds[0], seconds[2]) = (time, time_back);
        }
        wait_quietly(group);
        let (forward, time) =
            timed(|| ring::forward(&mut network, &alone, &whole, &local));
        let forward = words(forward)?;
        let backward = || {
            ring::backward(
                &mut network,
                &alone,
                &whole,
                &local,
                &forward,
                mine[3].as_view(),
            )
        };
        let (gradients, time_back) = timed(backward);
        let gradients = words(gradients)?;
        (seconds[1], seconds[3]) = (time, time_back);
        if let Some((output, grad_k)) = expected {
            let off = &forward.output - output.select_rows(&rows);
            let off_back = &gradients.k - grad_k.select_rows(&rows);
            if !off.iter().chain(&off_back).all(|off| off.abs() <= 1e-3) {
                return Err(format!("the ring is off, at n = {n} on {ranks} ranks"));
            }
        }
        if round > 0 {
            times.iter_mut().zip(seconds).for_each(|(times, time)| times.push(time)); // the first one warms up
        }
    }
    Ok(times)
}

/// Seconds of a shift, of all ranks at once, by the bytes of each message; and of the longest one beside a pause, which stands for work on
/// another processor, such as a GPU.
fn shifts(world: &SimpleCommunicator) -> Result<Vec<Measurement>> {
    let mut network = OverMpi::new(world, DEADLINE);
    let ranks = network.ranks();
    let mut shift = |bytes: usize, pause: Duration| {
        let (outgoing, mut incoming) = (vec![1.0; bytes / 8], vec![0.0; bytes / 8]);
        let mut times = vec![];
        for _ in 0..40 {
            let work = || {
                if !pause.is_zero() {
                    std::thread::sleep(pause)
                }
            };
            let (result, time) =
                timed(|| network.shift([&outgoing], [&mut incoming], work));
            words(result)?;
            times.push(time);
        }
        let sizes = [("bytes", bytes), ("pause_ms", pause.as_millis() as usize)];
        let common = Measurement::common("f64", &sizes, &[], ranks);
        let numbers = (median(&times), spread(&times));
        Ok(common.named("shift".to_owned(), Unit::Seconds, numbers))
    };
    let lengths = [8, 64, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24, LONGEST];
    let alone = lengths.map(|bytes| (bytes, Duration::ZERO));
    alone
        .into_iter()
        .chain([(LONGEST, PAUSE)])
        .map(|(bytes, pause)| shift(bytes, pause))
        .collect()
}

/// A barrier in which the ranks that wait leave the cores to others: MPI's own would poll all the time.
fn wait_quietly(group: &SimpleCommunicator) {
    let mut request = group.immediate_barrier();
    while let Err(waiting) = request.test() {
        request = waiting;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn timed<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

fn words<R, E: std::fmt::Display>(result: std::result::Result<R, E>) -> Result<R> {
    result.map_err(|error| error.to_string())
}
