//! # Build it yourself: a check of gradients
//!
//! easy, 15 minutes, without `attention::`
//!
//! The ninth file doubts the eighth. `numerical_gradient` gets a loss, which is a function of a matrix, and the matrix `x` at which it is
//! measured. It returns a matrix of the same shape: each entry says by how much the loss grows when that entry of `x` does, per unit.
//!
//! Move one entry at a time, a little up and as much down, and divide the difference of the two losses by the whole way between them. `x`
//! itself must not change. A step of $10^{-5}$ suits entries of ordinary size. The tests allow an error of $10^{-8}$.
//!
//! # Hint
//!
//! On paper, measure the slope of $x^2$ at 3 with a step of 1: from 2 to 4. You should get exactly 6. And from 3 to 4?
//!
//! # Hint
//!
//! Write a closure `moved` that gets how far to move. It clones `x`, changes one entry of the clone, and returns the loss of the clone.
//!
//! # Hint
//!
//! `Matrix::from_fn(x.nrows(), x.ncols(), |i, j| …)` calls its closure for each entry. Inside it,
//! `(moved(step) - moved(-step)) / (2.0 * step)`.

use attention::plain::*;

// PROGRAM check
// FAULT one-sided: Is the point below compared with the point above, or with `x` itself?
// - (moved(step) - moved(-step)) / (2.0 * step)
// > (moved(step) - moved(0.0)) / step
// FAULT half-the-way: How far apart are the two points?
// - (moved(step) - moved(-step)) / (2.0 * step)
// > (moved(step) - moved(-step)) / step
// FAULT not-divided: Is the difference of the losses divided by the step?
// - (moved(step) - moved(-step)) / (2.0 * step)
// > moved(step) - moved(-step)
// FAULT upside-down: Which loss is subtracted from which?
// - (moved(step) - moved(-step)) / (2.0 * step)
// > (moved(-step) - moved(step)) / (2.0 * step)
// FAULT too-long: The step is so long that the loss bends on its way
// - let step = 1e-5;
// > let step = 1e-2;
// FAULT too-short: The step is so short that rounding is all that is left
// - let step = 1e-5;
// > let step = 1e-12;
// FAULT all-at-once: All entries moved together
// - x[(i, j)] += by;
// > x.add_scalar_mut(by);
// FAULT not-put-back: Entries that were measured before are still moved
// - x[(i, j)] += by;
// > let at = i + j * x.nrows();
// > x.as_mut_slice()[..=at].iter_mut().for_each(|entry| *entry += by);
// FAULT transposed: does row i, column j of the result belong to row i, column j of `x`?
// - x[(i, j)] += by;
// > x[(j, i)] += by;
// FAULT in-proportion: Does an entry move by the step, or by a share of itself?
// - x[(i, j)] += by;
// > x[(i, j)] *= 1.0 + by;
// FAULT set: Is the step added to the entry, or put in its place?
// - x[(i, j)] += by;
// > x[(i, j)] = by;

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// Numbers between −1 and 1 that look random.
    fn numbers(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| {
            let at = (100 * seed + 10 * i + j + 1) as f64;
            (at * at * 0.754_877_666).fract() * 2.0 - 1.0
        })
    }

    /// False for NaN.
    fn near(a: &Matrix, b: &Matrix, by: f64) -> bool {
        a.shape() == b.shape() && (a - b).norm() < by
    }

    #[test]
    fn a_plane_has_four_slopes() {
        // 2a + 3b + 5c + 7d: whatever the step, the slopes are 2, 3, 5 and 7.
        let right = dmatrix![2.0, 3.0; 5.0, 7.0];
        let loss = |x: &Matrix| x.dot(&right);
        let got = numerical_gradient(loss, &dmatrix![1.0, 1.0; 1.0, 1.0]);
        let said = format!(
            "the loss 2a + 3b + 5c + 7d of the matrix a, b; c, d has the slopes{right}and you measure{got:.3}"
        );
        let is = |wrong: &Matrix| near(&got, wrong, 1e-6);
        assert!(
            !is(&Matrix::repeat(2, 2, 17.0)),
            "{said}All entries moved together, and only one may move at a time"
        );
        assert!(
            !is(&dmatrix![2.0, 10.0; 7.0, 17.0]) && !is(&dmatrix![2.0, 5.0; 10.0, 17.0]),
            "{said}Entries that were measured before are still moved, and should stand where they were"
        );
        assert!(
            !is(&right.transpose()),
            "{said}Look at the indices: does row i, column j of the result belong to row i, column j of `x`?"
        );
        assert!(!is(&-&right), "{said}Which loss is subtracted from which?");
        assert!(
            !is(&(2.0 * &right)),
            "{said}All are twice as large. How far apart are the two points?"
        );
        assert!(
            got.amax() > 0.5,
            "{said}Is the difference of the losses divided by the step?"
        );
        assert!(near(&got, &right, 1e-3), "{said}");
    }

    #[test]
    fn both_sides_count() {
        // The errors of both sides cancel: x² has the slope 2x.
        let x = dmatrix![3.0, 0.5; -2.0, 1.0];
        let got = numerical_gradient(|x| x.norm_squared(), &x);
        assert!(
            got.amax() > 1e-6,
            "the sum of squares has the slope 2x at x, and you measure 0 everywhere. Is the step added to the entry, or put in its place?"
        );
        let right = 2.0 * &x;
        let off = &got - &right;
        let same_error = off.min() > 1e-12 && off.max() - off.min() < 0.01 * off.max();
        assert!(
            !same_error,
            "the sum of squares has the slope 2x at x, and each of yours is too large by {:.0e}. Is the point below compared with the point above, or with `x` itself?",
            off.max()
        );
        assert!(
            near(&got, &right, 1e-2),
            "the sum of squares has the slopes{right}at{x}and you measure{got:.6}"
        );
    }

    #[test]
    fn zero_is_an_entry_too() {
        let got = numerical_gradient(|x| 3.0 * x[0] + x[1], &dmatrix![0.0, 2.0]);
        let said = format!(
            "3a + b has the slopes 3 and 1, also at a = 0, b = 2, and you measure {:.3} and {:.3}.",
            got[0], got[1]
        );
        let in_proportion = got[0].abs() < 1e-9 && (got[1] - 2.0).abs() < 1e-3;
        assert!(
            !in_proportion,
            "{said} Does an entry move by the step, or by a share of itself?"
        );
        assert!(
            near(&got, &dmatrix![3.0, 1.0], 1e-2),
            "{said} An entry that is 0 counts, too"
        );
    }

    #[test]
    fn others_stay_where_they_are() {
        let x = dmatrix![1.0, 2.0, 3.0; -1.0, 0.5, 4.0];
        let product: f64 = x.iter().product();
        let got = numerical_gradient(|x| x.iter().product(), &x);
        assert!(
            got.shape() == (2, 3),
            "there is a slope for each entry, (2, 3), and your matrix has the shape {:?}",
            got.shape()
        );
        for (i, j) in (0..2).flat_map(|i| (0..3).map(move |j| (i, j))) {
            // The product of the others.
            let right = product / x[(i, j)];
            assert!(
                (got[(i, j)] - right).abs() < 1e-2,
                "the product of all six entries has the slope {right} with respect to entry ({i}, {j}), the product of the others, and you measure {:.4}. Does each other entry stand where it was?",
                got[(i, j)]
            );
        }
    }

    #[test]
    fn eight_digits_are_right() {
        let x = numbers(3, 4, 1);
        let got = numerical_gradient(|x| x.map(|x| (3.0 * x).sin()).sum(), &x);
        let right = x.map(|x| 3.0 * (3.0 * x).cos());
        let off = &got - &right;
        // The error of a long step is that of a derivative, times a constant.
        let like = |derivative: &Matrix| {
            off.dot(derivative).abs() > 0.999 * off.norm() * derivative.norm()
        };
        let said = format!(
            "the sum of sin 3x has the slopes 3 cos 3x, and yours are off by up to {:.0e}",
            off.amax()
        );
        let small = off.amax() < 1e-8;
        assert!(
            small || off.amax() > 0.1 || !like(&right),
            "{said}, in proportion to the third derivative. The step is so long that the loss bends on its way: did you take 10⁻⁵?"
        );
        assert!(
            small || !like(&x.map(|x| (3.0 * x).sin())),
            "{said}, in proportion to the second derivative, as where only one side is measured"
        );
        assert!(
            small || off.amax() > 0.1,
            "{said}, one this way and one that. The step is so short that rounding is all that is left: did you take 10⁻⁵?"
        );
        assert!(small, "{said}");
    }

    #[test]
    fn it_finds_a_fault_in_softmax() {
        // One row of scores, and a gradient of its weights.
        let (scores, grad) = (dmatrix![2.0, 1.0, -1.0], dmatrix![1.0, 4.0, 2.0]);
        let softmax = |scores: &Matrix| {
            let e = scores.map(f64::exp);
            &e / e.sum()
        };
        let weights = softmax(&scores);
        let minus = |mean: f64| weights.component_mul(&grad.add_scalar(-mean));
        let got = numerical_gradient(|scores| softmax(scores).dot(&grad), &scores);
        let (right, wrong) = (minus(weights.dot(&grad)), minus(grad.mean()));
        assert!(
            near(&got, &right, 1e-8) && !near(&got, &wrong, 0.1),
            "softmax's gradient subtracts the mean under the weights, which gives{right:.4}With the plain mean it would be{wrong:.4}Your measurement should tell which is right, and it says{got:.4}"
        );
    }
}
