//! The rungs of the ladder between the readable version and [`Flash`](fast::Flash): no allocation of its own inside
//! the loops, exponentials in vector instructions, and products from the library that nalgebra's `*` is made of.
//!
//! nalgebra stores columns, so that a column of a tile of scores, one key against all queries of the block, is one piece of
//! memory. Everything softmax does to a row it does here to all rows at once, walking from column to column: the
//! processor's vectors lie along the queries.

use crate::exponentials::{Columns, Exponentials};
use attention::engine::{self, blocks, neg_infinity, normaliser, tiles_between};
use attention::flash::{FlashOutput, Head, Inputs, Tiles};
use attention::mask::Visibility;
use fast::Float;
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};
use std::ops::Range;

/// The forward pass of [`Flash`](fast::Flash) with products from a library, on one thread: for those who want to
/// know what products of one's own are worth, and as a reference for them.
///
/// ```
/// use attention::{Mask, engine::Engine, flash::Inputs};
/// use fast::Flash;
/// use laboratory::LibraryFlash;
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(300, 16, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(4)?;
/// let forward = LibraryFlash::default().forward(&inputs);
/// assert!((forward.output - Flash::new().forward(&inputs)?.output).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LibraryFlash {
    /// The queries and keys of a tile. A size of 0 counts as 1, and one beyond what there is as all of it.
    pub tiles: Tiles,
    /// The way to compute exponentials.
    pub exponentials: Exponentials,
}

impl Default for LibraryFlash {
    /// Tiles that were fast where they were measured, and the fastest exponentials.
    fn default() -> Self {
        let tiles = Tiles { queries: 256, keys: 512 };
        LibraryFlash { tiles, exponentials: Exponentials::Vector }
    }
}

impl LibraryFlash {
    /// Attention of every head. See [`tiled_attention`](attention::flash::tiled_attention).
    ///
    /// Nothing here can fail: [`Inputs`] has checked what it holds, and any size of tiles will do.
    ///
    /// Shapes: see [`Inputs`]; → output (n_q, n_heads · d_v), log-sum-exp (n_q, n_heads).
    ///
    /// ```
    /// # use attention::{Mask, flash::Inputs};
    /// # use laboratory::LibraryFlash;
    /// # let x = nalgebra::DMatrix::<f32>::identity(4, 4);
    /// let forward = LibraryFlash::default().forward(&Inputs::new(&x, &x, &x, Mask::causal())?);
    /// assert_eq!(forward.output.row(0), x.row(0)); // the first token sees itself alone
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward<T: Float>(&self, inputs: &Inputs<T>) -> FlashOutput<T> {
        let mut forward = FlashOutput::zeros(inputs);
        let (n_q, d_v) =
            (forward.output.nrows(), forward.output.ncols() / inputs.n_heads());
        for (h, head) in inputs.heads().enumerate() {
            let k_transposed = head.k.transpose(); // (d_k, n_k)
            let queries = self.tiles.queries.clamp(1, n_q);
            let keys = self.tiles.keys.clamp(1, k_transposed.ncols());
            let mut block =
                QueryBlock::new(self.exponentials, Tiles { queries, keys }, d_v);
            for rows in blocks(n_q, queries) {
                block.attend(&head, &k_transposed, rows.clone());
                block.write(&mut forward, h, rows, head.scale);
            }
        }
        forward
    }
}

/// The softmax so far of a block of queries, and the memory that is used again for every tile and every block.
struct QueryBlock<T> {
    tiles: Tiles,
    d_v: usize,
    exponentials: Exponentials,
    scores: Vec<T>,     // (rows, columns), then their exponentials
    max: Vec<T>,        // (rows)
    shift: Vec<T>,      // (rows): the largest score, or 0 where there is none
    correction: Vec<T>, // (rows)
    sum: Vec<T>,        // (rows)
    values: Vec<T>,     // (rows, d_v)
}

impl<T: Float> QueryBlock<T> {
    fn new(exponentials: Exponentials, tiles: Tiles, d_v: usize) -> Self {
        let zeros = |n| vec![T::zero(); n];
        let rows = tiles.queries;
        QueryBlock {
            tiles,
            d_v,
            exponentials,
            scores: zeros(rows * tiles.keys),
            max: zeros(rows),
            shift: zeros(rows),
            correction: zeros(rows),
            sum: zeros(rows),
            values: zeros(rows * d_v),
        }
    }

    /// One block of queries, and all keys that it sees, a tile at a time.
    fn attend(
        &mut self,
        head: &Head<T>,
        k_transposed: &DMatrix<T>, // (d_k, n_k)
        rows: Range<usize>,
    ) {
        let (r, d_v) = (rows.len(), self.d_v);
        let q = head.q.rows_range(rows.clone()); // (r, d_k)
        self.max[..r].fill(neg_infinity());
        self.sum[..r].fill(T::zero());
        self.values[..r * d_v].fill(T::zero());

        for columns in
            tiles_between(head.mask.keys_seen_by(rows.clone()), self.tiles.keys)
        {
            let seen = head.mask.visibility(rows.clone(), columns.clone());
            if seen == Visibility::Hidden {
                continue;
            }
            let c = columns.len();
            let scores = &mut self.scores[..r * c];
            let k_transposed = k_transposed.columns_range(columns.clone()); // (d_k, c)
            let mut product = DMatrixViewMut::from_slice(scores, r, c);
            product.gemm(T::one(), &q, &k_transposed, T::zero()); // not scaled
            if seen == Visibility::Partial {
                for (column, j) in scores.chunks_exact_mut(r).zip(columns.clone()) {
                    head.mask.hide_queries(j, rows.clone(), column, neg_infinity());
                }
            }
            self.exponentials.apply(Absorb {
                // e^(scale · x) = 2^(scale · log₂ e · x)
                base: head.scale * nalgebra::convert(std::f64::consts::LOG2_E),
                scores,
                max: &mut self.max[..r],
                shift: &mut self.shift[..r],
                correction: &mut self.correction[..r],
                sum: &mut self.sum[..r],
                values: &mut self.values[..r * d_v],
            });
            let weights = DMatrixView::from_slice(scores, r, c);
            let v = head.v.rows_range(columns.clone()); // (c, d_v)
            let mut values =
                DMatrixViewMut::from_slice(&mut self.values[..r * d_v], r, d_v);
            if seen == Visibility::Full || v.iter().all(|x| x.is_finite()) {
                values.gemm(T::one(), &weights, &v, T::one());
            } else {
                // A hidden NaN times a weight of 0 would be NaN.
                for (column, j) in columns.enumerate() {
                    for (row, i) in rows.clone().enumerate() {
                        if head.mask.allows(i, j) {
                            let weight = weights[(row, column)];
                            for d in 0..d_v {
                                values[(row, d)] += weight * v[(column, d)];
                            }
                        }
                    }
                }
            }
        }
    }

    /// The finished block, to where it belongs.
    fn write(
        &self,
        forward: &mut FlashOutput<T>,
        h: usize,
        rows: Range<usize>,
        scale: T,
    ) {
        let (r, d_v) = (rows.len(), self.d_v);
        let sum = &self.sum[..r];
        for (c, values) in self.values[..r * d_v].chunks_exact(r).enumerate() {
            let mut column = forward.output.column_mut(h * d_v + c);
            let output = &mut column.as_mut_slice()[rows.clone()];
            for ((output, &value), &sum) in output.iter_mut().zip(values).zip(sum) {
                *output = value / normaliser(sum);
            }
        }
        for (i, (&max, &sum)) in rows.zip(self.max.iter().zip(sum)) {
            forward.write_log_sum_exp((i, h), scale, max, sum);
        }
    }
}

/// A tile of scores becomes part of the running softmax of its rows: [`OnlineSoftmax::absorb`](attention::flash::OnlineSoftmax::absorb)
/// without its last step, the product with the values.
struct Absorb<'a, T> {
    base: T,
    scores: &'a mut [T],
    max: &'a mut [T],
    shift: &'a mut [T],
    correction: &'a mut [T],
    sum: &'a mut [T],
    values: &'a mut [T],
}

impl<T: Float> Columns<T> for Absorb<'_, T> {
    #[inline(always)]
    fn run(self, exp2: impl Fn(T) -> T) {
        let Absorb { base, scores, max, shift, correction, sum, values } = self;
        let rows = max.len();
        correction.copy_from_slice(max); // the old largest scores, for a moment
        for column in scores.chunks_exact(rows) {
            for (m, &x) in max.iter_mut().zip(column) {
                *m = if *m > x { *m } else { x };
            }
        }
        for (s, &m) in shift.iter_mut().zip(&*max) {
            *s = engine::shift(m);
        }
        for (c, &s) in correction.iter_mut().zip(&*shift) {
            *c = exp2((*c - s) * base);
        }
        for column in values.chunks_exact_mut(rows) {
            for (value, &c) in column.iter_mut().zip(&*correction) {
                *value *= c;
            }
        }
        // The tile is summed by itself before it joins the sums so far: that rounds less.
        for (c, sum) in correction.iter_mut().zip(&mut *sum) {
            *c *= *sum; // by now the old sum, corrected
            *sum = T::zero();
        }
        for column in scores.chunks_exact_mut(rows) {
            for ((x, &s), sum) in column.iter_mut().zip(&*shift).zip(&mut *sum) {
                *x = exp2((*x - s) * base);
                *sum += *x;
            }
        }
        for (sum, &before) in sum.iter_mut().zip(&*correction) {
            *sum += before;
        }
    }
}
