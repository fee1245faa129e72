//! # How near is near enough?
//!
//! medium, 20 minutes
//!
//! Two programs add the same `f32` numbers in different orders and get different last digits. A test must forgive that, and nothing else.
//!
//! Rounding changes a result by at most a fraction $u$ of it, and $u = 2^{-24}$ for `f32`. A sum of $n$
//! terms has $n - 1$ additions. No partial sum, in any order, exceeds $\sum_i |x_i|$. So how far can rounding move
//! the sum?
//!
//! Write that bound, and a check that uses it: can `found` be the sum of `terms`, added in some order? For the sum
//! itself, trust `f64`.
//!
//! Then do the same for an entry of attention's output, an average of values by weights. Products are rounded, too:
//! count $n$ roundings.
//!
//! # Hint
//!
//! Add 10,000, 1 and −10,000. Is the rounding in proportion to the result, or to what was added on the way?
//!
//! # Hint
//!
//! Each addition is off by at most $u$ times its partial sum. Replace every partial sum by the largest that it
//! could be, and add up. What if the result is NaN?
//!
//! # Hint
//!
//! The bound is $(n - 1)\, u \sum_i |x_i|$, computed in `f64`. The check is one comparison, which is false for NaN
//! if it is written with `<=`. For an average the terms are weight times value, and $\sum_i |x_i|$ is that of their
//! products.

/// Half the gap between 1 and the next larger `f32`.
pub const U: f64 = 1.0 / 16_777_216.0;

/// Returns by how much rounding can move a sum of `terms` in `f32`, at most (up to terms of the order of u²).
pub fn rounding_of_sum(terms: &[f32]) -> f64 {
    // SOLUTION
    // FAULT of-the-result: in proportion to the result
    // > let size = terms.iter().map(|&x| f64::from(x)).sum::<f64>().abs();
    let size: f64 = terms.iter().map(|&x| f64::from(x).abs()).sum();
    // FAULT one-rounding: every addition rounds
    // > U * size
    (terms.len() as f64 - 1.0) * U * size
    // END
}

/// Returns whether `found` can be the sum of `terms`, added up in `f32` in some order.
pub fn is_sum(found: f32, terms: &[f32]) -> bool {
    // SOLUTION
    let right: f64 = terms.iter().map(|&x| f64::from(x)).sum();
    // FAULT fixed: one tolerance for all sizes
    // > (f64::from(found) - right).abs() <= 1e-5
    // FAULT nan-passes: NaN isn't a sum
    // > !((f64::from(found) - right).abs() > rounding_of_sum(terms))
    (f64::from(found) - right).abs() <= rounding_of_sum(terms)
    // END
}

/// Returns whether `found` can be the average of `values` by `weights`, computed in `f32` in some order.
pub fn is_average(found: f32, weights: &[f32], values: &[f32]) -> bool {
    // SOLUTION
    let terms = || weights.iter().zip(values).map(|(&w, &v)| f64::from(w) * f64::from(v));
    // FAULT largest-value: an average of small weights
    // > let size = values.iter().map(|&v| f64::from(v).abs()).sum::<f64>();
    let size: f64 = terms().map(f64::abs).sum();
    (f64::from(found) - terms().sum::<f64>()).abs() <= values.len() as f64 * U * size
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn random(n: usize, size: f32, seed: u64) -> Vec<f32> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        (0..n).map(|_| size * rng.random_range(-1.0_f32..1.0)).collect()
    }

    fn sorted(mut terms: Vec<f32>) -> Vec<f32> {
        terms.sort_by(f32::total_cmp);
        terms
    }

    #[test]
    fn the_bound_is_that_of_all_partial_sums() {
        let bound = rounding_of_sum(&[3.0, -4.0, 1.0]) / U;
        assert!(
            bound > 1e-9,
            "3 − 4 + 1 is 0, and your bound, too. Rounding isn't in proportion to the result"
        );
        assert!(
            (bound - 8.0).abs() > 1e-9,
            "three numbers take two additions, and every addition rounds"
        );
        assert!(
            (bound - 16.0).abs() < 1e-9,
            "for 3, −4 and 1 the bound is a multiple of u, but not {bound:.2} u: count every addition, at its worst, and note that f32::EPSILON is 2u"
        );
        assert!(
            rounding_of_sum(&[5.0]) == 0.0,
            "a single number isn't added to anything; yours is {:?}, expected {:?}",
            rounding_of_sum(&[5.0]),
            0.0
        );
    }

    #[test]
    fn any_order_is_accepted() {
        for (seed, n) in [2, 10, 300, 5000].into_iter().enumerate() {
            for size in [1e-6, 1.0, 1e6] {
                let terms = random(n, size, seed as u64);
                let orders = [
                    terms.clone(),
                    terms.iter().rev().copied().collect(),
                    sorted(terms.clone()),
                ];
                for order in orders {
                    let found = order.iter().sum();
                    assert!(
                        is_sum(found, &terms),
                        "{n} terms as large as {size:e}, added in another order, and you reject the sum {found:e}. Is there one tolerance for all sizes?"
                    );
                }
            }
        }
        // Terms that cancel: sorted, the sum is far from zero on its way.
        let mut terms = random(1000, 1e4, 9);
        let mirrored: Vec<f32> = terms.iter().map(|x| -x).collect();
        terms.extend(mirrored);
        let found = sorted(terms.clone()).iter().sum();
        assert!(
            is_sum(found, &terms),
            "terms that cancel leave {found:e} in one order, and 0 in another: rounding isn't in proportion to the result"
        );
    }

    #[test]
    fn faults_are_rejected() {
        for size in [1e-6, 1.0, 1e6] {
            for n in [2, 10, 300] {
                let terms: Vec<f32> =
                    random(n, size, 20).iter().map(|x| x.abs() + size).collect();
                let missing: f32 = terms[1..].iter().sum();
                assert!(
                    !is_sum(missing, &terms),
                    "the first of {n} terms, each as large as {size:e}, is missing, and you accept the sum. Is there one tolerance for all sizes?"
                );
            }
        }
        for wrong in [f32::NAN, f32::INFINITY] {
            assert!(
                !is_sum(wrong, &[1.0, 2.0])
                    && !is_average(wrong, &[0.5, 0.5], &[1.0, 2.0]),
                "you accept {wrong}: NaN isn't a sum, and infinity neither"
            );
        }
    }

    #[test]
    fn averages_of_attention() {
        for (seed, n) in [2, 50, 2000].into_iter().enumerate() {
            let values: Vec<f32> =
                random(n, 3.0, 30 + seed as u64).iter().map(|v| v + 5.0).collect();
            let raw: Vec<f32> =
                random(n, 1.0, 40 + seed as u64).iter().map(|w| w.exp()).collect();
            let weights: Vec<f32> =
                raw.iter().map(|w| w / raw.iter().sum::<f32>()).collect();
            let products = || weights.iter().zip(&values).map(|(w, v)| w * v);
            let backwards: f32 = products().rev().sum();
            assert!(
                is_average(products().sum(), &weights, &values)
                    && is_average(backwards, &weights, &values),
                "you reject an average of {n} values that was only rounded"
            );
            let wrong: f32 = products().skip(1).sum();
            assert!(
                !is_average(wrong, &weights, &values),
                "one of {n} values is missing, and you accept the average: an average of small weights is rounded by little"
            );
        }
    }
}
