//! What a kernel must come to: some rows, computed in f64 on the processor.

use attention::cuda::{Bf16, Precision, Shape};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

/// How many rows are compared.
const ROWS: usize = 64;

/// What is compared with, of one kind of tensor.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// (heads, n_q, d)
    pub q: &'a [f32],
    /// (heads, n_k, d)
    pub k: &'a [f32],
    /// (heads, n_k, d)
    pub v: &'a [f32],
    /// What the kernel rounds them to.
    pub precision: Precision,
}

/// What else the backward pass reads: the results of the forward kernel, and the gradient of the output.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// (heads, n_q, d)
    pub output: &'a [f32],
    /// (heads, n_q)
    pub lse: &'a [f32],
    /// (heads, n_q, d)
    pub d_output: &'a [f32],
}

/// A row of a tensor: of which head, and which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    head: usize,
    row: usize,
}

/// How far a tensor may be from the reference: ‖tensor − reference‖ / ‖reference‖ over the rows.
pub fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::Bf16 => 1e-2,
    }
}

/// Rows anywhere, and both ends of the first and the last head.
pub fn rows(shape: Shape, seed: u64) -> Vec<Row> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let (heads, n) = (shape.heads, shape.n_q.min(shape.n_k));
    let ends = [0, heads - 1].map(|head| [0, n - 1].map(|row| Row { head, row }));
    let mut rows = ends.concat();
    let any = || Row { head: rng.random_range(0..heads), row: rng.random_range(0..n) };
    rows.extend(std::iter::repeat_with(any).take(ROWS - rows.len()));
    rows
}

/// The rows of a tensor (heads, n, d), one after the other.
pub fn pick(tensor: &[f32], n: usize, d: usize, rows: &[Row]) -> Vec<f64> {
    let of = |row: &Row| at(tensor, n, d, *row).iter().map(|x| f64::from(*x));
    rows.iter().flat_map(of).collect()
}

fn at(tensor: &[f32], n: usize, d: usize, Row { head, row }: Row) -> &[f32] {
    &tensor[(head * n + row) * d..][..d]
}

/// How far `found` is from `expected`, as a part of the latter. NaN stays NaN.
pub fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let squared = |x: f64| x * x;
    let off: f64 = found.iter().zip(expected).map(|(a, b)| squared(a - b)).sum();
    let size: f64 = expected.iter().map(|x| squared(*x)).sum();
    (off / size).sqrt()
}

impl Inputs<'_> {
    /// As the kernel reads it.
    fn read(&self, x: f32) -> f64 {
        f64::from(match self.precision {
            Precision::F32 => x,
            Precision::Bf16 => Bf16::from_f32(x).to_f32(),
        })
    }

    fn row(&self, tensor: &[f32], n: usize, d: usize, row: Row) -> Vec<f64> {
        at(tensor, n, d, row).iter().map(|x| self.read(*x)).collect()
    }

    fn dot(&self, a: &[f64], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * self.read(*b)).sum()
    }

    /// sum += factor · row
    fn add(&self, sum: &mut [f64], factor: f64, row: &[f32]) {
        for (sum, x) in sum.iter_mut().zip(row) {
            *sum += factor * self.read(*x);
        }
    }

    /// Rows of the output, and their log-sum-exps.
    pub fn forward(&self, shape: Shape, rows: &[Row]) -> (Vec<f64>, Vec<f64>) {
        let Shape { n_q, n_k, d, .. } = shape;
        let of = |row: &Row| {
            let q = self.row(self.q, n_q, d, *row);
            let keys = 0..keys_seen(shape, row.row);
            let key = |j: usize| Row { head: row.head, row: j };
            let score = |j: usize| scale(d) * self.dot(&q, at(self.k, n_k, d, key(j)));
            let scores: Vec<f64> = keys.map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
            let mut output = vec![0.0; d];
            for (j, s) in scores.iter().enumerate() {
                let weight = (s - most).exp() / sum;
                self.add(&mut output, weight, at(self.v, n_k, d, key(j)));
            }
            (output, most + sum.ln())
        };
        let (outputs, lse): (Vec<_>, Vec<_>) = rows.par_iter().map(of).unzip();
        (outputs.concat(), lse)
    }

    /// Rows of the gradients of q, k and v.
    pub fn backward(
        &self,
        shape: Shape,
        rows: &[Row],
        forward: Forward,
    ) -> [Vec<f64>; 3] {
        let of_query = |row: &Row| self.d_query(shape, *row, forward);
        let of_key = |row: &Row| self.d_key_and_value(shape, *row, forward);
        let d_q: Vec<_> = rows.par_iter().map(of_query).collect();
        let (d_k, d_v): (Vec<_>, Vec<_>) = rows.par_iter().map(of_key).unzip();
        [d_q.concat(), d_k.concat(), d_v.concat()]
    }

    /// What query i and key j have to do with each other: their weight, and the gradient of their score.
    fn meet(&self, shape: Shape, query: Row, key: Row, forward: Forward) -> (f64, f64) {
        let Shape { n_q, n_k, d, .. } = shape;
        let q = self.row(self.q, n_q, d, query);
        let d_output = self.row(forward.d_output, n_q, d, query);
        let lse = f64::from(forward.lse[query.head * n_q + query.row]);
        let delta = self.dot(&d_output, at(forward.output, n_q, d, query));
        // P = exp(S − lse)
        let weight = (scale(d) * self.dot(&q, at(self.k, n_k, d, key)) - lse).exp();
        // dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O))
        let d_score = weight * (self.dot(&d_output, at(self.v, n_k, d, key)) - delta);
        (weight, d_score)
    }

    fn d_query(&self, shape: Shape, query: Row, forward: Forward) -> Vec<f64> {
        let mut d_q = vec![0.0; shape.d];
        for j in 0..keys_seen(shape, query.row) {
            let key = Row { head: query.head, row: j };
            let (_, d_score) = self.meet(shape, query, key, forward);
            // S = scale · Q Kᵀ, so dQ = scale · dS K
            self.add(
                &mut d_q,
                scale(shape.d) * d_score,
                at(self.k, shape.n_k, shape.d, key),
            );
        }
        d_q
    }

    fn d_key_and_value(
        &self,
        shape: Shape,
        key: Row,
        forward: Forward,
    ) -> (Vec<f64>, Vec<f64>) {
        let Shape { n_q, d, .. } = shape;
        let (mut d_k, mut d_v) = (vec![0.0; d], vec![0.0; d]);
        for i in (0..n_q).filter(|i| key.row < keys_seen(shape, *i)) {
            let query = Row { head: key.head, row: i };
            let (weight, d_score) = self.meet(shape, query, key, forward);
            // S = scale · Q Kᵀ, so dK = scale · dSᵀ Q
            self.add(&mut d_k, scale(d) * d_score, at(self.q, n_q, d, query));
            // O = P V, so dV = Pᵀ dO
            self.add(&mut d_v, weight, at(forward.d_output, n_q, d, query));
        }
        (d_k, d_v)
    }
}

fn scale(d: usize) -> f64 {
    1.0 / (d as f64).sqrt()
}

/// How many keys, from the first, query i sees.
fn keys_seen(shape: Shape, i: usize) -> usize {
    let Shape { n_q, n_k, causal, .. } = shape;
    if causal { (i + 1 + n_k).saturating_sub(n_q).min(n_k) } else { n_k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention, attention_backward};
    use nalgebra::DMatrix;
    use rand_distr::StandardNormal;

    const SHAPE: Shape = Shape { heads: 3, n_q: 37, n_k: 37, d: 8, causal: true };

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
        for row in [0, SHAPE.n_q - 1] {
            for head in [0, SHAPE.heads - 1] {
                assert!(rows.contains(&Row { head, row }));
            }
        }
        assert!(rows.iter().any(|row| row.head == 1));
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
                let (whole, cache) = attention(&q, &k, &v, &mask).unwrap();
                let back = attention_backward(&cache, &d_output).unwrap();
                output.extend_from_slice(whole.transpose().as_slice());
                let scores = &q * k.transpose() * scale(SHAPE.d);
                for i in 0..SHAPE.n_q {
                    let seen = 0..keys_seen(shape, i);
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
            let expected = |x: &[f32], d: usize| pick(x, SHAPE.n_q, d, &rows);
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

    /// What a kernel in bf16 reads are rounded numbers.
    #[test]
    fn the_reference_rounds_as_the_kernel_does() {
        let [q, k, v] = [1, 2, 3].map(draw);
        let round =
            |x: &[f32]| x.iter().map(|x| Bf16::from_f32(*x).to_f32()).collect::<Vec<_>>();
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
