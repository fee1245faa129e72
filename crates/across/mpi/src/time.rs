//! Times of the ring, beside one process with as many threads as there are ranks; and of messages.

use crate::over_mpi::OverMpi;
use across::cost::Speeds;
use across::{Layout, Local, Network, Whole, ring};
use attention::Mask;
use attention::engine::Engine;
use attention::flash::Inputs;
use fast::Flash;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use nalgebra::DMatrix;
use serde_json::json;
use std::time::{Duration, Instant};

const HEADS: usize = 8;
const WIDTH: usize = 64; // of a head
const LAYOUT: Layout = Layout::Zigzag;
const DEADLINE: Duration = Duration::from_secs(120);

/// What can go wrong: on any rank, in words.
type Result<T> = std::result::Result<T, String>;

/// Prints a table of times for 1 rank up to all, and with `--record FILE` writes them as JSON.
pub fn run(world: &SimpleCommunicator, options: &[&str]) -> Result<()> {
    let (is_quick, file) = match options {
        [] => (false, None),
        ["--quick"] => (true, None),
        ["--record", file] => (false, Some(*file)),
        ["--quick", "--record", file] => (true, Some(*file)),
        _ => return Err(crate::USAGE.to_owned()),
    };
    let (lengths, rounds): (&[usize], _) =
        if is_quick { (&[512, 1024], 3) } else { (&[1024, 2048, 4096, 8192], 7) };
    let shifts = shifts(world)?;
    let (latency, bandwidth) = line(&shifts);
    let is_first = world.rank() == 0;
    if is_first {
        println!("a shift between {} ranks: bytes, microseconds", world.size());
        for (bytes, seconds) in &shifts {
            println!("{bytes:>10} {:>10.1}", seconds * 1e6);
        }
        println!(
            "\ncausal, f32, {HEADS} heads of {WIDTH}, zigzag; milliseconds, medians of {rounds}"
        );
        println!(
            "     n ranks | forward: threads  ring  model | backward: threads  ring"
        );
    }
    let mut times = vec![];
    for &n in lengths {
        let mut pairs = 0.0; // a second, on one rank
        for ranks in 1..=world.size() {
            let color = if world.rank() < ranks {
                Color::with_value(0)
            } else {
                Color::undefined()
            };
            if let Some(group) = world.split_by_color(color) {
                let [one, many, one_back, many_back] = measure(&group, n, rounds)?;
                if is_first {
                    if ranks == 1 {
                        pairs = (n * (n + 1) / 2) as f64 / one;
                    }
                    let speeds = Speeds { pairs, latency, bandwidth };
                    let model =
                        speeds.ring_forward(&whole(n), ranks as usize, size_of::<f32>());
                    let model = model.map_err(|error| error.to_string())?;
                    let [a, b, c, d, e] =
                        [one, many, model, one_back, many_back].map(|s| s * 1e3);
                    println!(
                        "{n:>6} {ranks:>5} | {a:>16.1} {b:>5.1} {c:>6.1} | {d:>17.1} {e:>5.1}"
                    );
                    times.push(json!({
                        "n": n, "ranks": ranks, "forward_threads": one, "forward_ring": many,
                        "forward_model": model, "backward_threads": one_back, "backward_ring": many_back,
                    }));
                }
            }
            wait_quietly(world);
        }
    }
    let (Some(file), true) = (file, is_first) else { return Ok(()) };
    let record = json!({
        "topic": "across", "unit": "s", "type": "f32", "mask": "causal", "layout": "zigzag",
        "heads": HEADS, "width": WIDTH, "rounds": rounds, "cores": cores(),
        "mpi": mpi::environment::library_version().unwrap_or_default().trim_end_matches('\0'),
        "latency": latency, "bandwidth": bandwidth,
        "shifts": shifts.iter().map(|(bytes, seconds)| json!({"bytes": bytes, "seconds": seconds})).collect::<Vec<_>>(),
        "times": times,
    });
    std::fs::write(file, format!("{record:#}\n"))
        .map_err(|error| format!("{file}: {error}"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn whole(n: usize) -> Whole {
    Whole::new((n, n), (WIDTH, WIDTH), Mask::causal())
        .with_heads(HEADS, HEADS)
        .with_layouts(LAYOUT, LAYOUT)
}

/// Seconds of forward and backward passes: one process, the ring; one process, the ring. They are interleaved, so that what disturbs the
/// machine disturbs all.
fn measure(group: &SimpleCommunicator, n: usize, rounds: usize) -> Result<[f64; 4]> {
    let mut network = OverMpi::new(group, DEADLINE);
    let (rank, ranks) = (network.rank(), network.ranks());
    let matrix = |seed: usize| {
        DMatrix::from_fn(n, HEADS * WIDTH, |i, j| {
            let mixed = (i * 7919 + j * 104_729 + seed * 1_299_709) % 10_007;
            mixed as f32 / 5003.5 - 1.0
        })
    };
    let all = [0, 1, 2, 3].map(matrix);
    let rows = LAYOUT.rows(n, ranks, rank);
    let mine = all.each_ref().map(|matrix| matrix.select_rows(&rows));
    let local =
        Local { q: mine[0].as_view(), k: mine[1].as_view(), v: mine[2].as_view() };
    let (whole, alone) = (whole(n), words(Flash::new().with_threads(1))?);
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
            let far = (&forward.output - output.select_rows(&rows)).amax();
            let far_back = (&gradients.k - grad_k.select_rows(&rows)).amax();
            if far.is_nan() || far.max(far_back) > 1e-3 {
                return Err(format!("the ring is off by {far:e} and {far_back:e}"));
            }
        }
        if round > 0 {
            times.iter_mut().zip(seconds).for_each(|(times, time)| times.push(time)); // the first one warms up
        }
    }
    Ok(times.map(median))
}

/// Seconds of a shift, of all ranks at once, by the bytes of each message.
fn shifts(world: &SimpleCommunicator) -> Result<Vec<(usize, f64)>> {
    let mut network = OverMpi::new(world, DEADLINE);
    let mut shifts = vec![];
    for bytes in [8, 64, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24] {
        let (outgoing, mut incoming) = (vec![1.0; bytes / 8], vec![0.0; bytes / 8]);
        let mut times = vec![];
        for _ in 0..40 {
            let (result, time) =
                timed(|| network.shift([&outgoing], [&mut incoming], || ()));
            words(result)?;
            times.push(time);
        }
        shifts.push((bytes, median(times)));
    }
    Ok(shifts)
}

/// Latency and bandwidth, from the smallest message and the largest.
fn line(shifts: &[(usize, f64)]) -> (f64, f64) {
    let (Some((_, latency)), Some((bytes, seconds))) = (shifts.first(), shifts.last())
    else {
        return (0.0, f64::INFINITY);
    };
    (*latency, *bytes as f64 / (seconds - latency).max(f64::MIN_POSITIVE))
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

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn words<R, E: std::fmt::Display>(result: std::result::Result<R, E>) -> Result<R> {
    result.map_err(|error| error.to_string())
}
