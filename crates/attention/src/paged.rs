//! Keys and values whose memory is in pages.

use crate::Float;
use crate::dot_product::scale;
use crate::dropout::{Dropout, HeadDropout};
use crate::flash::Inputs;
use crate::mask::SizedMask;
use nalgebra::{DMatrix, DMatrixView};
use std::ops::Range;

/// The rows of a matrix, in pages of one size, of which the last may be shorter.
#[derive(Debug, Clone)]
pub struct Pages<'a, T: Float> {
    pages: Vec<DMatrixView<'a, T>>, // (rows of a page, width)
}

impl<'a, T: Float> Pages<'a, T> {
    /// Returns the rows that these pages hold.
    pub fn new(pages: Vec<DMatrixView<'a, T>>) -> Self {
        Pages { pages }
    }

    /// Returns the pages, in their order.
    pub fn pages(&self) -> &[DMatrixView<'a, T>] {
        &self.pages
    }

    /// Returns the rows of all pages, and their width.
    pub fn shape(&self) -> (usize, usize) {
        let rows = self.pages.iter().map(DMatrixView::nrows).sum();
        (rows, self.pages.first().map_or(0, DMatrixView::ncols))
    }

    /// Returns a copy in one matrix.
    pub fn gathered(&self) -> DMatrix<T> {
        let (rows, width) = self.shape();
        let mut all = DMatrix::zeros(rows, width);
        let mut first = 0;
        for page in &self.pages {
            all.rows_mut(first, page.nrows()).copy_from(page);
            first += page.nrows();
        }
        all
    }
}

/// As [`Inputs`], with keys and values in pages.
#[derive(Debug, Clone)]
pub struct PagedInputs<'a, T: Float> {
    /// The queries of all heads (n_q, n_heads · d_k).
    pub q: DMatrixView<'a, T>,
    /// The keys (n_k, n_kv_heads · d_k).
    pub keys: Pages<'a, T>,
    /// The values (n_k, n_kv_heads · d_v).
    pub values: Pages<'a, T>,
    /// Which query may see which key, in every head.
    pub mask: SizedMask,
    /// The number of heads of queries.
    pub n_heads: usize,
    /// The number of heads of keys and values, each of which is shared by as many heads of queries.
    pub n_kv_heads: usize,
    pub(crate) dropout: Option<Dropout>,
}

impl<'a, T: Float> From<&Inputs<'a, T>> for PagedInputs<'a, T> {
    /// One page has all keys and values.
    fn from(inputs: &Inputs<'a, T>) -> Self {
        PagedInputs {
            q: inputs.q,
            keys: Pages::new(vec![inputs.k]),
            values: Pages::new(vec![inputs.v]),
            mask: inputs.mask.clone(),
            n_heads: inputs.n_heads,
            n_kv_heads: inputs.n_kv_heads,
            dropout: inputs.dropout,
        }
    }
}

impl<T: Float> PagedInputs<'_, T> {
    /// (d_k, d_v) of one head
    pub fn widths(&self) -> (usize, usize) {
        (self.q.ncols() / self.n_heads, self.values.shape().1 / self.n_kv_heads)
    }

    /// The factor 1/√d_k of the scores.
    pub fn scale(&self) -> T {
        scale(self.widths().0)
    }

    /// The heads that share the keys and values of head `g`.
    pub fn group(&self, g: usize) -> Range<usize> {
        let heads = self.n_heads / self.n_kv_heads;
        g * heads..(g + 1) * heads
    }

    /// The queries of head `h` (n_q, d_k).
    pub fn queries(&self, h: usize) -> DMatrixView<'_, T> {
        let d_k = self.widths().0;
        self.q.columns(h * d_k, d_k)
    }

    /// The mask of head `h`.
    pub fn mask(&self, h: usize) -> SizedMask {
        self.mask.of_head(h)
    }

    /// The dropout of head `h`.
    pub fn dropout(&self, h: usize) -> Option<HeadDropout> {
        self.dropout.map(|dropout| dropout.of_head(h))
    }

    /// Returns the same with all keys and values in one matrix each: what the pages hold, copied together.
    pub fn with_keys<'m>(
        &'m self,
        k: impl Into<DMatrixView<'m, T>>,
        v: impl Into<DMatrixView<'m, T>>,
    ) -> Inputs<'m, T> {
        Inputs {
            q: self.q,
            k: k.into(),
            v: v.into(),
            mask: self.mask.clone(),
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            dropout: self.dropout,
        }
    }
}
