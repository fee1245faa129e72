//! # Measured slopes
//!
//! easy, 20 minutes, without `numerical_gradient`
//!
//! Measure slopes, so that you can check gradients.
//!
//! 1. `slope`: the central difference of a function of one number, divided by the step that was really taken.
//! 2. `slopes`: the same for a loss of a matrix, entry by entry.
//! 3. `sharper_slope`: the error of a central difference is $\tfrac{\varepsilon^2}{6} \mathcal{L}''' + \dots$ With
//!    $2 \varepsilon$ it is four times as large. Combine both slopes so that this term disappears. This gives more
//!    digits where the step can't be smaller.
//!
//! Don't call the crate's `numerical_gradient`.
//!
//! # Hint
//!
//! Is $x + \varepsilon$ the number that is stored? And what does the loss see of the first entry, while you nudge
//! the second one?
//!
//! # Hint
//!
//! Let $a$ be the slope measured with $\varepsilon$, and $b$ that with $2 \varepsilon$. If the true slope is $s$,
//! then $a = s + e$ and $b = s + 4 e$. Solve for $s$.
//!
//! # Hint
//!
//! `let (high, low) = (x + step, x - step);` and divide by `high - low`. For a matrix, clone it once, set an entry
//! to `high` and to `low`, and put it back. Then $s = (4 a - b) / 3$.

use nalgebra::DMatrix;

/// Returns the slope of `loss` at `x`, from a point on either side.
pub fn slope(loss: impl Fn(f64) -> f64, x: f64, step: f64) -> f64 {
    // SOLUTION
    // FAULT one-sided: a one-sided difference
    // > let (high, low) = (x + step, x);
    let (high, low) = (x + step, x - step);
    // FAULT step-asked-for: the step that was taken
    // > (loss(high) - loss(low)) / (2.0 * step)
    (loss(high) - loss(low)) / (high - low)
    // END
}

/// Returns the slope of `loss` with respect to every entry of `x`, in a matrix of its shape.
pub fn slopes(
    loss: impl Fn(&DMatrix<f64>) -> f64,
    x: &DMatrix<f64>,
    step: f64,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT the-crate: this exercise asks you to do without it
    // > let mut nudged = attention::gradient_check::numerical_gradient(x, step, |x| Ok(loss(x))).unwrap();
    let mut nudged = x.clone();
    let mut slopes = DMatrix::zeros(x.nrows(), x.ncols());
    for at in 0..x.len() {
        let (high, low) = (x[at] + step, x[at] - step);
        nudged[at] = high;
        let above = loss(&nudged);
        nudged[at] = low;
        let below = loss(&nudged);
        // FAULT not-put-back: only one entry may move at a time
        nudged[at] = x[at];
        slopes[at] = (above - below) / (high - low);
    }
    slopes
    // END
}

/// Returns the slope of `loss` at `x` from the central differences for `step` and for twice as much, so that their main
/// error cancels.
pub fn sharper_slope(loss: impl Fn(f64) -> f64, x: f64, step: f64) -> f64 {
    // SOLUTION
    let (near, far) = (slope(&loss, x, step), slope(&loss, x, 2.0 * step));
    // FAULT mean: the error should shrink
    // > (near + far) / 2.0
    (4.0 * near - far) / 3.0
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention, attention_backward};
    use nalgebra::{DMatrix, dmatrix};

    #[test]
    fn both_sides_count() {
        // Central differences of a square are exact.
        for x in [-2.0, 0.0, 1.0, 3.5] {
            let found = slope(|x: f64| x * x, x, 0.25);
            assert!(
                (found - 2.0 * x - 0.25).abs() > 1e-9,
                "x² at {x}: {found} is what a one-sided difference gives"
            );
            assert!(
                (found - 2.0 * x).abs() < 1e-9,
                "x² has the slope {} at {x}, not {found}",
                2.0 * x
            );
        }
    }

    #[test]
    fn the_step_that_was_taken_counts() {
        for x in [1e9, 3e10, -7e10] {
            let found = slope(|x: f64| 2.0 * x, x, 1e-5);
            assert!(
                (found - 2.0).abs() < 1e-9,
                "2x has the slope 2, also at {x:.0e}, not {found:.4}. Is the step that you asked for the step that was taken?"
            );
        }
    }

    #[test]
    fn every_entry_has_a_slope_of_its_own() {
        let x = dmatrix![1.0, 2.0, 3.0; -1.0, 0.5, 4.0];
        // A product of entries: while another entry is nudged, each should stand at its old value.
        let found = slopes(|x| x.iter().product(), &x, 0.125);
        assert!(
            found.shape() == x.shape(),
            "one slope for each entry: yours has the shape {:?}, expected {:?}",
            found.shape(),
            x.shape()
        );
        let product: f64 = x.iter().product();
        for (i, j) in (0..2).flat_map(|i| (0..3).map(move |j| (i, j))) {
            let right = product / x[(i, j)];
            let entry = found[(i, j)];
            assert!(
                (entry - right).abs() < 1e-9,
                "entry ({i}, {j}) has the slope {right}, not {entry:.3}: only one entry may move at a time"
            );
        }
    }

    #[test]
    fn slopes_agree_with_the_gradients_of_attention() {
        let matrix = |rows, columns, seed: f64| {
            DMatrix::from_fn(rows, columns, |i, j| {
                (seed + 2.0 * i as f64 - 3.0 * j as f64).sin()
            })
        };
        let (q, k, v, projection) =
            (matrix(3, 2, 1.0), matrix(4, 2, 2.0), matrix(4, 3, 3.0), matrix(3, 3, 4.0));
        let run = |k: &DMatrix<f64>| attention(&q, k, &v, Mask::causal()).unwrap();
        let off = slopes(|k| run(k).0.dot(&projection), &k, 1e-5)
            - attention_backward(&run(&k).1, &projection).unwrap().k;
        assert!(
            off.amax() < 1e-8,
            "slopes with respect to keys are off by up to {:.1e}",
            off.amax()
        );
    }

    #[test]
    fn two_steps_are_sharper_than_one() {
        for (x, step) in [(0.3_f64, 0.1), (1.2, 0.1), (-0.7, 0.05)] {
            let error = (sharper_slope(f64::sin, x, step) - x.cos()).abs();
            let of_one = (slope(f64::sin, x, step) - x.cos()).abs();
            assert!(
                error < 0.05 * of_one,
                "at {x}, one slope of the sine is off by {of_one:.1e}, and your combination by {error:.1e}: the error should shrink far more"
            );
        }
        let found = sharper_slope(|x| x * x * x, 2.0, 0.5);
        assert!(
            (found - 12.0).abs() < 1e-9,
            "for a cubic the combination is exact, but x³ at 2 gives {found}: what does it do to a straight line?"
        );
    }
}
