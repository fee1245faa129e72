//! A step of decoding: one query of each head against a long cache, for several numbers of heads of keys; and the time in which the largest
//! of these caches is merely read. On one thread, and on all of them.
//!
//! `cargo bench --bench decoding` runs it here.

use attention::Mask;
use attention::engine::Engine as _;
use attention::flash::Inputs;
use criterion::{Criterion, criterion_group, criterion_main};
use fast::Flash;
use std::collections::BTreeSet;
use std::hint::black_box;
use topics::{briefly, normal, time};

const N: usize = 32_768;
const D: usize = 128;
const HEADS: usize = 8;

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("decoding");
    briefly(&mut group);
    let q = normal::<f32>(1, HEADS * D, 0);
    let [k, v] = [1, 2].map(|seed| normal::<f32>(N, HEADS * D, seed));
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in BTreeSet::from([1, all]) {
        let flash = Flash::new().with_threads(threads).expect("so many threads");
        let name = |what: &str, kv_heads: usize| {
            format!(
                "{what}, f32, d = {D}, heads = {HEADS}, kv_heads = {kv_heads}, threads = {threads}"
            )
        };
        for kv_heads in [8, 4, 2, 1] {
            let [k, v] = [&k, &v].map(|all| all.columns(0, kv_heads * D));
            let inputs = Inputs::grouped(&q, k, v, Mask::none(), HEADS, kv_heads);
            let inputs = inputs.expect("shapes that fit");
            time(&mut group, &name("step", kv_heads), N, || flash.forward(&inputs));
        }
        let read = || [&k, &v].map(|all| black_box(sum(all.as_slice(), threads)));
        time(&mut group, &name("read", HEADS), N, read);
    }
    group.finish();
}

/// The sum of all numbers, of which each thread has a share.
fn sum(numbers: &[f32], threads: usize) -> f32 {
    let share = numbers.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let mut shares = numbers.chunks(share);
        let own = shares.next().expect("one share");
        let others: Vec<_> =
            shares.map(|share| scope.spawn(|| sum_alone(share))).collect();
        let others = others.into_iter().map(|other| other.join().expect("a sum"));
        sum_alone(own) + others.sum::<f32>()
    })
}

/// The sum of all numbers, read from eight places at once, by independent sums: memory alone is waited for.
fn sum_alone(numbers: &[f32]) -> f32 {
    const PLACES: usize = 8;
    let place = numbers.len() / PLACES;
    let places: [_; PLACES] =
        std::array::from_fn(|i| numbers[i * place..][..place].as_chunks::<4>().0);
    let mut sums = [[0.0; 4]; PLACES];
    for at in 0..place / 4 {
        for (sums, place) in sums.iter_mut().zip(places) {
            for (sum, &x) in sums.iter_mut().zip(&place[at]) {
                *sum += x;
            }
        }
    }
    sums.as_flattened().iter().sum()
}

criterion_group!(benches, steps);
criterion_main!(benches);
