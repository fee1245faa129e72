//! Digits in single precision: sums of many terms, scores that only just fit, and numbers that are none.
//!
//! Equal scores are the hard case: their exponentials are all 1, and a running sum of 2²⁴ ones does not grow any more.

use attention::flash::{Flash, Inputs, Tiles, tiled_attention, tiled_attention_backward};
use attention::{
    Mask, Result, attention, attention_backward, linear_backward, log_sum_exp, softmax,
    softmax_rows,
};
use nalgebra::{DMatrix, DVector, dmatrix};

/// So many keys, with scores that are equal or differ by a few units in the last place.
fn hard() -> impl Iterator<Item = (usize, f64)> {
    [1 << 10, 1 << 16, 1 << 20].into_iter().flat_map(|n_k| [(n_k, 0.0), (n_k, 1e-3)])
}

/// A score for each key, between 0 and `spread`, in an order without a pattern.
fn scores(n_k: usize, spread: f64) -> impl Fn(usize) -> f64 {
    move |j| spread * ((j * 7919) % n_k) as f64 / n_k as f64
}

fn relative(given: f32, right: f64) -> f64 {
    (f64::from(given) / right - 1.0).abs()
}

#[test]
fn of_softmax_over_equal_and_nearly_equal_scores() {
    for (n_k, spread) in hard() {
        let score = scores(n_k, spread);
        let x = DVector::from_fn(n_k, |j, _| score(j) as f32);
        let sum: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
        let context = format!("{n_k} keys, {spread}");
        assert!(relative(log_sum_exp(&x).unwrap(), sum.ln()) < 3e-7, "{context}");
        let of_vector = softmax(&x).unwrap();
        let of_rows = softmax_rows(&x.transpose()).unwrap();
        for j in [0, n_k / 3, n_k - 1] {
            let right = f64::from(x[j]).exp() / sum;
            for weight in [of_vector[j], of_rows[j]] {
                assert!(
                    relative(weight, right) < 1e-6,
                    "{context}: {weight} for {right}"
                );
            }
        }
    }
}

/// Two queries that score every key (nearly) alike, and values with a mean that is not zero.
#[test]
fn of_attention_over_equal_and_nearly_equal_scores() -> Result<()> {
    for (n_k, spread) in hard() {
        let score = scores(n_k, spread);
        let q = dmatrix![1.0_f32; 0.5];
        let k = DMatrix::from_fn(n_k, 1, |j, _| score(j) as f32);
        let v = DMatrix::from_fn(n_k, 1, |j, _| 1.0 + 0.25 * (j % 4) as f32);
        let grad = dmatrix![1.0_f32; 1.0];
        // The same in f64, where nothing is lost.
        let right: Vec<[f64; 3]> = q
            .iter()
            .map(|&q| {
                let of = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
                    let pairs =
                        k.iter().zip(&v).map(|(&k, &v)| (f64::from(k), f64::from(v)));
                    pairs.map(|(k, v)| (f64::from(q) * k).exp() * f(k, v)).sum()
                };
                let sum = of(&|_, _| 1.0);
                let output = of(&|_, v| v) / sum;
                [output, sum.ln(), of(&|k, v| k * (v - output)) / sum]
            })
            .collect();
        let (output, cache) = attention(&q, &k, &v, Mask::none())?;
        let naive = attention_backward(&cache, &grad)?;
        let inputs = Inputs::new(&q, &k, &v, Mask::none())?;
        let engine = Flash::new();
        let forward = engine.forward(&inputs);
        let fast = engine.backward(&inputs, &forward, &grad)?;
        let tiles = Tiles::default();
        let tiled = tiled_attention(&inputs, tiles)?;
        let grads = tiled_attention_backward(&inputs, &tiled, &grad, tiles)?;
        for (program, output, log_sum_exp, grad_q, keys_in_tile) in [
            ("naive", output, cache.log_sum_exp.as_slice(), naive.q, n_k),
            (
                "flash",
                forward.output,
                forward.log_sum_exp.as_slice(),
                fast.q,
                Flash::TILES.keys,
            ),
            ("tiled", tiled.output, tiled.log_sum_exp.as_slice(), grads.q, tiles.keys),
        ] {
            // By tiles, half a unit in the last place is lost with each tile at most, not with each key.
            let bound =
                1e-6 + (n_k / keys_in_tile) as f64 * f64::from(f32::EPSILON) / 2.0;
            for (i, &[right_output, right_lse, right_grad]) in right.iter().enumerate() {
                let context = format!("{program}, {n_k} keys, {spread}, query {i}");
                let off = relative(output[i], right_output);
                assert!(off < bound, "{context}: the output is off by {off:e}");
                let off = relative(log_sum_exp[i], right_lse);
                assert!(off < bound, "{context}: the log-sum-exp is off by {off:e}");
                // A sum of terms of this size that nearly cancel.
                let off = (f64::from(grad_q[i]) - right_grad).abs() / spread.max(1e-30);
                assert!(off < bound, "{context}: the gradient of q is off by {off:e}");
            }
        }
    }
    Ok(())
}

/// The gradient with respect to q where it is not small: large keys on one side, large values on the same.
#[test]
fn of_the_gradient_with_respect_to_queries() -> Result<()> {
    for n_k in [1 << 10, 1 << 16, 1 << 20] {
        let side = |j: usize| if j.is_multiple_of(2) { 1.0_f32 } else { -1.0 };
        let q = dmatrix![0.0_f32]; // all scores are 0
        let k = DMatrix::from_fn(n_k, 1, |j, _| side(j));
        let v = DMatrix::from_fn(n_k, 1, |j, _| side(j));
        let (_, cache) = attention(&q, &k, &v, Mask::none())?;
        let naive = attention_backward(&cache, &dmatrix![1.0])?.q[0];
        let inputs = Inputs::new(&q, &k, &v, Mask::none())?;
        let engine = Flash::new();
        let fast =
            engine.backward(&inputs, &engine.forward(&inputs), &dmatrix![1.0])?.q[0];
        for grad_q in [naive, fast] {
            assert!(relative(grad_q, 1.0) < 1e-6, "{n_k} keys: {grad_q}"); // the mean of k · v
        }
    }
    Ok(())
}

#[test]
fn of_the_gradients_of_parameters_over_many_rows() -> Result<()> {
    const N: usize = 65_536;
    let x = DMatrix::from_element(N, 1, 0.5_f32);
    let w = dmatrix![1.0_f32, 2.0];
    let grad_y = DMatrix::from_fn(N, 2, |_, c| if c == 0 { 0.999 } else { 0.1 });
    let (_, grad_w, grad_b) = linear_backward(&x, &w, &grad_y)?;
    for c in 0..2 {
        let right = f64::from(grad_y[(0, c)]) * N as f64;
        assert!(relative(grad_b[c], right) < 1e-6, "bias: {} for {right}", grad_b[c]);
        let of_weight = 2.0 * grad_w[c];
        assert!(relative(of_weight, right) < 3e-6, "weight: {of_weight} for {right}");
    }
    Ok(())
}
