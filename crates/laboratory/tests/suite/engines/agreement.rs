//! Every engine computes what the equations say: those of the definition on random problems, and those of `ByWeights` elsewhere.

use super::{Engines, Named, with_two_tiles};
use crate::support::{
    Answer, OfThePast, Problem, answer, each_view, mask, masks, off, random,
    random_problems, score_rules, tolerance,
};
use attention::engine::{ByWeights, Engine};
use attention::flash::{Inputs, Tiles};
use attention::{Float, Mask, ScoreRule};
use nalgebra::{DMatrix, DMatrixView};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// How far each result is off.
fn offs<T: Float>(given: &Answer<T>, right: &Answer<f64>) -> Vec<f64> {
    let ((forward, grads), (right, right_grads)) = (given, right);
    let mut offs = vec![
        off(&forward.output, &right.output),
        off(&forward.log_sum_exp, &right.log_sum_exp),
        off(&grads.q, &right_grads.q),
        off(&grads.k, &right_grads.k),
        off(&grads.v, &right_grads.v),
    ];
    assert_eq!(grads.tables.len(), right_grads.tables.len());
    let tables = grads.tables.iter().zip(&right_grads.tables);
    offs.extend(tables.map(|(given, right)| off(given, right)));
    offs
}

fn assert_near<T: Float>(given: &Answer<T>, right: &Answer<f64>, what: &str) {
    let offs = offs(given, right);
    assert!(offs.iter().all(|&off| off < tolerance::<T>()), "{what}: off by {offs:?}");
}

fn check<T: Float>(problem: &Problem, engines: &[Named<T>], spread: f64, what: &str) {
    let right = problem.by(&ByWeights, &problem.data::<f64>(spread));
    let data = problem.data::<T>(spread);
    for engine in engines {
        let what = format!("{engine:?}, {:?}, {what}", problem.lengths);
        assert_near(&problem.by(engine, &data), &right, &what);
    }
}

/// Up to 300, as many queries as keys, and fewer or more.
pub fn every_length<T: Float>(engines: Engines<T>) {
    let engines = engines(Some(Tiles { queries: 64, keys: 48 }));
    for n in 1..=300 {
        let lengths = if n % 3 == 0 { (n, 301 - n) } else { (n, n) };
        let (mask, _) = mask(&mut ChaCha8Rng::seed_from_u64(n as u64), lengths);
        let what = format!("{mask:.60?}");
        check(&Problem::new(lengths, (3, 2), (1, 1), mask), &engines, 1.0, &what);
    }
}

pub fn larger_problems<T: Float>(engines: Engines<T>) {
    let mask = Mask::causal().and(Mask::window(90).unwrap());
    for heads in [(2, 2), (4, 2)] {
        let problem = Problem::new((200, 230), (16, 24), heads, &mask);
        check(&problem, &engines(None), 1.0, "causal and window");
    }
}

/// The problems that break programs: lengths around the edges of tiles, more queries than keys and fewer, all masks, NaN and infinities in
/// hidden and in visible places, subnormal numbers, ties, and scores up to 1e30 in `f32` and 1e200 in `f64`. Each result is compared entry
/// by entry with the definition, with a tolerance that follows from the precision and the sizes; and what is not a number has to be so in
/// the same places.
///
/// `RANDOM_CASES` is the number of problems (for each precision; the default takes a few seconds in a debug build), and `RANDOM_SEED` the
/// seed of the first one: a failure names its seed.
pub fn random_problems<T: Float>(engines: Engines<T>) {
    random_problems::run::<T>(|problem, data, inputs| {
        let engines = with_two_tiles(engines, problem.tiles).into_iter();
        let answers = engines.map(|engine| {
            let (forward, gradients) = answer(&engine, inputs, &data.grad_output);
            (engine.name, forward, Some(gradients))
        });
        answers.collect()
    });
}

/// Rules of every kind under masks of every kind, which are asked about nothing that is hidden.
pub fn rules_for_scores(engines: Engines<f64>) {
    let engines = with_two_tiles(engines, Tiles { queries: 16, keys: 24 });
    for lengths in [(37, 53), (60, 60), (40, 7), (1, 70), (6, 30)] {
        for (kind, mask) in masks(lengths.0, lengths.1) {
            let mut all = score_rules(2);
            if kind.contains("causal") {
                all.push(("of the past".to_owned(), ScoreRule::custom(OfThePast)));
            }
            for (name, rule) in all {
                let mask = mask.clone().with_scores(rule);
                let problem = Problem::new(lengths, (6, 5), (2, 2), mask);
                check(&problem, &engines, 2.0, &format!("{kind}, {name}"));
            }
        }
    }
}

/// Each head of keys or values, as often as heads of queries share it.
fn repeated(joined: &DMatrix<f64>, kv_heads: usize, heads: usize) -> DMatrix<f64> {
    let d = joined.ncols() / kv_heads;
    let of = |c: usize| (c / d) * kv_heads / heads * d + c % d;
    DMatrix::from_fn(joined.nrows(), heads * d, |i, c| joined[(i, of(c))])
}

/// The sum over the heads that share: the transpose of [`repeated`].
fn summed(joined: &DMatrix<f64>, kv_heads: usize, heads: usize) -> DMatrix<f64> {
    let d = joined.ncols() / heads;
    let mut sum = DMatrix::zeros(joined.nrows(), kv_heads * d);
    for h in 0..heads {
        let mut to = sum.columns_mut(h * kv_heads / heads * d, d);
        to += joined.columns(h * d, d);
    }
    sum
}

/// Shared keys are repeated keys.
pub fn shared_keys(engines: Engines<f64>) {
    let engines = with_two_tiles(engines, Tiles { queries: 16, keys: 24 });
    for (heads, kv_heads) in [(4, 1), (4, 2), (6, 3)] {
        for lengths in [(37, 53), (40, 7), (1, 70), (6, 300), (5, 3)] {
            for (kind, mask) in masks(lengths.0, lengths.1) {
                let mask = mask.with_scores(ScoreRule::alibi(heads).unwrap());
                let problem = Problem::new(lengths, (6, 5), (heads, kv_heads), mask);
                let data = problem.data::<f64>(2.0);
                let [k, v] = [&data.k, &data.v].map(|x| repeated(x, kv_heads, heads));
                let full = Inputs::new(&data.q, &k, &v, &problem.mask).unwrap();
                let (forward, mut grads) = answer(&ByWeights, &full, &data.grad_output);
                grads.k = summed(&grads.k, kv_heads, heads);
                grads.v = summed(&grads.v, kv_heads, heads);
                let right = (forward, grads);
                for engine in &engines {
                    let what = format!("{engine:?}, {kind}, {lengths:?}, {heads} heads");
                    assert_near(&problem.by(engine, &data), &right, &what);
                }
            }
        }
    }
}

/// The order of keys and values does not matter.
pub fn order_of_keys(engines: Engines<f64>) {
    for seed in 0..30 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let (n_q, n_k) = (rng.random_range(1..40), rng.random_range(1..40));
        let mut order: Vec<usize> = (0..n_k).collect();
        order.shuffle(rng);
        let mut valid: Vec<bool> = (0..n_k).map(|_| rng.random()).collect();
        valid[0] = true;
        let in_order: Vec<bool> = order.iter().map(|&j| valid[j]).collect();
        let mask = Mask::padding(&valid).unwrap();
        let problem = Problem::new((n_q, n_k), (3, 2), (1, 1), mask);
        let data = problem.data::<f64>(10.0);
        let [k, v] = [&data.k, &data.v].map(|x| x.select_rows(&order));
        let mask = Mask::padding(&in_order).unwrap();
        let inputs = Inputs::new(&data.q, &k, &v, mask).unwrap();
        for engine in with_two_tiles(engines, Tiles { queries: 4, keys: 3 }) {
            let (right, grads) = problem.by(&engine, &data);
            let (forward, gradients) = answer(&engine, &inputs, &data.grad_output);
            for (what, given, right) in [
                ("output", forward.output, right.output),
                ("q", gradients.q, grads.q),
                ("k", gradients.k, grads.k.select_rows(&order)),
                ("v", gradients.v, grads.v.select_rows(&order)),
            ] {
                assert!(off(&given, &right) < 1e-12, "{engine:?}, {what}, seed {seed}");
            }
        }
    }
}

/// A view gives what a copy gives, to the bit.
pub fn views(engines: Engines<f64>) {
    each_view(|x| {
        for engine in with_two_tiles(engines, Tiles { queries: 2, keys: 3 }) {
            let run = |x: DMatrixView<f64>| {
                let inputs = Inputs::new(x, x, x, Mask::causal()).unwrap();
                let inputs = inputs.with_heads(2).unwrap();
                let forward = engine.forward(&inputs).unwrap();
                let gradients = engine.backward(&inputs, &forward, x).unwrap();
                (forward, gradients)
            };
            assert_eq!(run(x), run(x.into_owned().as_view()), "{engine:?}");
        }
    });
}

/// A thread that waited for others inside a round of a loop would begin another round there: on the same stack, and with what the first
/// one has locked.
pub fn calls_from_parallel_loops(engines: Engines<f64>) {
    use rayon::prelude::*;
    use std::cell::Cell;
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    let [q, k] = [(64, 0), (400, 1)].map(|(n, seed)| random(n, 64, seed));
    let inputs = Inputs::new(&q, &k, &k, Mask::none()).unwrap().with_heads(2).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for engine in engines(None) {
        pool.install(|| {
            (0..12).into_par_iter().for_each(|_| {
                assert!(!INSIDE.replace(true), "{engine:?}: a round inside another");
                answer(&engine, &inputs, &q);
                INSIDE.set(false);
            });
        });
    }
}
