//! # Slopes that learn
//!
//! hard, 45 minutes
//!
//! ALiBi's slopes are fixed. Could a model learn how far each head looks? Then it needs the gradient with respect to
//! each slope. A slope has to stay positive, so let the parameter be its logarithm $u$, and the slope $m = e^u$.
//!
//! For one head, the biased scores are $S'_{ij} = S_{ij} - e^u\,|\delta_{ij}|$, with the distance $\delta_{ij}$ from
//! query to key, and the weights are $A = \operatorname{softmax}(S' + M)$. For each head you get $u$, its weights $A$,
//! and the gradient of the loss with respect to $A$, both $(n_q, n_k)$. Return the gradient with respect to each $u$.
//! With fewer queries than keys, the last query stands at the last key. Hidden pairs have a weight of 0.
//!
//! # Hint
//!
//! How does one weight answer to one biased score? *Softmax* has the gradient with respect to scores, $dS'$, of a whole
//! row. You only have to do it for every row.
//!
//! # Hint
//!
//! One slope enters every score of its head. So by the chain rule its gradient is a sum over all pairs. What is
//! $\partial S'_{ij} / \partial u$?
//!
//! # Hint
//!
//! For each head and each query $i$: the average $D = \sum_j dA_{ij} A_{ij}$, then $dS'_{ij} = A_{ij} (dA_{ij} - D)$.
//! Query $i$ stands at the position $i + n_k - n_q$. Multiply each $dS'_{ij}$ by the derivative of the last hint, and
//! add up.

use nalgebra::DMatrix;

/// One head, as the backward pass meets it.
#[derive(Debug, Clone)]
pub struct Head {
    /// The logarithm u of its slope.
    pub log_slope: f64,
    /// Its weights A (n_q, n_k).
    pub weights: DMatrix<f64>,
    /// The gradient with respect to its weights (n_q, n_k).
    pub grad_weights: DMatrix<f64>,
}

/// Returns the gradient with respect to the logarithm of each head's slope.
///
/// Shapes: n heads → (n).
pub fn grad_log_slopes(heads: &[Head]) -> Vec<f64> {
    // SOLUTION
    let of_head = |head: &Head| {
        let Head { log_slope, weights, grad_weights } = head;
        let (n_q, n_k) = weights.shape();
        let mut grad_slope = 0.0;
        for i in 0..n_q {
            // FAULT no-average: without the average of each row
            // > let average = 0.0;
            let average = weights.row(i).dot(&grad_weights.row(i));
            for j in 0..n_k {
                let grad_score = weights[(i, j)] * (grad_weights[(i, j)] - average);
                // FAULT corner: counted from the first key
                // > let distance = (i as f64 - j as f64).abs();
                let distance = ((i + n_k) as f64 - (n_q + j) as f64).abs();
                // FAULT sign: has the other sign
                // > grad_slope += distance * grad_score;
                grad_slope -= distance * grad_score;
            }
        }
        // FAULT of-the-slope: with respect to the slope itself
        // > grad_slope
        grad_slope * log_slope.exp() // ∂m/∂u = m
    };
    heads.iter().map(of_head).collect()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, ScoreRule, attention_weights};
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    /// A head, and the slope of its loss, measured by moving u a little up and down.
    fn head(
        n_q: usize,
        n_k: usize,
        log_slope: f64,
        mask: &Mask,
        seed: u64,
    ) -> (Head, f64) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut draw =
            |n, d| DMatrix::<f64>::from_fn(n, d, |_, _| StandardNormal.sample(rng));
        let (q, k, grad_weights) = (draw(n_q, 3), draw(n_k, 3), draw(n_q, n_k));
        let weights = |u: f64| {
            let rule = ScoreRule::slopes(&[u.exp()]).unwrap();
            attention_weights(&q, &k, mask.clone().with_scores(rule).of_head(0))
                .unwrap()
                .0
        };
        let loss = |u: f64| weights(u).dot(&grad_weights);
        let measured = (loss(log_slope + 1e-5) - loss(log_slope - 1e-5)) / 2e-5;
        (Head { log_slope, weights: weights(log_slope), grad_weights }, measured)
    }

    /// What typical slips give.
    fn slip(head: &Head, right: f64, got: f64) -> &'static str {
        let (n_q, n_k) = head.weights.shape();
        let sum = |offset: f64, with_average: bool| -> f64 {
            let m = head.log_slope.exp();
            (0..n_q).flat_map(|i| (0..n_k).map(move |j| (i, j))).fold(
                0.0,
                |sum, (i, j)| {
                    let average = head.weights.row(i).dot(&head.grad_weights.row(i));
                    let g = head.grad_weights[(i, j)]
                        - if with_average { average } else { 0.0 };
                    sum - m
                        * (i as f64 + offset - j as f64).abs()
                        * head.weights[(i, j)]
                        * g
                },
            )
        };
        let offset = n_k as f64 - n_q as f64;
        [
            (-right, "it has the other sign: does a larger slope raise scores?"),
            (right / head.log_slope.exp(), "this is the gradient with respect to the slope itself, not to its logarithm"),
            (sum(offset, false), "this is what you get without the average of each row"),
            (sum(0.0, true), "this is what you get if a query's position is counted from the first key"),
        ]
        .into_iter()
        .find(|(wrong, _)| (got - wrong).abs() < 1e-6)
        .map_or("which numbers does one slope touch?", |(_, what)| what)
    }

    fn check(heads: &[(Head, f64)]) {
        let got = grad_log_slopes(
            &heads.iter().map(|(head, _)| head.clone()).collect::<Vec<_>>(),
        );
        assert_eq!(got.len(), heads.len(), "there is a gradient for each head");
        for (r, ((head, measured), got)) in heads.iter().zip(got).enumerate() {
            let off = (got - measured).abs();
            let (n_q, n_k) = head.weights.shape();
            assert!(
                off < 1e-6,
                "head {r} of {}, {n_q} queries and {n_k} keys: {got:.6}, and the measured slope is {measured:.6}; {}",
                heads.len(),
                slip(head, *measured, got)
            );
        }
    }

    #[test]
    fn one_head_without_a_mask() {
        check(&[head(4, 4, -0.7, &Mask::none(), 1)]);
    }

    #[test]
    fn fewer_queries_than_keys() {
        check(&[head(2, 6, -0.4, &Mask::none(), 2)]);
        check(&[head(1, 5, 0.3, &Mask::causal(), 3)]);
    }

    #[test]
    fn each_head_has_its_own() {
        let mask = Mask::causal();
        check(&[
            head(5, 5, -2.0, &mask, 4),
            head(5, 5, 0.5, &mask, 5),
            head(3, 7, -1.0, &mask, 6),
        ]);
    }

    #[test]
    fn a_row_that_sees_nothing_is_silent() {
        let mask =
            Mask::padding(&[false, false, true, true]).unwrap().and(Mask::causal());
        check(&[head(4, 4, -0.5, &mask, 7)]);
    }

    #[test]
    fn the_same_gradient_everywhere_teaches_nothing() {
        let (mut head, _) = head(3, 5, -0.3, &Mask::causal(), 8);
        head.grad_weights.fill(2.0);
        let got = grad_log_slopes(&[head])[0];
        assert!(
            got.abs() < 1e-9,
            "all weights of a row have the same gradient, and they always sum to one, so nothing can be gained: the gradient is 0, not {got:.4}"
        );
    }
}
