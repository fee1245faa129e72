//! Few queries, such as the one of a token that is written, against many keys.
//!
//! Tiles would leave most of each vector empty, since their vectors lie along the queries, and would give one thread all the work. Here
//! vectors lie along the keys, which are read where they are, and threads share the keys: each chunk of keys has a softmax of its own, and
//! the chunks are merged as parts of a softmax can be. A chunk that lies in several pages is copied first.

use crate::forward::{Flash, rows_not_finite, sees_something, two_scales};
use crate::pages::{Asking, parts};
use crate::queue::{into_inner, lock};
use crate::simd::{
    Float, InstructionSet, LARGEST_VECTOR, WHOLE_BLOCKS, Work, combinations, dots_so_far,
    exp2,
};
use attention::engine::PagedInputs;
use attention::engine::{blocks, copy_of};
use attention::engine::{normaliser, shift};
use attention::flash::FlashOutput;
use attention::{
    engine::neg_infinity,
    mask::{SizedMask, Visibility},
};
use nalgebra::{DMatrixView, convert};
use std::f64::consts::LOG2_E;
use std::ops::Range;
use std::sync::Mutex;

/// With up to so many queries, this way was the faster one where it was measured. A browser has one way for all: less code to send.
const FEW: usize = if cfg!(target_family = "wasm") { 0 } else { 6 };

/// Tiles in a chunk of keys, at least and at most. Long chunks are read faster, and short ones give work to more threads.
const TILES: [usize; 2] = [8, 32];

/// So many chunks are enough for all threads.
const CHUNKS: usize = 16;

impl Flash {
    /// Whether so many queries go this way.
    pub(super) fn are_few(n_q: usize) -> bool {
        FEW > 0 && n_q <= FEW
    }

    pub(super) fn forward_few<T: Float>(
        &self,
        inputs: &PagedInputs<T>,
    ) -> FlashOutput<T> {
        match self.is_batch_invariant() {
            true => self.forward_few_in_order(inputs),
            false => self.forward_few_in_chunks(inputs),
        }
    }

    fn forward_few_in_chunks<T: Float>(&self, inputs: &PagedInputs<T>) -> FlashOutput<T> {
        let (n_q, n_k) = inputs.mask.shape();
        let (d_k, d_v) = inputs.widths();
        let (n_heads, n_kv_heads) = (inputs.n_heads, inputs.n_kv_heads);
        let seen = inputs.mask.keys_seen_by(0..n_q);
        // The number of threads has no part in it: sums over chunks must not depend on that.
        let [least, most] = TILES.map(|tiles| self.tiles().keys.saturating_mul(tiles));
        let keys = (n_kv_heads * n_k / CHUNKS).clamp(least, most) / least * least;
        let keys = keys.min(n_k);
        let seen = move |chunk: Range<usize>| {
            chunk.start.max(seen.start)..chunk.end.min(seen.end)
        };
        let chunks: Vec<_> = blocks(n_k, keys).map(seen).collect();
        let hidden = |keys: &Range<usize>| {
            keys.is_empty()
                || inputs.mask.visibility(0..n_q, keys.clone()) == Visibility::Hidden
        };
        let chunks: Vec<_> = chunks.into_iter().filter(|keys| !hidden(keys)).collect();
        let tasks = (0..n_kv_heads)
            .flat_map(|g| (0..chunks.len()).map(move |chunk| (g, chunk)))
            .collect();
        let rows = n_heads / n_kv_heads * n_q; // the queries of all heads that share their keys
        let part = Part::new(rows, d_v);
        let all_parts = Mutex::new(vec![part; n_kv_heads * chunks.len()]);
        let scales = two_scales(inputs.scale());
        let stride = keys.next_multiple_of(LARGEST_VECTOR);
        let threads = self.threads_for((n_q, n_k), (d_k, d_v), n_heads);
        threads.run(
            tasks,
            || Workspace {
                queries: vec![T::zero(); rows * d_k],
                scores: vec![T::zero(); rows * stride],
                sums: vec![T::zero(); rows * d_v * LARGEST_VECTOR],
                copies: [vec![], vec![]],
            },
            |workspace, (g, chunk)| {
                let heads: Vec<_> =
                    inputs.group(g).map(|h| Asking::of(inputs, h)).collect();
                let Workspace { queries, scores, sums, copies } = workspace;
                let [of_keys, of_values] = copies;
                let (heads, keys) = (&heads[..], chunks[chunk].clone());
                let columns = |width: usize| g * width..(g + 1) * width;
                let k = parts(
                    &inputs.keys,
                    keys.clone(),
                    columns(d_k),
                    Some(WHOLE_BLOCKS),
                    of_keys,
                );
                let v = parts(
                    &inputs.values,
                    keys.clone(),
                    columns(d_v),
                    Some(WHOLE_BLOCKS),
                    of_values,
                );
                let (k, v) = (&k[..], &v[..]);
                let work = Chunk {
                    heads,
                    keys,
                    k,
                    v,
                    d_v,
                    scales,
                    queries,
                    scores,
                    stride,
                    sums,
                };
                let part = self.instructions().run(work).expect("checked instructions");
                lock(&all_parts)[g * chunks.len() + chunk] = part;
            },
        );
        let parts = into_inner(all_parts);
        let mut forward = FlashOutput::of_shape(n_q, n_heads, d_v);
        for g in 0..n_kv_heads {
            let parts = &parts[g * chunks.len()..][..chunks.len()];
            for (row, h) in inputs.group(g).enumerate() {
                for i in 0..n_q {
                    merge(parts, row * n_q + i, &inputs.mask, &mut forward, (i, h));
                }
            }
        }
        forward
    }
}

/// What a thread uses again for every chunk.
struct Workspace<T> {
    queries: Vec<T>,     // (rows, d_k), row by row
    scores: Vec<T>,      // (rows, stride), row by row
    sums: Vec<T>,        // (rows, d_v, numbers of a vector)
    copies: [Vec<T>; 2], // of keys and of values that lie in several pages
}

/// The state of each query's softmax after a chunk of keys, as in [`OnlineSoftmax`](super::OnlineSoftmax).
#[derive(Clone)]
struct Part<T> {
    max: Vec<T>,    // (rows)
    sum: Vec<T>,    // (rows)
    output: Vec<T>, // (rows, d_v), row by row
}

impl<T: Float> Part<T> {
    fn new(rows: usize, d_v: usize) -> Self {
        let zeros = |n| vec![T::zero(); n];
        let max = vec![neg_infinity(); rows];
        Part { max, sum: zeros(rows), output: zeros(rows * d_v) }
    }
}

/// One query's parts become its output and its log-sum-exp.
fn merge<T: Float>(
    parts: &[Part<T>],
    row: usize, // of the parts
    mask: &SizedMask,
    forward: &mut FlashOutput<T>,
    (i, h): (usize, usize),
) {
    let d_v = forward.output.ncols() / forward.log_sum_exp.ncols();
    let larger = |a: T, b: T| if b > a { b } else { a };
    let max = parts.iter().map(|part| part.max[row]).fold(neg_infinity(), larger);
    let mut sum = T::zero();
    let mut output = vec![T::zero(); d_v];
    for part in parts {
        let behind = (part.max[row] - shift(max)) * convert(LOG2_E);
        let correction = T::exp2_polynomial::<false>(behind);
        sum += part.sum[row] * correction;
        for (to, &from) in output.iter_mut().zip(&part.output[row * d_v..]) {
            *to += from * correction;
        }
    }
    // Scores that overflowed to −∞ look like hidden ones.
    if sum.is_zero() && sees_something(mask, i) {
        sum = convert(f64::NAN);
    }
    for (c, output) in output.into_iter().enumerate() {
        forward.output[(i, h * d_v + c)] = output / normaliser(sum);
    }
    forward.write_log_sum_exp((i, h), T::one(), max, sum);
}

/// All queries of the heads that share their keys, one head after the other, and some of these keys.
struct Chunk<'a, T: Float> {
    heads: &'a [Asking<'a, T>],
    keys: Range<usize>,
    k: &'a [DMatrixView<'a, T>], // (keys, d_k), in parts
    v: &'a [DMatrixView<'a, T>], // (keys, d_v), in parts
    d_v: usize,
    scales: (T, T),       // of queries, and of their products with keys
    queries: &'a mut [T], // (rows, d_k), row by row
    scores: &'a mut [T],  // (rows, stride), row by row
    stride: usize,
    sums: &'a mut [T], // (rows, d_v, numbers of a vector)
}

impl<T: Float> Work for Chunk<'_, T> {
    type Output = Part<T>;

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(
        self,
        simd: S,
    ) -> Part<T> {
        let Chunk { heads, keys, k, v, d_v, scales, queries, scores, stride, sums } =
            self;
        let (n_q, d_k) = heads[0].q.shape();
        let head_and_query = |row: usize| (&heads[row / n_q], row % n_q);
        for (row, to) in queries.chunks_exact_mut(d_k).enumerate() {
            let (head, i) = head_and_query(row);
            to.iter_mut().zip(&head.q.row(i)).for_each(|(to, &x)| *to = x * scales.0);
        }
        scores.fill(T::zero());
        let mut first = 0;
        for k in k {
            let scores = &mut scores[first..];
            combinations::<S, T>(simd, (queries, d_k), *k, (scores, stride));
            first += k.nrows();
        }

        let seen = heads[0].mask.visibility(0..n_q, keys.clone());
        let mut part = Part::new(heads.len() * n_q, d_v);
        for (row, line) in scores.chunks_exact_mut(stride).enumerate() {
            let (head, i) = head_and_query(row);
            let (scores, rest) = line.split_at_mut(keys.len());
            scores.iter_mut().for_each(|score| *score *= scales.1);
            head.mask.change_keys(i, keys.clone(), scores);
            if seen == Visibility::Partial {
                head.mask.hide_keys(i, keys.clone(), scores, neg_infinity());
            }
            rest.fill(neg_infinity());
            (part.max[row], part.sum[row]) = exponentials::<S, T>(simd, line);
            if let Some(dropout) = head.dropout {
                dropout.multiply_keys(i, keys.start, &mut line[..keys.len()]);
            }
        }

        // A weight of 0 does not hide what is not finite.
        sums.fill(T::zero());
        let mut hidden_values = vec![]; // (key of the chunk, its values)
        let mut first = 0;
        for v in v {
            let weights = (&scores[first..], stride);
            let all_seen = seen == Visibility::Full;
            let not_finite = if all_seen { vec![] } else { rows_not_finite([*v]) };
            if not_finite.is_empty() {
                dots_so_far::<S, T>(simd, weights, *v, sums);
            } else {
                let mut finite = copy_of(*v);
                for bad in not_finite {
                    finite.row_mut(bad).fill(T::zero());
                    hidden_values.push((first + bad, v.row(bad)));
                }
                dots_so_far::<S, T>(simd, weights, finite.as_view(), sums);
            }
            first += v.nrows();
        }
        for (sum, vector) in part.output.iter_mut().zip(T::vectors::<S>(sums)) {
            *sum = T::sum_of_vector(simd, *vector);
        }
        for (bad, values) in hidden_values {
            for row in 0..heads.len() * n_q {
                let (head, i) = head_and_query(row);
                if head.mask.allows(i, keys.start + bad) {
                    let weight = scores[row * stride + bad];
                    for (c, &value) in values.iter().enumerate() {
                        part.output[row * d_v + c] += weight * value;
                    }
                }
            }
        }
        part
    }
}

/// Scores become exponentials of their distance to the largest one. Returns that, and the sum.
#[inline(always)]
fn exponentials<S: InstructionSet, T: Float>(simd: S, scores: &mut [T]) -> (T, T) {
    let scores = T::vectors_mut::<S>(scores);
    let mut largest = T::splat_vector(simd, neg_infinity());
    for &scores in &*scores {
        largest = T::larger(simd, scores, largest);
    }
    let mut lanes = [neg_infinity(); LARGEST_VECTOR];
    T::vectors_mut::<S>(&mut lanes)[0] = largest;
    let max = lanes.into_iter().fold(neg_infinity(), |a: T, b| if b > a { b } else { a });
    let lowest = T::min_value().expect("floats have one");
    let shift = T::splat_vector(simd, if max > lowest { max } else { lowest }); // −∞ − (−∞) is NaN
    let base = T::splat_vector(simd, convert(LOG2_E)); // e^x = 2^(base · x)
    let mut sum = T::splat_vector(simd, T::zero());
    for scores in scores {
        let behind = T::sub_vectors(simd, *scores, shift);
        *scores = exp2::<S, T>(simd, T::mul_vectors(simd, behind, base));
        sum = T::add_vectors(simd, sum, *scores);
    }
    (max, T::sum_of_vector(simd, sum))
}
