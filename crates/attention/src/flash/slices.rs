//! The matrices of one head, as slices.

use super::Inputs;
use crate::mask::SizedMask;
use crate::simd::{Float, View};
use std::cmp::Ordering;

/// One head. Each view has all rows, so that its stride is the number of rows.
pub(super) struct Slices<'a, T> {
    pub q: View<'a, T>, // (n_q, d_k)
    pub k: View<'a, T>, // (n_k, d_k)
    pub v: View<'a, T>, // (n_k, d_v)
    pub mask: SizedMask<'a>,
    pub scale: T,
}

impl<'a, T: Float> Inputs<'a, T> {
    pub(super) fn slices(&self, h: usize) -> Slices<'a, T> {
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
    pub fn rounding_moves_weights(&self) -> bool {
        let largest = self.q.longest_row() * self.k.longest_row() * self.scale;
        let d_k: T = nalgebra::convert(self.q.shape.1 as f64);
        let off = largest * d_k * T::default_epsilon();
        // It is NaN, and no smaller, where one norm is too small for this type and the other too large.
        let small: T = nalgebra::convert(1.0 / 128.0);
        off.partial_cmp(&small).is_none_or(Ordering::is_gt)
    }
}
