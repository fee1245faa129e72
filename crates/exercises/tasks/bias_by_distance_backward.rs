//! # Slopes that learn
//!
//! hard, 45 minutes
//!
//! Could a model learn ALiBi's slopes? Then it needs their gradients. A slope stays positive if the parameter is its
//! logarithm $u$, with the slope $m = e^u$.
//!
//! The biased scores are $S'_{ij} = S_{ij} - e^u\,|\delta_{ij}|$, with the distance $\delta_{ij}$ from query to key, and
//! the weights $A = \operatorname{softmax}(S' + M)$. For each head you get $u$, $A$ and the gradient with respect to
//! $A$, both $(n_q, n_k)$. Return the gradient with respect to each $u$. The last query stands at the last key. Hidden
//! pairs have a weight of 0. There may be no mask; then $\delta_{ij}$ can be negative.
//!
//! You need only the backward pass of softmax, row by row; $dS'$ stands for $\partial\mathcal{L}/\partial S'$.
//!
//! # Hint
//!
//! How does one weight answer to one biased score? *Backward in six steps* has the gradient with respect to scores, $dS'$, of a whole
//! row. You only have to do it for every row.
//!
//! # Hint
//!
//! One slope enters every score of its head. So by the chain rule its gradient is a sum over all pairs. What is
//! $\partial S'_{ij} / \partial u$?
//!
//! # Hint
//!
//! One sum for each head, in two loops. Query $i$ stands at the position $i + n_k - n_q$. To check by hand, take one
//! query, two keys and $u = 0$. Then take $u = 1$: by which factor should the result change, if $A$ stays the same?

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
                // FAULT of-weights: with respect to A
                // > let grad_score = grad_weights[(i, j)];
                let grad_score = weights[(i, j)] * (grad_weights[(i, j)] - average);
                // FAULT signed: with its sign
                // > let distance = (i + n_k) as f64 - (n_q + j) as f64;
                // FAULT ahead: count as distance 0
                // > let distance = (i + n_k).saturating_sub(n_q + j) as f64;
                // FAULT corner: counted from the first key
                // > let distance = (i as f64 - j as f64).abs();
                let distance = ((i + n_k) as f64 - (n_q + j) as f64).abs();
                // FAULT sign: has the other sign
                // > grad_slope += distance * grad_score;
                grad_slope -= distance * grad_score;
            }
        }
        // FAULT factor-u: the factor is u
        // > grad_slope * log_slope
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
        let Head { log_slope, weights, grad_weights } = head;
        let (n_q, n_k) = weights.shape();
        let m = log_slope.exp();
        // With this distance at i - j, and the gradient with respect to S' as A (dA − share · D).
        let sum = |distance: &dyn Fn(f64) -> f64, offset: f64, share: f64| -> f64 {
            let term = |i: usize, j: usize| {
                let average = weights.row(i).dot(&grad_weights.row(i));
                let grad = weights[(i, j)] * (grad_weights[(i, j)] - share * average);
                -m * distance(i as f64 + offset - j as f64) * grad
            };
            (0..n_q).flat_map(|i| (0..n_k).map(move |j| term(i, j))).sum()
        };
        let offset = n_k as f64 - n_q as f64;
        let of_weights = DMatrix::from_fn(n_q, n_k, |i, j| {
            -m * (i as f64 + offset - j as f64).abs() * grad_weights[(i, j)]
        });
        [
            (-right, "it has the other sign: does a larger slope raise scores?"),
            (right / m, "this is the gradient with respect to the slope itself, not to its logarithm"),
            (right / m * log_slope, "the factor is u where it should be eᵘ"),
            (right / n_q as f64, "this is a mean over the queries, and a sum is asked for"),
            (sum(&f64::abs, offset, 0.0), "this is what you get without the average of each row"),
            (of_weights.sum(), "you took the gradient with respect to A for that with respect to S'"),
            (sum(&|it| it, offset, 1.0), "the distance is counted with its sign: a key ahead is far away, too"),
            (sum(&|it| it.max(0.0), offset, 1.0), "keys ahead of the query count as distance 0, and there is no mask"),
            (sum(&f64::abs, 0.0, 1.0), "this is what you get if a query's position is counted from the first key"),
        ]
        .into_iter()
        .find(|(wrong, _)| (got - wrong).abs() < 1e-6)
        .map_or("no slip that we know: check with one query and two keys, by hand", |(_, what)| what)
    }

    fn check(heads: &[(Head, f64)]) {
        let got = grad_log_slopes(
            &heads.iter().map(|(head, _)| head.clone()).collect::<Vec<_>>(),
        );
        assert!(
            got.len() == heads.len(),
            "you return {} gradients for {} heads",
            got.len(),
            heads.len()
        );
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
