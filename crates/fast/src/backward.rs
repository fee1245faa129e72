//! The backward pass of [`Flash`], on the same micro-kernels.
//!
//! Tiles stand on their side: the vectors lie along the keys, and a row of a tile is one query against a panel of keys. So
//! weights and gradients of scores are where the products with `grad_output` and with the queries want them, and what belongs
//! to a query, its log-sum-exp and D, is one number a row.

use crate::forward::{Flash, Grid, NotFinite, two_scales, within, without, write_panels};
use crate::queue::{into_inner, lock};
use crate::simd::{
    Aligned, Float, InstructionSet, Sizes, Work, exp2, mul_add, pack_across,
    pack_columns, pack_panels, pack_rows, pieces, product_with_rows, products, vectors,
    vectors_mut,
};
use attention::AttentionGradients;
use attention::engine::HeadDropout;
use attention::engine::RuleGradients;
use attention::engine::log_sum_exp_or_zero;
use attention::engine::{blocks, tiles_between};
use attention::flash::{FlashOutput, Head, Inputs, Tiles};
use attention::mask::Visibility;
use nalgebra::{DMatrixView, DMatrixViewMut};
use std::f64::consts::LOG2_E;
use std::ops::Range;
use std::sync::Mutex;

/// Into how many stripes of keys a head is cut at most, so that threads find work even if there are few heads. It
/// depends on nothing but the sizes: the sums over stripes must not depend on the number of threads.
const STRIPES: usize = 4;

/// With so many heads, a head is a task, and is not cut.
const TASKS: usize = 16;

impl Flash {
    /// Extra memory: for each thread a block of keys, a tile of queries, panels of scores and three numbers a query; and for a head in
    /// work, with all that share its keys, up to four matrices of the size of its queries, with rows of whole vectors. One head of
    /// keys keeps at most four threads busy.
    pub(crate) fn run_backward<T: Float>(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> AttentionGradients<T> {
        // A task is a stripe of keys of one head of keys, with all heads of queries that share it: so the gradients of keys and values are
        // written by one thread, and need no lock while they grow. How many stripes there are depends on the sizes alone.
        let n_k = inputs.lengths().1;
        let sizes = self.instructions().sizes::<T>();
        let stripes = TASKS.div_ceil(inputs.n_kv_heads()).min(STRIPES);
        let stripe = n_k.div_ceil(stripes).next_multiple_of(sizes.panel);
        let stripes: Vec<_> = blocks(n_k, stripe).collect();
        let tasks = (0..inputs.n_kv_heads()).flat_map(|g| {
            stripes.iter().cloned().enumerate().map(move |stripe| (g, stripe))
        });

        let gradients = Mutex::new(inputs.zero_gradients());
        // Every stripe has a share in the gradients of all queries. Shares are added in the
        // order of the stripes, by whichever thread completes them.
        let shares: Vec<_> = (0..inputs.n_kv_heads())
            .map(|_| Mutex::new(vec![None; stripes.len()]))
            .collect();
        let (lengths, widths) = (inputs.lengths(), inputs.widths());
        self.threads_for(lengths, widths, inputs.n_heads()).run(
            tasks.collect(),
            || BackwardWorkspace::new(sizes, self.tiles(), inputs, stripe),
            |workspace, (g, (number, keys))| {
                let back = |h| Back::new(inputs, h, forward, &grad_output);
                let heads = inputs.group(g).map(back).collect();
                let work = Stripe { workspace, heads, g, keys, gradients: &gradients };
                let share = self.instructions().run(work).expect("checked instructions");
                let mut shares = lock(&shares[g]);
                shares[number] = Some(share);
                if shares.iter().all(Option::is_some) {
                    let shares = std::mem::take(&mut *shares).into_iter().flatten();
                    add_shares(inputs, g, shares.collect(), sizes, &mut lock(&gradients));
                }
            },
        );
        into_inner(gradients)
    }
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
    scales: (T, T),            // of queries, and of their products with keys
    keys: Aligned<T>,          // panels of (d_k, width)
    values: Aligned<T>,        // panels of (d_v, width)
    keys_across: Aligned<T>, // for each panel (keys, some vectors of d_k), several times
    grad_k: Aligned<T>,      // panels of (d_k, width)
    grad_v: Aligned<T>,      // panels of (d_v, width)
    query_rows: Aligned<T>,  // blocks of (d_k, NR), times the power of two in the scale
    query_columns: Aligned<T>, // blocks of (queries, NR)
    grad_rows: Aligned<T>,   // blocks of (d_v, NR)
    grad_columns: Aligned<T>, // blocks of (queries, NR)
    weights: Aligned<T>,     // (queries, width); scores, before
    grad_scores: Aligned<T>, // (queries, width)
    scores: Vec<T>, // (queries, width), before they were changed, if the backward pass needs them
    shift: Vec<T>,  // (n_q): log-sum-exps
    rest: Vec<T>,   // (n_q): what rounding took from them, as an exponent of 2
    d: Vec<T>,      // (n_q): rowsum(grad_output ⊙ output)
    zeros: Vec<T>, // (queries): in place of D where it is subtracted later, after dropout
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
            scales: two_scales(inputs.head(0).scale),
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
            scores: vec![],
            shift: of_all(),
            rest: of_all(),
            d: of_all(),
            zeros: vec![T::zero(); tile],
        }
    }

    /// Takes from the forward pass two facts of each row: its log-sum-exp, in two parts, and D.
    fn rows_of(&mut self, back: &Back<T>) {
        let numbers = back.log_sum_exp.iter().zip(back.log_sum_exp_low);
        let places = self.shift.iter_mut().zip(&mut self.rest);
        for ((shift, rest), (&lse, &low)) in places.zip(numbers) {
            *shift = log_sum_exp_or_zero(lse);
            *rest = -low * nalgebra::convert(LOG2_E);
        }
        self.d.fill(T::zero());
        for (a, b) in back.grad_output.column_iter().zip(back.output.column_iter()) {
            for ((d, &a), &b) in self.d.iter_mut().zip(a.as_slice()).zip(b.as_slice()) {
                *d += a * b;
            }
        }
    }
}

/// What a stripe of keys contributes to the gradients of a head's queries (n_q, d_k), row by row, and to those of the rule for scores.
type Share<T> = (Vec<T>, RuleGradients);

/// The shares of all stripes in the gradients of a group of heads, to where they belong.
fn add_shares<T: Float>(
    inputs: &Inputs<T>,
    g: usize,
    stripes: Vec<Vec<Share<T>>>, // for each, those of each head
    sizes: Sizes,
    gradients: &mut AttentionGradients<T>,
) {
    let d_k = inputs.widths().0;
    let mut stripes: Vec<_> = stripes.into_iter().map(Vec::into_iter).collect();
    for h in inputs.group(g) {
        let shares: Vec<_> = stripes.iter_mut().filter_map(Iterator::next).collect();
        let (shares, tables): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
        let head = inputs.head(h);
        let mut grad_q = gradients.q.columns_mut(h * d_k, d_k);
        write_grad_q(shares.into_iter(), head.scale, sizes.lanes, &mut grad_q);
        for table in tables {
            table.add_to(&mut gradients.tables, head.mask.head());
        }
    }
}

/// Some keys of the heads that share them, and all queries that see them.
struct Stripe<'a, T: Float> {
    workspace: &'a mut BackwardWorkspace<T>,
    heads: Vec<Back<'a, T>>,
    g: usize,
    keys: Range<usize>,
    gradients: &'a Mutex<AttentionGradients<T>>,
}

impl<T: Float> Work for Stripe<'_, T> {
    type Output = Vec<Share<T>>;

    /// The gradients of these keys and their values, written where they belong; and for each head
    /// its share in the gradients of all queries, which is returned.
    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(
        self,
        simd: S,
    ) -> Vec<Share<T>> {
        let Stripe { workspace, heads, g, keys, gradients } = self;
        let ((n_q, d_k), lanes) = (heads[0].head.q.shape(), workspace.sizes.lanes);
        let size = n_q.next_multiple_of(NR) * d_k.next_multiple_of(lanes);
        let share = |back: &Back<T>| {
            (vec![T::zero(); size], RuleGradients::new(back.head.mask.scores()))
        };
        let mut shares: Vec<_> = heads.iter().map(share).collect();
        for block in tiles_between(keys, workspace.block) {
            workspace.hold::<MR>(&heads[0].head, &block);
            for (back, share) in heads.iter().zip(&mut shares) {
                workspace.rows_of(back);
                workspace.block::<S, MR, NR>(simd, back, &block, share);
            }
            workspace.write(&heads[0].head, g, &block, &mut lock(gradients));
        }
        shares
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
    /// Keys of the block and queries of the tile that a weight of 0 would not hide.
    not_finite: (&'a [usize], &'a [usize]),
}

/// Where the gradients of a head's queries go, and those of its rule for scores.
struct Grads<'a, T> {
    share: &'a mut [T], // (n_q, d_k), with rows of whole vectors
    of_tables: &'a mut RuleGradients,
}

impl<T: Float> BackwardWorkspace<T> {
    /// Takes up a block of keys, with gradients of zero.
    fn hold<const MR: usize>(&mut self, head: &Head<T>, block: &Range<usize>) {
        let sizes = self.sizes;
        // Keys are packed twice: as panels, for the scores and for the gradients of keys, and across, with vectors along their columns, for
        // the gradients of queries, whose sum runs over the keys.
        let (k, v) = (head.k.rows_range(block.clone()), head.v.rows_range(block.clone()));
        pack_panels(k, sizes.panel, sizes.lanes, &mut self.keys);
        pack_panels(v, sizes.panel, sizes.lanes, &mut self.values);
        pack_across(k, sizes.panel, sizes.lanes, MR, &mut self.keys_across);
        self.grad_k.fill(T::zero());
        self.grad_v.fill(T::zero());
    }

    /// Adds up the gradients of a block of keys, which is held while all queries of a head that see some of it pass by, and its
    /// share in the gradients of these queries.
    #[inline(always)]
    fn block<S: InstructionSet, const MR: usize, const NR: usize>(
        &mut self,
        simd: S,
        back: &Back<T>,
        block: &Range<usize>, // of keys
        (share, of_tables): &mut Share<T>,
    ) {
        let (Back { head, grad_output, .. }, sizes) = (back, self.sizes);
        let k = head.k.rows_range(block.clone());
        let grid = Grid { size: self.tile, step: NR, end: head.q.nrows() };
        let [mut of_keys, mut of_queries] = [NotFinite::default(), NotFinite::default()];
        for tile in grid.tiles(head.mask.queries_that_see(block.clone())) {
            if head.mask.visibility(tile.clone(), block.clone()) == Visibility::Hidden {
                continue;
            }
            let q = head.q.rows_range(tile.clone());
            let grad = grad_output.rows_range(tile.clone());
            pack_rows::<T, NR>(q, &mut self.query_rows);
            let packed = tile.len().next_multiple_of(NR) * q.ncols();
            let power = self.scales.0;
            self.query_rows[..packed].iter_mut().for_each(|x| *x *= power);
            pack_columns::<T, NR>(q, &mut self.query_columns);
            pack_rows::<T, NR>(grad, &mut self.grad_rows);
            pack_columns::<T, NR>(grad, &mut self.grad_columns);
            of_queries.forget();
            for keys in tiles_between(block.clone(), sizes.panel) {
                let queries = head.mask.queries_that_see(keys.clone());
                let Some(queries) = grid.common(queries, &tile) else { continue };
                let seen = head.mask.visibility(queries.clone(), keys.clone());
                if seen == Visibility::Hidden {
                    continue;
                }
                let not_finite =
                    (of_keys.among(seen, [k]), of_queries.among(seen, [q, grad]));
                let tile = &tile;
                let panel = Panel { back, block, tile, keys, queries, seen, not_finite };
                let into = Grads { share, of_tables };
                match panel.keys.len().div_ceil(sizes.lanes) {
                    1 if MR > 1 => self.panel::<S, 1, MR, NR>(simd, &panel, into),
                    2 if MR > 2 => self.panel::<S, 2, MR, NR>(simd, &panel, into),
                    _ => self.panel::<S, MR, MR, NR>(simd, &panel, into),
                }
            }
        }
    }

    /// The finished gradients of a block of keys and its values, to where they belong.
    fn write(
        &self,
        head: &Head<T>,
        g: usize,
        block: &Range<usize>,
        gradients: &mut AttentionGradients<T>,
    ) {
        let (d_k, d_v) = (head.k.ncols(), head.v.ncols());
        for (panels, factor, d, matrix) in [
            (&self.grad_k, head.scale, d_k, &mut gradients.k),
            (&self.grad_v, T::one(), d_v, &mut gradients.v),
        ] {
            let matrix = matrix.columns_mut(g * d, d);
            write_panels(panels, self.sizes, block, matrix, |_, from, to| {
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = from * factor;
                }
            });
        }
    }

    /// Adds what a panel of keys and a tile of queries contribute to the gradients of both.
    #[inline(always)]
    fn panel<S: InstructionSet, const M: usize, const MR: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: &Panel<T>,
        Grads { share, of_tables }: Grads<T>,
    ) {
        crate::count_pairs(panel.queries.len() * panel.keys.len());

        self.weights::<S, M, NR>(simd, panel);
        self.grad_scores::<S, M, NR>(simd, panel);
        self.change_back(panel, M * self.sizes.lanes, of_tables);
        self.add_gradients::<S, M, MR, NR>(simd, panel, share);
        self.add_not_finite(panel, M * self.sizes.lanes, share);
    }

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

        // Keys are the vectors here and queries the numbers, so a row is one query with a panel of keys. With the log-sum-exp at hand no
        // maximum, no sum and no correction are needed: one exponential, and the weight is final.
        let key_vectors = vectors::<S, T, M>(&self.keys[first * d_k..][..width * d_k]);
        let blocks = self.query_rows[from * d_k..][..count * d_k].as_chunks::<NR>().0;
        let weights = &mut self.weights[..count * width];
        let (blocks, into) = (blocks.chunks_exact(d_k), vectors_mut::<S, T, M>(weights));
        let scale = T::splat_vector(simd, self.scales.1);
        products::<S, T, M, NR>(simd, key_vectors, blocks, into, |_, into, sums| {
            *into = sums.map(|sum| T::mul_vectors(simd, sum, scale));
        });
        let rule = head.mask.scores();
        if !rule.is_none() {
            if rule.has_backward() {
                self.scores.clear();
                self.scores.extend_from_slice(weights);
            }
            for (line, i) in weights.chunks_exact_mut(width).zip(queries.clone()) {
                head.mask.change_keys(i, keys.clone(), &mut line[..keys.len()]);
            }
        }

        // The score less the large part of the log-sum-exp is exact where both are large; what rounding took from it is added in the
        // exponent. See the design note on two numbers.
        let base = T::splat_vector(simd, nalgebra::convert(LOG2_E));
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

        // The gradient of a weight is a product of a value with the gradient of the output. As soon as it leaves the registers, D is
        // subtracted and the weight multiplied: the gradient of the weights is never stored.
        let value_vectors =
            vectors::<S, T, M>(&self.values[first * d_v..][..width * d_v]);
        let blocks = self.grad_rows[from * d_v..][..count * d_v].as_chunks::<NR>().0;
        let grads = &mut self.grad_scores[..count * width];
        let (blocks, into) = (blocks.chunks_exact(d_v), vectors_mut::<S, T, M>(grads));
        let weights = vectors::<S, T, M>(&self.weights);
        let d =
            if head.dropout.is_some() { &self.zeros } else { &self.d[queries.start..] };
        let d = &d[..count];
        products::<S, T, M, NR>(simd, value_vectors, blocks, into, |j, into, sums| {
            let d = T::splat_vector(simd, d[j]);
            for i in 0..M {
                let behind = T::sub_vectors(simd, sums[i], d);
                into[i] = T::mul_vectors(simd, weights[j][i], behind);
            }
        });
        if let Some(dropout) = head.dropout {
            self.drop(dropout, panel, width);
        }
        if panel.seen == Visibility::Partial {
            hide(
                &head.mask,
                queries,
                keys,
                &mut self.grad_scores[..count * width],
                width,
            );
        }
    }

    /// Back through the rule for scores, if there is one.
    fn change_back(&mut self, panel: &Panel<T>, width: usize, into: &mut RuleGradients) {
        let Panel { back: Back { head, .. }, keys, queries, .. } = panel;
        if !head.mask.scores().has_backward() {
            return;
        }
        let grads = self.grad_scores.chunks_exact_mut(width);
        let lines = self.scores.chunks_exact(width).zip(grads);
        for ((scores, grads), i) in lines.zip(queries.clone()) {
            let (scores, grads) = (&scores[..keys.len()], &mut grads[..keys.len()]);
            head.mask.change_keys_back(i, keys.clone(), scores, grads, into);
        }
    }

    /// The gradient of a weight that met the values is multiplied by what the weight was multiplied by, and D, which is the mean of the
    /// products, is subtracted after that. From then on `weights` are those that met the values.
    #[inline(always)]
    fn drop(&mut self, dropout: HeadDropout, panel: &Panel<T>, width: usize) {
        let grads = self.grad_scores.chunks_exact_mut(width);
        let lines = self.weights.chunks_exact_mut(width).zip(grads);
        for ((weights, grads), i) in lines.zip(panel.queries.clone()) {
            dropout.multiply_keys(i, panel.keys.start, grads);
            for (grad, &mut weight) in grads.iter_mut().zip(&mut *weights) {
                *grad -= weight * self.d[i];
            }
            dropout.multiply_keys(i, panel.keys.start, weights);
        }
    }

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
        let Panel { keys, queries, not_finite, .. } = panel;
        let width = M * self.sizes.lanes;
        // Two of the products have the keys along their vectors, and sum over the queries.
        // The third sums over the keys: its vectors lie along the columns of the keys, and
        // the gradients of scores are its numbers.
        let in_tile = queries.start - panel.tile.start..queries.end - panel.tile.start;
        let in_block = keys.start - panel.block.start..keys.end - panel.block.start;
        for (left, right, into, d) in [
            (&self.weights, &self.grad_columns, &mut self.grad_v, self.d_v),
            (&self.grad_scores, &self.query_columns, &mut self.grad_k, self.d_k),
        ] {
            let into = &mut into[in_block.start * d..][..width * d];
            for healthy in without(&in_tile, not_finite.1) {
                let rows = healthy.start - in_tile.start..healthy.end - in_tile.start;
                let left =
                    vectors::<S, T, M>(&left[rows.start * width..rows.end * width]);
                let columns = right.chunks_exact(panel.tile.len() * NR);
                let blocks = columns.map(|column| &column.as_chunks().0[healthy.clone()]);
                let into = vectors_mut::<S, T, M>(into);
                products::<S, T, M, NR>(simd, left, blocks, into, |_, into, sums| {
                    for i in 0..M {
                        into[i] = T::add_vectors(simd, into[i], sums[i]);
                    }
                });
            }
        }
        let d = panel.back.head.k.ncols().next_multiple_of(self.sizes.lanes);
        let count = queries.len().next_multiple_of(NR);
        let across = &self.keys_across[in_block.start * d..][..keys.len() * d];
        let grad_scores = &self.grad_scores[..count * width];
        let share = &mut share[queries.start * d..][..count * d];
        for healthy in without(&in_block, not_finite.0) {
            let keys = healthy.start - in_block.start..healthy.end - in_block.start;
            add_grad_q::<S, T, MR, NR>(simd, across, grad_scores, width, share, d, keys);
        }
    }

    /// Adds the rows that were left out there, over the pairs that are seen.
    fn add_not_finite(&mut self, panel: &Panel<T>, width: usize, share: &mut [T]) {
        let Panel { back: Back { head, grad_output, .. }, keys, queries, .. } = panel;
        let (d_k, d_v) = (head.k.ncols(), head.v.ncols());
        let d_lanes = d_k.next_multiple_of(self.sizes.lanes);
        let first = keys.start - panel.block.start;
        let in_tile = queries.start - panel.tile.start..queries.end - panel.tile.start;
        let in_block = first..keys.end - panel.block.start;
        let grad_k = &mut self.grad_k[first * self.d_k..];
        let grad_v = &mut self.grad_v[first * self.d_v..];
        let place = |i: usize, j: usize| (i - queries.start) * width + j - keys.start;
        for i in within(&in_tile, panel.not_finite.1).iter().map(|i| panel.tile.start + i)
        {
            for j in keys.clone().filter(|&j| head.mask.allows(i, j)) {
                let (weight, grad) =
                    (self.weights[place(i, j)], self.grad_scores[place(i, j)]);
                let at = j - keys.start;
                for c in 0..d_v {
                    grad_v[c * width + at] += weight * grad_output[(i, c)];
                }
                for c in 0..d_k {
                    grad_k[c * width + at] += grad * head.q[(i, c)];
                }
            }
        }
        for j in
            within(&in_block, panel.not_finite.0).iter().map(|j| panel.block.start + j)
        {
            for i in queries.clone().filter(|&i| head.mask.allows(i, j)) {
                for c in 0..d_k {
                    share[i * d_lanes + c] +=
                        self.grad_scores[place(i, j)] * head.k[(j, c)];
                }
            }
        }
    }
}

/// `share += grad_scores · keys`: here the vectors lie along the columns, since what is added up are the keys.
///
/// Shapes: `across` is for some vectors of the columns (keys, vectors), one after the other; `grad_scores` (queries, width),
/// `share` (queries, d_lanes); `keys` are those of the panel that count.
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
    keys: Range<usize>,
) {
    let (lanes, all) = (T::lanes::<S>(), across.len() / d_lanes);
    for piece in pieces(d_lanes / lanes, MR) {
        let vectors = piece.len() * lanes;
        let across = &across[piece.start * lanes * all..][..vectors * all];
        let across = &across[keys.start * vectors..keys.end * vectors];
        let grad_scores = &grad_scores[keys.start..];
        let to = Columns { first: piece.start, d_lanes };
        match piece.len() {
            1 if MR > 1 => {
                add_columns::<S, T, 1, NR>(simd, across, grad_scores, width, share, to)
            }
            2 if MR > 2 => {
                add_columns::<S, T, 2, NR>(simd, across, grad_scores, width, share, to)
            }
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
    let rows = grad_scores.chunks(NR * width); // the last one may be shorter
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
    mask: &attention::mask::SizedMask,
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
