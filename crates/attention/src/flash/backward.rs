//! The backward pass of [`Flash`], on the same micro-kernels.
//!
//! Tiles stand on their side: the vectors lie along the keys, and a row of a tile is one query against a panel of keys. So
//! weights and gradients of scores are where the products with `grad_output` and with the queries want them, and what belongs
//! to a query, its log-sum-exp and D, is one number a row.

use super::fast::{Attend, Flash, ForwardWorkspace, Grid, is_finite, write_panels};
use super::queue::{into_inner, lock};
use super::{FlashOutput, Head, Inputs, Tiles};
use crate::blocks::{blocks, tiles_between};
use crate::dot_product::AttentionGradients;
use crate::error::Result;
use crate::mask::Visibility;
use crate::simd::{
    Aligned, Float, InstructionSet, Sizes, Work, exp2, mul_add, pack_across,
    pack_columns, pack_panels, pack_rows, pieces, product_with_rows, products, vectors,
    vectors_mut,
};
use crate::softmax::{log_sum_exp_or_zero, normaliser, shift};
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};
use std::cell::LazyCell;
use std::cmp::Ordering;
use std::f64::consts::LOG2_E;
use std::ops::Range;
use std::sync::Mutex;

/// Into how many stripes of keys a head is cut at most, so that threads find work even if there are few heads. It
/// depends on nothing but the sizes: the sums over stripes must not depend on the number of threads.
const STRIPES: usize = 4;

/// With so many heads, a head is a task, and is not cut.
const TASKS: usize = 16;

impl Flash {
    /// The gradients of every head. See [`tiled_attention_backward`](super::tiled_attention_backward).
    ///
    /// Shapes: `forward` as [`Flash::forward`] returned it for these inputs, `grad_output` (n_q, n_heads · d_v) →
    /// (n_q, n_heads · d_k), (n_k, n_heads · d_k), (n_k, n_heads · d_v). Extra memory: for each thread a block of keys, a tile
    /// of queries, panels of scores and three numbers a query; and for a head in work up to four matrices of the size of its
    /// queries, with rows of whole vectors. One head keeps at most four threads busy.
    ///
    /// # Errors
    /// `forward` or `grad_output` doesn't have the shape of these inputs' output.
    ///
    /// ```
    /// use attention::{Mask, flash::{Flash, Inputs}};
    ///
    /// # let x = nalgebra::DMatrix::<f32>::identity(4, 4);
    /// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?;
    /// let flash = Flash::new();
    /// let forward = flash.forward(&inputs);
    /// let gradients = flash.backward(&inputs, &forward, &x)?;
    /// assert_eq!(gradients.v.shape(), (4, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward<'g, T: Float>(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: impl Into<DMatrixView<'g, T>>,
    ) -> Result<AttentionGradients<T>> {
        let grad_output = grad_output.into();
        inputs.check_output(forward)?;
        inputs.check_grad_output(grad_output)?;
        // The next function, as it was compiled.
        Ok(T::flash_backward(self, inputs, forward, grad_output))
    }

    pub(crate) fn run_backward<T: Float>(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> AttentionGradients<T> {
        let (n_q, n_k) = inputs.lengths();
        let sizes = self.instructions().sizes::<T>();
        let stripes = TASKS.div_ceil(inputs.n_heads()).min(STRIPES);
        let stripe = n_k.div_ceil(stripes).next_multiple_of(sizes.panel);
        let stripes: Vec<_> = blocks(n_k, stripe).collect();
        let tasks = (0..inputs.n_heads()).flat_map(|h| {
            stripes.iter().cloned().enumerate().map(move |stripe| (h, stripe))
        });

        let gradients = Mutex::new(AttentionGradients {
            q: DMatrix::zeros(n_q, inputs.q.ncols()),
            k: DMatrix::zeros(n_k, inputs.k.ncols()),
            v: DMatrix::zeros(n_k, inputs.v.ncols()),
        });
        // Every stripe has a share in the gradients of all queries. Shares are added in the
        // order of the stripes, by whichever thread completes them.
        let shares: Vec<_> = (0..inputs.n_heads())
            .map(|_| Mutex::new(vec![None; stripes.len()]))
            .collect();
        self.threads_for(inputs).run(
            tasks.collect(),
            || BackwardWorkspace::new(sizes, self.tiles(), inputs, stripe),
            |workspace, (h, (number, keys))| {
                let back = Back::new(inputs, h, forward, &grad_output);
                let scale = back.head.scale;
                let work =
                    Stripe { workspace, inputs, back, h, keys, gradients: &gradients };
                let share = self.instructions().run(work).expect("checked instructions");
                let mut shares = lock(&shares[h]);
                shares[number] = Some(share);
                if shares.iter().all(Option::is_some) {
                    let shares = std::mem::take(&mut *shares).into_iter().flatten();
                    let d_k = inputs.widths().0;
                    let mut gradients = lock(&gradients);
                    let mut grad_q = gradients.q.columns_mut(h * d_k, d_k);
                    write_grad_q(shares, scale, sizes.lanes, &mut grad_q);
                }
            },
        );
        into_inner(gradients)
    }
}

/// Whether scores may be so large that the rounding of their sums changes weights by more than a hundredth or so.
///
/// No score is larger than the longest query times the longest key, and a sum of d_k products is off by at most d_k times
/// the type's precision.
fn rounding_moves_weights<T: Float>(head: &Head<T>) -> bool {
    let largest = longest_row(head.q) * longest_row(head.k) * head.scale;
    let d_k: T = nalgebra::convert(head.q.ncols() as f64);
    let off = largest * d_k * T::default_epsilon();
    // It is NaN, and no smaller, where one norm is too small for this type and the other too large.
    let small: T = nalgebra::convert(1.0 / 128.0);
    off.partial_cmp(&small).is_none_or(Ordering::is_gt)
}

/// The largest Euclidean norm of a row. A NaN is passed over.
fn longest_row<T: Float>(matrix: DMatrixView<T>) -> T {
    let mut squares = vec![T::zero(); matrix.nrows()];
    for column in matrix.column_iter() {
        for (square, &x) in squares.iter_mut().zip(column.as_slice()) {
            *square += x * x;
        }
    }
    let larger = |a: T, &b: &T| if b > a { b } else { a };
    squares.iter().fold(T::zero(), larger).sqrt()
}

/// One head, and what its backward pass starts from.
struct Back<'a, T: Float> {
    head: Head<'a, T>,
    output: DMatrixView<'a, T>,      // (n_q, d_v)
    grad_output: DMatrixView<'a, T>, // (n_q, d_v)
    log_sum_exp: &'a [T],            // (n_q)
    log_sum_exp_low: &'a [T],        // (n_q)
}

impl<'a, T: Float> Back<'a, T> {
    fn new(
        inputs: &'a Inputs<'_, T>,
        h: usize,
        forward: &'a FlashOutput<T>,
        grad_output: &'a DMatrixView<'_, T>,
    ) -> Self {
        let ((n_q, _), (_, d_v)) = (inputs.lengths(), inputs.widths());
        Back {
            head: inputs.head(h),
            output: forward.output.columns(h * d_v, d_v),
            grad_output: grad_output.columns(h * d_v, d_v),
            log_sum_exp: &forward.log_sum_exp.as_slice()[h * n_q..][..n_q],
            log_sum_exp_low: &forward.log_sum_exp_low.as_slice()[h * n_q..][..n_q],
        }
    }
}

/// One thread's walk over the queries, once for every block of keys, and the memory that it uses again.
struct BackwardWorkspace<T> {
    sizes: Sizes,
    block: usize,              // keys that are held
    tile: usize,               // queries that pass by at once
    d_k: usize,                // next multiple of NR
    d_v: usize,                // next multiple of NR
    keys: Aligned<T>,          // panels of (d_k, width)
    values: Aligned<T>,        // panels of (d_v, width)
    keys_across: Aligned<T>, // for each panel (keys, some vectors of d_k), several times
    grad_k: Aligned<T>,      // panels of (d_k, width)
    grad_v: Aligned<T>,      // panels of (d_v, width)
    query_rows: Aligned<T>,  // blocks of (d_k, NR)
    query_columns: Aligned<T>, // blocks of (queries, NR)
    grad_rows: Aligned<T>,   // blocks of (d_v, NR)
    grad_columns: Aligned<T>, // blocks of (queries, NR)
    weights: Aligned<T>,     // (queries, width); scores, before
    grad_scores: Aligned<T>, // (queries, width)
    shift: Vec<T>,           // (n_q): log-sum-exps, in the unit of the unscaled scores
    rest: Vec<T>,            // (n_q): what rounding took from them, as an exponent of 2
    d: Vec<T>,               // (n_q): rowsum(grad_output ⊙ output)
}

impl<T: Float> BackwardWorkspace<T> {
    fn new(sizes: Sizes, tiles: Tiles, inputs: &Inputs<T>, stripe: usize) -> Self {
        let ((n_q, n_k), (d_k, d_v)) = (inputs.lengths(), inputs.widths());
        let Sizes { lanes, panel, numbers } = sizes;
        // Forward, queries are held and keys pass by. Here it is the other way round.
        let (held, passing) = (tiles.queries, tiles.keys);
        let block = stripe.div_ceil(stripe.div_ceil(held)).next_multiple_of(panel);
        let tile = passing.min(n_q).next_multiple_of(numbers);
        let keys = block.min(n_k).next_multiple_of(lanes);
        let zeros = |n| Aligned::zeros(n);
        let (padded_k, padded_v) =
            (d_k.next_multiple_of(numbers), d_v.next_multiple_of(numbers));
        let of_all = || vec![T::zero(); n_q.next_multiple_of(numbers)];
        BackwardWorkspace {
            sizes,
            block,
            tile,
            d_k: padded_k,
            d_v: padded_v,
            keys: zeros(keys * d_k),
            values: zeros(keys * d_v),
            keys_across: zeros(keys * d_k.next_multiple_of(lanes)),
            grad_k: zeros(keys * padded_k),
            grad_v: zeros(keys * padded_v),
            query_rows: zeros(tile * d_k),
            query_columns: zeros(tile * padded_k),
            grad_rows: zeros(tile * d_v),
            grad_columns: zeros(tile * padded_v),
            weights: zeros(tile * panel.min(keys)),
            grad_scores: zeros(tile * panel.min(keys)),
            shift: of_all(),
            rest: of_all(),
            d: of_all(),
        }
    }

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
            *rest = -lost * nalgebra::convert(LOG2_E);
        }
        self.d.fill(T::zero());
        for (a, b) in back.grad_output.column_iter().zip(back.output.column_iter()) {
            for ((d, &a), &b) in self.d.iter_mut().zip(a.as_slice()).zip(b.as_slice()) {
                *d += a * b;
            }
        }
    }

    /// `shift` and `rest` once more, from a forward pass of its own, which knows the largest score and the sum apart from each
    /// other.
    ///
    /// Of scores beyond the precision of both parts of the log-sum-exp, the logarithm of the sum would be lost.
    #[inline(always)]
    fn measure_rows<S: InstructionSet, const MR: usize, const NR: usize>(
        &mut self,
        simd: S,
        inputs: &Inputs<T>,
        head: &Head<T>,
    ) {
        // This pass holds queries, as every forward pass does, and in blocks as large as those of the keys here.
        let tiles = Tiles { queries: self.block.min(head.q.nrows()), keys: self.tile };
        let mut workspace = ForwardWorkspace::new(self.sizes, tiles, inputs);
        for rows in blocks(head.q.nrows(), tiles.queries) {
            Attend { workspace: &mut workspace, head, rows: rows.clone() }
                .run::<S, MR, NR>(simd);
            for (i, (&max, &sum)) in rows.zip(workspace.max.iter().zip(&*workspace.sum)) {
                self.shift[i] = shift(max);
                self.rest[i] = -normaliser(sum).ln() * nalgebra::convert(LOG2_E);
            }
        }
    }
}

/// Some keys of a head, and all queries that see them.
struct Stripe<'a, T: Float> {
    workspace: &'a mut BackwardWorkspace<T>,
    inputs: &'a Inputs<'a, T>,
    back: Back<'a, T>,
    h: usize,
    keys: Range<usize>,
    gradients: &'a Mutex<AttentionGradients<T>>,
}

impl<T: Float> Work for Stripe<'_, T> {
    type Output = Vec<T>;

    /// The gradients of these keys and their values, written where they belong; and their
    /// share in the gradients of all queries (n_q, d_k), row by row, which is returned.
    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) -> Vec<T> {
        let Stripe { workspace, inputs, back, h, keys, gradients } = self;
        let Back { head, grad_output, .. } = &back;
        let ((n_q, d_k), lanes) = (head.q.shape(), workspace.sizes.lanes);
        workspace.rows_of(&back);
        if rounding_moves_weights(head) {
            workspace.measure_rows::<S, MR, NR>(simd, inputs, head);
        }
        let mut share =
            vec![T::zero(); n_q.next_multiple_of(NR) * d_k.next_multiple_of(lanes)];
        // A weight of 0 hides what is a number, and nothing else.
        let mut all = [head.q, head.k, *grad_output].into_iter();
        let finite = LazyCell::new(|| all.all(is_finite));

        for block in tiles_between(keys, workspace.block) {
            workspace.block::<S, MR, NR>(simd, &back, &block, &finite, &mut share);
            workspace.write(head, h, &block, &mut lock(gradients));
        }
        share
    }
}

/// A panel of keys, and the queries of a tile that some of them are seen by.
struct Panel<'a, T: Float> {
    back: &'a Back<'a, T>,
    block: &'a Range<usize>, // of keys
    tile: &'a Range<usize>,  // of queries
    keys: Range<usize>,      // some of the block
    queries: Range<usize>,   // some of the tile, from a multiple of NR on
    seen: Visibility,
    zeros_hide: bool, // whether a weight of 0 hides everything that is hidden
}

impl<T: Float> BackwardWorkspace<T> {
    /// Adds up the gradients of a block of keys, which is held while all queries that see some of it pass by, and its
    /// share in the gradients of these queries.
    #[inline(always)]
    fn block<S: InstructionSet, const MR: usize, const NR: usize>(
        &mut self,
        simd: S,
        back: &Back<T>,
        block: &Range<usize>,                           // of keys
        finite: &LazyCell<bool, impl FnOnce() -> bool>, // all that is read
        share: &mut [T],
    ) {
        let (Back { head, grad_output, .. }, sizes) = (back, self.sizes);
        let (k, v) = (head.k.rows_range(block.clone()), head.v.rows_range(block.clone()));
        pack_panels(k, sizes.panel, sizes.lanes, &mut self.keys);
        pack_panels(v, sizes.panel, sizes.lanes, &mut self.values);
        pack_across(k, sizes.panel, sizes.lanes, MR, &mut self.keys_across);
        self.grad_k.fill(T::zero());
        self.grad_v.fill(T::zero());
        let grid = Grid { size: self.tile, step: NR, end: head.q.nrows() };
        for tile in grid.tiles(head.mask.queries_that_see(block.clone())) {
            if head.mask.visibility(tile.clone(), block.clone()) == Visibility::Hidden {
                continue;
            }
            let q = head.q.rows_range(tile.clone());
            let grad = grad_output.rows_range(tile.clone());
            pack_rows::<T, NR>(q, &mut self.query_rows);
            pack_columns::<T, NR>(q, &mut self.query_columns);
            pack_rows::<T, NR>(grad, &mut self.grad_rows);
            pack_columns::<T, NR>(grad, &mut self.grad_columns);
            for keys in tiles_between(block.clone(), sizes.panel) {
                let queries = head.mask.queries_that_see(keys.clone());
                let Some(queries) = grid.common(queries, &tile) else { continue };
                let seen = head.mask.visibility(queries.clone(), keys.clone());
                if seen == Visibility::Hidden {
                    continue;
                }
                let zeros_hide = seen == Visibility::Full || **finite;
                let tile = &tile;
                let panel = Panel { back, block, tile, keys, queries, seen, zeros_hide };
                match panel.keys.len().div_ceil(sizes.lanes) {
                    1 => self.panel::<S, 1, MR, NR>(simd, &panel, share),
                    2 => self.panel::<S, 2, MR, NR>(simd, &panel, share),
                    _ => self.panel::<S, MR, MR, NR>(simd, &panel, share),
                }
            }
        }
    }

    /// The finished gradients of a block of keys and its values, to where they belong.
    fn write(
        &self,
        head: &Head<T>,
        h: usize,
        block: &Range<usize>,
        gradients: &mut AttentionGradients<T>,
    ) {
        let (d_k, d_v) = (head.k.ncols(), head.v.ncols());
        for (panels, factor, d, matrix) in [
            (&self.grad_k, head.scale, d_k, &mut gradients.k),
            (&self.grad_v, T::one(), d_v, &mut gradients.v),
        ] {
            let matrix = matrix.columns_mut(h * d, d);
            write_panels(panels, self.sizes, block, matrix, |_, from, to| {
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = from * factor;
                }
            });
        }
    }

    // ANCHOR: panel
    /// Adds what a panel of keys and a tile of queries contribute to the gradients of both.
    #[inline(always)]
    fn panel<S: InstructionSet, const M: usize, const MR: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: &Panel<T>,
        share: &mut [T], // (n_q, d_k), with rows of whole vectors
    ) {
        #[cfg(test)]
        super::tests::count_pairs(panel.queries.len() * panel.keys.len());

        self.weights::<S, M, NR>(simd, panel);
        self.grad_scores::<S, M, NR>(simd, panel);
        if panel.zeros_hide {
            self.add_gradients::<S, M, MR, NR>(simd, panel, share);
        } else {
            self.add_gradients_of_seen(panel, M * self.sizes.lanes, share);
        }
    }
    // ANCHOR_END: panel

    /// The forward pass once more: scores, and from them and the log-sum-exp the weights.
    #[inline(always)]
    fn weights<S: InstructionSet, const M: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: &Panel<T>,
    ) {
        let Panel { back: Back { head, .. }, keys, queries, .. } = panel;
        let d_k = head.k.ncols();
        let (width, first) = (M * self.sizes.lanes, keys.start - panel.block.start);
        let (from, count) =
            (queries.start - panel.tile.start, queries.len().next_multiple_of(NR));

        let key_vectors = vectors::<S, T, M>(&self.keys[first * d_k..][..width * d_k]);
        let blocks = self.query_rows[from * d_k..][..count * d_k].as_chunks::<NR>().0;
        let weights = &mut self.weights[..count * width];
        let (blocks, into) = (blocks.chunks_exact(d_k), vectors_mut::<S, T, M>(weights));
        products::<S, T, M, NR>(simd, key_vectors, blocks, into, |_, into, sums| {
            *into = sums
        });

        let base = T::splat_vector(simd, head.scale * nalgebra::convert(LOG2_E));
        let shift = &self.shift[queries.start..][..count];
        let rows = shift.iter().zip(&self.rest[queries.start..][..count]);
        for (scores, (&shift, &rest)) in
            vectors_mut::<S, T, M>(weights).iter_mut().zip(rows)
        {
            let (shift, rest) =
                (T::splat_vector(simd, shift), T::splat_vector(simd, rest));
            #[allow(clippy::needless_range_loop, reason = "constant bounds are unrolled")]
            for i in 0..M {
                let behind = T::sub_vectors(simd, scores[i], shift);
                scores[i] = exp2::<S, T>(simd, mul_add::<S, T>(simd, behind, base, rest));
            }
        }
        // Only now, since a NaN that a query sees is in its log-sum-exp, and −∞ − NaN is NaN.
        if panel.seen == Visibility::Partial {
            hide(&head.mask, queries, keys, weights, width);
        }
    }

    /// Back through the softmax: the weight times how far its gradient is from D.
    #[inline(always)]
    fn grad_scores<S: InstructionSet, const M: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: &Panel<T>,
    ) {
        let Panel { back: Back { head, .. }, keys, queries, .. } = panel;
        let d_v = head.v.ncols();
        let (width, first) = (M * self.sizes.lanes, keys.start - panel.block.start);
        let (from, count) =
            (queries.start - panel.tile.start, queries.len().next_multiple_of(NR));

        let value_vectors =
            vectors::<S, T, M>(&self.values[first * d_v..][..width * d_v]);
        let blocks = self.grad_rows[from * d_v..][..count * d_v].as_chunks::<NR>().0;
        let grads = &mut self.grad_scores[..count * width];
        let (blocks, into) = (blocks.chunks_exact(d_v), vectors_mut::<S, T, M>(grads));
        let weights = vectors::<S, T, M>(&self.weights);
        let d = &self.d[queries.start..][..count];
        products::<S, T, M, NR>(simd, value_vectors, blocks, into, |j, into, sums| {
            let d = T::splat_vector(simd, d[j]);
            for i in 0..M {
                let behind = T::sub_vectors(simd, sums[i], d);
                into[i] = T::mul_vectors(simd, weights[j][i], behind);
            }
        });
        if panel.seen == Visibility::Partial {
            hide(&head.mask, queries, keys, grads, width);
        }
    }

    // ANCHOR: add_gradients
    /// The three products that are left: `weightsᵀ · grad_output`, `grad_scoresᵀ · queries`
    /// and `grad_scores · keys`.
    #[inline(always)]
    fn add_gradients<
        S: InstructionSet,
        const M: usize,
        const MR: usize,
        const NR: usize,
    >(
        &mut self,
        simd: S,
        panel: &Panel<T>,
        share: &mut [T],
    ) {
        let Panel { keys, queries, .. } = panel;
        let (width, first) = (M * self.sizes.lanes, keys.start - panel.block.start);
        let from = queries.start - panel.tile.start;
        for (left, right, into, d) in [
            (&self.weights, &self.grad_columns, &mut self.grad_v, self.d_v),
            (&self.grad_scores, &self.query_columns, &mut self.grad_k, self.d_k),
        ] {
            let left = vectors::<S, T, M>(&left[..queries.len() * width]);
            let columns = right.chunks_exact(panel.tile.len() * NR);
            let blocks =
                columns.map(|column| &column.as_chunks().0[from..][..queries.len()]);
            let into = vectors_mut::<S, T, M>(&mut into[first * d..][..width * d]);
            products::<S, T, M, NR>(simd, left, blocks, into, |_, into, sums| {
                for i in 0..M {
                    into[i] = T::add_vectors(simd, into[i], sums[i]);
                }
            });
        }
        let d = panel.back.head.k.ncols().next_multiple_of(self.sizes.lanes);
        let count = queries.len().next_multiple_of(NR);
        let across = &self.keys_across[first * d..][..keys.len() * d];
        let grad_scores = &self.grad_scores[..count * width];
        let share = &mut share[queries.start * d..][..count * d];
        add_grad_q::<S, T, MR, NR>(simd, across, grad_scores, width, share, d);
    }
    // ANCHOR_END: add_gradients

    /// The same where something is not finite, over the pairs that are seen: a hidden NaN times a weight of 0 would be NaN.
    fn add_gradients_of_seen(&mut self, panel: &Panel<T>, width: usize, share: &mut [T]) {
        let Panel { back: Back { head, grad_output, .. }, keys, queries, .. } = panel;
        let (d_k, d_v) = (head.k.ncols(), head.v.ncols());
        let d_lanes = d_k.next_multiple_of(self.sizes.lanes);
        let first = keys.start - panel.block.start;
        let grad_k = &mut self.grad_k[first * self.d_k..];
        let grad_v = &mut self.grad_v[first * self.d_v..];
        for (row, i) in queries.clone().enumerate() {
            for (at, j) in keys.clone().enumerate() {
                if !head.mask.allows(i, j) {
                    continue;
                }
                let place = row * width + at;
                let (weight, grad) = (self.weights[place], self.grad_scores[place]);
                for c in 0..d_v {
                    grad_v[c * width + at] += weight * grad_output[(i, c)];
                }
                for c in 0..d_k {
                    grad_k[c * width + at] += grad * head.q[(i, c)];
                    share[i * d_lanes + c] += grad * head.k[(j, c)];
                }
            }
        }
    }
}

/// `share += grad_scores · keys`: here the vectors lie along the columns, since what is added up are the keys.
///
/// Shapes: `across` is for some vectors of the columns (keys, vectors), one after the other; `grad_scores` (queries, width),
/// `share` (queries, d_lanes).
#[inline(always)]
pub(super) fn add_grad_q<
    S: InstructionSet,
    T: Float,
    const MR: usize,
    const NR: usize,
>(
    simd: S,
    across: &[T],
    grad_scores: &[T],
    width: usize,
    share: &mut [T],
    d_lanes: usize,
) {
    let lanes = T::lanes::<S>();
    let keys = across.len() / d_lanes;
    for piece in pieces(d_lanes / lanes, MR) {
        let across = &across[piece.start * lanes * keys..piece.end * lanes * keys];
        let to = Columns { first: piece.start, d_lanes };
        match piece.len() {
            1 => add_columns::<S, T, 1, NR>(simd, across, grad_scores, width, share, to),
            2 => add_columns::<S, T, 2, NR>(simd, across, grad_scores, width, share, to),
            _ => add_columns::<S, T, MR, NR>(simd, across, grad_scores, width, share, to),
        }
    }
}

struct Columns {
    first: usize,
    d_lanes: usize,
}

#[inline(always)]
fn add_columns<S: InstructionSet, T: Float, const M: usize, const NR: usize>(
    simd: S,
    across: &[T],
    grad_scores: &[T],
    width: usize,
    share: &mut [T],
    Columns { first, d_lanes }: Columns,
) {
    let keys = vectors::<S, T, M>(across);
    let rows = grad_scores.chunks_exact(NR * width);
    for (grads, share) in rows.zip(share.chunks_exact_mut(NR * d_lanes)) {
        let grads: [&[T]; NR] = std::array::from_fn(|j| &grads[j * width..]);
        let sums = product_with_rows::<S, T, M, NR>(simd, keys, grads);
        for j in 0..NR {
            let row = T::vectors_mut::<S>(&mut share[j * d_lanes..][..d_lanes]);
            let into = &mut row[first..][..M];
            for i in 0..M {
                into[i] = T::add_vectors(simd, into[i], sums[j][i]);
            }
        }
    }
}

/// Writes zeros over the entries of a tile (queries, width) that the mask hides.
fn hide<T: Float>(
    mask: &crate::mask::SizedMask,
    queries: &Range<usize>,
    keys: &Range<usize>,
    tile: &mut [T],
    width: usize,
) {
    for (line, i) in tile.chunks_exact_mut(width).zip(queries.clone()) {
        mask.hide_keys(i, keys.clone(), &mut line[..keys.len()], T::zero());
    }
}

/// The sum of all shares, in their order, each (n_q, d_k) row by row with rows of whole vectors, to the gradient of a head.
fn write_grad_q<T: Float>(
    mut shares: impl Iterator<Item = Vec<T>>,
    scale: T,
    lanes: usize,
    grad_q: &mut DMatrixViewMut<T>, // (n_q, d_k)
) {
    let Some(mut sum) = shares.next() else { return };
    for share in shares {
        for (sum, &x) in sum.iter_mut().zip(&share) {
            *sum += x;
        }
    }
    let d_lanes = grad_q.ncols().next_multiple_of(lanes);
    for (c, mut column) in grad_q.column_iter_mut().enumerate() {
        for (to, from) in column.iter_mut().zip(sum.chunks_exact(d_lanes)) {
            *to = from[c] * scale;
        }
    }
}
