//! Which rows of a sequence a rank holds.

use std::ops::Range;

/// How the rows of a sequence are shared out among ranks. The number of ranks need not divide that of the rows, and with more ranks than
/// rows some ranks hold none.
///
/// Under a causal mask the last rows see most keys. [`Layout::Contiguous`] gives them all to the last rank, for which the others wait; the
/// next two give each rank early rows and late ones.
///
/// ```
/// use across::Layout;
/// assert_eq!(Layout::Contiguous.rows(8, 2, 0), [0, 1, 2, 3]);
/// assert_eq!(Layout::Zigzag.rows(8, 2, 0), [0, 1, 6, 7]);
/// assert_eq!(Layout::Striped.rows(8, 2, 0), [0, 2, 4, 6]);
/// assert_eq!(Layout::Tiles(3).rows(8, 2, 0), [0, 1, 2]);
/// ```
///
/// # Source
/// Striped: W. Brandon et al., *Striped Attention* (2023). Zigzag: the order of Llama 3's training (2024), and of the library
/// ring-flash-attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One piece for each rank, in the order of the ranks. Sizes differ by at most one row.
    Contiguous,
    /// Of 2 · ranks pieces, rank r holds pieces r and 2 · ranks − 1 − r.
    Zigzag,
    /// Row i belongs to rank i mod ranks.
    Striped,
    /// One piece for each rank, cut only at multiples of so many rows: each tile belongs to one rank, whatever their number.
    Tiles(usize),
}

/// Rows of a sequence at equal distances: `start`, `start + step`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The first row.
    pub start: usize,
    /// From one row to the next: 1, if they follow one another.
    pub step: usize,
    /// The number of rows, at least 1.
    pub len: usize,
}

impl Piece {
    /// Returns the row of the sequence that is the piece's row `i`.
    #[must_use]
    pub fn row(&self, i: usize) -> usize {
        self.start + i * self.step
    }

    /// Returns the smallest range that holds all rows of the piece.
    #[must_use]
    pub fn hull(&self) -> Range<usize> {
        self.start..self.row(self.len - 1) + 1
    }
}

impl Layout {
    /// Returns the pieces that `rank` holds of a sequence of `n` rows, in ascending order; none of them is empty.
    ///
    /// ```
    /// use across::{Layout, Piece};
    /// assert_eq!(Layout::Striped.pieces(5, 2, 1), [Piece { start: 1, step: 2, len: 2 }]);
    /// assert_eq!(Layout::Contiguous.pieces(1, 2, 0), []); // the only row is rank 1's
    /// ```
    #[must_use]
    pub fn pieces(self, n: usize, ranks: usize, rank: usize) -> Vec<Piece> {
        let one = |rows: Range<usize>, step: usize| Piece {
            start: rows.start,
            step,
            len: rows.len().div_ceil(step),
        };
        let pieces = match self {
            Layout::Contiguous => vec![one(part(n, ranks, rank), 1)],
            Layout::Zigzag => [rank, 2 * ranks - 1 - rank]
                .map(|piece| one(part(n, 2 * ranks, piece), 1))
                .to_vec(),
            Layout::Striped => vec![one(rank..n.max(rank), ranks)],
            Layout::Tiles(rows) => {
                let rows = rows.max(1);
                let tiles = part(n.div_ceil(rows), ranks, rank);
                vec![one((tiles.start * rows).min(n)..(tiles.end * rows).min(n), 1)]
            }
        };
        pieces.into_iter().filter(|piece| piece.len > 0).collect()
    }

    /// Returns the rows that `rank` holds of a sequence of `n` rows, in ascending order.
    #[must_use]
    pub fn rows(self, n: usize, ranks: usize, rank: usize) -> Vec<usize> {
        let pieces = self.pieces(n, ranks, rank);
        pieces.iter().flat_map(|piece| (0..piece.len).map(|i| piece.row(i))).collect()
    }

    /// Returns the number of rows that `rank` holds of a sequence of `n` rows.
    #[must_use]
    pub fn count(self, n: usize, ranks: usize, rank: usize) -> usize {
        self.pieces(n, ranks, rank).iter().map(|piece| piece.len).sum()
    }
}

/// Part number `part` of `n` rows in `parts` parts, whose sizes differ by at most one.
fn part(n: usize, parts: usize, part: usize) -> Range<usize> {
    let start = |part: usize| part * (n / parts) + part * (n % parts) / parts;
    start(part)..start(part + 1)
}
