//! What all ranks know of the whole, and what one rank has of it.

use crate::error::Result;
use crate::layout::{Layout, Piece};
use crate::network::Number;
use attention::Mask;
use attention::engine::{check_count, check_positive, wrong_value};
use attention::mask::SizedMask;
use nalgebra::DMatrixView;

/// What all ranks know of the whole: lengths, widths, heads, mask, and which rows each rank holds. All ranks need the same.
///
/// ```
/// use across::{Layout, Whole};
/// use attention::Mask;
///
/// // 1000 tokens, 8 heads of 16 columns that share 2 heads of keys and values.
/// let whole = Whole::new((1000, 1000), (16, 16), Mask::causal())
///     .with_heads(8, 2)
///     .with_layouts(Layout::Zigzag, Layout::Zigzag);
/// assert_eq!(whole.local_shapes(4, 0), ((250, 128), (250, 32), (250, 32)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// (n_q, n_k): the rows of all queries, and of all keys.
    pub lengths: (usize, usize),
    /// (d_k, d_v): the columns of one head.
    pub widths: (usize, usize),
    /// (n_heads, n_kv_heads), of which the latter are shared as in [`Inputs::grouped`](attention::flash::Inputs::grouped).
    pub heads: (usize, usize),
    /// Which query of the whole may see which key: any mask without a rule for scores.
    pub mask: Mask,
    /// Which rows of the queries, and which of keys and values, each rank holds.
    pub layouts: (Layout, Layout),
}

/// The rows that one rank holds, in ascending order; there may be none. Heads lie side by side.
#[derive(Debug, Clone, Copy)]
pub struct Local<'a, T: Number> {
    /// Its queries (rows, n_heads · d_k).
    pub q: DMatrixView<'a, T>,
    /// Its keys (rows, n_kv_heads · d_k).
    pub k: DMatrixView<'a, T>,
    /// Its values (rows, n_kv_heads · d_v).
    pub v: DMatrixView<'a, T>,
}

/// Rows and columns.
type Shape = (usize, usize);

impl Whole {
    /// Returns one head, and contiguous layouts.
    #[must_use]
    pub fn new(lengths: (usize, usize), widths: (usize, usize), mask: Mask) -> Self {
        let layouts = (Layout::Contiguous, Layout::Contiguous);
        Whole { lengths, widths, heads: (1, 1), mask, layouts }
    }

    /// Returns the same with so many heads of queries, and of keys and values.
    #[must_use]
    pub fn with_heads(self, n_heads: usize, n_kv_heads: usize) -> Self {
        Whole { heads: (n_heads, n_kv_heads), ..self }
    }

    /// Returns the same with these layouts of the queries, and of keys and values.
    #[must_use]
    pub fn with_layouts(self, queries: Layout, keys: Layout) -> Self {
        Whole { layouts: (queries, keys), ..self }
    }

    /// Returns the columns of queries, keys, values and output, with all their heads.
    #[must_use]
    pub fn columns(&self) -> [usize; 4] {
        let ((d_k, d_v), (n_heads, n_kv_heads)) = (self.widths, self.heads);
        [n_heads * d_k, n_kv_heads * d_k, n_kv_heads * d_v, n_heads * d_v]
    }

    /// Returns the pieces of the queries that `rank` holds.
    #[must_use]
    pub fn queries(&self, ranks: usize, rank: usize) -> Vec<Piece> {
        self.layouts.0.pieces(self.lengths.0, ranks, rank)
    }

    /// Returns the pieces of keys and values that `rank` holds.
    #[must_use]
    pub fn keys(&self, ranks: usize, rank: usize) -> Vec<Piece> {
        self.layouts.1.pieces(self.lengths.1, ranks, rank)
    }

    /// Returns the shapes of the queries, keys and values that `rank` holds.
    #[must_use]
    pub fn local_shapes(&self, ranks: usize, rank: usize) -> (Shape, Shape, Shape) {
        let [q, k, v, _] = self.columns();
        let n_q = self.layouts.0.count(self.lengths.0, ranks, rank);
        let n_k = self.layouts.1.count(self.lengths.1, ranks, rank);
        ((n_q, q), (n_k, k), (n_k, v))
    }

    /// Returns the mask over all queries and keys, after all of the whole was checked.
    pub(crate) fn sized(&self) -> Result<SizedMask> {
        let ((d_k, d_v), (n_heads, n_kv_heads)) = (self.widths, self.heads);
        check_positive("d_k", d_k)?;
        check_positive("d_v", d_v)?;
        check_positive("n_heads", n_heads)?;
        check_positive("n_kv_heads", n_kv_heads)?;
        if n_heads.checked_mul(d_k.max(d_v)).is_none() {
            let because = format!("{n_heads} heads of that width have too many columns");
            return Err(wrong_value("widths", d_k.max(d_v), because).into());
        }
        if !n_heads.is_multiple_of(n_kv_heads) {
            let because = format!("it must divide n_heads = {n_heads}");
            return Err(wrong_value("n_kv_heads", n_kv_heads, because).into());
        }
        let (queries, keys) = self.layouts;
        for layout in [queries, keys] {
            if let Layout::Tiles(rows) = layout {
                check_positive("tile", rows)?;
            }
        }
        // A block of the score matrix has a mask of its own, and a rule for scores would have to be told where the block lies.
        let sized = self.mask.clone().of_head(0).sized(self.lengths.0, self.lengths.1)?;
        if !sized.scores().is_none() {
            let because = "over several ranks only masks without one are known";
            return Err(wrong_value("mask", "one with a rule for scores", because).into());
        }
        Ok(sized)
    }

    /// Checks that a rank holds what it should.
    pub(crate) fn check_local<T: Number>(
        &self,
        local: &Local<T>,
        ranks: usize,
        rank: usize,
    ) -> Result<()> {
        let (q, k, v) = self.local_shapes(ranks, rank);
        check("q", local.q, q, rank)?;
        check("k", local.k, k, rank)?;
        check("v", local.v, v, rank)
    }
}

/// Checks the shape of what a rank holds.
pub(crate) fn check<T: Number>(
    argument: &'static str,
    given: DMatrixView<T>,
    (rows, columns): Shape,
    rank: usize,
) -> Result<()> {
    let because = || format!("rank {rank} holds {rows} x {columns}");
    check_count(argument, "row", given.nrows(), rows, because)?;
    Ok(check_count(argument, "column", given.ncols(), columns, because)?)
}
