//! # Backward of a product
//!
//! easy, 15 minutes
//!
//! Scores are a product in which the second matrix is transposed, $S = Q K^\top$. Every gradient of a query or a
//! key passes through it. Given $dS$, return $dQ$ and $dK$.
//!
//! Then let both factors be the same matrix, $S = X X^\top$, as in attention without projections. Return $dX$. $dS$
//! need not be symmetric, although $S$ is.
//!
//! Shapes: $Q$ $(n_q, d)$, $K$ $(n_k, d)$, $X$ $(n, d)$, and each gradient as its matrix.
//!
//! # Hint
//!
//! An entry is $S_{ij} = \sum_c Q_{ic} K_{jc}$. Which scores does $K_{jc}$ reach, and with which factors?
//!
//! # Hint
//!
//! The product rule with $F = Q$ and $G = K^\top$ gives $dQ$ and the gradient with respect to $K^\top$. Transpose
//! the latter on paper. And $X$ was used in two places.
//!
//! # Hint
//!
//! $dQ$ is a product of $dS$ and $K$, and $dK$ one of $dS^\top$ and $Q$. With $Q = K = X$, call your own function
//! and add.

use nalgebra::DMatrix;

/// Returns the gradients with respect to `q` (n_q, d) and `k` (n_k, d), for S = Q Kᵀ and `grad_s` (n_q, n_k).
pub fn scores_backward(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    grad_s: &DMatrix<f64>,
) -> [DMatrix<f64>; 2] {
    // SOLUTION
    // FAULT transposed: has the shape of K
    // > [grad_s * k, q.transpose() * grad_s]
    // FAULT swapped: the first result belongs to Q
    // > [grad_s.transpose() * q, grad_s * k]
    [grad_s * k, grad_s.transpose() * q]
    // END
}

/// Returns the gradient with respect to `x` (n, d), for S = X Xᵀ and `grad_s` (n, n).
pub fn self_scores_backward(x: &DMatrix<f64>, grad_s: &DMatrix<f64>) -> DMatrix<f64> {
    // SOLUTION
    let [as_query, as_key] = scores_backward(x, x, grad_s);
    // FAULT one-path: only the path on which X is the query
    // > as_query
    // FAULT doubled: dS need not be symmetric
    // > as_query * 2.0
    as_query + as_key
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::gradient_check::numerical_gradient;
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
    }

    /// Slopes of the loss ⟨S, grad_s⟩ with respect to a matrix of which S is made.
    fn slopes(
        x: &DMatrix<f64>,
        grad_s: &DMatrix<f64>,
        s: impl Fn(&DMatrix<f64>) -> DMatrix<f64>,
    ) -> DMatrix<f64> {
        numerical_gradient(x, 1e-4, |x| Ok(s(x).dot(grad_s))).unwrap()
    }

    #[test]
    fn each_gradient_has_the_shape_of_its_matrix() {
        let [grad_q, grad_k] =
            scores_backward(&random(2, 3, 1), &random(5, 3, 2), &random(2, 5, 3));
        assert!(
            grad_q.shape() != (5, 3),
            "dQ has the shape of K: the first result belongs to Q"
        );
        assert!(
            grad_q.shape() == (2, 3),
            "dQ has the shape of Q: yours has the shape {:?}, expected {:?}",
            grad_q.shape(),
            (2, 3)
        );
        assert!(
            grad_k.shape() == (5, 3),
            "dK has the shape of K: yours has the shape {:?}, expected {:?}",
            grad_k.shape(),
            (5, 3)
        );
    }

    #[test]
    fn gradients_of_scores_are_slopes_of_the_loss() {
        for seed in 0..3 {
            let (q, k, grad_s) =
                (random(2, 3, seed), random(5, 3, seed + 10), random(2, 5, seed + 20));
            let [grad_q, grad_k] = scores_backward(&q, &k, &grad_s);
            let off = (grad_q - slopes(&q, &grad_s, |q| q * k.transpose())).amax();
            assert!(
                off < 1e-8,
                "dQ is off by {off:.3}: which keys does an entry of a query meet?"
            );
            let off = (grad_k - slopes(&k, &grad_s, |k| &q * k.transpose())).amax();
            assert!(
                off < 1e-8,
                "dK is off by {off:.3}: which queries does an entry of a key meet?"
            );
        }
    }

    #[test]
    fn a_matrix_that_is_used_twice_gets_two_gradients() {
        for seed in 30..33 {
            let (x, grad_s) = (random(4, 3, seed), random(4, 4, seed + 10));
            let grad = self_scores_backward(&x, &grad_s);
            assert!(
                grad.shape() == x.shape(),
                "dX has the shape of X: yours has the shape {:?}, expected {:?}",
                grad.shape(),
                x.shape()
            );
            let is = |other: DMatrix<f64>| (&grad - other).amax() < 1e-8;
            let query = slopes(&x, &grad_s, |moved| moved * x.transpose());
            let key = slopes(&x, &grad_s, |moved| &x * moved.transpose());
            assert!(!is(query.clone()), "this is only the path on which X is the query");
            assert!(!is(key.clone()), "this is only the path on which X is the key");
            assert!(
                !is(2.0 * query) && !is(2.0 * key),
                "this is one path, twice, but dS need not be symmetric"
            );
            assert!(
                is(slopes(&x, &grad_s, |x| x * x.transpose())),
                "dX isn't the slope of the loss"
            );
        }
    }
}
