//! Few queries against many keys, summed in the order of many queries: for [`Flash::with_batch_invariance`].
//!
//! Keys and values are read where they are, as in [`few_queries`](crate::few_queries), and one thread takes all heads that share them. What
//! is rounded, and when, is as in the [tiles](crate::forward) of many queries: a score is summed over the columns, one after the other; the
//! keys of a tile are summed one after the other, and then join the running softmax. So threads can't share the keys of a head.

use crate::forward::{Flash, Grid, rows_not_finite, sees_something, two_scales};
use crate::pages::{Asking, parts};
use crate::queue::{into_inner, lock};
use crate::simd::{
    Float, InstructionSet, LARGEST_VECTOR, Work, combinations, dots_in_order, exp2,
    mul_add,
};
use attention::engine::{PagedInputs, copy_of, neg_infinity, normaliser};
use attention::flash::FlashOutput;
use attention::mask::Visibility;
use nalgebra::convert;
use std::f64::consts::LOG2_E;
use std::ops::Range;
use std::sync::Mutex;

/// So many tiles are read at once, column by column: a tile of a column is too short for the processor to fetch ahead.
const STRETCH: usize = 8;

impl Flash {
    pub(super) fn forward_few_in_order<T: Float>(
        &self,
        inputs: &PagedInputs<T>,
    ) -> FlashOutput<T> {
        let (n_q, n_k) = inputs.mask.shape();
        let (_, d_v) = inputs.widths();
        // Sums are cut where the tiles of many queries are.
        let step = self.instructions().sizes::<T>().numbers;
        let size = self.tiles().keys.min(n_k).next_multiple_of(step);
        let grid = Grid { size, step, end: n_k };
        let threads = self.threads_for((n_q, n_k), inputs.widths(), inputs.n_heads);
        let forward = Mutex::new(FlashOutput::of_shape(n_q, inputs.n_heads, d_v));
        let write = |g: usize, rows: Vec<Running<T>>| {
            let mut forward = lock(&forward);
            let places =
                inputs.group(g).flat_map(|head| (0..n_q).map(move |i| (i, head)));
            for ((i, head), Running { max, mut sum, output }) in places.zip(rows) {
                // Scores that overflowed to −∞ look like hidden ones.
                if sum.is_zero() && sees_something(&inputs.mask, i) {
                    sum = convert(f64::NAN);
                }
                for (c, &x) in output[..d_v].iter().enumerate() {
                    let x = x / normaliser(sum) + T::zero();
                    forward.output[(i, head * d_v + c)] = x;
                }
                forward.write_log_sum_exp((i, head), T::one(), max, sum);
            }
        };
        threads.run(
            (0..inputs.n_kv_heads).collect(),
            || (),
            |(), g| {
                let work = Group { inputs, g, grid };
                let rows = self.instructions().run(work).expect("checked instructions");
                write(g, rows);
            },
        );
        into_inner(forward)
    }
}

/// The running softmax of a row.
struct Running<T> {
    max: T,
    sum: T,
    output: Vec<T>, // (d_v), and what fills the last vector
}

/// All queries of the heads that share their keys, one head after the other.
struct Group<'a, T: Float> {
    inputs: &'a PagedInputs<'a, T>,
    g: usize,
    grid: Grid,
}

impl<T: Float> Work for Group<'_, T> {
    type Output = Vec<Running<T>>;

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(
        self,
        simd: S,
    ) -> Vec<Running<T>> {
        let Group { inputs, g, grid } = self;
        let (n_q, (d_k, d_v)) = (inputs.mask.shape().0, inputs.widths());
        let heads: Vec<_> = inputs.group(g).map(|h| Asking::of(inputs, h)).collect();
        let rows = heads.len() * n_q;
        let head_and_query = |row: usize| (&heads[row / n_q], row % n_q);
        let scales = two_scales(inputs.scale());
        let mut queries = vec![T::zero(); rows * d_k];
        for (row, to) in queries.chunks_exact_mut(d_k).enumerate() {
            let (head, i) = head_and_query(row);
            to.iter_mut().zip(&head.q.row(i)).for_each(|(to, &x)| *to = x * scales.0);
        }
        let stride = (STRETCH * grid.size).next_multiple_of(LARGEST_VECTOR);
        let mut scores = vec![T::zero(); rows * stride];
        let mut corrections = vec![T::zero(); STRETCH * rows];
        let output = vec![T::zero(); d_v.next_multiple_of(LARGEST_VECTOR)];
        let fresh =
            || Running { max: neg_infinity(), sum: T::zero(), output: output.clone() };
        let mut state: Vec<_> = (0..rows).map(|_| fresh()).collect();
        let [mut of_keys, mut of_values] = [vec![], vec![]];
        let columns = |width: usize| g * width..(g + 1) * width;
        let sees_some = |keys: &Range<usize>| {
            inputs.mask.visibility(0..n_q, keys.clone()) != Visibility::Hidden
        };
        let tiles = grid.tiles(inputs.mask.keys_seen_by(0..n_q)).filter(sees_some);
        let tiles: Vec<_> = tiles.collect();
        let mut stretches: Vec<_> = tiles
            .chunk_by(|a, b| a.end == b.start)
            .flat_map(|run| run.chunks(STRETCH))
            .rev()
            .collect();

        while let Some(tiles) = stretches.pop() {
            let keys = tiles[0].start..tiles[tiles.len() - 1].end;
            let v =
                parts(&inputs.values, keys.clone(), columns(d_v), None, &mut of_values)
                    [0];
            // Values that are not finite are zeros in the product, and are added by themselves to what sees them, a tile after the other.
            let not_finite = rows_not_finite([v]);
            if !not_finite.is_empty() && tiles.len() > 1 {
                stretches.extend(tiles.chunks(1).rev());
                continue;
            }
            let k =
                parts(&inputs.keys, keys.clone(), columns(d_k), None, &mut of_keys)[0];
            scores.fill(T::zero());
            combinations::<S, T>(simd, (&queries, d_k), k, (&mut scores, stride));
            let seen = inputs.mask.visibility(0..n_q, keys.clone());
            for (row, scores) in scores.chunks_exact_mut(stride).enumerate() {
                let (head, i) = head_and_query(row);
                let scores = &mut scores[..keys.len()];
                scores.iter_mut().for_each(|score| *score *= scales.1);
                head.mask.change_keys(i, keys.clone(), scores);
                if seen == Visibility::Partial {
                    head.mask.hide_keys(i, keys.clone(), scores, neg_infinity());
                }
                for (t, tile) in tiles.iter().enumerate() {
                    let scores = &mut scores[tile.start - keys.start..][..tile.len()];
                    let correction = absorb::<S, T>(simd, &mut state[row], scores);
                    corrections[t * rows + row] = correction;
                }
                if let Some(dropout) = head.dropout {
                    dropout.multiply_keys(i, keys.start, scores);
                }
            }

            let finite = (!not_finite.is_empty()).then(|| {
                let mut finite = copy_of(v);
                not_finite.iter().for_each(|&key| finite.row_mut(key).fill(T::zero()));
                finite
            });
            let factor = finite.as_ref().map_or(v, |finite| finite.as_view());
            let ends: Vec<_> = tiles.iter().map(|tile| tile.end - keys.start).collect();
            let weights = (&scores[..], stride);
            dots_in_order::<S, T>(simd, weights, factor, &ends, |t, row, first, sums| {
                let output = &mut state[row].output[first..][..T::lanes::<S>()];
                let output = &mut T::vectors_mut::<S>(output)[0];
                let correction = T::splat_vector(simd, corrections[t * rows + row]);
                *output = mul_add::<S, T>(simd, *output, correction, sums);
            });
            for key in not_finite {
                for (row, Running { output, .. }) in state.iter_mut().enumerate() {
                    let (head, i) = head_and_query(row);
                    if head.mask.allows(i, keys.start + key) {
                        let weight = scores[row * stride + key];
                        for (c, sum) in output[..d_v].iter_mut().enumerate() {
                            *sum += weight * v[(key, c)];
                        }
                    }
                }
            }
        }
        state
    }
}

/// One row's scores of a tile become exponentials, and part of its running softmax, as in the function of this name for tiles. Returns what
/// the output so far is to be multiplied by.
#[inline(always)]
fn absorb<S: InstructionSet, T: Float>(
    simd: S,
    state: &mut Running<T>,
    scores: &mut [T],
) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let max = scores.iter().fold(state.max, |a, &b| larger(a, b));
    let shift = larger(T::min_value().expect("floats have one"), max); // −∞ − (−∞) is NaN
    let base: T = convert(LOG2_E); // e^x = 2^(base · x)
    let power = |x: T| {
        if S::FUSED {
            T::exp2_polynomial::<true>(x)
        } else {
            T::exp2_polynomial::<false>(x)
        }
    };
    let correction = power((state.max - shift) * base);
    let (shifts, bases) = (T::splat_vector(simd, shift), T::splat_vector(simd, base));
    let whole = scores.len() / T::lanes::<S>() * T::lanes::<S>();
    let (vectors, rest) = scores.split_at_mut(whole);
    for scores in T::vectors_mut::<S>(vectors) {
        let behind = T::sub_vectors(simd, *scores, shifts);
        *scores = exp2::<S, T>(simd, T::mul_vectors(simd, behind, bases));
    }
    rest.iter_mut().for_each(|score| *score = power((*score - shift) * base));
    let mut added = T::zero();
    for &exponential in &*scores {
        added += exponential;
    }
    state.max = max;
    state.sum = if S::FUSED {
        state.sum.mul_add(correction, added)
    } else {
        state.sum * correction + added
    };
    correction
}
