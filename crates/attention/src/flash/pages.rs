//! Keys and values whose memory is in pages.

use super::{Flash, FlashOutput, Inputs};
use crate::dot_product::scale;
use crate::dropout::{Dropout, HeadDropout};
use crate::mask::SizedMask;
use crate::simd::{Float, WHOLE_BLOCKS};
use nalgebra::{DMatrix, DMatrixView};
use std::ops::Range;

/// The rows of a matrix, in pages of one size, of which the last may be shorter.
#[derive(Debug, Clone)]
pub struct Pages<'a, T: Float> {
    pages: Vec<DMatrixView<'a, T>>, // (rows of a page, width)
}

impl<'a, T: Float> Pages<'a, T> {
    pub fn new(pages: Vec<DMatrixView<'a, T>>) -> Self {
        Pages { pages }
    }

    /// (all rows, width)
    fn shape(&self) -> (usize, usize) {
        let rows = self.pages.iter().map(DMatrixView::nrows).sum();
        (rows, self.pages.first().map_or(0, DMatrixView::ncols))
    }

    /// Some rows of some columns, in parts: where they are, if they lie in one page, or if parts but the last have a multiple of
    /// [`WHOLE_BLOCKS`] rows; and else as one part, copied to `room`.
    pub fn parts<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        room: &'s mut Vec<T>,
    ) -> Vec<DMatrixView<'s, T>> {
        let of_page = self.pages[0].nrows();
        let pages = rows.start / of_page..rows.end.div_ceil(of_page);
        let parts = pages.map(|page| {
            let (first, end) = (page * of_page, (page + 1) * of_page);
            let rows = rows.start.max(first) - first..rows.end.min(end) - first;
            self.pages[page].view_range(rows, columns.clone())
        });
        let parts: Vec<_> = parts.collect();
        let (_, before) = parts.split_last().expect("there are rows");
        if before.iter().all(|part| part.nrows() % WHOLE_BLOCKS == 0) {
            return parts;
        }
        room.clear();
        for c in 0..columns.len() {
            for part in &parts {
                room.extend_from_slice(part.column(c).as_slice());
            }
        }
        vec![DMatrixView::from_slice(room, rows.len(), columns.len())]
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
    pub q: DMatrixView<'a, T>, // (n_q, n_heads · d_k)
    pub keys: Pages<'a, T>,    // (n_k, n_kv_heads · d_k)
    pub values: Pages<'a, T>,  // (n_k, n_kv_heads · d_v)
    pub mask: SizedMask,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub(crate) dropout: Option<Dropout>,
}

/// What one head asks, as in [`Head`](super::Head).
pub(super) struct Asking<'a, T: Float> {
    pub q: DMatrixView<'a, T>, // (n_q, d_k)
    pub mask: SizedMask,
    pub dropout: Option<HeadDropout>,
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

    pub(super) fn head(&self, h: usize) -> Asking<'_, T> {
        let d_k = self.widths().0;
        Asking {
            q: self.q.columns(h * d_k, d_k),
            mask: self.mask.of_head(h),
            dropout: self.dropout.map(|dropout| dropout.of_head(h)),
        }
    }
}

impl Flash {
    /// As [`Flash::forward`]. Few queries read the pages; many have them copied into one matrix.
    pub(crate) fn forward_paged<T: Float>(
        &self,
        inputs: &PagedInputs<T>,
    ) -> FlashOutput<T> {
        T::flash_forward_paged(self, inputs) // the next function, as it was compiled
    }

    pub(crate) fn run_forward_paged<T: Float>(
        &self,
        inputs: &PagedInputs<T>,
    ) -> FlashOutput<T> {
        if Flash::are_few(inputs.q.nrows()) {
            return self.forward_few(inputs);
        }
        let whole = |pages: &Pages<T>| (pages.pages.len() > 1).then(|| pages.gathered());
        let (keys, values) = (whole(&inputs.keys), whole(&inputs.values));
        self.run_forward(&Inputs {
            q: inputs.q,
            k: keys.as_ref().map_or(inputs.keys.pages[0], |all| all.as_view()),
            v: values.as_ref().map_or(inputs.values.pages[0], |all| all.as_view()),
            mask: inputs.mask.clone(),
            n_heads: inputs.n_heads,
            n_kv_heads: inputs.n_kv_heads,
            dropout: inputs.dropout,
        })
    }
}
