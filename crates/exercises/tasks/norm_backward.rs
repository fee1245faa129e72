//! # A norm for every head, backward
//!
//! hard, 40 minutes
//!
//! Some models normalise queries and keys before they compare them, so that no score gets out of hand
//! (**QK-norm**). Each head's part of a row is brought to one size by itself, and all heads share one gain $g$ of a
//! head's width $d$. For head $r$ of a row,
//!
//! $$ u_r = x_r \Big/ \sqrt{\tfrac1d \textstyle\sum_c x_{rc}^2 + \epsilon} , \qquad y_r = g \odot u_r . $$
//!
//! Write the forward pass, and the backward pass from $dY$ to $dX$ and $dg$. It may compute the roots once more.
//!
//! Shapes: $X$, $Y$, $dX$ and $dY$ $(n, h d)$, $g$ and $dg$ $(1, d)$. The number of heads follows from the widths.
//!
//! # Hint
//!
//! How many numbers share one root? And in how many places is one entry of $g$ used?
//!
//! # Hint
//!
//! The chapter's equation for $dx$ holds for one row of width $d$. Here a row has $h$ of them. The gain's gradient
//! is summed over rows and heads, because it was used in each.
//!
//! # Hint
//!
//! Two loops, over rows and heads. Inside: `let x = x.view((i, r * d), (1, d));`, its root, `u = x / root`,
//! `du = g ⊙ dy`, the mean of `du ⊙ u`, and `dx = (du − u · mean) / root`. Write it with `copy_from` on `view_mut`,
//! and add `dy ⊙ u` to `dg`.

use nalgebra::{DMatrix, RowDVector};
use std::ops::Range;

/// What is added to the mean square.
pub const EPSILON: f64 = 1e-5;

/// Returns Y (n, h·d) for `x` (n, h·d) and `gain` (1, d).
pub fn forward(x: &DMatrix<f64>, gain: &RowDVector<f64>) -> DMatrix<f64> {
    // SOLUTION
    let d = gain.len();
    let mut y = x.clone();
    // FAULT whole-rows: each head's part by itself
    // > for_each_part(x, x.ncols(), |i, columns, root| {
    for_each_part(x, d, |i, columns, root| {
        for c in columns {
            y[(i, c)] *= gain[c % d] / root;
        }
    });
    y
    // END
}

/// Returns dX (n, h·d) and dg (1, d) from `grad_y` (n, h·d).
pub fn backward(
    x: &DMatrix<f64>,
    gain: &RowDVector<f64>,
    grad_y: &DMatrix<f64>,
) -> (DMatrix<f64>, RowDVector<f64>) {
    // SOLUTION
    let d = gain.len();
    let mut grad_x = DMatrix::zeros(x.nrows(), x.ncols());
    let mut grad_gain = RowDVector::zeros(d);
    for_each_part(x, d, |i, columns, root| {
        let first = columns.start;
        let u = x.view((i, first), (1, d)) / root;
        let dy = grad_y.view((i, first), (1, d));
        // FAULT last-head-alone: the gain was used by every head
        // > if first + d == x.ncols() { grad_gain += dy.component_mul(&u); }
        grad_gain += dy.component_mul(&u);
        // FAULT no-gain: is the gain a factor of
        // > let du = dy.into_owned();
        let du = dy.component_mul(gain);
        // FAULT part-along: no part along x
        // > let mean = 0.0;
        // FAULT sum: no part along x
        // > let mean = du.dot(&u);
        let mean = du.dot(&u) / d as f64;
        let dx = (du - u * mean) / root; // a longer x has the same u
        grad_x.view_mut((i, first), (1, d)).copy_from(&dx);
    });
    (grad_x, grad_gain)
    // END
}

// SOLUTION
/// Calls `each` for every head's part of every row: its row, its columns, and the root of its mean square.
fn for_each_part(
    x: &DMatrix<f64>,
    d: usize,
    mut each: impl FnMut(usize, Range<usize>, f64),
) {
    for i in 0..x.nrows() {
        for first in (0..x.ncols()).step_by(d) {
            let mean_square = x.view((i, first), (1, d)).norm_squared() / d as f64;
            each(i, first..first + d, (mean_square + EPSILON).sqrt());
        }
    }
}
// END

#[cfg(test)]
mod tests {
    use super::*;
    use attention::gradient_check::numerical_gradient;
    use nalgebra::{DMatrix, RowDVector, dmatrix};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// x, gain and dY of two or three heads.
    fn example(h: usize, seed: u64) -> (DMatrix<f64>, RowDVector<f64>, DMatrix<f64>) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut random = |rows| {
            DMatrix::from_fn(rows, 4 * h, |_, c| {
                (1.0 + c as f64) * rng.random_range(-1.0..1.0)
            })
        };
        let (x, grad_y) = (random(5), random(5));
        (x, RowDVector::from_fn(4, |_, c| 0.5 + c as f64), grad_y)
    }

    #[test]
    fn every_part_has_one_size() {
        // (1, 7) has the root 5, and (30, 40) the root √1250.
        let y = forward(
            &dmatrix![1.0, 7.0, 30.0, 40.0],
            &RowDVector::from_vec(vec![1.0, 10.0]),
        );
        let root = 1250.0_f64.sqrt();
        let off = (y - dmatrix![0.2, 14.0, 30.0 / root, 400.0 / root]).amax();
        assert!(
            off < 1e-4,
            "with two heads of width 2, the row (1, 7, 30, 40) should be divided by 5, 5, √1250 and √1250: each head's part by itself"
        );
    }

    #[test]
    fn the_gradient_has_no_part_along_a_head() {
        for h in [1, 2, 3] {
            let (x, gain, grad_y) = example(h, 1);
            let (grad_x, _) = backward(&x, &gain, &grad_y);
            for (i, r) in (0..5).flat_map(|i| (0..h).map(move |r| (i, r))) {
                let part = |m: &DMatrix<f64>| m.view((i, 4 * r), (1, 4)).into_owned();
                let (x, grad) = (part(&x), part(&grad_x));
                let cosine = x.dot(&grad) / x.norm() / grad.norm();
                assert!(
                    cosine.abs() < 1e-3,
                    "row {i}, head {r}: a longer x has the same u, so dx has no part along x. Yours has a cosine of {cosine:.3} with it"
                );
            }
        }
    }

    #[test]
    fn gradients_are_slopes() {
        for h in [1, 2, 3] {
            let (x, gain, grad_y) = example(h, 2);
            let (grad_x, grad_gain) = backward(&x, &gain, &grad_y);
            let slopes = numerical_gradient(&gain, 1e-5, |gain| {
                Ok(forward(&x, &gain.row(0).into_owned()).dot(&grad_y))
            })
            .unwrap();
            let off = (&slopes - &grad_gain).amax();
            assert!(
                off < 1e-7,
                "{h} heads: dg is off by {off:.3}: the gain was used by every head of every row"
            );
            let slopes =
                numerical_gradient(&x, 1e-5, |x| Ok(forward(x, &gain).dot(&grad_y)))
                    .unwrap();
            let off = (slopes - &grad_x).amax();
            let without = backward(&x, &RowDVector::from_element(4, 1.0), &grad_y).0;
            assert!(
                (&grad_x - without).amax() > 1e-9,
                "{h} heads: dX is the same for any gain: is the gain a factor of u's gradient?"
            );
            assert!(
                off < 1e-7,
                "{h} heads: dX is off by {off:.3} from the slopes of your forward pass"
            );
        }
    }

    #[test]
    fn a_row_of_zeros_can_be_divided() {
        let (gain, ones) =
            (RowDVector::from_element(2, 1.0), DMatrix::from_element(1, 4, 1.0));
        assert!(
            forward(&DMatrix::zeros(1, 4), &gain) == DMatrix::zeros(1, 4),
            "zeros stay zeros"
        );
        let (grad_x, _) = backward(&DMatrix::zeros(1, 4), &gain, &ones);
        assert!(
            (grad_x - ones / EPSILON.sqrt()).amax() < 1e-9,
            "at zero, Y is X divided by √ε"
        );
    }
}
