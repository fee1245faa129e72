//! The tiled algorithm on micro-kernels: scores that never leave the layout in which the next product wants them.

use crate::queue::{Threads, into_inner, lock};
use crate::simd::{
    Aligned, Float, InstructionSet, Instructions, Sizes, Work, exp2, mul_add,
    pack_columns, pack_panels, pack_rows, products, vectors, vectors_mut,
};
use attention::Result;
use attention::engine::normaliser;
use attention::engine::on_a_worker;
use attention::engine::{PagedInputs, Pages, check_positive};
use attention::engine::{blocks, tiles_between};
use attention::flash::{FlashOutput, Head, Inputs, Tiles};
use attention::{
    engine::neg_infinity,
    mask::{SizedMask, Visibility},
};
use nalgebra::{DMatrixView, DMatrixViewMut};
use std::f64::consts::LOG2_E;
use std::ops::Range;
use std::sync::Mutex;

/// Attention tile by tile, as fast as this crate can: for `f32` and `f64`, over heads and blocks of queries in parallel.
///
/// The results are those of [`tiled_attention`](attention::flash::tiled_attention) up to rounding, and the same to the last bit for any
/// number of threads.
///
/// ```
/// use attention::{Mask, engine::Engine, flash::{Inputs, Tiles, tiled_attention}};
/// use fast::Flash;
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(300, 16, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(4)?;
/// let forward = Flash::new().forward(&inputs)?;
/// assert!((forward.output - tiled_attention(&inputs, Tiles::default())?.output).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Flash {
    tiles: Tiles,
    threads: Threads,
    instructions: Instructions,
    batch_invariant: bool,
}

impl PartialEq for Flash {
    /// The same settings.
    fn eq(&self, other: &Self) -> bool {
        let settings = |flash: &Self| {
            (flash.tiles, flash.instructions, flash.threads(), flash.batch_invariant)
        };
        settings(self) == settings(other)
    }
}

impl Default for Flash {
    fn default() -> Self {
        Flash::new()
    }
}

impl Flash {
    /// The tiles of [`Flash::new`].
    ///
    /// ```
    /// assert_eq!(fast::Flash::TILES.keys, 128);
    /// ```
    pub const TILES: Tiles = Tiles { queries: 1152, keys: 128 };

    /// All threads that there are, the best instructions that this processor has, and tiles that were fast where they were
    /// measured.
    ///
    /// ```
    /// use fast::Flash;
    /// assert_eq!(Flash::new().tiles(), Flash::TILES);
    /// ```
    pub fn new() -> Self {
        Flash {
            tiles: Self::TILES,
            threads: Threads::All,
            instructions: Instructions::best(),
            batch_invariant: false,
        }
    }

    /// With tiles of this size. Forward, `tiles.queries` queries share a packed copy of `tiles.keys` keys and values. Backward the
    /// roles are exchanged: `tiles.queries` keys share a copy of `tiles.keys` queries. Sizes are rounded up to what fills
    /// registers, and blocks are smaller where threads would find no work otherwise.
    ///
    /// # Errors
    /// A size is 0.
    ///
    /// ```
    /// use attention::flash::Tiles;
    /// use fast::Flash;
    ///
    /// let error = Flash::new().with_tiles(Tiles { queries: 0, keys: 64 }).unwrap_err();
    /// assert_eq!(error.to_string(), "`tiles.queries` is 0 but it must be at least 1");
    /// ```
    pub fn with_tiles(self, tiles: Tiles) -> Result<Self> {
        check_positive("tiles.queries", tiles.queries)?;
        check_positive("tiles.keys", tiles.keys)?;
        Ok(Flash { tiles, ..self })
    }

    /// With at most this many threads; what is soon done is done by one, and so is what a worker thread of rayon asks for: in a parallel
    /// loop each round works alone. More than one need the feature `rayon`.
    ///
    /// # Errors
    /// `threads` is 0, or more than 1024, or than the system starts.
    ///
    /// ```
    /// let error = fast::Flash::new().with_threads(0).unwrap_err();
    /// assert_eq!(error.to_string(), "`threads` is 0 but it must be at least 1");
    /// ```
    pub fn with_threads(self, threads: usize) -> Result<Self> {
        Ok(Flash { threads: Threads::new(threads)?, ..self })
    }

    /// With these instructions: for those who want to know what the better ones are worth.
    ///
    /// # Errors
    /// This processor does not have them.
    ///
    /// ```
    /// use fast::{Flash, Instructions};
    /// let flash = Flash::new().with_instructions(Instructions::Portable)?;
    /// assert_eq!(flash.instructions(), Instructions::Portable);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_instructions(self, instructions: Instructions) -> Result<Self> {
        Ok(Flash { instructions: instructions.check()?, ..self })
    }

    /// With one order of summation for a row, whatever stands beside it: one token with a cache has the same bits as in the whole text,
    /// and so has every cut of the text into chunks. That holds for the outputs of attention and for the products of a layer. By
    /// default few rows are summed in another order than many, since that is faster.
    ///
    /// ```
    /// use attention::{ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, example};
    /// use fast::Flash;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f32>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x.map(|x| x as f32);
    /// let options = ForwardOptions::new().mask(Mask::causal()).engine(Flash::new().with_batch_invariance());
    /// let (whole, _) = layer.forward(&x, options.clone())?;
    /// let mut cache = KeyValueCache::new();
    /// for (i, row) in whole.row_iter().enumerate() {
    ///     let alone = layer.forward_cached(x.rows(i, 1), &mut cache, options.clone())?;
    ///     assert_eq!(alone.row(0), row);
    /// }
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_batch_invariance(self) -> Self {
        Flash { batch_invariant: true, ..self }
    }

    /// The tiles.
    ///
    /// ```
    /// use attention::flash::Tiles;
    /// use fast::Flash;
    /// let tiles = Tiles { queries: 32, keys: 32 };
    /// assert_eq!(Flash::new().with_tiles(tiles)?.tiles(), tiles);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn tiles(&self) -> Tiles {
        self.tiles
    }

    /// The number of threads.
    ///
    /// ```
    /// assert_eq!(fast::Flash::new().with_threads(1)?.threads(), 1);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// The instructions.
    ///
    /// ```
    /// use fast::{Flash, Instructions};
    /// assert!(Instructions::available().contains(&Flash::new().instructions()));
    /// ```
    pub fn instructions(&self) -> Instructions {
        self.instructions
    }

    /// Whether a row has [the same bits](Flash::with_batch_invariance) whatever stands beside it.
    ///
    /// ```
    /// assert!(!fast::Flash::new().is_batch_invariant());
    /// ```
    pub fn is_batch_invariant(&self) -> bool {
        self.batch_invariant
    }

    /// The threads that are worth waking up for these inputs, and may be waited for.
    pub(super) fn threads_for(
        &self,
        (n_q, n_k): (usize, usize),
        (d_k, d_v): (usize, usize),
        n_heads: usize,
    ) -> &Threads {
        /// Operations that a core does while another one wakes up.
        const WAKING: usize = 1 << 21;
        let factors = [2, n_heads, n_q, n_k, d_k + d_v];
        let operations = factors.into_iter().fold(1_usize, usize::saturating_mul);
        let alone = operations < WAKING || on_a_worker();
        if alone { &Threads::One } else { &self.threads }
    }
}

// ---------------------------------------------------------------------------------------------------- forward

impl Flash {
    pub(crate) fn run_forward<T: Float>(&self, inputs: &Inputs<T>) -> FlashOutput<T> {
        /// So many for each thread that none waits long for the last one.
        const TASKS: usize = 4;
        let (sizes, n_q) = (self.instructions.sizes::<T>(), inputs.lengths().0);
        if Flash::are_few(n_q) {
            return self.forward_few(&PagedInputs::from(inputs));
        }
        let threads =
            self.threads_for(inputs.lengths(), inputs.widths(), inputs.n_heads());
        let enough = match threads.count() {
            1 => 1,
            threads => (TASKS * threads).div_ceil(inputs.n_heads()),
        };
        // Blocks of one size, of whole panels. A row's result does not depend on its block.
        let queries = n_q.div_ceil(n_q.div_ceil(self.tiles.queries).max(enough));
        let queries = queries.next_multiple_of(sizes.panel);
        let mut tasks = vec![];
        for h in 0..inputs.n_heads() {
            // The longest first: under a causal mask these are the last rows.
            let rows: Vec<_> = blocks(n_q, queries).collect();
            tasks.extend(rows.into_iter().rev().map(|rows| (h, rows)));
        }
        let tiles = Tiles { queries: queries.min(n_q), keys: self.tiles.keys };
        let forward = Mutex::new(FlashOutput::zeros(inputs));
        threads.run(
            tasks,
            || ForwardWorkspace::new(sizes, tiles, inputs),
            |workspace, (h, rows)| {
                let head = inputs.head(h);
                let work = Attend { workspace, head: &head, rows: rows.clone() };
                self.instructions.run(work).expect("instructions of this processor");
                workspace.write(&mut lock(&forward), h, rows, &head.mask);
            },
        );
        into_inner(forward)
    }
}

/// One thread's walk over the keys, and the memory that it uses again for every tile.
impl Flash {
    /// Few queries read the pages; many have them copied into one matrix.
    pub(crate) fn run_forward_paged<T: Float>(
        &self,
        inputs: &PagedInputs<T>,
    ) -> FlashOutput<T> {
        if Flash::are_few(inputs.q.nrows()) {
            return self.forward_few(inputs);
        }
        let whole =
            |pages: &Pages<T>| (pages.pages().len() > 1).then(|| pages.gathered());
        let (keys, values) = (whole(&inputs.keys), whole(&inputs.values));
        let keys = keys.as_ref().map_or(inputs.keys.pages()[0], |all| all.as_view());
        let values =
            values.as_ref().map_or(inputs.values.pages()[0], |all| all.as_view());
        self.run_forward(&inputs.with_keys(keys, values))
    }
}

struct ForwardWorkspace<T> {
    sizes: Sizes,
    keys_in_tile: usize,
    scales: (T, T),      // of queries, and of their products with keys
    queries: Aligned<T>, // panels of (d_k, width), scaled
    keys: Aligned<T>,    // blocks of (d_k, NR)
    values: Aligned<T>,  // blocks of (keys, NR)
    scores: Aligned<T>,  // (keys, width), then their exponentials
    max: Aligned<T>,     // (rows): the largest scores
    sum: Aligned<T>,     // (rows)
    output: Aligned<T>,  // panels of (d_v, width)
}

impl<T: Float> ForwardWorkspace<T> {
    fn new(sizes: Sizes, tiles: Tiles, inputs: &Inputs<T>) -> Self {
        let ((_, n_k), (d_k, d_v)) = (inputs.lengths(), inputs.widths());
        let rows = tiles.queries.next_multiple_of(sizes.lanes);
        let keys = tiles.keys.min(n_k).next_multiple_of(sizes.numbers);
        let d_v = d_v.next_multiple_of(sizes.numbers);
        ForwardWorkspace {
            sizes,
            keys_in_tile: keys,
            scales: two_scales(inputs.head(0).scale),
            queries: Aligned::zeros(rows * d_k),
            keys: Aligned::zeros(keys * d_k),
            values: Aligned::zeros(keys * d_v),
            scores: Aligned::zeros(keys * rows.min(sizes.panel)),
            max: Aligned::zeros(rows),
            sum: Aligned::zeros(rows),
            output: Aligned::zeros(rows * d_v),
        }
    }

    /// The finished block, to where it belongs.
    fn write(
        &mut self,
        forward: &mut FlashOutput<T>,
        h: usize,
        rows: Range<usize>,
        mask: &SizedMask,
    ) {
        for (i, sum) in rows.clone().zip(&mut *self.sum) {
            // Scores that overflowed to −∞ look like hidden ones.
            if sum.is_zero() && sees_something(mask, i) {
                *sum = nalgebra::convert(f64::NAN);
            }
        }
        let d_v = forward.output.ncols() / forward.log_sum_exp.ncols();
        let output = forward.output.columns_mut(h * d_v, d_v);
        write_panels(&self.output, self.sizes, &rows, output, |panel, from, to| {
            for ((to, &from), &sum) in to.iter_mut().zip(from).zip(&self.sum[panel]) {
                *to = from / normaliser(sum) + T::zero(); // a hidden key's 0 can turn −0 into 0, so no row has −0
            }
        });
        for (i, (&max, &sum)) in rows.zip(self.max.iter().zip(&*self.sum)) {
            forward.write_log_sum_exp((i, h), T::one(), max, sum);
        }
    }
}

/// Finished panels (d, width) of a block, to its `rows` of a head's matrix (n, d). `write` gets one column of one panel:
/// which rows of the block these are, where their numbers are, and where they go.
pub(super) fn write_panels<T: Float>(
    panels: &[T],
    sizes: Sizes,
    rows: &Range<usize>,
    mut matrix: DMatrixViewMut<T>,
    write: impl Fn(Range<usize>, &[T], &mut [T]),
) {
    let padded = matrix.ncols().next_multiple_of(sizes.numbers);
    for panel in blocks(rows.len(), sizes.panel) {
        let width = panel.len().next_multiple_of(sizes.lanes);
        let columns = panels[panel.start * padded..].chunks_exact(width);
        for (from, mut column) in columns.zip(matrix.column_iter_mut()) {
            let to = &mut column.as_mut_slice()[rows.start..][panel.clone()];
            write(panel.clone(), from, to);
        }
    }
}

pub(super) fn sees_something(mask: &SizedMask, query: usize) -> bool {
    mask.keys_seen_by(query..query + 1).any(|key| mask.allows(query, key))
}

/// The scale in two factors: a power of two, by which queries are multiplied before a score could overflow, and exactly; and the rest,
/// from 1 to 2, by which their products with the keys are.
pub(super) fn two_scales<T: Float>(scale: T) -> (T, T) {
    let exact = nalgebra::try_convert::<T, f64>(scale).unwrap_or(1.0);
    let power = exact.abs().log2().floor().exp2();
    let power = nalgebra::convert(if power.is_normal() { power } else { 1.0 });
    (power, scale / power)
}

/// One block of queries, and all keys that it sees.
struct Attend<'a, T: Float> {
    workspace: &'a mut ForwardWorkspace<T>,
    head: &'a Head<'a, T>,
    rows: Range<usize>,
}

impl<T: Float> Work for Attend<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        let Attend { workspace, head, rows } = self;
        let sizes = workspace.sizes;
        // The queries are packed once, for all keys that they will meet, and are scaled here by the power of two in 1/√d: exactly, and
        // before any product with a key could overflow.
        let q = head.q.rows_range(rows.clone());
        pack_panels(q, sizes.panel, sizes.lanes, &mut workspace.queries);
        let packed = rows.len().next_multiple_of(sizes.lanes) * q.ncols();
        let power = workspace.scales.0;
        workspace.queries[..packed].iter_mut().for_each(|x| *x *= power);
        // The state of online softmax before the first key, as in the readable version.
        workspace.max.fill(neg_infinity());
        workspace.sum.fill(T::zero());
        workspace.output.fill(T::zero());
        let grid = Grid { size: workspace.keys_in_tile, step: NR, end: head.k.nrows() };
        for tile in grid.tiles(head.mask.keys_seen_by(rows.clone())) {
            if head.mask.visibility(rows.clone(), tile.clone()) == Visibility::Hidden {
                continue;
            }
            // Keys and values of a tile are packed once, and serve every panel of queries of the block. What was packed is read from
            // one end to the other, so that the processor fetches ahead; in the matrix the columns of a key lie a whole column apart.
            let (k, v) =
                (head.k.rows_range(tile.clone()), head.v.rows_range(tile.clone()));
            pack_rows::<T, NR>(k, &mut workspace.keys);
            pack_columns::<T, NR>(v, &mut workspace.values);
            // A weight of 0 does not hide a value that is not finite, since 0 · NaN is NaN. Such keys are zeros in the packed copy, and
            // are added by themselves to what sees them: in every tile, so that the order of a sum doesn't depend on the mask.
            let not_finite = rows_not_finite([v]);
            for &key in &not_finite {
                for column in workspace.values.chunks_exact_mut(tile.len() * NR) {
                    column.as_chunks_mut::<NR>().0[key] = [T::zero(); NR];
                }
            }
            for queries in tiles_between(rows.clone(), sizes.panel) {
                // A panel sees fewer keys of the tile than the block does. Under a causal mask, this and the next question are
                // what halves the work.
                let keys = head.mask.keys_seen_by(queries.clone());
                let Some(keys) = grid.common(keys, &tile) else { continue };
                let seen = head.mask.visibility(queries.clone(), keys.clone());
                if seen == Visibility::Hidden {
                    continue;
                }
                let (rows, tile, not_finite) = (&rows, &tile, &not_finite[..]);
                let panel = Panel { head, rows, tile, queries, keys, seen, not_finite };
                match panel.queries.len().div_ceil(sizes.lanes) {
                    1 if MR > 1 => workspace.panel::<S, 1, NR>(simd, panel),
                    2 if MR > 2 => workspace.panel::<S, 2, NR>(simd, panel),
                    _ => workspace.panel::<S, MR, NR>(simd, panel),
                }
            }
        }
    }
}

/// A panel of queries, and the keys of a tile that it sees some of.
struct Panel<'a, T: Float> {
    head: &'a Head<'a, T>,
    rows: &'a Range<usize>, // of the block of queries
    tile: &'a Range<usize>,
    queries: Range<usize>, // some of the rows
    keys: Range<usize>,    // some of the tile, from a multiple of NR on
    seen: Visibility,
    not_finite: &'a [usize], // keys of the tile that are zeros in the packed copy of its values
}

impl<T: Float> ForwardWorkspace<T> {
    /// A panel of queries meets the keys and values of a tile.
    #[inline(always)]
    fn panel<S: InstructionSet, const M: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: Panel<T>,
    ) {
        let largest = self.scores::<S, M, NR>(simd, &panel);
        let width = M * self.sizes.lanes;
        let first = panel.queries.start - panel.rows.start;
        let max = &mut vectors_mut::<S, T, M>(&mut self.max[first..][..width])[0];
        let sum = &mut vectors_mut::<S, T, M>(&mut self.sum[first..][..width])[0];
        let scores = vectors_mut::<S, T, M>(&mut self.scores[..panel.keys.len() * width]);
        let correction = absorb::<S, T, M>(simd, largest, max, sum, scores);
        if let Some(dropout) = panel.head.dropout {
            let lines = self.scores.chunks_exact_mut(width);
            for (line, j) in lines.zip(panel.keys.clone()) {
                dropout.multiply_queries(panel.queries.start, j, line);
            }
        }
        self.add_values::<S, M, NR>(simd, &panel, correction);
    }

    /// The scores, with −∞ where the mask hides; and the largest of each query.
    #[inline(always)]
    fn scores<S: InstructionSet, const M: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: &Panel<T>,
    ) -> [T::Vector<S>; M] {
        let Panel { head, queries, keys, .. } = panel;
        let d_k = head.q.ncols();
        let (width, first) = (M * self.sizes.lanes, queries.start - panel.rows.start);
        let (from, count) =
            (keys.start - panel.tile.start, keys.len().next_multiple_of(NR));
        crate::count_pairs(queries.len() * keys.len());

        // Queries are the vectors and keys the numbers of this product. So a row of `scores` is one key with all queries of the panel:
        // the order in which the product with the values will read the weights. They are never packed. While the sums are still in
        // registers, they are scaled, and the largest of each query is found: another pass over the scores would cost as much as softmax.
        let query_vectors =
            vectors::<S, T, M>(&self.queries[first * d_k..][..width * d_k]);
        let blocks = self.keys[from * d_k..][..count * d_k].as_chunks::<NR>().0;
        let scores = &mut self.scores[..count * width];
        let mut largest = [T::splat_vector(simd, neg_infinity()); M];
        let scale = T::splat_vector(simd, self.scales.1);
        let (blocks, into) = (blocks.chunks_exact(d_k), vectors_mut::<S, T, M>(scores));
        products::<S, T, M, NR>(simd, query_vectors, blocks, into, |_, into, sums| {
            for i in 0..M {
                into[i] = T::mul_vectors(simd, sums[i], scale);
                largest[i] = T::larger(simd, into[i], largest[i]);
            }
        });
        // Where a rule changes scores, a mask hides some, or the tile ends within a block of `NR` keys, what was found so far may be too
        // large: these scores are changed or hidden, and the largest is sought again. All other tiles skip this.
        let changes = !head.mask.scores().is_none();
        if changes {
            for (line, j) in scores.chunks_exact_mut(width).zip(keys.clone()) {
                let line = &mut line[..queries.len()];
                head.mask.change_queries(j, queries.clone(), line);
            }
        }
        let hides = panel.seen == Visibility::Partial;
        if hides {
            for (line, j) in scores.chunks_exact_mut(width).zip(keys.clone()) {
                let line = &mut line[..queries.len()];
                head.mask.hide_queries(j, queries.clone(), line, neg_infinity());
            }
        }
        if changes || hides || count > keys.len() {
            scores[keys.len() * width..].fill(neg_infinity());
            largest = maxima::<S, T, M>(simd, vectors::<S, T, M>(scores));
        }
        largest
    }

    /// Corrects the output so far, and adds the values by their weights.
    #[inline(always)]
    fn add_values<S: InstructionSet, const M: usize, const NR: usize>(
        &mut self,
        simd: S,
        panel: &Panel<T>,
        correction: [T::Vector<S>; M],
    ) {
        // The output of a panel has its queries along the vectors, as the scores have. So the correction, one number a query, is a
        // vector, too, and is applied where the new part is added: the output is read and written once a tile, and not twice.
        let Panel { head, queries, keys, .. } = panel;
        let d_v = head.v.ncols().next_multiple_of(NR);
        let (width, first) = (M * self.sizes.lanes, queries.start - panel.rows.start);
        let output = &mut self.output[first * d_v..][..width * d_v];
        let here = keys.start - panel.tile.start..keys.end - panel.tile.start;
        let columns = self.values.chunks_exact(panel.tile.len() * NR);
        let blocks = columns.map(|column| &column.as_chunks().0[here.clone()]);
        let weights = vectors::<S, T, M>(&self.scores[..here.len() * width]);
        let into = vectors_mut::<S, T, M>(output);
        products::<S, T, M, NR>(simd, weights, blocks, into, |_, into, sums| {
            for i in 0..M {
                into[i] = mul_add::<S, T>(simd, into[i], correction[i], sums[i]);
            }
        });
        for &key in within(&here, panel.not_finite) {
            let (j, weights) =
                (panel.tile.start + key, &self.scores[(key - here.start) * width..]);
            for (at, i) in queries.clone().enumerate() {
                if head.mask.allows(i, j) {
                    for c in 0..head.v.ncols() {
                        output[c * width + at] += weights[at] * head.v[(j, c)];
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn maxima<S: InstructionSet, T: Float, const M: usize>(
    simd: S,
    scores: &[[T::Vector<S>; M]],
) -> [T::Vector<S>; M] {
    let mut largest = [T::splat_vector(simd, neg_infinity()); M];
    for scores in scores {
        for i in 0..M {
            largest[i] = T::larger(simd, scores[i], largest[i]);
        }
    }
    largest
}

/// Scores become exponentials, and part of the running softmax of their rows, as in
/// [`OnlineSoftmax::absorb`](attention::flash::OnlineSoftmax::absorb). Returns what the output so far is to be multiplied by.
#[inline(always)]
fn absorb<S: InstructionSet, T: Float, const M: usize>(
    simd: S,
    largest: [T::Vector<S>; M],
    max: &mut [T::Vector<S>; M],
    sum: &mut [T::Vector<S>; M],
    scores: &mut [[T::Vector<S>; M]],
) -> [T::Vector<S>; M] {
    let base = T::splat_vector(simd, nalgebra::convert(LOG2_E)); // e^x = 2^(base · x)
    let finite = T::splat_vector(simd, T::min_value().expect("floats have one"));
    // A query that has seen nothing yet, and sees nothing in this tile, has a maximum of −∞. It is shifted by the smallest finite number,
    // so that its exponentials are 0, and no NaN.
    let (mut shift, mut correction) = (*max, *max);
    for i in 0..M {
        let new = T::larger(simd, largest[i], max[i]);
        shift[i] = T::larger(simd, finite, new); // −∞ − (−∞) is NaN
        let change = T::sub_vectors(simd, max[i], shift[i]);
        correction[i] = exp2::<S, T>(simd, T::mul_vectors(simd, change, base));
        max[i] = new;
    }
    // The tile is summed by itself before it joins the sums so far: that rounds less.
    let mut added = [T::splat_vector(simd, T::zero()); M];
    for scores in scores {
        for i in 0..M {
            let behind = T::sub_vectors(simd, scores[i], shift[i]);
            scores[i] = exp2::<S, T>(simd, T::mul_vectors(simd, behind, base));
            added[i] = T::add_vectors(simd, added[i], scores[i]);
        }
    }
    for i in 0..M {
        sum[i] = mul_add::<S, T>(simd, sum[i], correction[i], added[i]);
    }
    correction
}

// ---------------------------------------------------------------------------------------------------- helpers

/// The places at which rows or columns of scores may be cut: into tiles at the multiples of `size`, so that sums are cut at the
/// same places for every caller; and within a tile at the multiples of `step`, which divides `size`.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub size: usize,
    pub step: usize,
    pub end: usize,
}

impl Grid {
    /// Returns the common part of a range and a tile, widened to the next places for a cut; `None` if it is empty.
    pub fn common(
        self,
        range: Range<usize>,
        tile: &Range<usize>,
    ) -> Option<Range<usize>> {
        let both = range.start.max(tile.start)..range.end.min(tile.end);
        let end = both.end.next_multiple_of(self.step).min(self.end);
        (!both.is_empty()).then(|| both.start / self.step * self.step..end)
    }

    /// The tiles of a range, the first and last of them cut to it.
    pub fn tiles(self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let tiles = range.start / self.size..range.end.div_ceil(self.size);
        tiles.filter_map(move |tile| {
            self.common(range.clone(), &(tile * self.size..(tile + 1) * self.size))
        })
    }
}

/// The rows of a tile that hold something which is not finite: a weight of 0 does not hide it, since 0 · NaN is NaN. Where only a part of
/// the tile is seen, they are left out of the products, and added by themselves to what does see them.
#[derive(Default)]
pub(super) struct NotFinite {
    rows: Vec<usize>,
    known: bool,
}

impl NotFinite {
    /// Before another tile.
    pub fn forget(&mut self) {
        self.known = false;
    }

    /// The rows, found by the first call for this tile; none where all of it is `seen`.
    #[inline(always)]
    pub fn among<T: Float, const N: usize>(
        &mut self,
        seen: Visibility,
        tile: [DMatrixView<T>; N],
    ) -> &[usize] {
        if seen == Visibility::Full {
            return &[];
        }
        if !self.known {
            self.rows = rows_not_finite(tile);
            self.known = true;
        }
        &self.rows
    }
}

/// The rows that hold something which is not finite in one of the matrices.
#[inline(always)]
pub(super) fn rows_not_finite<T: Float, const N: usize>(
    tile: [DMatrixView<T>; N],
) -> Vec<usize> {
    if tile.iter().all(is_finite) {
        return vec![];
    }
    let is_finite =
        |i: &usize| tile.iter().all(|x| x.row(*i).iter().all(|x| x.is_finite()));
    (0..tile[0].nrows()).filter(|i| !is_finite(i)).collect()
}

#[inline(always)]
fn is_finite<T: Float>(matrix: &DMatrixView<T>) -> bool {
    // Independent sums fill vectors. 0 · ∞ is NaN, as 0 · NaN is.
    let mut sums = [T::zero(); 32];
    for column in matrix.column_iter() {
        let (chunks, rest) = column.as_slice().as_chunks::<32>();
        for chunk in chunks {
            for (sum, &x) in sums.iter_mut().zip(chunk) {
                *sum += x * T::zero();
            }
        }
        for (sum, &x) in sums.iter_mut().zip(rest) {
            *sum += x * T::zero();
        }
    }
    sums.iter().all(|sum| sum.is_zero())
}

/// Those of some rows, in order, that lie in a range.
pub(super) fn within<'a>(range: &Range<usize>, rows: &'a [usize]) -> &'a [usize] {
    let place = |end: usize| rows.partition_point(|&row| row < end);
    &rows[place(range.start)..place(range.end)]
}

/// Returns the pieces of a range that are left without some rows: one piece more than there are of these, and some may be empty.
pub(super) fn without<'a>(
    range: &Range<usize>,
    rows: &'a [usize],
) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let rows = within(range, rows).iter().copied();
    let starts = std::iter::once(range.start).chain(rows.clone().map(|row| row + 1));
    starts.zip(rows.chain([range.end])).map(|(start, end)| start..end)
}
