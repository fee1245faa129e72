//! The cost of fresh pages: page faults and times of softmax, of attention and of a layer, once with the allocator of the system as
//! it is, and once with that allocator told to keep its pages. All of it is timed in turns, so that its times can be compared.
//!
//! `cargo bench --bench pages` runs it here. The counts are those of Linux, and the setting is glibc's.

use attention::{Mask, MultiHeadAttention, attention, linear, softmax_rows};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use record::statistics::{median, spread};
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;
use topics::{inputs, normal};

/// Tells glibc to serve large matrices from its heap and to give nothing back to the system.
const KEEP: [(&str, &str); 2] =
    [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];

const D: usize = 64;
const N: usize = 4096;
const D_MODEL: usize = 512;
const HEADS: usize = D_MODEL / D;
const N_LAYER: usize = 1024;

/// Something to measure: its name with its sizes, and a function that does it.
type Task = (String, Box<dyn Fn()>);

/// Softmax alone and whole attention, with and without a causal mask.
fn core() -> [Task; 3] {
    let [q, k, v] = inputs::<f32>(N, D);
    let scores = normal::<f32>(N, N, 3);
    let name = |what: &str| format!("{what}, f32, d = {D}/{N}");
    let [full, causal] = [Mask::none(), Mask::causal()].map(|mask| {
        let (q, k, v) = (q.clone(), k.clone(), v.clone());
        Box::new(move || drop(black_box(attention(&q, &k, &v, &mask)))) as Box<dyn Fn()>
    });
    [
        (name("softmax"), Box::new(move || drop(black_box(softmax_rows(&scores))))),
        (name("forward"), full),
        (name("forward causal"), causal),
    ]
}

/// A whole layer, its four projections alone, and the cores of its heads alone.
fn layer() -> [Task; 3] {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer =
        MultiHeadAttention::<f32>::xavier(D_MODEL, HEADS, rng).expect("a divisor");
    let x = normal::<f32>(N_LAYER, D_MODEL, 0);
    let heads: Vec<_> = (0..HEADS).map(|_| inputs::<f32>(N_LAYER, D)).collect();
    let name = |what: &str| {
        format!("{what}, f32, d_model = {D_MODEL}, heads = {HEADS}/{N_LAYER}")
    };
    let (p, input) = (layer.parameters.clone(), x.clone());
    let projections = move || {
        for (w, b) in
            [(&p.w_q, &p.b_q), (&p.w_k, &p.b_k), (&p.w_v, &p.b_v), (&p.w_o, &p.b_o)]
        {
            drop(black_box(linear(&input, w, b)));
        }
    };
    let cores = move || {
        for [q, k, v] in &heads {
            drop(black_box(attention(q, k, v, Mask::none())));
        }
    };
    [
        (name("projections"), Box::new(projections)),
        (name("cores"), Box::new(cores)),
        (
            name("layer"),
            Box::new(move || drop(black_box(layer.forward(&x, Mask::none())))),
        ),
    ]
}

/// The page faults of this process so far, where Linux tells: those that needed no disk.
fn faults() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind_name) = status.rsplit_once(')')?;
    behind_name.split_whitespace().nth(7)?.parse().ok()
}

/// Prints the median time of each task and the median count of its page faults, over rounds in each of which every task runs once.
fn measure(group: &str, rounds: usize, filter: &str) {
    let mut tasks: Vec<_> = core().into_iter().chain(layer()).collect();
    tasks.retain(|(name, _)| format!("{group}/{name}").contains(filter));
    let mut times = vec![vec![]; tasks.len()];
    let mut counts = vec![vec![]; tasks.len()];
    for round in 0..=rounds {
        for (i, (_, run)) in tasks.iter().enumerate() {
            let (before, start) = (faults(), Instant::now());
            run();
            let (seconds, after) = (start.elapsed().as_secs_f64(), faults());
            if round > 0 {
                times[i].push(seconds);
                counts[i].extend(
                    after.zip(before).map(|(after, before)| (after - before) as f64),
                );
            }
        }
    }
    for (i, (name, _)) in tasks.iter().enumerate() {
        let (seconds, spread) = (median(&times[i]), spread(&times[i]));
        println!("{group}/{name}: {seconds} +- {spread} seconds");
        if !counts[i].is_empty() {
            println!("{group} faults/{name}: {} page faults", median(&counts[i]));
        }
    }
}

fn main() {
    // As with the other benchmarks, a word is a filter.
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let filter = filter.map_or("", String::as_str);
    let rounds =
        if arguments.iter().any(|argument| argument == "--quick") { 1 } else { 15 };
    if std::env::var_os(KEEP[0].0).is_some() {
        return measure("kept", rounds, filter);
    }
    measure("fresh", rounds, filter);
    // The allocator reads its setting when a process starts.
    let this = std::env::current_exe().expect("this program has a path");
    let status = Command::new(this).args(&arguments).envs(KEEP).status();
    assert!(status.expect("this program starts again").success());
}
