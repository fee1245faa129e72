//! The tiled algorithm, made fast: no allocation inside the loops, exponentials in vector instructions, products from a
//! library that is fast on tiles, and several threads.
//!
//! nalgebra stores columns, so that a column of a tile of scores, one key against all queries of the block, is one piece of
//! memory. Everything softmax does to a row it does here to all rows at once, walking from column to column: the
//! processor's vectors lie along the queries.

use super::exponential::Columns;
use super::product::{Multiplier, View};
use super::queue::{Threads, into_inner, lock};
use super::{Exponentials, FlashOutput, Float, Inputs, Products, Tiles};
use crate::dot_product::AttentionGradients;
use crate::error::Result;
use crate::mask::{SizedMask, Visibility, neg_infinity};
use crate::softmax::{log_sum_exp_or_zero, normaliser, shift};
use crate::traffic::blocks;
use nalgebra::DMatrix;
use std::ops::Range;
use std::sync::Mutex;

/// Attention tile by tile, as fast as this crate can: for `f32` and `f64`, over heads and blocks of queries in parallel.
///
/// The results are those of [`tiled_attention`](super::tiled_attention) up to rounding, and the same to the last bit for any
/// number of threads.
///
/// ```
/// use attention::{Mask, flash::{Flash, Inputs, Tiles, tiled_attention}};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(300, 16, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let mask = Mask::causal();
/// let inputs = Inputs::new(&x, &x, &x, &mask)?.with_heads(4)?;
/// let forward = Flash::new().forward(&inputs);
/// assert!((forward.output - tiled_attention(&inputs, Tiles::default())?.output).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Flash {
    tiles: Option<Tiles>,
    threads: Threads,
    products: Products,
    exponentials: Exponentials,
}

impl Default for Flash {
    fn default() -> Self {
        Flash::new()
    }
}

impl Flash {
    /// The tiles of [`Flash::new`] where every query sees every key.
    ///
    /// ```
    /// assert_eq!(attention::flash::Flash::TILES.keys, 512);
    /// ```
    pub const TILES: Tiles = Tiles { queries: 256, keys: 512 };

    /// The tiles of [`Flash::new`] where a mask hides something.
    ///
    /// ```
    /// use attention::flash::Flash;
    /// assert!(Flash::TILES_IF_MASKED.queries < Flash::TILES.queries);
    /// ```
    pub const TILES_IF_MASKED: Tiles = Tiles { queries: 128, keys: 256 };

    /// All threads that there are, and tiles that were fast where they were measured.
    ///
    /// ```
    /// assert_eq!(attention::flash::Flash::new().tiles(), None); // chosen by the sizes of the problem
    /// ```
    pub fn new() -> Self {
        Flash {
            tiles: None,
            threads: Threads::All,
            products: Products::Gemmkit,
            exponentials: Exponentials::Vector,
        }
    }

    /// With tiles of this size, forward and backward.
    ///
    /// # Errors
    /// A size is 0.
    ///
    /// ```
    /// use attention::flash::{Flash, Tiles};
    ///
    /// let error = Flash::new().with_tiles(Tiles { queries: 0, keys: 64 }).unwrap_err();
    /// assert_eq!(error.to_string(), "`tiles.queries` is 0 but it must be at least 1");
    /// ```
    pub fn with_tiles(self, tiles: Tiles) -> Result<Self> {
        tiles.check()?;
        Ok(Flash { tiles: Some(tiles), ..self })
    }

    /// With this many threads. More than one need the feature `rayon`.
    ///
    /// # Errors
    /// `threads` is 0, or more than 1024, or than the system starts.
    ///
    /// ```
    /// let error = attention::flash::Flash::new().with_threads(0).unwrap_err();
    /// assert_eq!(error.to_string(), "`threads` is 0 but it must be at least 1");
    /// ```
    pub fn with_threads(self, threads: usize) -> Result<Self> {
        Ok(Flash { threads: Threads::new(threads)?, ..self })
    }

    /// With products from this library: for those who want to know what it is worth.
    ///
    /// ```
    /// use attention::flash::{Flash, Products};
    /// let flash = Flash::new().with_products(Products::Matrixmultiply);
    /// assert_eq!(flash.products(), Products::Matrixmultiply);
    /// ```
    pub fn with_products(self, products: Products) -> Self {
        Flash { products, ..self }
    }

    /// With exponentials computed this way: for those who want to know what it is worth.
    ///
    /// ```
    /// use attention::flash::{Exponentials, Flash};
    /// let flash = Flash::new().with_exponentials(Exponentials::Portable);
    /// assert_eq!(flash.exponentials(), Exponentials::Portable);
    /// ```
    pub fn with_exponentials(self, exponentials: Exponentials) -> Self {
        Flash { exponentials, ..self }
    }

    /// The tiles, if they were given.
    ///
    /// ```
    /// use attention::flash::{Flash, Tiles};
    /// let tiles = Tiles { queries: 32, keys: 32 };
    /// assert_eq!(Flash::new().with_tiles(tiles)?.tiles(), Some(tiles));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn tiles(&self) -> Option<Tiles> {
        self.tiles
    }

    /// The number of threads.
    ///
    /// ```
    /// assert_eq!(attention::flash::Flash::new().with_threads(1)?.threads(), 1);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// The library that multiplies.
    ///
    /// ```
    /// use attention::flash::{Flash, Products};
    /// assert_eq!(Flash::new().products(), Products::Gemmkit);
    /// ```
    pub fn products(&self) -> Products {
        self.products
    }

    /// How the exponentials are computed.
    ///
    /// ```
    /// use attention::flash::{Exponentials, Flash};
    /// assert_eq!(Flash::new().exponentials(), Exponentials::Vector);
    /// ```
    pub fn exponentials(&self) -> Exponentials {
        self.exponentials
    }
}

// ---------------------------------------------------------------------------------------------------- forward

impl Flash {
    /// Attention of every head. See [`tiled_attention`](super::tiled_attention).
    ///
    /// Shapes: see [`Inputs`]; → output (n_q, n_heads · d_v), log-sum-exp (n_q, n_heads). Extra memory: for each thread a
    /// tile of scores, a block of queries with its output, and what the products lay aside; whatever n.
    ///
    /// ```
    /// # use attention::{Mask, flash::{Flash, Inputs}};
    /// # let x = nalgebra::DMatrix::<f32>::identity(4, 4);
    /// let forward = Flash::new().forward(&Inputs::new(&x, &x, &x, &Mask::causal())?);
    /// assert_eq!(forward.output.row(0), x.row(0)); // the first token sees itself alone
    /// # Ok::<(), attention::Error>(())
    /// ```
    // ANCHOR: forward
    pub fn forward<T: Float>(&self, inputs: &Inputs<T>) -> FlashOutput<T> {
        let tiles = self.tiles_for(inputs);
        let mut tasks = vec![];
        for h in 0..inputs.n_heads {
            // The longest first, so that none is left alone at the end: under a causal mask
            // these are the last rows.
            let rows: Vec<_> = blocks(inputs.lengths().0, tiles.queries).collect();
            tasks.extend(rows.into_iter().rev().map(|rows| (h, rows)));
        }
        let forward = Mutex::new(FlashOutput::zeros(inputs));
        self.threads.run(
            tasks,
            || Walk::new(self, tiles, inputs.widths().1),
            |walk, (h, rows)| {
                let head = inputs.slices(h);
                walk.attend(&head, rows.clone());
                walk.write(&mut lock(&forward), h, rows, head.scale);
            },
        );
        into_inner(forward)
    }
    // ANCHOR_END: forward

    /// The tiles that were given, or some that suit these inputs; never larger than the inputs.
    ///
    /// The larger ones make faster products, but where a mask cuts through tiles, more is computed to be thrown away.
    fn tiles_for<T: Float>(&self, inputs: &Inputs<T>) -> Tiles {
        let (n_q, n_k) = inputs.lengths();
        let tiles =
            self.tiles.unwrap_or_else(|| match inputs.mask.visibility(0..n_q, 0..n_k) {
                Visibility::Full => Self::TILES,
                Visibility::Partial | Visibility::Hidden => Self::TILES_IF_MASKED,
            });
        Tiles { queries: tiles.queries.min(n_q), keys: tiles.keys.min(n_k) }
    }
}

/// One head, as slices: what lies between the beginnings of two columns is the number of rows.
struct Slices<'a, T> {
    q: View<'a, T>, // (n_q, d_k)
    k: View<'a, T>, // (n_k, d_k)
    v: View<'a, T>, // (n_k, d_v)
    mask: SizedMask<'a>,
    scale: T,
}

impl<'a, T: Float> Inputs<'a, T> {
    fn slices(&self, h: usize) -> Slices<'a, T> {
        let (d_k, d_v) = self.widths();
        Slices {
            q: View::of_head(self.q, h, d_k),
            k: View::of_head(self.k, h, d_k),
            v: View::of_head(self.v, h, d_v),
            mask: self.mask,
            scale: crate::dot_product::scale(d_k),
        }
    }
}

impl<T: Float> Slices<'_, T> {
    /// Whether scores may be so large that the rounding of their sums changes weights by more than a hundredth or so.
    ///
    /// No score is larger than the longest query times the longest key, and a sum of d_k products is off by at most d_k times
    /// the type's precision.
    fn rounding_moves_weights(&self) -> bool {
        let largest = self.q.longest_row() * self.k.longest_row() * self.scale;
        let d_k: T = nalgebra::convert(self.q.shape.1 as f64);
        largest * d_k * T::default_epsilon() > nalgebra::convert(1.0 / 128.0)
    }
}

/// One thread's walk over the keys, and the memory that it uses again for every tile.
struct Walk<T> {
    tiles: Tiles,
    d_v: usize,
    exponentials: Exponentials,
    multiplier: Multiplier,
    scores: Vec<T>,     // (rows, columns), then their exponentials
    max: Vec<T>,        // (rows)
    shift: Vec<T>,      // (rows): the largest score, or 0 where there is none
    correction: Vec<T>, // (rows)
    sum: Vec<T>,        // (rows)
    values: Vec<T>,     // (rows, d_v)
}

impl<T: Float> Walk<T> {
    fn new(flash: &Flash, tiles: Tiles, d_v: usize) -> Self {
        let zeros = |n| vec![T::zero(); n];
        let rows = tiles.queries;
        Walk {
            tiles,
            d_v,
            exponentials: flash.exponentials,
            multiplier: Multiplier::new(flash.products),
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
            let scores = &mut self.scores[..r * columns.len()];
            let (q, k) = (head.q.rows(&rows), head.k.rows(&columns));
            self.multiplier.product(q, k.transpose(), false, scores); // not scaled yet
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
            let weights = View::columns(scores, (r, columns.len()), r);
            let v = head.v.rows(&columns);
            let values = &mut self.values[..r * d_v];
            if seen == Visibility::Full || v.is_finite() {
                self.multiplier.product(weights, v, true, values);
            } else {
                // A hidden NaN times a weight of 0 would be NaN.
                let seen = |i, j| head.mask.allows(rows.start + i, columns.start + j);
                add_seen(weights, v, seen, values);
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
            let (max, log_sum) = (shift(max), sum.ln());
            let lse = max * scale + log_sum;
            forward.log_sum_exp[(i, h)] = lse;
            if lse.is_finite() {
                // What rounding took: the product less `lse` is exact, but for its last digits.
                forward.log_sum_exp_low[(i, h)] = max.mul_add(scale, -lse) + log_sum;
            }
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

// --------------------------------------------------------------------------------------------------- backward

/// Into how many stripes of keys a head is cut at most, so that threads find work even if there are few heads. It
/// depends on nothing but the sizes: the sums over stripes must not depend on the number of threads.
const STRIPES: usize = 4;

impl Flash {
    /// The gradients of every head. See [`tiled_attention_backward`](super::tiled_attention_backward).
    ///
    /// Shapes: `forward` as [`Flash::forward`] returned it for these inputs, `grad_output` (n_q, n_heads · d_v) →
    /// (n_q, n_heads · d_k), (n_k, n_heads · d_k), (n_k, n_heads · d_v). Extra memory: for each thread two tiles and a block of
    /// keys, and up to four times the size of `q`.
    ///
    /// # Errors
    /// `forward` or `grad_output` has not the shapes of these inputs' output.
    ///
    /// ```
    /// use attention::{Mask, flash::{Flash, Inputs}};
    ///
    /// # let x = nalgebra::DMatrix::<f32>::identity(4, 4);
    /// let mask = Mask::causal();
    /// let inputs = Inputs::new(&x, &x, &x, &mask)?;
    /// let flash = Flash::new();
    /// let forward = flash.forward(&inputs);
    /// let gradients = flash.backward(&inputs, &forward, &x)?;
    /// assert_eq!(gradients.v.shape(), (4, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    // ANCHOR: backward
    pub fn backward<T: Float>(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: &DMatrix<T>,
    ) -> Result<AttentionGradients<T>> {
        inputs.check_output(forward)?;
        inputs.check_grad_output(grad_output)?;
        let ((n_q, n_k), (d_k, d_v)) = (inputs.lengths(), inputs.widths());
        let tiles = self.tiles_for(inputs);
        let stripe = n_k.div_ceil(tiles.keys).div_ceil(STRIPES) * tiles.keys;
        let stripes: Vec<_> = blocks(n_k, stripe).collect();
        let tasks = (0..inputs.n_heads).flat_map(|h| {
            stripes.iter().cloned().enumerate().map(move |stripe| (h, stripe))
        });

        let gradients = Mutex::new(AttentionGradients {
            q: DMatrix::zeros(n_q, inputs.q.ncols()),
            k: DMatrix::zeros(n_k, inputs.k.ncols()),
            v: DMatrix::zeros(n_k, inputs.v.ncols()),
        });
        // Every stripe has a share in the gradients of all queries. Shares are added in the
        // order of the stripes, by whichever thread completes them.
        let shares: Vec<_> =
            (0..inputs.n_heads).map(|_| Mutex::new(vec![None; stripes.len()])).collect();
        self.threads.run(
            tasks.collect(),
            || WalkBack::new(self, tiles, n_q, (d_k, d_v)),
            |walk, (h, (number, keys))| {
                let back = Back::new(inputs, h, forward, grad_output);
                let share = walk.stripe(&back, h, keys, &gradients);
                let mut shares = lock(&shares[h]);
                shares[number] = Some(share);
                if shares.iter().all(Option::is_some) {
                    let shares = std::mem::take(&mut *shares).into_iter().flatten();
                    write_grad_q(shares, back.head.scale, h, &mut lock(&gradients).q);
                }
            },
        );
        Ok(into_inner(gradients))
    }
    // ANCHOR_END: backward
}

/// One head, and what its backward pass starts from.
struct Back<'a, T> {
    head: Slices<'a, T>,
    output: View<'a, T>,      // (n_q, d_v)
    grad_output: View<'a, T>, // (n_q, d_v)
    log_sum_exp: &'a [T],     // (n_q)
    log_sum_exp_low: &'a [T], // (n_q)
}

impl<'a, T: Float> Back<'a, T> {
    fn new(
        inputs: &Inputs<'a, T>,
        h: usize,
        forward: &'a FlashOutput<T>,
        grad_output: &'a DMatrix<T>,
    ) -> Self {
        let ((n_q, _), (_, d_v)) = (inputs.lengths(), inputs.widths());
        Back {
            head: inputs.slices(h),
            output: View::of_head(&forward.output, h, d_v),
            grad_output: View::of_head(grad_output, h, d_v),
            log_sum_exp: &forward.log_sum_exp.as_slice()[h * n_q..][..n_q],
            log_sum_exp_low: &forward.log_sum_exp_low.as_slice()[h * n_q..][..n_q],
        }
    }
}

/// One thread's walk over the queries, once for every block of keys, and the memory that it uses again.
///
/// Its tiles stand on their side: a column holds one query against all keys of the block. So three of the four products
/// that follow need no transpose, and what belongs to a query, its log-sum-exp and D, is one number a column.
struct WalkBack<T> {
    tiles: Tiles,
    exponentials: Exponentials,
    multiplier: Multiplier,
    weights: Vec<T>,     // (columns, rows); scores, before
    grad_scores: Vec<T>, // (columns, rows); gradients of the weights, before
    grad_k: Vec<T>,      // (columns, d_k)
    grad_v: Vec<T>,      // (columns, d_v)
    shift: Vec<T>,       // (n_q): log-sum-exps, in the unit of the unscaled scores
    rest: Vec<T>,        // (n_q): what rounding took from them, as an exponent of 2
    d: Vec<T>,           // (n_q): rowsum(grad_output ⊙ output)
}

impl<T: Float> WalkBack<T> {
    fn new(flash: &Flash, tiles: Tiles, n_q: usize, (d_k, d_v): (usize, usize)) -> Self {
        let zeros = |n| vec![T::zero(); n];
        WalkBack {
            tiles,
            exponentials: flash.exponentials,
            multiplier: Multiplier::new(flash.products),
            weights: zeros(tiles.keys * tiles.queries),
            grad_scores: zeros(tiles.keys * tiles.queries),
            grad_k: zeros(tiles.keys * d_k),
            grad_v: zeros(tiles.keys * d_v),
            shift: zeros(n_q),
            rest: zeros(n_q),
            d: zeros(n_q),
        }
    }

    // ANCHOR: stripe
    /// The gradients of these keys and their values, written where they belong; and their
    /// share in the gradients of all queries (d_k, n_q), which is returned.
    fn stripe(
        &mut self,
        back: &Back<T>,
        h: usize,
        keys: Range<usize>,
        gradients: &Mutex<AttentionGradients<T>>,
    ) -> Vec<T> {
        let head = &back.head;
        let (d_k, d_v) = (head.q.shape.1, head.v.shape.1);
        self.rows_of(back);
        if head.rounding_moves_weights() {
            self.measure_rows(back);
        }
        let mut share = vec![T::zero(); d_k * head.q.shape.0];
        for columns in tiles_between(keys, self.tiles.keys) {
            self.grad_k[..columns.len() * d_k].fill(T::zero());
            self.grad_v[..columns.len() * d_v].fill(T::zero());
            let queries = head.mask.queries_that_see(columns.clone());
            for rows in tiles_between(queries, self.tiles.queries) {
                let seen = head.mask.visibility(rows.clone(), columns.clone());
                if seen != Visibility::Hidden {
                    let share = &mut share[rows.start * d_k..rows.end * d_k];
                    self.tile(back, rows, columns.clone(), seen, share);
                }
            }
            let mut gradients = lock(gradients);
            write_rows(&self.grad_k, head.scale, &columns, h, d_k, &mut gradients.k);
            write_rows(&self.grad_v, T::one(), &columns, h, d_v, &mut gradients.v);
        }
        share
    }
    // ANCHOR_END: stripe

    /// What the forward pass knows of each row: its log-sum-exp, in two parts, and D.
    fn rows_of(&mut self, back: &Back<T>) {
        let scale = back.head.scale;
        let numbers = back.log_sum_exp.iter().zip(back.log_sum_exp_low);
        let places = self.shift.iter_mut().zip(&mut self.rest);
        for ((shift, rest), (&lse, &low)) in places.zip(numbers) {
            let lse = log_sum_exp_or_zero(lse);
            *shift = lse / scale;
            // What is lost in that division, and what had been lost before.
            let lost = (-*shift).mul_add(scale, lse) + low;
            *rest = -lost * nalgebra::convert(std::f64::consts::LOG2_E);
        }
        row_sums_of_products(back.grad_output, back.output, &mut self.d);
    }

    /// The same, from the scores that [`WalkBack::tile`] will compute, in the same tiles: the largest score of each row, the
    /// sum of the exponentials, and D as the mean of the gradients of the weights.
    ///
    /// Products of other sizes may sum in another order. Where scores are so large that their last digits move weights, the
    /// log-sum-exp of the forward pass may belong to scores that were rounded otherwise, and e^(score − log-sum-exp) would
    /// be anything.
    fn measure_rows(&mut self, back: &Back<T>) {
        let Back { head, grad_output, .. } = back;
        let (n_q, n_k) = head.mask.shape();
        self.shift.fill(neg_infinity()); // the largest score so far
        let mut sums = vec![T::zero(); n_q];
        self.d.fill(T::zero());
        for columns in blocks(n_k, self.tiles.keys) {
            let queries = head.mask.queries_that_see(columns.clone());
            for rows in tiles_between(queries, self.tiles.queries) {
                let seen = head.mask.visibility(rows.clone(), columns.clone());
                if seen == Visibility::Hidden {
                    continue;
                }
                let c = columns.len();
                let scores = &mut self.weights[..c * rows.len()]; // (columns, rows)
                let grads = &mut self.grad_scores[..c * rows.len()]; // (columns, rows)
                let (k, v) = (head.k.rows(&columns), head.v.rows(&columns));
                let q = head.q.rows(&rows).transpose();
                let grad_output = grad_output.rows(&rows).transpose();
                self.multiplier.product(k, q, false, scores);
                self.multiplier.product(v, grad_output, false, grads);
                for (i, (scores, grads)) in
                    rows.zip(scores.chunks_exact(c).zip(grads.chunks_exact(c)))
                {
                    let visible = |at: &usize| head.mask.allows(i, columns.start + at);
                    let before = self.shift[i];
                    let max = (0..c)
                        .filter(visible)
                        .fold(before, |max, at| max.max(scores[at]));
                    let m = shift(max);
                    let correction = ((before - m) * head.scale).exp();
                    let (mut sum, mut d) = (sums[i] * correction, self.d[i] * correction);
                    for at in (0..c).filter(visible) {
                        let term = ((scores[at] - m) * head.scale).exp();
                        sum += term;
                        d += term * grads[at];
                    }
                    (self.shift[i], sums[i], self.d[i]) = (max, sum, d);
                }
            }
        }
        for (i, &sum) in sums.iter().enumerate() {
            let sum = normaliser(sum);
            self.shift[i] = shift(self.shift[i]);
            self.rest[i] = -sum.ln() * nalgebra::convert(std::f64::consts::LOG2_E);
            self.d[i] /= sum;
        }
    }

    // ANCHOR: tile
    /// Adds what one tile contributes to the gradients of its keys, values and queries.
    fn tile(
        &mut self,
        back: &Back<T>,
        rows: Range<usize>,
        columns: Range<usize>,
        seen: Visibility,
        share: &mut [T], // (d_k, rows)
    ) {
        let Back { head, grad_output, .. } = back;
        let (r, c) = (rows.len(), columns.len());
        let (q, grad_output) = (head.q.rows(&rows), grad_output.rows(&rows));
        let (k, v) = (head.k.rows(&columns), head.v.rows(&columns));
        let multiplier = &mut self.multiplier;
        let grad_k = &mut self.grad_k[..c * k.shape.1];
        let grad_v = &mut self.grad_v[..c * v.shape.1];

        // The forward pass once more: scores, and from them and the log-sum-exp the weights.
        let weights = &mut self.weights[..c * r]; // (columns, rows)
        multiplier.product(k, q.transpose(), false, weights);
        let base = head.scale * nalgebra::convert(std::f64::consts::LOG2_E);
        let (shift, rest) = (&self.shift[rows.clone()], &self.rest[rows.clone()]);
        self.exponentials.apply(Weigh { base, shift, rest, scores: weights });
        // Only now, since a NaN that a query sees is in its log-sum-exp, and −∞ − NaN is NaN.
        let partial = seen == Visibility::Partial;
        if partial {
            hide(head.mask, &rows, &columns, weights, T::zero());
        }

        // weights = softmax(scores)
        let grad_scores = &mut self.grad_scores[..c * r]; // (columns, rows)
        multiplier.product(v, grad_output.transpose(), false, grad_scores);
        let d = &self.d[rows.clone()];
        self.exponentials.apply(ThroughSoftmax { weights, d, grads: grad_scores });
        if partial {
            hide(head.mask, &rows, &columns, grad_scores, T::zero());
        }

        let weights = View::columns(weights, (c, r), c);
        let grad_scores = View::columns(grad_scores, (c, r), c);
        let finite = !partial || [q, k, grad_output].iter().all(View::is_finite);
        if finite {
            multiplier.product(weights, grad_output, true, grad_v);
            multiplier.product(grad_scores, q, true, grad_k);
            multiplier.product(k.transpose(), grad_scores, true, share);
        } else {
            let seen = |j, i| head.mask.allows(rows.start + i, columns.start + j);
            add_seen(weights, grad_output, seen, grad_v);
            add_seen(grad_scores, q, seen, grad_k);
            let mut grad_q = vec![T::zero(); r * k.shape.1]; // (rows, d_k)
            add_seen(grad_scores.transpose(), k, |i, j| seen(j, i), &mut grad_q);
            add_transposed(&grad_q, r, share);
        }
    }
    // ANCHOR_END: tile
}

/// From scores to weights, where the log-sum-exp of each query is known: `exp(score − log-sum-exp)`.
struct Weigh<'a, T> {
    base: T,
    shift: &'a [T],      // (rows)
    rest: &'a [T],       // (rows)
    scores: &'a mut [T], // (columns, rows)
}

impl<T: Float> Columns<T> for Weigh<'_, T> {
    #[inline(always)]
    fn run(self, exp2: impl Fn(T) -> T) {
        let keys = self.scores.len() / self.shift.len();
        let rows = self.shift.iter().zip(self.rest);
        for (column, (&shift, &rest)) in self.scores.chunks_exact_mut(keys).zip(rows) {
            for x in column {
                *x = exp2((*x - shift) * self.base + rest);
            }
        }
    }
}

/// From the gradients of the weights to those of the scores: `weight · (gradient − D)`.
struct ThroughSoftmax<'a, T> {
    weights: &'a [T],   // (columns, rows)
    d: &'a [T],         // (rows)
    grads: &'a mut [T], // (columns, rows)
}

impl<T: Float> Columns<T> for ThroughSoftmax<'_, T> {
    #[inline(always)]
    fn run(self, _exp2: impl Fn(T) -> T) {
        let keys = self.grads.len() / self.d.len();
        let weights = self.weights.chunks_exact(keys);
        for ((grads, weights), &d) in
            self.grads.chunks_exact_mut(keys).zip(weights).zip(self.d)
        {
            for (grad, &weight) in grads.iter_mut().zip(weights) {
                *grad = weight * (*grad - d);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------- helpers

/// `range` in pieces of at most `size`.
fn tiles_between(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    blocks(range.len(), size)
        .map(move |block| range.start + block.start..range.start + block.end)
}

/// Writes `hidden` over the entries of a tile (columns, rows) that the mask hides.
fn hide<T: Float>(
    mask: SizedMask,
    rows: &Range<usize>,
    columns: &Range<usize>,
    tile: &mut [T],
    hidden: T,
) {
    for (line, i) in tile.chunks_exact_mut(columns.len()).zip(rows.clone()) {
        mask.hide_keys(i, columns.clone(), line, hidden);
    }
}

/// `c += a · b`, over the entries of `a` that are seen alone: `c` is (rows of a, columns of b).
fn add_seen<T: Float>(
    a: View<T>,
    b: View<T>,
    seen: impl Fn(usize, usize) -> bool,
    c: &mut [T],
) {
    for (column, c) in c.chunks_exact_mut(a.shape.0).enumerate() {
        for j in 0..a.shape.1 {
            for (i, c) in c.iter_mut().enumerate() {
                if seen(i, j) {
                    *c += a.at(i, j) * b.at(j, column);
                }
            }
        }
    }
}

/// `c += aᵀ`, for an `a` of `rows` rows.
fn add_transposed<T: Float>(a: &[T], rows: usize, c: &mut [T]) {
    let columns = a.len() / rows;
    for (i, c) in c.chunks_exact_mut(columns).enumerate() {
        for (j, c) in c.iter_mut().enumerate() {
            *c += a[j * rows + i];
        }
    }
}

/// The sum of each row of `a ⊙ b`.
fn row_sums_of_products<T: Float>(a: View<T>, b: View<T>, sums: &mut [T]) {
    sums.fill(T::zero());
    for (a, b) in a.each_column().zip(b.each_column()) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
}

/// A finished block (rows, d), times `factor`, to its rows of head `h`.
fn write_rows<T: Float>(
    block: &[T],
    factor: T,
    rows: &Range<usize>,
    h: usize,
    d: usize,
    matrix: &mut DMatrix<T>,
) {
    for (c, block) in block.chunks_exact(rows.len()).take(d).enumerate() {
        let mut column = matrix.column_mut(h * d + c);
        for (to, &from) in column.as_mut_slice()[rows.clone()].iter_mut().zip(block) {
            *to = from * factor;
        }
    }
}

/// The sum of all shares (d_k, n_q), in their order, to the columns of head `h`.
fn write_grad_q<T: Float>(
    mut shares: impl Iterator<Item = Vec<T>>,
    scale: T,
    h: usize,
    grad_q: &mut DMatrix<T>,
) {
    let Some(mut sum) = shares.next() else { return };
    for share in shares {
        for (sum, &x) in sum.iter_mut().zip(&share) {
            *sum += x;
        }
    }
    let d_k = sum.len() / grad_q.nrows();
    for (c, mut column) in grad_q.columns_mut(h * d_k, d_k).column_iter_mut().enumerate()
    {
        for (to, from) in column.iter_mut().zip(sum.chunks_exact(d_k)) {
            *to = from[c] * scale;
        }
    }
}
