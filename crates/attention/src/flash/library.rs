//! The rungs of the ladder between the readable version and [`Flash`](super::Flash): no allocation of its own inside the loops,
//! exponentials in vector instructions, and products from the library that nalgebra's `*` is made of.
//!
//! nalgebra stores columns, so that a column of a tile of scores, one key against all queries of the block, is one piece of
//! memory. Everything softmax does to a row it does here to all rows at once, walking from column to column: the
//! processor's vectors lie along the queries.

use super::exponential::Columns;
use super::slices::Slices;
use super::{Exponentials, FlashOutput, Inputs, Tiles};
use crate::blocks::{blocks, tiles_between};
use crate::error::Result;
use crate::mask::{Visibility, neg_infinity};
use crate::simd::{Float, View};
use crate::softmax::normaliser;
use nalgebra::{DMatrixView, DMatrixViewMut, Dyn, U1};
use std::ops::Range;

/// The forward pass of [`Flash`](super::Flash) with products from a library, on one thread: for those who want to know what
/// products of one's own are worth, and as a reference for them.
///
/// ```
/// use attention::{Mask, flash::{Flash, Inputs, LibraryFlash}};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(300, 16, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let mask = Mask::causal();
/// let inputs = Inputs::new(&x, &x, &x, &mask)?.with_heads(4)?;
/// let forward = LibraryFlash::new().forward(&inputs);
/// assert!((forward.output - Flash::new().forward(&inputs).output).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LibraryFlash {
    tiles: Tiles,
    exponentials: Exponentials,
}

impl Default for LibraryFlash {
    fn default() -> Self {
        LibraryFlash::new()
    }
}

impl LibraryFlash {
    /// Tiles that were fast where they were measured, and the fastest exponentials.
    ///
    /// ```
    /// use attention::flash::{Exponentials, LibraryFlash};
    /// assert_eq!(LibraryFlash::new().exponentials(), Exponentials::Vector);
    /// ```
    pub fn new() -> Self {
        let tiles = Tiles { queries: 256, keys: 512 };
        LibraryFlash { tiles, exponentials: Exponentials::Vector }
    }

    /// With tiles of this size.
    ///
    /// # Errors
    /// A size is 0.
    ///
    /// ```
    /// use attention::flash::{LibraryFlash, Tiles};
    ///
    /// let error = LibraryFlash::new().with_tiles(Tiles { queries: 0, keys: 64 }).unwrap_err();
    /// assert_eq!(error.to_string(), "`tiles.queries` is 0 but it must be at least 1");
    /// ```
    pub fn with_tiles(self, tiles: Tiles) -> Result<Self> {
        tiles.check()?;
        Ok(LibraryFlash { tiles, ..self })
    }

    /// With exponentials computed this way.
    ///
    /// ```
    /// use attention::flash::{Exponentials, LibraryFlash};
    /// let slower = LibraryFlash::new().with_exponentials(Exponentials::Portable);
    /// assert_eq!(slower.exponentials(), Exponentials::Portable);
    /// ```
    pub fn with_exponentials(self, exponentials: Exponentials) -> Self {
        LibraryFlash { exponentials, ..self }
    }

    /// The tiles.
    ///
    /// ```
    /// assert_eq!(attention::flash::LibraryFlash::new().tiles().keys, 512);
    /// ```
    pub fn tiles(&self) -> Tiles {
        self.tiles
    }

    /// How the exponentials are computed.
    ///
    /// ```
    /// use attention::flash::{Exponentials, LibraryFlash};
    /// assert_eq!(LibraryFlash::default().exponentials(), Exponentials::Vector);
    /// ```
    pub fn exponentials(&self) -> Exponentials {
        self.exponentials
    }

    /// Attention of every head. See [`tiled_attention`](super::tiled_attention).
    ///
    /// Shapes: see [`Inputs`]; → output (n_q, n_heads · d_v), log-sum-exp (n_q, n_heads).
    ///
    /// ```
    /// # use attention::{Mask, flash::{LibraryFlash, Inputs}};
    /// # let x = nalgebra::DMatrix::<f32>::identity(4, 4);
    /// let forward = LibraryFlash::new().forward(&Inputs::new(&x, &x, &x, &Mask::causal())?);
    /// assert_eq!(forward.output.row(0), x.row(0)); // the first token sees itself alone
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward<T: Float>(&self, inputs: &Inputs<T>) -> FlashOutput<T> {
        let (n_q, n_k) = inputs.lengths();
        let Tiles { queries, keys } = self.tiles;
        let tiles = Tiles { queries: queries.min(n_q), keys: keys.min(n_k) };
        let mut forward = FlashOutput::zeros(inputs);
        let mut walk = Walk::new(self.exponentials, tiles, inputs.widths().1);
        for h in 0..inputs.n_heads {
            let head = inputs.slices(h);
            for rows in blocks(n_q, tiles.queries) {
                walk.attend(&head, rows.clone());
                walk.write(&mut forward, h, rows, head.scale);
            }
        }
        forward
    }
}

/// A walk over the keys, and the memory that it uses again for every tile.
struct Walk<T> {
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

impl<T: Float> Walk<T> {
    fn new(exponentials: Exponentials, tiles: Tiles, d_v: usize) -> Self {
        let zeros = |n| vec![T::zero(); n];
        let rows = tiles.queries;
        Walk {
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

    // ANCHOR: attend
    /// One block of queries, and all keys that it sees, a tile at a time.
    fn attend(&mut self, head: &Slices<T>, rows: Range<usize>) {
        let (r, d_v) = (rows.len(), self.d_v);
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
            let (q, k) = (head.q.rows(&rows), head.k.rows(&columns));
            let k_transposed = strided(k, (k.shape.1, c), (k.stride, 1));
            let mut product = DMatrixViewMut::from_slice(scores, r, c);
            product.gemm(T::one(), &whole_columns(q), &k_transposed, T::zero()); // not scaled
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
            let weights = View { data: &*scores, shape: (r, c), stride: r };
            let v = head.v.rows(&columns);
            let values = &mut self.values[..r * d_v];
            if seen == Visibility::Full || v.is_finite() {
                let v = strided(v, v.shape, (1, v.stride));
                let mut values = DMatrixViewMut::from_slice(values, r, d_v);
                values.gemm(T::one(), &whole_columns(weights), &v, T::one());
            } else {
                // A hidden NaN times a weight of 0 would be NaN.
                for (j, weights) in columns.clone().zip(weights.each_column()) {
                    for (at, i) in rows.clone().enumerate() {
                        if head.mask.allows(i, j) {
                            for d in 0..d_v {
                                values[d * r + at] += weights[at] * head.v.at(j, d);
                            }
                        }
                    }
                }
            }
        }
    }
    // ANCHOR_END: attend

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

/// A tile of scores becomes part of the running softmax of its rows: [`OnlineSoftmax::absorb`](super::OnlineSoftmax::absorb)
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

// ANCHOR: absorb
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
            *s = crate::softmax::shift(m);
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
// ANCHOR_END: absorb

/// The only kind of view that may be the left factor of nalgebra's product: in its type, the entries of a column are
/// neighbours.
///
/// nalgebra 0.35.0 (dimforge/nalgebra#1616, which is open) reads and writes out of bounds, without any `unsafe` of the caller's,
/// where the entries of a column of the left factor lie apart and the product takes its path for small matrices: one of
/// its three sizes is at most 5, all sizes are static, or the entries are neither `f32` nor `f64`. That path,
/// `axcpy_uninit`, takes the length of the slice around a column, `(rows − 1) · stride + 1`, for the number of its
/// entries. It is right where the stride from row to row is 1, whatever the stride from column to column; the right
/// factor and the result may have any strides.
fn whole_columns<T: Float>(x: View<'_, T>) -> DMatrixView<'_, T, U1, Dyn> {
    let (rows, columns) = (Dyn(x.shape.0), Dyn(x.shape.1));
    DMatrixView::from_slice_with_strides_generic(x.data, rows, columns, U1, Dyn(x.stride))
}

/// A view with any strides, from row to row and from column to column: a right factor. See [`whole_columns`].
fn strided<T: Float>(
    x: View<'_, T>,
    shape: (usize, usize),
    strides: (usize, usize),
) -> DMatrixView<'_, T, Dyn, Dyn> {
    let (rows, columns) = (Dyn(shape.0), Dyn(shape.1));
    let strides = (Dyn(strides.0), Dyn(strides.1));
    DMatrixView::from_slice_with_strides_generic(
        x.data, rows, columns, strides.0, strides.1,
    )
}
