//! The expected results of a kernel: some rows, computed in f64 on the processor.

use attention::cuda::Shape;
use gpu::Precision;
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::ops::Range;

/// The number of rows that are compared.
const ROWS: usize = 64;

/// The inputs of the forward pass: (heads, n_q, d), and twice (kv_heads, n_k, d).
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    /// The type that the kernel rounds them to.
    pub precision: Precision,
}

/// The other inputs of the backward pass: the results of the forward kernel, and the gradient of the output.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// (heads, n, d)
    pub output: &'a [f32],
    /// (heads, n)
    pub lse: &'a [f32],
    /// (heads, n, d)
    pub d_output: &'a [f32],
}

/// The factor of the scores of heads of width `d`.
fn scale(d: usize) -> f64 {
    1.0 / (d as f64).sqrt()
}

/// The largest difference from the reference that is allowed: ‖tensor − reference‖ / ‖reference‖ over the rows.
pub fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::Bf16 => 1e-2,
    }
}

/// Rows of a tensor (heads, n_q, …), counted through all heads: both ends of the first and the last head, and others
/// anywhere.
pub fn rows(shape: Shape, seed: u64) -> Vec<usize> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let (n, all) = (shape.n_q, shape.heads * shape.n_q);
    let mut rows = vec![0, n - 1, all - n, all - 1];
    let any = || rng.random_range(0..all);
    rows.extend(std::iter::repeat_with(any).take(ROWS - rows.len()));
    rows
}

/// The rows of a tensor (heads, n, d), one after the other.
pub fn pick(tensor: &[f32], d: usize, rows: &[usize]) -> Vec<f64> {
    rows.iter().flat_map(|row| &tensor[row * d..][..d]).map(|x| f64::from(*x)).collect()
}

/// The difference of `found` from `expected`, as a part of `expected`. NaN stays NaN.
pub fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let squared = |x: f64| x * x;
    let off: f64 = found.iter().zip(expected).map(|(a, b)| squared(a - b)).sum();
    let size: f64 = expected.iter().map(|x| squared(*x)).sum();
    (off / size).sqrt()
}

impl Inputs<'_> {
    /// Rows of a tensor as the kernel reads them, each of them a column: (d, rows).
    fn read(&self, tensor: &[f32], d: usize, rows: Range<usize>) -> DMatrix<f64> {
        let numbers = tensor[rows.start * d..rows.end * d]
            .iter()
            .map(|x| f64::from(self.precision.round(*x)));
        DMatrix::from_iterator(d, rows.len(), numbers)
    }

    /// Rows of the output, and their log-sum-exps.
    pub fn forward(&self, shape: Shape, rows: &[usize]) -> (Vec<f64>, Vec<f64>) {
        let d = shape.d;
        let of = |&row: &usize| {
            let keys = keys_seen(shape, row);
            let q = self.read(self.q, d, row..row + 1);
            let k = self.read(self.k, d, keys.clone());
            let scores = k.tr_mul(&q) * scale(d); // (keys, 1)
            let most = scores.max();
            let exponentials = scores.map(|s| (s - most).exp());
            let sum = exponentials.sum();
            let output = self.read(self.v, d, keys) * exponentials / sum; // (d, 1)
            (output.as_slice().to_vec(), most + sum.ln())
        };
        let (outputs, lse): (Vec<_>, Vec<_>) = rows.par_iter().map(of).unzip();
        (outputs.concat(), lse)
    }

    /// Rows of the gradients of q, k and v, with as many keys as queries and heads that share none.
    pub fn backward(
        &self,
        shape: Shape,
        rows: &[usize],
        forward: Forward,
    ) -> [Vec<f64>; 3] {
        let d = shape.d;
        let of_query = |&row: &usize| {
            let keys = keys_seen(shape, row);
            let (_, d_scores) =
                self.weights_and_score_gradients(d, row..row + 1, keys.clone(), forward);
            // S = scale · Q Kᵀ, so dQ = scale · dS K
            let d_q = self.read(self.k, d, keys) * d_scores.transpose() * scale(d);
            d_q.as_slice().to_vec()
        };
        let of_key = |&row: &usize| {
            let queries = queries_seeing(shape, row);
            let (weights, d_scores) = self.weights_and_score_gradients(
                d,
                queries.clone(),
                row..row + 1,
                forward,
            );
            // S = scale · Q Kᵀ, so dK = scale · dSᵀ Q
            let d_k = self.read(self.q, d, queries.clone()) * d_scores * scale(d);
            // O = P V, so dV = Pᵀ dO
            let d_v = self.read(forward.d_output, d, queries) * weights;
            (d_k.as_slice().to_vec(), d_v.as_slice().to_vec())
        };
        let d_q: Vec<_> = rows.par_iter().map(of_query).collect();
        let (d_k, d_v): (Vec<_>, Vec<_>) = rows.par_iter().map(of_key).unzip();
        [d_q.concat(), d_k.concat(), d_v.concat()]
    }

    /// The weights of some queries and keys, and the gradients of their scores, each (queries, keys).
    fn weights_and_score_gradients(
        &self,
        d: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        forward: Forward,
    ) -> (DMatrix<f64>, DMatrix<f64>) {
        let of_queries = |tensor| self.read(tensor, d, queries.clone());
        let (d_output, output) =
            (of_queries(forward.d_output), of_queries(forward.output));
        let deltas = d_output.component_mul(&output).row_sum();
        let mut weights = of_queries(self.q).tr_mul(&self.read(self.k, d, keys.clone()));
        let mut d_scores = d_output.tr_mul(&self.read(self.v, d, keys));
        for (i, lse) in forward.lse[queries.clone()].iter().enumerate() {
            // P = exp(S − lse)
            weights.row_mut(i).apply(|s| *s = (scale(d) * *s - f64::from(*lse)).exp());
            // dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O))
            d_scores.row_mut(i).add_scalar_mut(-deltas[i]);
        }
        d_scores.component_mul_assign(&weights);
        (weights, d_scores)
    }
}

/// The keys that a query sees: those of its head, or those up to its own place.
fn keys_seen(shape: Shape, query: usize) -> Range<usize> {
    let Shape { heads, kv_heads, n_q, n_k, causal, .. } = shape;
    let (head, i) = (query / n_q, query % n_q);
    let first = head / (heads / kv_heads) * n_k;
    first..first + if causal { i + 1 + n_k - n_q } else { n_k }
}

/// The queries that see a key.
fn queries_seeing(shape: Shape, key: usize) -> Range<usize> {
    let first = key - key % shape.n_q;
    (if shape.causal { key } else { first })..first + shape.n_q
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention, attention_backward};
    use rand_distr::StandardNormal;

    const SHAPE: Shape =
        Shape { heads: 3, kv_heads: 3, n_q: 37, n_k: 37, d: 8, causal: true };

    fn draw(seed: u64) -> Vec<f32> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let count = SHAPE.heads * SHAPE.n_q * SHAPE.d;
        (0..count).map(|_| rng.sample(StandardNormal)).collect()
    }

    /// A head as the crate takes it.
    fn head(tensor: &[f32], head: usize) -> DMatrix<f64> {
        let Shape { n_q, d, .. } = SHAPE;
        let rows = &tensor[head * n_q * d..][..n_q * d];
        DMatrix::from_row_slice(n_q, d, rows).map(f64::from)
    }

    #[test]
    fn both_ends_are_among_the_rows() {
        let rows = rows(SHAPE, 1);
        assert_eq!(rows.len(), ROWS);
        for end in [0, 36, 2 * 37, 3 * 37 - 1] {
            assert!(rows.contains(&end));
        }
        assert!(rows.iter().any(|row| row / SHAPE.n_q == 1));
    }

    /// Against the crate's written-out path: full and causal.
    #[test]
    fn rows_are_those_of_the_definition() {
        for causal in [false, true] {
            let shape = Shape { causal, ..SHAPE };
            let mask = if causal { Mask::causal() } else { Mask::none() };
            let [q, k, v, d_output] = [1, 2, 3, 4].map(draw);
            let inputs = Inputs { q: &q, k: &k, v: &v, precision: Precision::F32 };
            let (mut output, mut lse, mut gradients) =
                (vec![], vec![], [(); 3].map(|()| vec![]));
            for h in 0..SHAPE.heads {
                let [q, k, v, d_output] = [&q, &k, &v, &d_output].map(|x| head(x, h));
                let (whole, cache) = attention(&q, &k, &v, mask.clone()).unwrap();
                let back = attention_backward(&cache, &d_output).unwrap();
                output.extend_from_slice(whole.transpose().as_slice());
                let scores = &q * k.transpose() * scale(SHAPE.d);
                for i in 0..SHAPE.n_q {
                    let seen = keys_seen(shape, i);
                    lse.push(seen.map(|j| scores[(i, j)].exp()).sum::<f64>().ln());
                }
                for (all, one) in gradients.iter_mut().zip([back.q, back.k, back.v]) {
                    all.extend_from_slice(one.transpose().as_slice());
                }
            }
            let short = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<_>>();
            let (output, lse, gradients) =
                (short(&output), short(&lse), gradients.map(|g| short(&g)));
            let rows = rows(shape, 7);
            let expected = |x: &[f32], d: usize| pick(x, d, &rows);
            let (found_output, found_lse) = inputs.forward(shape, &rows);
            assert!(difference(&expected(&output, SHAPE.d), &found_output) < 1e-7);
            assert!(difference(&expected(&lse, 1), &found_lse) < 1e-7);
            let forward = Forward { output: &output, lse: &lse, d_output: &d_output };
            let found = inputs.backward(shape, &rows, forward);
            for (found, gradient) in found.iter().zip(&gradients) {
                let off = difference(&expected(gradient, SHAPE.d), found);
                assert!(off < 1e-6, "{off}");
            }
        }
    }

    /// Where a model writes there are fewer queries than keys, and heads share these.
    #[test]
    fn shared_keys_of_a_few_queries_are_found() {
        let shape = Shape { heads: 4, kv_heads: 2, n_q: 2, n_k: 7, ..SHAPE };
        assert_eq!(keys_seen(shape, 3), 0..7); // head 1, its last query
        assert_eq!(keys_seen(shape, 4), 7..13); // head 2, one before
        assert_eq!(keys_seen(Shape { causal: false, ..shape }, 4), 7..14);
    }

    /// A kernel in bf16 reads rounded numbers.
    #[test]
    fn the_reference_rounds_as_the_kernel_does() {
        let [q, k, v] = [1, 2, 3].map(draw);
        let round =
            |x: &[f32]| x.iter().map(|x| Precision::Bf16.round(*x)).collect::<Vec<_>>();
        let rows = rows(SHAPE, 7);
        let rounding = Inputs { q: &q, k: &k, v: &v, precision: Precision::Bf16 };
        let exact = Inputs { precision: Precision::F32, ..rounding };
        let (q, k, v) = (round(&q), round(&k), round(&v));
        let rounded = Inputs { q: &q, k: &k, v: &v, precision: Precision::F32 };
        let [a, b, c] = [rounding, rounded, exact].map(|x| x.forward(SHAPE, &rows).0);
        assert_eq!(a, b);
        assert!(difference(&a, &c) > 1e-4);
    }

    #[test]
    fn what_was_not_written_is_no_match() {
        assert!(difference(&[1.0, f64::NAN], &[1.0, 2.0]).is_nan());
        assert_eq!(difference(&[6.0, 4.0], &[3.0, 0.0]), 5.0 / 3.0);
    }
}
