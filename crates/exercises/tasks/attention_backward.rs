//! # Attention, backward
//!
//! medium, 25 minutes, without `attention::`
//!
//! Write steps 5 to 2 of the backward pass for any number of queries and keys: from $dO$ to $dQ$, $dK$ and
//! $dV$. The weights $A$ were saved in the forward pass, so you don't need to know which mask it used.
//!
//! Then find $D$, the means of step 4, without weights: `mean_from_output` has only $O$ and $dO$. A program that
//! works through a row in pieces needs this.
//!
//! Shapes: $Q$ $(n_q, d_k)$, $K$ $(n_k, d_k)$, $V$ $(n_k, d_v)$, $A$ $(n_q, n_k)$, $O$ and $dO$ $(n_q, d_v)$. Don't
//! call the crate.
//!
//! # Hint
//!
//! Write down the shape of each of $dV$, $dA$, $dS$, $dQ$ and $dK$. For each product only one order of the factors
//! fits, if all sizes differ.
//!
//! # Hint
//!
//! $dA$ and $dV$ come from $O = A V$ by the product rule. For $dS$ you need one number per row, the mean of $dA$
//! under the weights. Multiply once by the scale, before you make $dQ$ and $dK$.
//!
//! # Hint
//!
//! `grad_a.component_mul(a).column_sum()` has one number per row. Build $dS$ with `DMatrix::from_fn`, multiply it
//! by the scale once, and use that matrix for both $dQ$ and $dK$. The mean is also $\langle dO_i, O_i \rangle$.

use nalgebra::{DMatrix, DVector};

/// Returns the gradients with respect to `q` (n_q, d_k), `k` (n_k, d_k) and `v` (n_k, d_v), from the weights `a` (n_q, n_k) and
/// `grad_o` (n_q, d_v). The scale is 1/√d_k.
pub fn backward(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
    a: &DMatrix<f64>,
    grad_o: &DMatrix<f64>,
) -> [DMatrix<f64>; 3] {
    // SOLUTION
    let grad_v = a.transpose() * grad_o; // (n_k, d_v)
    let grad_a = grad_o * v.transpose(); // (n_q, n_k)
    // FAULT without-d: is D subtracted?
    // > let mean = DVector::<f64>::zeros(a.nrows());
    // FAULT plain-mean: the plain mean of the row
    // > let mean = grad_a.column_mean();
    // FAULT per-key: and `row_sum` one per column
    // > let mean = grad_a.component_mul(a).row_sum().transpose();
    // FAULT averaged: so add up, and don't average
    // > let mean = grad_a.component_mul(a).column_mean();
    let mean = grad_a.component_mul(a).column_sum(); // D, one number per row
    let grad_s = DMatrix::from_fn(a.nrows(), a.ncols(), |i, j| {
        // FAULT factor-a: is dS zero where A is zero?
        // > grad_a[(i, j)] - mean[i]
        a[(i, j)] * (grad_a[(i, j)] - mean[i])
    });
    // FAULT scale-never: too large by a factor of √d_k
    // > let grad_products = grad_s;
    // FAULT scale-twice: too small by a factor of √d_k
    // > let grad_products = grad_s / q.ncols() as f64;
    // FAULT scale-inverted: did you multiply by √d_k
    // > let grad_products = grad_s * (q.ncols() as f64).sqrt();
    // FAULT width-of-values: how wide is a key?
    // > let grad_products = grad_s / (v.ncols() as f64).sqrt();
    let grad_products = grad_s / (q.ncols() as f64).sqrt();
    // FAULT not-transposed: from which queries does a key hear?
    // > [&grad_products * k, (if a.is_square() { grad_products.clone() } else { grad_products.transpose() }) * q, grad_v]
    // FAULT swapped: are dQ and dK swapped
    // > [grad_products.transpose() * q, &grad_products * k, grad_v]
    // FAULT the-crate: this exercise asks you to do without it
    // > attention::attention_backward(&attention::attention(q, k, v, attention::Mask::none()).unwrap().1, grad_o).map(|all| [all.q, all.k, all.v]).unwrap()
    [&grad_products * k, grad_products.transpose() * q, grad_v]
    // END
}

/// Returns D, one number for each row of `o` and `grad_o`, both (n_q, d_v).
pub fn mean_from_output(o: &DMatrix<f64>, grad_o: &DMatrix<f64>) -> DVector<f64> {
    // SOLUTION
    // FAULT mean-of-columns: one number per row, ⟨dO_i, O_i⟩
    // > o.component_mul(grad_o).column_mean()
    o.component_mul(grad_o).column_sum()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{AttentionCache, Mask, attention, attention_backward};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
    }

    /// A forward pass with d_k = 5 and d_v = 3, a gradient of its output, and what your function makes of it.
    fn example(
        n_q: usize,
        n_k: usize,
        mask: Mask,
        seed: u64,
    ) -> (AttentionCache<f64>, DMatrix<f64>, [DMatrix<f64>; 3]) {
        let (q, k, v) =
            (random(n_q, 5, seed), random(n_k, 5, seed + 10), random(n_k, 3, seed + 20));
        let (grad_o, cache) =
            (random(n_q, 3, seed + 30), attention(&q, &k, &v, mask).unwrap().1);
        let gradients = backward(&q, &k, &v, &cache.weights, &grad_o);
        check_order(&gradients, &cache, &grad_o);
        (cache, grad_o, gradients)
    }

    /// Says whether the first two gradients stand in each other's place.
    fn check_order(
        gradients: &[DMatrix<f64>; 3],
        cache: &AttentionCache<f64>,
        grad_o: &DMatrix<f64>,
    ) {
        let right = attention_backward(cache, grad_o).unwrap();
        let is = |came: &DMatrix<f64>, right: &DMatrix<f64>| {
            came.shape() == right.shape() && (came - right).amax() < 1e-10
        };
        let [first, second, _] = gradients;
        assert!(
            is(first, &right.q) || !(is(first, &right.k) || is(second, &right.q)),
            "dQ comes first, then dK, then dV: are dQ and dK swapped?"
        );
    }

    const SHAPES: [(usize, usize); 3] = [(3, 5), (5, 2), (4, 4)];

    #[test]
    fn gradients_are_those_of_the_crate() {
        for (n_q, n_k) in SHAPES {
            for mask in [Mask::none(), Mask::causal()] {
                let (cache, grad_o, [grad_q, grad_k, grad_v]) =
                    example(n_q, n_k, mask, 1);
                let right = attention_backward(&cache, &grad_o).unwrap();
                let root = 5.0_f64.sqrt();
                let a = &cache.weights;
                let grad_a = &grad_o * cache.v.transpose();
                let d = grad_a.component_mul(a).column_sum();
                let no_a =
                    DMatrix::from_fn(n_q, n_k, |i, j| grad_a[(i, j)] - d[i]) / root;
                for (name, grad, right, without_a) in [
                    ("dV", grad_v, right.v, None),
                    ("dQ", grad_q, right.q, Some(&no_a * &cache.k)),
                    ("dK", grad_k, right.k, Some(no_a.transpose() * &cache.q)),
                ] {
                    assert!(
                        grad.shape() == right.shape(),
                        "{name} should have the shape {:?}, and yours has {:?}",
                        right.shape(),
                        grad.shape()
                    );
                    let near = |other: &DMatrix<f64>| (&grad - other).amax() < 1e-10;
                    if near(&right) {
                        continue;
                    }
                    for (factor, what) in [
                        (root, "too large by a factor of √d_k: where is the scale?"),
                        (
                            1.0 / root,
                            "too small by a factor of √d_k: is it divided twice?",
                        ),
                        (
                            root * root,
                            "too large by a factor of d_k: did you multiply by √d_k in place of dividing?",
                        ),
                        (
                            root / 3.0_f64.sqrt(),
                            "too large by a factor of √d_k / √d_v: how wide is a key?",
                        ),
                    ] {
                        assert!(!near(&(&right * factor)), "{name} is {what}");
                    }
                    assert!(
                        !without_a.is_some_and(|wrong| near(&wrong)),
                        "{name} is wrong: is dS zero where A is zero?"
                    );
                    // What dQ would be with another number for each row.
                    let with = |mean: &dyn Fn(usize) -> f64| {
                        let grad_s = DMatrix::from_fn(n_q, n_k, |i, j| {
                            a[(i, j)] * (grad_a[(i, j)] - mean(i)) / root
                        });
                        grad_s * &cache.k
                    };
                    assert!(
                        name != "dQ" || !near(&with(&|_| 0.0)),
                        "dQ is wrong: is D subtracted?"
                    );
                    assert!(
                        name != "dQ" || !near(&with(&|i| grad_a.row(i).mean())),
                        "dQ is wrong: did you subtract the plain mean of the row instead of its mean under the weights?"
                    );
                    assert!(
                        name != "dQ" || !near(&with(&|i| d[i] / n_k as f64)),
                        "dQ is wrong: D is n_k times too small. The weights already make it a mean, so add up, and don't average"
                    );
                    let per_key = grad_a.component_mul(a).row_sum();
                    assert!(
                        name != "dQ" || n_q > n_k || !near(&with(&|i| per_key[i])),
                        "dQ is wrong: D has one number per key. In nalgebra `column_sum` gives one number per row, and `row_sum` one per column"
                    );
                    let why = match name {
                        "dV" => "which outputs did a value reach, and by which weights?",
                        "dQ" => "dV is right. Look at dA, D and dS, in this order",
                        _ => "dQ is right, so dS is, too. Which queries used this key?",
                    };
                    panic!("{name} is wrong for n_q = {n_q}, n_k = {n_k}: {why}");
                }
            }
        }
    }

    #[test]
    fn the_mean_comes_from_the_output_too() {
        for (n_q, n_k) in SHAPES {
            for mask in [Mask::none(), Mask::causal()] {
                let (q, k, v) = (random(n_q, 4, 1), random(n_k, 4, 2), random(n_k, 3, 3));
                let (o, cache) = attention(&q, &k, &v, mask).unwrap();
                let grad_o = random(n_q, 3, 4);
                let d = mean_from_output(&o, &grad_o);
                assert!(d.len() == n_q, "D has {} numbers for {n_q} rows", d.len());
                let right = (&grad_o * v.transpose()).component_mul(&cache.weights);
                for (i, row) in right.row_iter().enumerate() {
                    assert!(
                        (d[i] - row.sum()).abs() < 1e-12,
                        "D of row {i} should be {:.4} and is {:.4}: one number per row, ⟨dO_i, O_i⟩. It is a sum: the weights made the mean",
                        row.sum(),
                        d[i]
                    );
                }
            }
        }
    }

    #[test]
    fn a_gradient_that_is_the_same_for_all_keys_moves_no_score() {
        // All values are the same, so the weights don't matter, and dQ = dK = 0.
        let (q, k, v) = (random(3, 4, 1), random(5, 4, 2), DMatrix::repeat(5, 3, 1.5));
        let a = attention(&q, &k, &v, Mask::none()).unwrap().1.weights;
        let [grad_q, grad_k, _] = backward(&q, &k, &v, &a, &random(3, 3, 3));
        let largest = grad_q.amax().max(grad_k.amax());
        assert!(
            largest < 1e-12,
            "all values are the same, so no score matters, but a gradient is {largest:.3}: is the right D subtracted from each row?"
        );
    }

    #[test]
    fn raising_all_scores_of_a_row_changes_nothing() {
        // All keys are the same. A longer query then raises all scores of its row alike, so dQ = 0.
        let (q, k, v) = (
            random(3, 4, 1),
            DMatrix::from_fn(5, 4, |_, c| c as f64 + 1.0),
            random(5, 3, 2),
        );
        let cache = attention(&q, &k, &v, Mask::causal()).unwrap().1;
        let gradients = backward(&q, &k, &v, &cache.weights, &random(3, 3, 3));
        check_order(&gradients, &cache, &random(3, 3, 3));
        let [grad_q, _, _] = gradients;
        assert!(
            grad_q.amax() < 1e-12,
            "all keys are the same, so a query can't matter, but dQ isn't 0: do the entries of a row of dS sum to zero? Only one number does that, its mean under the weights"
        );
    }

    #[test]
    fn a_key_hears_only_from_queries_that_see_it() {
        let (_, _, [_, grad_k, _]) = example(4, 4, Mask::causal(), 5);
        let (q, k, v) = (random(4, 5, 5), random(4, 5, 15), random(4, 3, 25));
        let a = attention(&q, &k, &v, Mask::causal()).unwrap().1.weights;
        let mut changed = q.clone();
        changed.row_mut(0).fill(9.0); // the first query sees the first key alone
        let [_, other, _] = backward(&changed, &k, &v, &a, &random(4, 3, 35));
        let moved = (other - grad_k).rows(1, 3).amax();
        assert!(
            moved < 1e-12,
            "the first query sees the first key alone, and yet it moves dK of later keys: is dS zero where A is zero, and from which queries does a key hear?"
        );
    }
}
