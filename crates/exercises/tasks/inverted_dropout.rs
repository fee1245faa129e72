//! # Dropout, forward and backward
//!
//! easy, 15 minutes
//!
//! A model that trains with dropout and is used without it has to meet weights of the same mean in both. Write dropout
//! of a matrix of weights, forward and backward.
//!
//! The random draws are given: `keep` is a matrix of the weights' shape $(n_q, n_k)$, true where a weight stays, which
//! happens with the probability $1 - p$. In use there are no draws, and `keep` is `None`. The backward function gets
//! the gradient with respect to the weights *after* dropout and the same draws. It returns the gradient with respect to
//! the weights *before* dropout.
//!
//! # Hint
//!
//! If half of the weights are dropped, by how much must the others grow so that the mean stays? And what has to happen
//! in use, where none is dropped?
//!
//! # Hint
//!
//! Dropout multiplies each weight by a factor that doesn't depend on the weight. So what is the derivative of its
//! result with respect to the weight?
//!
//! # Hint
//!
//! `weights.zip_map(keep, |weight, kept| …)` walks both matrices. Match on `keep` first: `None` leaves everything as it
//! is. Forward and backward may share a helper.

use nalgebra::DMatrix;

/// Returns the weights after dropout with the probability `p`, below 1.
///
/// Shapes: `weights` and `keep` (n_q, n_k) → (n_q, n_k). Without `keep`, the model is in use.
pub fn dropout(
    weights: &DMatrix<f64>,
    keep: Option<&DMatrix<bool>>,
    p: f64,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT scaled-in-use: in use nothing is drawn
    // > let Some(keep) = keep else { return weights / (1.0 - p) };
    let Some(keep) = keep else { return weights.clone() };
    // FAULT not-divided: are the weights that stay divided by 1 − p
    // > weights.zip_map(keep, |weight, kept| if kept { weight } else { 0.0 })
    // FAULT by-p: divided by p
    // > weights.zip_map(keep, |weight, kept| if kept { weight / p } else { 0.0 })
    // FAULT inverted: true means that a weight stays
    // > weights.zip_map(keep, |weight, kept| if kept { 0.0 } else { weight / (1.0 - p) })
    weights.zip_map(keep, |weight, kept| if kept { weight / (1.0 - p) } else { 0.0 })
    // END
}

/// Returns the gradient with respect to the weights before dropout.
///
/// Shapes: `grad`, with respect to the weights after dropout, and `keep` (n_q, n_k) → (n_q, n_k).
pub fn dropout_backward(
    grad: &DMatrix<f64>,
    keep: Option<&DMatrix<bool>>,
    p: f64,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT all-learn: what was dropped had no effect
    // > grad / (1.0 - p * keep.is_some() as u8 as f64)
    // FAULT backward-not-divided: the slope of a weight that stays
    // > if let Some(keep) = keep { grad.zip_map(keep, |g, kept| if kept { g } else { 0.0 }) } else { grad.clone() }
    dropout(grad, keep, p) // the same factors
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{DMatrix, dmatrix};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn draws(p: f64, rng: &mut ChaCha8Rng) -> DMatrix<bool> {
        DMatrix::from_fn(2, 3, |_, _| rng.random::<f64>() >= p)
    }

    const P: [f64; 3] = [0.1, 0.25, 0.8];

    fn weights() -> DMatrix<f64> {
        dmatrix![0.5, 0.3, 0.2; 0.1, 0.2, 0.7]
    }

    #[test]
    fn what_stays_grows() {
        let keep = dmatrix![true, false, true; false, true, true];
        for p in P {
            let (a, got) = (weights(), dropout(&weights(), Some(&keep), p));
            assert!(
                got.shape() == a.shape(),
                "the shape stays: yours has the shape {:?}, expected {:?}",
                got.shape(),
                a.shape()
            );
            let dropped = (0..6).find(|&at| !keep[at] && got[at] != 0.0);
            assert!(
                dropped.is_none(),
                "p = {p}: a weight was dropped, but it isn't 0: true means that a weight stays"
            );
            for at in (0..6).filter(|&at| keep[at]) {
                let (before, after) = (a[at], got[at]);
                assert!(
                    (after - before / p).abs() > 1e-12,
                    "p = {p}: the weight {before} became {after:.3}: it was divided by p, the probability of dropping it"
                );
                assert!(
                    (after - before / (1.0 - p)).abs() < 1e-12,
                    "p = {p}: the weight {before} stays and became {after:.3}: are the weights that stay divided by 1 − p?"
                );
            }
        }
    }

    #[test]
    fn the_mean_stays() {
        let (p, rounds) = (0.25, 4000);
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut mean = DMatrix::zeros(2, 3);
        for _ in 0..rounds {
            mean += dropout(&weights(), Some(&draws(p, rng)), p) / rounds as f64;
        }
        for (weight, mean) in weights().iter().zip(mean.iter()) {
            assert!(
                (weight - mean).abs() < 0.03,
                "the weight {weight} is {mean:.3} on average over {rounds} draws with p = {p}: the mean should stay"
            );
        }
    }

    #[test]
    fn nothing_happens_in_use() {
        for p in P {
            let factor = dropout(&weights(), None, p).sum() / 2.0;
            assert!(
                dropout(&weights(), None, p) == weights(),
                "p = {p}: in use, rows sum to {factor:.3}, but in use nothing is drawn, and weights stay as they are"
            );
        }
    }

    #[test]
    fn the_backward_pass_uses_the_same_draws() {
        let rng = &mut ChaCha8Rng::seed_from_u64(2);
        let grad = dmatrix![3.0, -1.0, 2.0; 0.5, 4.0, -2.0];
        for p in P {
            let keep = draws(p, rng);
            let got = dropout_backward(&grad, Some(&keep), p);
            let dropped = (0..6).find(|&at| !keep[at] && got[at] != 0.0);
            assert!(
                dropped.is_none(),
                "p = {p}: a weight that was dropped gets a gradient: what was dropped had no effect on the loss"
            );
            for at in (0..6).filter(|&at| keep[at]) {
                let right = grad[at] / (1.0 - p);
                assert!(
                    (got[at] - right).abs() < 1e-12,
                    "p = {p}: the gradient {} after dropout became {:.3} before it: what is the slope of a weight that stays?",
                    grad[at],
                    got[at]
                );
            }
        }
        assert!(
            dropout_backward(&grad, None, 0.5) == grad,
            "without draws the gradient passes unchanged"
        );
    }
}
