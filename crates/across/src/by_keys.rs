//! One order of all sums, whatever the number of ranks: the same bits on one rank as on eight.
//!
//! In the ring each rank begins with its own keys, so with other ranks the sums have another order, and other last digits. Here the owners
//! of the keys broadcast them in the order of the sequence, and each row takes them up tile after tile. Tiles are cut at multiples of their
//! size in the whole sequence, for queries as for keys, so that a product of matrices has the same shape on any number of ranks.
//!
//! What it costs: an owner sends its keys and values to all others, so all ranks together send as many bytes as in the ring, but all at
//! once from one rank. The next keys travel while these are computed with. [`Layout::Tiles`] is contiguous, so under a causal mask the
//! last rank has most of the work.
//!
//! ```
//! use across::{Layout, Local, Network, Threads, Whole, by_keys};
//! use attention::{Mask, example};
//!
//! let x = example::river().x; // (n, d)
//! let ((n, d), layout) = (x.shape(), Layout::Tiles(2));
//! let whole = Whole::new((n, n), (d, d), Mask::causal()).with_layouts(layout, layout);
//! let on = |ranks| {
//!     let outputs = Threads::run(ranks, |network| {
//!         let mine = x.select_rows(&layout.rows(n, ranks, network.rank()));
//!         let local = Local { q: mine.as_view(), k: mine.as_view(), v: mine.as_view() };
//!         by_keys::forward(network, &whole, &local)
//!     });
//!     let rows = outputs.into_iter().map(|forward| forward.unwrap().output.transpose());
//!     rows.flat_map(|rows| rows.as_slice().to_vec()).collect::<Vec<f64>>() // row by row, rank by rank
//! };
//! assert_eq!(on(1), on(3));
//! ```

use crate::agree::together;
use crate::error::Result;
use crate::layout::Layout;
use crate::network::{Network, Number};
use crate::ring::{packed, unpacked};
use crate::whole::{Local, Whole};
use attention::engine::{blocks, neg_infinity, scale, wrong_value};
use attention::flash::{FlashOutput, OnlineSoftmax};
use attention::mask::{SizedMask, Visibility};
use nalgebra::DMatrixView;
use std::ops::Range;

/// Returns this rank's rows of the output and of the log-sum-exp, with bits that don't depend on the number of ranks. They are those of
/// [`Tiled`](attention::engine::Tiled) with tiles of the layouts' size.
///
/// Shapes: `local` as [`Whole::local_shapes`] says → (rows, n_heads · d_v), (rows, n_heads).
///
/// # Errors
/// As [`ring::forward`](crate::ring::forward); or a layout isn't [`Layout::Tiles`].
pub fn forward<T: Number, N: Network>(
    network: &mut N,
    whole: &Whole,
    local: &Local<T>,
) -> Result<FlashOutput<T>> {
    let (rank, ranks) = (network.rank(), network.ranks());
    let rows = Rows::new(whole, local, ranks, rank);
    let operation = ("by_keys::forward", 0);
    together::<T, _, _, _>(network, operation, whole, rows, |network, mut rows| {
        let keys = |owner| range_of(whole.layouts.1, whole.lengths.1, ranks, owner);
        let [_, k, v, _] = whole.columns();
        // Of each owner: our own keys and values, or room for its.
        let buffer = |owner: usize| match owner == rank {
            true => packed(local.k, local.v),
            false => vec![T::zero(); keys(owner).len() * (k + v)],
        };
        let mut here = buffer(0);
        network.broadcast(0, &mut here, || ())?;
        for owner in 0..ranks {
            let mut next = vec![];
            if owner + 1 < ranks {
                next = buffer(owner + 1);
                let absorb = || rows.absorb(&here, keys(owner));
                network.broadcast(owner + 1, &mut next, absorb)??;
            } else {
                rows.absorb(&here, keys(owner))?;
            }
            here = next;
        }
        Ok(rows.finish())
    })
}

/// The rows of the sequence that a rank holds of tiles, which follow one another.
fn range_of(layout: Layout, n: usize, ranks: usize, rank: usize) -> Range<usize> {
    layout.pieces(n, ranks, rank).first().map_or(0..0, |piece| piece.hull())
}

/// The queries of this rank, and for each tile of them and each head what it has seen so far.
struct Rows<'a, T: Number> {
    whole: &'a Whole,
    q: DMatrixView<'a, T>,
    sized: SizedMask,
    range: Range<usize>, // of the sequence
    tile_keys: usize,
    states: Vec<(usize, Range<usize>, OnlineSoftmax<T>)>, // head, rows of this rank
}

impl<'a, T: Number> Rows<'a, T> {
    fn new(
        whole: &'a Whole,
        local: &Local<'a, T>,
        ranks: usize,
        rank: usize,
    ) -> Result<Self> {
        let sized = whole.sized()?;
        whole.check_local(local, ranks, rank)?;
        let (Layout::Tiles(tile_queries), Layout::Tiles(tile_keys)) = whole.layouts
        else {
            let given = format!("{:?}", whole.layouts);
            let because = "one fixed order needs Layout::Tiles for queries and keys";
            return Err(wrong_value("layouts", given, because).into());
        };
        let mut states = vec![];
        for head in 0..whole.heads.0 {
            for rows in blocks(local.q.nrows(), tile_queries) {
                let state = OnlineSoftmax::new(rows.len(), whole.widths.1)?;
                states.push((head, rows, state));
            }
        }
        let range = range_of(whole.layouts.0, whole.lengths.0, ranks, rank);
        Ok(Rows { whole, q: local.q, sized, range, tile_keys, states })
    }

    /// All queries meet some keys of the sequence, a tile at a time.
    fn absorb(&mut self, here: &[T], keys: Range<usize>) -> Result<()> {
        let ((d_k, d_v), (n_heads, n_kv_heads)) = (self.whole.widths, self.whole.heads);
        let (k, v) = unpacked(here, self.whole, keys.len());
        for (head, rows, state) in &mut self.states {
            let kv_head = *head / (n_heads / n_kv_heads);
            let q = self.q.rows_range(rows.clone());
            let q = q.columns(*head * d_k, d_k) * scale::<T>(d_k); // (rows, d_k)
            let queries = self.range.start + rows.start..self.range.start + rows.end;
            for columns in blocks(keys.len(), self.tile_keys) {
                let places = keys.start + columns.start..keys.start + columns.end;
                let seen = self.sized.visibility(queries.clone(), places.clone());
                if seen == Visibility::Hidden {
                    continue;
                }
                let k = k.rows_range(columns.clone());
                let v = v.rows_range(columns.clone());
                let mut scores = &q * k.columns(kv_head * d_k, d_k).transpose();
                if seen == Visibility::Partial {
                    for (mut column, j) in scores.column_iter_mut().zip(places) {
                        let line = column.as_mut_slice();
                        self.sized.hide_queries(j, queries.clone(), line, neg_infinity());
                    }
                }
                state.absorb(&scores, v.columns(kv_head * d_v, d_v))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> FlashOutput<T> {
        let (n_heads, d_v) = (self.whole.heads.0, self.whole.widths.1);
        let mut forward = FlashOutput::of_shape(self.q.nrows(), n_heads, d_v);
        for (head, rows, state) in self.states {
            for (i, (&max, &sum)) in
                rows.clone().zip(state.max().iter().zip(state.sum().iter()))
            {
                forward.write_log_sum_exp((i, head), T::one(), max, sum);
            }
            let (output, _) = state.finish();
            let place = (rows.start, head * d_v);
            forward.output.view_mut(place, output.shape()).copy_from(&output);
        }
        forward
    }
}
