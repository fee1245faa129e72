//! One query's keys, cut anywhere, as several machines share them out: what an engine says of the parts merges to what it says of the
//! whole. That holds for engines that keep no weights and compute them again from the log-sum-exp, of which they know all digits.

use super::{Engines, with_two_tiles};
use crate::support::{Problem, numbers, off};
use attention::engine::Engine;
use attention::flash::{FlashOutput, Inputs, Tiles};
use attention::{Float, Mask};
use nalgebra::{DMatrix, convert, try_convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

const HEADS: usize = 4;

/// V's column of outliers. Outputs are weighted means of V, which may cancel: their rounding is of its entries' size.
const LARGEST: f64 = 100.0;

/// Rows as models have them: a column that is much larger than the others, and rows that come again.
fn structured<T: Float>(n: usize, width: usize, seed: u64, largest: f64) -> DMatrix<T> {
    let mut x = numbers::<f64>(n, width, seed);
    x.column_mut(width / 2).scale_mut(largest);
    for i in (7..n).step_by(4) {
        let before = x.row(i - 7).into_owned();
        x.set_row(i, &before);
    }
    x.map(convert)
}

fn double<T: Float>(x: &DMatrix<T>) -> DMatrix<f64> {
    x.map(|x| try_convert(x).expect("a number"))
}

/// The outputs (n_q, heads · d_v) and log-sum-exps (n_q, heads) of all keys, from those of the parts: their mean, weighted by a softmax over
/// the log-sum-exps, which are taken with the digits that rounding cost them.
fn merged<T: Float>(parts: &[FlashOutput<T>]) -> [DMatrix<f64>; 2] {
    let doubles = parts.iter().map(|part| {
        let sums = [&part.log_sum_exp, &part.log_sum_exp_low].map(double);
        (double(&part.output), sums)
    });
    let parts: Vec<_> = doubles.collect();
    let mut outputs = DMatrix::zeros(parts[0].0.nrows(), parts[0].0.ncols());
    let mut sums = DMatrix::zeros(outputs.nrows(), HEADS);
    let d_v = outputs.ncols() / HEADS;
    for (i, h) in (0..sums.nrows()).flat_map(|i| (0..HEADS).map(move |h| (i, h))) {
        let max =
            parts.iter().map(|(_, [high, _])| high[(i, h)]).fold(f64::MIN, f64::max);
        // The difference first: added to a sum of hundreds, the low digits would round away.
        let weights =
            parts.iter().map(|(_, [high, low])| (high[(i, h)] - max + low[(i, h)]).exp());
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        for ((output, _), weight) in parts.iter().zip(weights) {
            for c in h * d_v..(h + 1) * d_v {
                outputs[(i, c)] += weight / sum * output[(i, c)];
            }
        }
        sums[(i, h)] = max + sum.ln();
    }
    [outputs, sums]
}

/// A few queries, which an engine may compute in another way than many, and one, as in decoding.
pub fn parts_of_the_keys_merge_to_the_whole<T: Float>(engines: Engines<T>) {
    let most = if size_of::<T>() == 4 { 1e-6 } else { 1e-14 };
    for seed in 0..100 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let n_q = if rng.random_bool(0.75) { 1 } else { rng.random_range(2..9) };
        let (n_k, kv_heads) = (rng.random_range(1..400), 1 << rng.random_range(0..3));
        let (d_k, d_v) = (rng.random_range(1..20), rng.random_range(1..20));
        let q = structured::<T>(n_q, HEADS * d_k, 1, 20.0);
        let k = structured::<T>(n_k, kv_heads * d_k, 2, 20.0);
        let v = structured::<T>(n_k, kv_heads * d_v, 3, LARGEST);
        let mut cuts: Vec<usize> =
            (0..rng.random_range(0..6)).map(|_| rng.random_range(0..n_k)).collect();
        cuts.extend([0, n_k]);
        cuts.sort_unstable();
        cuts.dedup();
        let keys = [1, 3, 16, 128][rng.random_range(0..4)];
        for engine in engines(Some(Tiles { queries: 64, keys })) {
            let of = |first: usize, count: usize| {
                let (k, v) = (k.rows(first, count), v.rows(first, count));
                let inputs = Inputs::grouped(&q, k, v, Mask::none(), HEADS, kv_heads);
                engine.forward(&inputs.unwrap()).unwrap()
            };
            let whole = of(0, n_k);
            if !whole.weights.is_empty() {
                continue;
            }
            let parts = cuts.windows(2).map(|cut| of(cut[0], cut[1] - cut[0]));
            let [outputs, sums] = merged(&parts.collect::<Vec<_>>());
            let [whole, whole_sums] = merged(&[whole]);
            let of_outputs = off(&(outputs / LARGEST), &(whole / LARGEST));
            let offs = [of_outputs, off(&sums, &whole_sums)];
            assert!(
                offs.iter().all(|&off| off < most),
                "{engine:?}, seed {seed}: {offs:?}"
            );
        }
    }
}

/// Each part has the log-sum-exp over all keys, and the gradients of some of them.
pub fn gradients_over_parts_of_the_keys_add_up(engines: Engines<f32>) {
    let (n_q, n_k, d, cut) = (70, 150, 16, 60);
    let engines = with_two_tiles(engines, Tiles { queries: 64, keys: 48 });
    for (spread, engine) in [1.0, 30.0, 100.0, 3e3, 1e5]
        .iter()
        .flat_map(|spread| engines.iter().map(move |engine| (*spread, engine)))
    {
        let problem = Problem::new((n_q, n_k), (d, d), (1, 1), Mask::none());
        let mut data = problem.data::<f32>(spread);
        data.k *= spread as f32;
        let (whole, right) = problem.by(engine, &data);
        if !whole.weights.is_empty() {
            continue;
        }
        let parts = [0..cut, cut..n_k].map(|keys| {
            let [k, v] =
                [&data.k, &data.v].map(|x| x.rows_range(keys.clone()).into_owned());
            let inputs = Inputs::new(&data.q, &k, &v, Mask::none()).unwrap();
            let forward = engine.forward(&inputs).unwrap();
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
            let off = (all - exact(&whole)).abs();
            assert!(off < 1e-6 * all.abs().max(1.0), "{engine:?}: {off}");
            merged.log_sum_exp[i] = all as f32;
            merged.log_sum_exp_low[i] = (all - f64::from(all as f32)) as f32;
        }
        let gradients = parts.map(|(k, v, _)| {
            let inputs = Inputs::new(&data.q, &k, &v, Mask::none()).unwrap();
            engine.backward(&inputs, &merged, data.grad_output.as_view()).unwrap()
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
            assert!(off < 1e-5, "{engine:?}, times {spread}: {name} off by {off:e}");
        }
    }
}
