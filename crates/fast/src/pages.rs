//! Keys and values whose memory is in pages.

use attention::engine::{HeadDropout, PagedInputs, Pages};
use attention::mask::SizedMask;
use nalgebra::DMatrixView;
use std::ops::Range;

/// What one head asks.
pub struct Asking<'a, T: attention::Float> {
    pub q: DMatrixView<'a, T>, // (n_q, d_k)
    pub mask: SizedMask,
    pub dropout: Option<HeadDropout>,
}

impl<'a, T: attention::Float> Asking<'a, T> {
    pub fn of(inputs: &'a PagedInputs<'_, T>, h: usize) -> Self {
        Asking { q: inputs.queries(h), mask: inputs.mask(h), dropout: inputs.dropout(h) }
    }
}

/// Some rows of some columns, in parts: where they are, if they lie in one page, or if parts but the last have a multiple of
/// `whole_blocks` rows; and else as one part, copied to `room`.
pub fn parts<'s, T: attention::Float>(
    pages: &'s Pages<'_, T>,
    rows: Range<usize>,
    columns: Range<usize>,
    whole_blocks: Option<usize>,
    room: &'s mut Vec<T>,
) -> Vec<DMatrixView<'s, T>> {
    let of_page = pages.pages()[0].nrows();
    let numbers = rows.start / of_page..rows.end.div_ceil(of_page);
    let parts = numbers.map(|page| {
        let (first, end) = (page * of_page, (page + 1) * of_page);
        let rows = rows.start.max(first) - first..rows.end.min(end) - first;
        pages.pages()[page].view_range(rows, columns.clone())
    });
    let parts: Vec<_> = parts.collect();
    let (_, before) = parts.split_last().expect("there are rows");
    let whole = |part: &DMatrixView<T>| {
        whole_blocks.is_some_and(|rows| part.nrows().is_multiple_of(rows))
    };
    if before.iter().all(whole) {
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
