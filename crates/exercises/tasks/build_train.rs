//! # Build it yourself: a loss, and steps against its gradient
//!
//! medium, 30 minutes, without `attention::`
//!
//! `cross_entropy` takes scores of what comes next, $(n, \text{vocabulary})$, and the $n$ tokens that did come. It returns the mean of
//! $-\ln(\text{weight})$ of these tokens, and its gradient with respect to the scores. `Adam` moves matrices against their gradients. It
//! remembers for each entry a mean of its gradients, of which each step keeps 0.9, and a mean of their squares, of which it keeps 0.999. Both
//! begin at 0, so divide them by $1 - 0.9^t$ and $1 - 0.999^t$ in step $t$, which counts from 1. An entry then moves by the rate times the
//! first mean, divided by the root of the second plus $10^{-8}$.
//!
//! # Hint
//!
//! You have `softmax_rows`. The gradient of a row is its weights, less 1 at the token that came: the chapter derives it. Which
//! number turns a sum over rows into a mean, and where does it stand in the gradient?
//!
//! # Hint
//!
//! In the first step both means hold one gradient only, a tenth of it and a thousandth of its square. Divided by 0.1 and 0.001 they are the
//! gradient and its square, so each entry moves by nearly the whole rate.
//!
//! # Hint
//!
//! Walk over matrices, gradients and means at once with two `zip`s. `*mean = 0.9 * &*mean + 0.1 * &*g` keeps a mean, `g.component_mul(g)` is
//! the square of each entry, and `zip_zip_apply` changes a matrix by two others, entry by entry.

use attention::plain::*;

// PROGRAM softmax train
// FAULT sum-of-losses: is the loss a mean over the rows
// - (loss / n, gradient / n)
// > (loss, gradient / n)
// FAULT sum-of-gradients: is the gradient that of the mean
// - (loss / n, gradient / n)
// > (loss / n, gradient)
// FAULT weights-alone: the token that came gets 1 less
// - gradient[(i, token)] -= 1.0;
// FAULT sign: a step against the gradient should raise the weight
// - (loss / n, gradient / n)
// > (loss / n, -gradient / n)
// FAULT base-two: the natural logarithm
// - loss -= gradient[(i, token)].ln();
// > loss -= gradient[(i, token)].log2();
// FAULT uphill: a step goes against the gradient
// - *p -= self.rate * (mean / left_1) / ((square / left_2).sqrt() + 1e-8);
// > *p += self.rate * (mean / left_1) / ((square / left_2).sqrt() + 1e-8);
// FAULT no-correction: Both means begin at 0
// - *p -= self.rate * (mean / left_1) / ((square / left_2).sqrt() + 1e-8);
// > *p -= self.rate * mean / (square.sqrt() + 1e-8);
// FAULT no-root: the root of the mean square
// - *p -= self.rate * (mean / left_1) / ((square / left_2).sqrt() + 1e-8);
// > *p -= self.rate * (mean / left_1) / (square / left_2 + 1e-8);
// FAULT no-memory: does the next step remember the gradients before it
// - *mean = 0.9 * &*mean + 0.1 * &*g;
// > *mean = left_1 * &*g;
// FAULT steps-not-counted: does the second step divide by
// - self.steps += 1;
// > self.steps = 1;
// FAULT one-memory: does each matrix have means of its own
// - *square = 0.999 * &*square + 0.001 * g.component_mul(g);
// > *square = 0.999 * &*square + 0.001 * g.map(|_| g.norm_squared());

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    #[test]
    fn the_loss_is_the_mean_surprise() {
        // Weights of 3 : 2 : 1, and of 1 : 1 : 2.
        let scores = dmatrix![3.0_f64.ln(), 2.0_f64.ln(), 0.0; 0.0, 0.0, 2.0_f64.ln()];
        let (loss, _) = cross_entropy(&scores.rows(0, 1).into_owned(), &[1]);
        assert!(
            (loss - 3.0_f64.ln()).abs() < 1e-12,
            "a token with a weight of a third costs ln 3 = {:.4}, the natural logarithm, and not {loss:.4}",
            3.0_f64.ln()
        );
        let (loss, _) = cross_entropy(&scores, &[1, 2]);
        let right = (3.0_f64.ln() + 2.0_f64.ln()) / 2.0;
        assert!(
            (loss - right).abs() < 1e-12,
            "weights of a third and of a half cost (ln 3 + ln 2) / 2 = {right:.4}, and not {loss:.4}: is the loss a mean over the rows?"
        );
    }

    #[test]
    fn its_gradient_is_the_weights_less_what_came() {
        let scores = dmatrix![3.0_f64.ln(), 2.0_f64.ln(), 0.0];
        let (_, gradient) = cross_entropy(&scores, &[1]);
        let right = dmatrix![3.0, -4.0, 1.0] / 6.0;
        assert!(
            (&gradient + &right).amax() > 1e-9,
            "the gradient has the wrong sign: a step against the gradient should raise the weight of the token that came"
        );
        assert!(
            (&gradient - &right).amax() < 1e-12,
            "for weights of 3 : 2 : 1 and the second token the gradient is (3, −4, 1) / 6, and yours {gradient:.3}: the token that came gets 1 less"
        );
        let both = dmatrix![3.0_f64.ln(), 2.0_f64.ln(), 0.0; 0.0, 0.0, 2.0_f64.ln()];
        let (_, gradient) = cross_entropy(&both, &[1, 2]);
        assert!(
            (gradient.row(0) - right.row(0) / 2.0).amax() < 1e-12,
            "with two rows, each counts half: is the gradient that of the mean, too?"
        );
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let scores = Matrix::from_fn(4, 5, |i, j| ((7 + 5 * i + 3 * j * j) as f64).sin());
        let next = [4, 0, 0, 2];
        let (_, gradient) = cross_entropy(&scores, &next);
        for (at, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut scores = scores.clone();
                scores[at] += by;
                cross_entropy(&scores, &next).0
            };
            let measured = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (measured - slope).abs() < 1e-8,
                "entry {at} of the gradient is {slope:.5}, and the loss changes by {measured:.5}"
            );
        }
    }

    #[test]
    fn the_first_step_is_as_long_as_the_rate() {
        let mut adam = Adam::new(0.1);
        let (mut large, mut small) = (dmatrix![5.0, 5.0], dmatrix![5.0; 5.0]);
        let mut gradients = (dmatrix![30.0, -30.0], dmatrix![0.002; 30.0]);
        adam.step(vec![&mut large, &mut small], vec![&mut gradients.0, &mut gradients.1]);
        assert!(
            large[0] < 5.0 && large[1] > 5.0,
            "gradients of 30 and −30 moved 5 and 5 to {:.3} and {:.3}: a step goes against the gradient",
            large[0],
            large[1]
        );
        for (came, gradient) in [
            (large[0], 30.0),
            (10.0 - large[1], 30.0),
            (small[0], 0.002),
            (small[1], 30.0),
        ] {
            assert!(
                (came - 4.9).abs() < 1e-5,
                "a first gradient of ±{gradient} should move an entry by the rate, 0.1, and moves it by {:.4}. Both means begin at 0, so each is divided by 1 − β; below stands the root of the mean square; and does each matrix have means of its own, one for each entry?",
                5.0 - came
            );
        }
    }

    #[test]
    fn later_steps_remember() {
        let mut adam = Adam::new(0.1);
        let mut x = dmatrix![0.0];
        let mut places = vec![];
        for gradient in [1.0, 0.0, -2.0] {
            adam.step(vec![&mut x], vec![&mut dmatrix![gradient]]);
            places.push(x[0]);
        }
        // By hand: means 0.1, 0.09, −0.119, squares 0.001, 0.000999, 0.004998001.
        let second = -0.1 - 0.1 * (0.09 / 0.19) / (0.000999_f64 / 0.001999).sqrt();
        let third = second
            + 0.1 * (0.119 / 0.271)
                / (0.004998001_f64 / (1.0 - 0.999_f64.powi(3))).sqrt();
        assert!(
            (places[1] - second).abs() < 1e-6,
            "after gradients of 1 and 0 the entry is {:.4} and should be {second:.4}: does the next step remember the gradients before it, and does the second step divide by 1 − 0.9² and 1 − 0.999²?",
            places[1]
        );
        assert!(
            (places[2] - third).abs() < 1e-6,
            "after gradients of 1, 0 and −2 the entry is {:.4} and should be {third:.4}",
            places[2]
        );
    }
}
