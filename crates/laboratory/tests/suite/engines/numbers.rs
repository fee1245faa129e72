//! Digits: equal scores and nearly equal ones, sums of many terms, and scores that only just fit.
//!
//! Equal scores are the hard case: their exponentials are all 1, and a running sum of 2²⁴ ones does not grow any more.

use super::Engines;
use crate::support::{Problem, answer, tolerance};
use approx::assert_abs_diff_eq;
use attention::engine::Engine;
use attention::flash::{Inputs, Tiles};
use attention::{Float, Mask};
use nalgebra::{DMatrix, convert, dmatrix, try_convert};

/// Two equal keys get half of the weight each, however large their scores: forward, and when the backward pass computes
/// the weights again.
pub fn ties_are_ties_at_any_score<T: Float>(engines: Engines<T>) {
    let mut scores: Vec<f64> = vec![1.0, 9e2, 9e4, 4e8, 1e20, 1e30];
    if size_of::<T>() == 8 {
        scores.extend([1e100, 1e200]);
    }
    let epsilon: f64 = try_convert(T::default_epsilon()).unwrap();
    for (d_k, &score) in
        [1, 2, 3, 5].iter().flat_map(|d| scores.iter().map(move |s| (*d, s)))
    {
        let size: T = convert(score.sqrt());
        let (q, k) = (DMatrix::repeat(1, d_k, size), DMatrix::repeat(2, d_k, size));
        let v: DMatrix<T> = dmatrix![T::zero(); T::one()];
        let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap();
        for keys in [1, 2] {
            for engine in engines(Some(Tiles { queries: 1, keys })) {
                let (_, gradients) = answer(&engine, &inputs, &dmatrix![T::one()]);
                for &weight in gradients.v.iter() {
                    let weight: f64 = try_convert(weight).unwrap();
                    assert!(
                        (weight - 0.5).abs() <= 4.0 * epsilon,
                        "{engine:?}, a score of {score:e} · √{d_k}, tiles of {keys}: {weight}"
                    );
                }
            }
        }
    }
}

/// Products of 4e38 are none in `f32`; divided by √64 they are.
pub fn a_score_may_overflow_before_it_is_scaled(engines: Engines<f32>) {
    for n_q in [1, 20] {
        let problem = Problem::new((n_q, 2), (64, 3), (1, 1), Mask::none());
        for (sign, winner) in [(1.0, 0), (-1.0, 1)] {
            let mut data = problem.data::<f32>(0.0);
            data.q.column_mut(0).fill(2e19);
            data.k.fill(0.0);
            (data.k[(0, 0)], data.k[(1, 0)]) = (sign * 2e19, sign * 8e18);
            for engine in super::with_two_tiles(engines, Tiles { queries: 8, keys: 5 }) {
                let (forward, gradients) = problem.by(&engine, &data);
                let score = 2e19 / 8.0 * data.k[(winner, 0)];
                for i in 0..n_q {
                    assert_eq!(forward.output.row(i), data.v.row(winner), "{engine:?}");
                    let off = forward.log_sum_exp[i] / score - 1.0;
                    assert!(off.abs() < 1e-6, "{engine:?}: {off}");
                }
                let right = data.grad_output.row_sum();
                let grad_v = gradients.v.row(winner).into_owned();
                assert_abs_diff_eq!(grad_v, right, epsilon = 1e-5);
                assert_eq!(gradients.v.row(1 - winner).amax(), 0.0, "{engine:?}");
            }
        }
    }
}

/// A million equal scores: one sum of all of them in `f32` would be far off.
pub fn equal_scores_of_many_keys(engines: Engines<f32>) {
    for (n_q, n_k) in [(1, 1 << 20), (20, 1 << 20), (20, 1 << 16)] {
        let (q, k) = (DMatrix::repeat(n_q, 1, 0.7_f32), DMatrix::repeat(n_k, 1, 0.3));
        let v = DMatrix::repeat(n_k, 1, 1.0);
        let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap();
        for engine in engines(None) {
            let forward = engine.forward(&inputs).unwrap();
            for (output, log_sum_exp) in forward.output.iter().zip(&forward.log_sum_exp) {
                assert!((output - 1.0).abs() < 1e-6, "{engine:?}: {output}");
                let off = log_sum_exp - (0.7 * 0.3 + (n_k as f32).ln());
                assert!(off.abs() < 2e-6, "{engine:?}: {off}");
            }
        }
    }
}

/// How far `given` is off, as a share of what is right.
pub fn relative(given: f32, right: f64) -> f64 {
    (f64::from(given) / right - 1.0).abs()
}

/// So many keys, and scores between 0 and a spread, in an order without a pattern: equal, or different by a few units in the last place.
pub fn hard_scores() -> impl Iterator<Item = (usize, f64, impl Fn(usize) -> f64)> {
    let sizes = [1 << 10, 1 << 16, 1 << 20].into_iter();
    sizes.flat_map(|n_k: usize| [(n_k, 0.0), (n_k, 1e-3)]).map(|(n_k, spread)| {
        (n_k, spread, move |j| spread * ((j * 7919) % n_k) as f64 / n_k as f64)
    })
}

/// Two queries that score every key (nearly) alike, and values with a mean that is not zero.
pub fn nearly_equal_scores(engines: Engines<f32>) {
    for (n_k, spread, score) in hard_scores() {
        let q = dmatrix![1.0_f32; 0.5];
        let k = DMatrix::from_fn(n_k, 1, |j, _| score(j) as f32);
        let v = DMatrix::from_fn(n_k, 1, |j, _| 1.0 + 0.25 * (j % 4) as f32);
        // The same in f64, where nothing is lost.
        let right = |q: f32| {
            let of = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
                let pairs = k.iter().zip(&v).map(|(&k, &v)| (f64::from(k), f64::from(v)));
                pairs.map(|(k, v)| (f64::from(q) * k).exp() * f(k, v)).sum()
            };
            let sum = of(&|_, _| 1.0);
            let output = of(&|_, v| v) / sum;
            [output, sum.ln(), of(&|k, v| k * (v - output)) / sum]
        };
        let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap();
        for engine in engines(None) {
            let (forward, gradients) = answer(&engine, &inputs, &dmatrix![1.0; 1.0]);
            // By tiles, half a unit in the last place is lost with each tile at most, not with each key.
            let tiles = (n_k / engine.keys) as f64;
            let bound = 1e-6 + tiles * f64::from(f32::EPSILON) / 2.0;
            for (i, &query) in q.iter().enumerate() {
                let [right_output, right_lse, right_grad] = right(query);
                let context = format!("{engine:?}, {n_k} keys, {spread}, query {i}");
                let off = relative(forward.output[i], right_output);
                assert!(off < bound, "{context}: the output is off by {off:e}");
                let off = relative(forward.log_sum_exp[i], right_lse);
                assert!(off < bound, "{context}: the log-sum-exp is off by {off:e}");
                // A sum of terms of this size that nearly cancel.
                let off = f64::from(gradients.q[i]) - right_grad;
                let off = off.abs() / spread.max(1e-30);
                assert!(off < bound, "{context}: the gradient of q is off by {off:e}");
            }
        }
    }
}

/// Where that gradient is not small: large keys on one side, large values on the same.
pub fn the_gradient_of_queries_over_many_keys(engines: Engines<f32>) {
    for n_k in [1 << 10, 1 << 16, 1 << 20] {
        let side = |j: usize| if j.is_multiple_of(2) { 1.0_f32 } else { -1.0 };
        let k = DMatrix::from_fn(n_k, 1, |j, _| side(j));
        let q = dmatrix![0.0_f32]; // all scores are 0
        let inputs = Inputs::new(&q, &k, &k, Mask::none()).unwrap();
        for engine in engines(None) {
            let grad_q = answer(&engine, &inputs, &dmatrix![1.0]).1.q[0];
            let off = relative(grad_q, 1.0); // the mean of k · v
            assert!(off < tolerance::<f32>() / 2.0, "{engine:?}, {n_k} keys: {grad_q}");
        }
    }
}
