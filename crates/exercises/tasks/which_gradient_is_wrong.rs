//! # Which gradient is wrong?
//!
//! medium, 25 minutes
//!
//! The layer below has five inputs, and five functions return their gradients. Two functions are wrong. Their
//! shapes are right, and reading them is slower than measuring.
//!
//! First write the chapter's relative error for two matrices: the largest over all entries. A NaN must not look
//! like agreement. Then call it with gradients and measured slopes (the crate's `numerical_gradient` will do, in a
//! test or a `main` of your own), and let `wrong` return the two parts.
//!
//! Mind your loss: one that the chapter warns of finds only one of the two.
//!
//! # Hint
//!
//! Which loss has $dY$ for its gradient with respect to $Y$, whatever $dY$ is? And which numbers should $dY$ have,
//! so that no fault can hide?
//!
//! # Hint
//!
//! Replace one field of the layer by a nudged matrix:
//! `let mut nudged = layer.clone(); *nudged.part_mut(part) = m.clone();`. The loss is
//! `nudged.forward().dot(&grad_y)`, and its slope should be `gradient(&layer, part, &grad_y)`.
//!
//! # Hint
//!
//! For the error: start from zero, and for each entry compute `(a - b).abs() / (a.abs() + b.abs() + floor)`. If it
//! is larger, or is NaN, keep it. `f64::max` drops a NaN. For the parts: draw the layer and `grad_y` at random, and
//! print the error of each part.

use attention::softmax_rows;
use nalgebra::DMatrix;

/// An input of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    X,
    W,
    B,
    U,
    T,
}

/// Y = A U + X with the weights A = softmax(t · (X W + b)).
///
/// Shapes: x and Y (n, d), w (d, m), b (1, m), u (m, d), t (1, 1).
#[derive(Debug, Clone)]
pub struct Layer {
    pub x: DMatrix<f64>,
    pub w: DMatrix<f64>,
    pub b: DMatrix<f64>,
    pub u: DMatrix<f64>,
    pub t: DMatrix<f64>,
}

impl Layer {
    pub fn part_mut(&mut self, part: Part) -> &mut DMatrix<f64> {
        match part {
            Part::X => &mut self.x,
            Part::W => &mut self.w,
            Part::B => &mut self.b,
            Part::U => &mut self.u,
            Part::T => &mut self.t,
        }
    }

    fn before_t(&self) -> DMatrix<f64> {
        let mut sums = &self.x * &self.w;
        sums.row_iter_mut().for_each(|mut row| row += &self.b.row(0));
        sums
    }

    fn weights(&self) -> DMatrix<f64> {
        softmax_rows(&(self.before_t() * self.t[0])).expect("they aren't empty")
    }

    pub fn forward(&self) -> DMatrix<f64> {
        self.weights() * &self.u + &self.x
    }
}

/// Returns the gradient with respect to one part, from `grad_y` (n, d).
pub fn gradient(layer: &Layer, part: Part, grad_y: &DMatrix<f64>) -> DMatrix<f64> {
    let Layer { x, w, u, t, .. } = layer;
    let (a, y) = (layer.weights(), layer.forward());
    let grad_a = grad_y * u.transpose();
    let means = match part {
        Part::W | Part::X => grad_a.component_mul(&a).column_sum(),
        Part::T => (&y - x).component_mul(grad_y).column_sum(),
        _ => y.component_mul(grad_y).column_sum(),
    };
    let grad_s = DMatrix::from_fn(a.nrows(), a.ncols(), |i, j| {
        a[(i, j)] * (grad_a[(i, j)] - means[i])
    });
    match part {
        Part::X => &grad_s * w.transpose() * t[0] + &y,
        Part::W => x.transpose() * &grad_s * t[0],
        Part::B => DMatrix::from_fn(1, a.ncols(), |_, j| grad_s.column(j).sum() * t[0]),
        Part::U => a.transpose() * grad_y,
        Part::T => DMatrix::from_element(1, 1, grad_s.dot(&layer.before_t())),
    }
}

/// Returns the largest relative error of an entry, with the floor `floor`. It is NaN if an entry's is.
pub fn largest_error(a: &DMatrix<f64>, b: &DMatrix<f64>, floor: f64) -> f64 {
    // SOLUTION
    let mut largest = 0.0_f64;
    for (&a, &b) in a.iter().zip(b) {
        // FAULT without-floor: two zeros agree
        // > let error = (a - b).abs() / (a.abs() + b.abs());
        // FAULT absolute: in proportion
        // > let error = (a - b).abs() + 0.0 * floor;
        let error = (a - b).abs() / (a.abs() + b.abs() + floor);
        // FAULT nan-lost: has a NaN, and the error is
        // > if false {
        if error.is_nan() {
            return error; // f64::max would drop it
        }
        largest = largest.max(error);
    }
    largest
    // END
}

/// Returns the parts whose gradients are wrong.
pub fn wrong() -> Vec<Part> {
    // SOLUTION
    // FAULT half-square: the loss ½‖Y‖² can't show it
    // > vec![Part::B]
    // FAULT means-from-y: compare the slope with respect to T
    // > vec![Part::X, Part::B, Part::T]
    vec![Part::X, Part::B]
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::gradient_check::numerical_gradient;
    use nalgebra::{DMatrix, dmatrix};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// Whether the gradients of a part are slopes, with `½‖Y‖²` for the loss or a random projection.
    fn is_right(part: Part, half_square: bool) -> bool {
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let mut random = |rows, columns| {
            DMatrix::from_fn(rows, columns, |_, _| rng.random_range(0.5..1.5))
        };
        let mut layer = Layer {
            x: random(3, 2),
            w: random(2, 4),
            b: random(1, 4),
            u: random(4, 2),
            t: random(1, 1),
        };
        let grad_y = if half_square { layer.forward() } else { random(3, 2) };
        let at = layer.part_mut(part).clone();
        let slopes = numerical_gradient(&at, 1e-5, |m| {
            let mut nudged = layer.clone();
            *nudged.part_mut(part) = m.clone();
            let y = nudged.forward();
            Ok(if half_square { y.norm_squared() / 2.0 } else { y.dot(&grad_y) })
        });
        (slopes.unwrap() - gradient(&layer, part, &grad_y)).amax() < 1e-7
    }

    #[test]
    fn errors_are_in_proportion() {
        let error =
            |a: f64, b: f64, floor: f64| largest_error(&dmatrix![a], &dmatrix![b], floor);
        for size in [1e-6, 1.0, 1e6] {
            let (half, sign) =
                (error(2.0 * size, size, 1e-12), error(-size, size, 1e-12));
            assert!(
                (half - 1.0 / 3.0).abs() < 1e-4,
                "a factor of two is an error of a third in proportion, for numbers of any size, but for {size:e} it is {half:.3}"
            );
            assert!(
                (sign - 1.0).abs() < 1e-4,
                "a wrong sign is an error of 1, but for {size:e} it is {sign:.3}"
            );
        }
        let zeros = error(0.0, 0.0, 1e-8);
        assert!(zeros == 0.0, "two zeros agree, but their error is {zeros}");
        assert!(
            error(0.0, 1e-11, 1e-5) < 1e-5,
            "what lies far below the floor is rounding"
        );
    }

    #[test]
    fn the_worst_entry_counts() {
        let (a, mut b) = (
            dmatrix![1.0, 2.0, 3.0; 4.0, 5.0, 6.0],
            dmatrix![1.0, 2.0, 3.0; 4.0, 5.0, 6.0],
        );
        b[(0, 1)] = -2.0;
        assert!(
            largest_error(&a, &b, 1e-8) > 0.99,
            "one entry has the wrong sign, and the error is {}",
            largest_error(&a, &b, 1e-8)
        );
        for at in 0..6 {
            b[at] = f64::NAN;
            let error = largest_error(&a, &b, 1e-8);
            assert!(
                error.is_nan(),
                "one gradient has a NaN, and the error is {error}: all comparisons with NaN are false, so a later entry overwrote it, or it was never kept"
            );
            b[at] = a[at];
        }
    }

    #[test]
    fn no_part_is_accused_or_acquitted_wrongly() {
        let answer = wrong();
        for part in [Part::X, Part::W, Part::B, Part::U, Part::T] {
            if is_right(part, false) {
                assert!(
                    !answer.contains(&part),
                    "you call one gradient wrong that is a slope of the loss: compare the slope with respect to {part:?} once more"
                );
            } else if !answer.contains(&part) {
                assert!(
                    !is_right(part, true),
                    "you overlook a gradient that is wrong, and the loss ½‖Y‖² can't show it: which other loss is there?"
                );
                panic!(
                    "you overlook a gradient that differs from its slopes, whatever the loss"
                );
            }
        }
    }
}
