//! Flash attention equals the naive one: forward and backward, every mask, any lengths, whatever the tiles.

use attention::flash::{Flash, FlashOutput, Inputs, Instructions, Tiles};
use attention::testing::one_problem::{Answer, Data, F64, Problem, off};
use attention::{AttentionGradients, Float, Mask};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

fn worst<T: Float>(given: &Answer<T>, right: &Answer<T>) -> f64 {
    [
        off(&given.0.output, &right.0.output),
        off(&given.0.log_sum_exp, &right.0.log_sum_exp),
        off(&given.1.q, &right.1.q),
        off(&given.1.k, &right.1.k),
        off(&given.1.v, &right.1.v),
    ]
    .into_iter()
    .fold(0.0, f64::max)
}

/// As [`F64`].
const F32: f64 = 2e-6;

fn mask(kind: usize, (n_q, n_k): (usize, usize), seed: u64) -> Mask {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut valid: Vec<bool> = (0..n_k).map(|_| rng.random_bool(0.7)).collect();
    let padding = Mask::padding(&valid).unwrap();
    let window = Mask::window(rng.random_range(1..40)).unwrap();
    let dense = DMatrix::from_fn(n_q, n_k, |_, _| rng.random_bool(0.2));
    match kind {
        0 => Mask::none(),
        1 => Mask::causal(),
        2 => padding,
        3 => window,
        4 => Mask::dense(dense).unwrap(),
        5 => Mask::causal().and(padding),
        6 => window.and(Mask::dense(dense).unwrap()),
        7 => {
            let size = rng.random_range(1..24);
            let seen =
                DMatrix::from_fn(n_q.div_ceil(size), n_k.div_ceil(size), |_, _| {
                    rng.random_bool(0.4)
                });
            Mask::blocks(size, seen).unwrap()
        }
        _ => {
            valid.fill(false); // no query sees anything
            Mask::padding(&valid).unwrap()
        }
    }
}

fn rounded(right: &Answer<f64>) -> Answer<f32> {
    let round = |x: &DMatrix<f64>| x.map(|x| x as f32);
    let (forward, gradients) = right;
    let output = round(&forward.output);
    let log_sum_exp = round(&forward.log_sum_exp);
    let [q, k, v] = [&gradients.q, &gradients.k, &gradients.v].map(round);
    let log_sum_exp_low = round(&forward.log_sum_exp_low);
    let forward = FlashOutput { output, log_sum_exp, log_sum_exp_low };
    (forward, AttentionGradients { q, k, v, tables: vec![] })
}

/// All programs, in both precisions, against the naive one.
fn check(problem: &Problem, tiles: Tiles, flash: &Flash) {
    let right = problem.naive(&problem.data::<f64>(1.0));
    let (data, single) = (problem.data::<f64>(1.0), problem.data::<f32>(1.0));
    for (program, answer) in
        [("tiled", problem.tiled(&data, tiles)), ("flash", problem.fast(&data, flash))]
    {
        let worst = worst(&answer, &right);
        assert!(worst < F64, "{program}, f64: off by {worst:e}");
    }
    for (program, answer) in [
        ("tiled", problem.tiled(&single, tiles)),
        ("flash", problem.fast(&single, flash)),
    ] {
        let worst = worst(&answer, &rounded(&right));
        assert!(worst < F32, "{program}, f32: off by {worst:e}");
    }
}

#[test]
fn every_length_up_to_300() {
    let tiles = Tiles { queries: 64, keys: 48 };
    let flash = Flash::new().with_tiles(tiles).unwrap().with_threads(1).unwrap();
    for n in 1..=300 {
        let lengths = if n % 3 == 0 { (n, 301 - n) } else { (n, n) };
        let mask = mask(n % 9, lengths, n as u64);
        check(
            &Problem { lengths, widths: (3, 2), n_heads: 1, n_kv_heads: 1, mask },
            tiles,
            &flash,
        );
    }
}

#[test]
fn every_way_to_multiply() {
    let mask = Mask::causal().and(Mask::window(90).unwrap());
    let problem = Problem {
        lengths: (200, 230),
        widths: (16, 24),
        n_heads: 2,
        n_kv_heads: 2,
        mask,
    };
    for instructions in Instructions::available() {
        let flash = Flash::new().with_instructions(instructions).unwrap();
        check(&problem, Tiles::default(), &flash);
    }
}

/// Every entry as bits, since a NaN equals nothing.
fn bits((forward, gradients): &Answer<f32>) -> Vec<u32> {
    let AttentionGradients { q, k, v, .. } = gradients;
    let all = [&forward.output, &forward.log_sum_exp, &forward.log_sum_exp_low, q, k, v];
    all.into_iter().flatten().map(|x| x.to_bits()).collect()
}

#[test]
fn the_same_bits_with_any_number_of_threads() {
    for (lengths, n_heads, mask) in [
        ((700, 700), 3, Mask::causal()),
        ((300, 1100), 3, Mask::none()),
        ((40, 60), 3, Mask::causal()),
        ((481, 481), 1, Mask::causal()), // its last row can be a block of its own
    ] {
        let problem =
            Problem { lengths, widths: (16, 16), n_heads, n_kv_heads: n_heads, mask };
        for poison in [false, true] {
            let mut data = problem.data::<f32>(1.0);
            if poison {
                data.v[(0, 0)] = f32::NAN;
            }
            let run = |threads| {
                let flash = on_threads(threads);
                bits(&problem.fast(&data, &flash))
            };
            let one = run(1);
            for threads in 2..=5 {
                assert!(run(threads) == one, "{threads} threads give other bits");
            }
            let all = bits(&problem.fast(&data, &Flash::new()));
            assert!(all == one, "as many threads as there are give other bits");
        }
    }
}

/// With so many threads; without the feature `rayon` there is one.
fn on_threads(threads: usize) -> Flash {
    let threads = if cfg!(feature = "rayon") { threads } else { 1 };
    Flash::new().with_threads(threads).unwrap()
}

/// `Flash` with all instructions, and tiles of two sizes.
fn programs<T: Float>(problem: &Problem, data: &Data<T>) -> Vec<(String, Answer<T>)> {
    let tiles = Tiles { queries: 8, keys: 5 };
    let mut answers = vec![];
    for instructions in Instructions::available() {
        let flash = Flash::new().with_instructions(instructions).unwrap();
        answers.push((format!("{instructions:?}"), problem.fast(data, &flash)));
        let flash = flash.with_tiles(tiles).unwrap();
        answers.push((format!("{instructions:?}, small"), problem.fast(data, &flash)));
    }
    answers
}

/// Products of 4e38 are none in `f32`; divided by √64 they are.
#[test]
fn a_score_may_overflow_before_it_is_scaled() {
    for n_q in [1, 20] {
        let lengths = (n_q, 2);
        let problem = Problem {
            lengths,
            widths: (64, 3),
            n_heads: 1,
            n_kv_heads: 1,
            mask: Mask::none(),
        };
        for (sign, winner) in [(1.0, 0), (-1.0, 1)] {
            let mut data = problem.data::<f32>(0.0);
            data.q.column_mut(0).fill(2e19);
            data.k.fill(0.0);
            (data.k[(0, 0)], data.k[(1, 0)]) = (sign * 2e19, sign * 8e18);
            for (program, (forward, gradients)) in programs(&problem, &data) {
                let score = 2e19 / 8.0 * data.k[(winner, 0)];
                for i in 0..n_q {
                    assert_eq!(forward.output.row(i), data.v.row(winner), "{program}");
                    let off = forward.log_sum_exp[i] / score - 1.0;
                    assert!(off.abs() < 1e-6, "{program}: {off}");
                }
                let grad_v = &gradients.v;
                let right = data.grad_output.row_sum();
                assert!((grad_v.row(winner) - right).amax() < 1e-5, "{program}");
                assert_eq!(grad_v.row(1 - winner).amax(), 0.0, "{program}");
            }
        }
    }
}

/// A score that is too low for any number is not a hidden one, and no zero says that it was.
#[test]
fn nothing_but_scores_that_overflow_is_not_nothing() {
    for n_q in [1, 20] {
        let mask = Mask::padding(&[true, false, true]).unwrap();
        let problem = Problem {
            lengths: (n_q, 3),
            widths: (4, 3),
            n_heads: 1,
            n_kv_heads: 1,
            mask,
        };
        let mut data = problem.data::<f32>(0.0);
        data.q.fill(1e30);
        data.k.fill(-1e30);
        for instructions in Instructions::available() {
            let flash = Flash::new().with_instructions(instructions).unwrap();
            let (forward, gradients) = problem.fast(&data, &flash);
            let all = forward.output.iter().chain(&forward.log_sum_exp);
            assert!(all.chain(&gradients.v.row(0)).all(|x| x.is_nan()));
            assert!(gradients.v.row(1).iter().all(|&x| x == 0.0));
        }
    }
}

/// Several machines share out the keys: each has the log-sum-exp over all keys, and some of these.
#[test]
fn gradients_over_parts_of_the_keys_add_up() {
    let (n_q, n_k, d, cut) = (70, 150, 16, 60);
    for spread in [1.0, 30.0, 100.0, 3e3, 1e5] {
        let mask = Mask::none();
        let problem = Problem {
            lengths: (n_q, n_k),
            widths: (d, d),
            n_heads: 1,
            n_kv_heads: 1,
            mask,
        };
        let mut data = problem.data::<f32>(spread);
        data.k *= spread as f32;
        let flash = Flash::new();
        let (whole, right) = problem.fast(&data, &flash);
        let parts = [0..cut, cut..n_k].map(|keys| {
            let [k, v] =
                [&data.k, &data.v].map(|x| x.rows_range(keys.clone()).into_owned());
            let forward =
                flash.forward(&Inputs::new(&data.q, &k, &v, &problem.mask).unwrap());
            (k, v, forward)
        });
        let mut merged = whole.clone();
        for i in 0..n_q {
            let exact = |x: &FlashOutput<f32>| {
                f64::from(x.log_sum_exp[i]) + f64::from(x.log_sum_exp_low[i])
            };
            let of_parts = parts.each_ref().map(|(.., forward)| exact(forward));
            let max = of_parts[0].max(of_parts[1]);
            let all = max + of_parts.map(|x| (x - max).exp()).iter().sum::<f64>().ln();
            assert!((all - exact(&whole)).abs() < 1e-6 * all.abs().max(1.0));
            merged.log_sum_exp[i] = all as f32;
            merged.log_sum_exp_low[i] = (all - f64::from(all as f32)) as f32;
        }
        let gradients = parts.map(|(k, v, _)| {
            let inputs = Inputs::new(&data.q, &k, &v, &problem.mask).unwrap();
            flash.backward(&inputs, &merged, &data.grad_output).unwrap()
        });
        let stack =
            |a: &DMatrix<f32>, b: &DMatrix<f32>| {
                DMatrix::from_fn(n_k, d, |i, c| {
                    if i < cut { a[(i, c)] } else { b[(i - cut, c)] }
                })
            };
        let [a, b] = gradients;
        for (name, sum, right) in [
            ("q", a.q + b.q, right.q),
            ("k", stack(&a.k, &b.k), right.k),
            ("v", stack(&a.v, &b.v), right.v),
        ] {
            let off = off(&sum, &right);
            assert!(off < 1e-5, "times {spread}: gradient of {name} off by {off:e}");
        }
    }
}

/// A million equal scores: one sum of all of them in `f32` would be far off.
#[test]
fn equal_scores_of_many_keys() {
    for (n_q, n_k) in [(1, 1 << 20), (20, 1 << 20), (20, 1 << 16)] {
        let (q, k) = (DMatrix::repeat(n_q, 1, 0.7_f32), DMatrix::repeat(n_k, 1, 0.3));
        let v = DMatrix::repeat(n_k, 1, 1.0);
        let mask = Mask::none();
        let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
        let forward = Flash::new().forward(&inputs);
        let log_sum_exp = 0.7 * 0.3 + (n_k as f32).ln();
        for i in 0..n_q {
            assert!((forward.output[i] - 1.0).abs() < 1e-6, "{}", forward.output[i]);
            assert!((forward.log_sum_exp[i] - log_sum_exp).abs() < 2e-6);
        }
    }
}

/// A thread that waited for others inside a round of a loop would begin another round there: on the same stack, and with what the first
/// one has locked.
#[cfg(feature = "rayon")]
#[test]
fn no_round_of_a_parallel_loop_begins_inside_another() {
    use attention::testing::one_problem::numbers;
    use rayon::prelude::*;
    use std::cell::Cell;
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    let [q, k] = [(128, 0), (400, 1)].map(|(n, seed)| numbers::<f64>(n, 64, seed));
    let mask = Mask::none();
    let inputs = Inputs::new(&q, &k, &k, &mask).unwrap();
    let both = |flash: &Flash| {
        let forward = flash.forward(&inputs);
        flash.backward(&inputs, &forward, &q).unwrap();
    };
    let (all, two) = (Flash::new(), Flash::new().with_threads(2).unwrap());
    let naive = || drop(attention::attention(&q, &k, &k, &mask).unwrap());
    let callers: [&(dyn Fn() + Sync); 3] = [&|| both(&all), &|| both(&two), &naive];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for call in callers {
        pool.install(|| {
            (0..60).into_par_iter().for_each(|_| {
                assert!(!INSIDE.replace(true), "a round inside another");
                call();
                INSIDE.set(false);
            });
        });
    }
}
