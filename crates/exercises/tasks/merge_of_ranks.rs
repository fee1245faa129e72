//! # Merge what the ranks found
//!
//! medium, 20 minutes, without `attention::`
//!
//! A **rank** is a process with memory of its own. Each rank attends to the keys that it holds and to no others. How do the ranks' results
//! become attention over all keys?
//!
//! From every rank you get two things. Its *output* $(n_q, d_v)$ is, for each query, the average of this rank's values under a softmax over
//! this rank's scores. Its *log-sum-exp* $(n_q)$ is the logarithm of the sum that this softmax divided by. No key belongs to two
//! ranks. Return the output and the log-sum-exp over the keys of all ranks. Two promises:
//!
//! - A query may see none of a rank's keys. The rank's log-sum-exp for it is $-\infty$, and the rank's output for it, any finite
//!   numbers, counts nothing. A query that sees no key on any rank gets zeros and $-\infty$.
//! - Log-sum-exps may have any finite size.
//!
//! # Hint
//!
//! Write $Z_r$ for the sum of exponentials on rank $r$, and $o_r$ for its output. What is $Z_r \cdot o_r$? And what is the sum
//! of exponentials over all keys?
//!
//! # Hint
//!
//! The output is the average of the $o_r$ with weights $Z_r = e^{L_r}$, where $L_r$ is the log-sum-exp. That is a softmax over the ranks, and
//! it overflows as any softmax does. What do you subtract first, and what is left to subtract if each $L_r$ is $-\infty$?
//!
//! # Hint
//!
//! For each query: if all $L_r$ are $-\infty$, go on to the next one. Otherwise let $m$ be the largest $L_r$. Add up the weights $e^{L_r - m}$,
//! and the outputs times their weights. Divide the second sum by the first. The new log-sum-exp is $m$ plus the logarithm of the
//! first sum.

use nalgebra::{DMatrix, DVector};

/// Attention over some of the keys.
#[derive(Debug, Clone)]
pub struct Partial {
    /// The output of each query (n_q, d_v).
    pub output: DMatrix<f64>,
    /// The log-sum-exp of each query's scores (n_q); −∞ if it sees none of the keys.
    pub log_sum_exp: DVector<f64>,
}

/// Merges the results of all ranks, at least one, into attention over all keys.
pub fn merge(parts: &[Partial]) -> Partial {
    // SOLUTION
    let (n_q, d_v) = parts[0].output.shape();
    let mut output = DMatrix::zeros(n_q, d_v);
    let mut log_sum_exp = DVector::repeat(n_q, f64::NEG_INFINITY);
    for i in 0..n_q {
        // FAULT nothing-seen: −∞ − (−∞) is NaN
        // > if false {
        if parts.iter().all(|part| part.log_sum_exp[i] == f64::NEG_INFINITY) {
            continue;
        }
        let each = parts.iter().map(|part| part.log_sum_exp[i]);
        // FAULT not-subtracted: subtract the largest log-sum-exp
        // > let largest = 0.0;
        // FAULT one-for-all: does each query subtract a largest of its own
        // > let largest = parts.iter().map(|part| part.log_sum_exp.max()).fold(f64::NEG_INFINITY, f64::max);
        let largest = each.fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        let mut row = output.row_mut(i);
        for part in parts {
            // FAULT plain-mean: the plain mean of the ranks' outputs
            // > let weight = 1.0;
            let weight = (part.log_sum_exp[i] - largest).exp(); // exp(−∞) is 0
            sum += weight;
            row += part.output.row(i) * weight;
        }
        row /= sum;
        // FAULT sum-of-logarithms: add exponentials, not logarithms
        // > log_sum_exp[i] = parts.iter().map(|part| part.log_sum_exp[i]).sum();
        // FAULT largest-left-out: add the largest to the logarithm of the sum
        // > log_sum_exp[i] = sum.ln();
        log_sum_exp[i] = largest + sum.ln();
    }
    Partial { output, log_sum_exp }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::{DMatrix, DVector};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};
    use std::ops::Range;

    const HIDDEN: f64 = f64::NEG_INFINITY;

    /// What a rank found for two queries and values of width 1.
    fn found(output: [f64; 2], log_sum_exp: [f64; 2]) -> Partial {
        Partial {
            output: DMatrix::from_column_slice(2, 1, &output),
            log_sum_exp: DVector::from_row_slice(&log_sum_exp),
        }
    }

    fn close(a: f64, b: f64) -> bool {
        a == b || (a - b).abs() < 1e-9 * b.abs().max(1.0) // false for NaN
    }

    /// Compares with the output and the log-sum-exp that are right.
    fn compare(parts: &[Partial], right: &Partial, question: &str) {
        let merged = merge(parts);
        let ranks = parts.len();
        assert!(
            merged.output.shape() == right.output.shape()
                && merged.log_sum_exp.len() == right.log_sum_exp.len(),
            "{ranks} ranks: the output has the shape {:?} and there are {} log-sum-exps, expected {:?} and {}",
            merged.output.shape(),
            merged.log_sum_exp.len(),
            right.output.shape(),
            right.log_sum_exp.len()
        );
        for i in 0..right.log_sum_exp.len() {
            let said: Vec<_> = parts.iter().map(|part| part.log_sum_exp[i]).collect();
            let (yours, expected) = (merged.output.row(i), right.output.row(i));
            assert!(
                yours.iter().zip(expected.iter()).all(|(a, b)| close(*a, *b)),
                "query {i}, log-sum-exps {said:.3?}: the output should be {:.4?} and is {:.4?}: {question}",
                expected.iter().collect::<Vec<_>>(),
                yours.iter().collect::<Vec<_>>()
            );
            let (yours, expected) = (merged.log_sum_exp[i], right.log_sum_exp[i]);
            let largest = said.iter().copied().fold(HIDDEN, f64::max);
            let why = if close(yours, said.iter().sum()) {
                "yours is the sum of the log-sum-exps: add exponentials, not logarithms"
            } else if close(yours, expected - largest) {
                "add the largest to the logarithm of the sum"
            } else {
                "it is the logarithm of a sum of exponentials"
            };
            assert!(
                close(yours, expected),
                "query {i}, log-sum-exps {said:.3?}: merged it should be {expected:.4} and is {yours:.4}: {why}"
            );
        }
    }

    #[test]
    fn two_ranks_by_hand() {
        let [one, three] = [1.0_f64.ln(), 3.0_f64.ln()];
        let parts = [found([0.0, 8.0], [one, three]), found([4.0, 0.0], [three, three])];
        let came = merge(&parts);
        assert!(
            !close(came.output[0], 2.0),
            "sums of 1 and 3, outputs of 0 and 4: yours is the plain mean of the ranks' outputs, 2. The second rank's keys have three quarters of the weight"
        );
        let right = found([3.0, 4.0], [4.0_f64.ln(), 6.0_f64.ln()]);
        compare(
            &parts,
            &right,
            "a rank's weight is its share of the sum of exponentials",
        );
        compare(&parts[..1], &parts[0], "one rank has all keys, so nothing changes");
    }

    /// What a rank that holds these keys finds under a causal mask, key by key.
    fn rank(x: [&DMatrix<f64>; 3], keys: Range<usize>) -> Partial {
        let [q, k, v] = x;
        let mut part = Partial {
            output: DMatrix::repeat(q.nrows(), v.ncols(), 77.0),
            log_sum_exp: DVector::repeat(q.nrows(), HIDDEN),
        };
        for i in 0..q.nrows() {
            let seen: Vec<_> = keys.clone().filter(|j| *j <= i).collect();
            if !seen.is_empty() {
                let exponential = |j: usize| {
                    (q.row(i).dot(&k.row(j)) / (q.ncols() as f64).sqrt()).exp()
                };
                let sum: f64 = seen.iter().map(|j| exponential(*j)).sum();
                for c in 0..v.ncols() {
                    let values = seen.iter().map(|j| exponential(*j) * v[(*j, c)]);
                    part.output[(i, c)] = values.sum::<f64>() / sum;
                }
                part.log_sum_exp[i] = sum.ln();
            }
        }
        part
    }

    #[test]
    fn the_merge_is_attention_over_all_keys() {
        let rng = &mut ChaCha8Rng::seed_from_u64(7);
        let mut draw = |d| DMatrix::from_fn(9, d, |_, _| StandardNormal.sample(rng));
        let (q, k, v) = (draw(4), draw(4), draw(3));
        let (output, cache) = attention(&q, &k, &v, Mask::causal()).unwrap();
        let whole = Partial { output, log_sum_exp: cache.log_sum_exp };
        for cuts in [vec![0, 9], vec![0, 4, 9], vec![0, 2, 3, 9], vec![0, 1, 4, 6, 8, 9]]
        {
            let parts: Vec<_> = cuts
                .windows(2)
                .map(|ends| rank([&q, &k, &v], ends[0]..ends[1]))
                .collect();
            let question = format!(
                "keys cut at {cuts:?}, a causal mask: a rank's weight is its share of the sum of exponentials, and a rank that says −∞ has none"
            );
            compare(&parts, &whole, &question);
        }
    }

    #[test]
    fn large_log_sum_exps_stay_finite() {
        for far in [1000.0, -1000.0] {
            let parts = [found([1.0; 2], [far; 2]), found([3.0; 2], [far; 2])];
            let question = "exp(1000) overflows and exp(−1000) is 0: subtract the largest log-sum-exp first";
            compare(&parts, &found([2.0; 2], [far + 2.0_f64.ln(); 2]), question);
        }
        let both = [1000.0, -1000.0];
        let parts = [found([1.0; 2], both), found([3.0; 2], both)];
        let right = found([2.0; 2], both.map(|it| it + 2.0_f64.ln()));
        let question = "one query has large ones, another small ones: does each query subtract a largest of its own?";
        compare(&parts, &right, question);
        let parts = [found([1.0; 2], both), found([3.0; 2], [-1000.0, 1000.0])];
        let question = "far apart: the rank with the larger one has all the weight";
        compare(&parts, &found([1.0, 3.0], [1000.0; 2]), question);
    }

    #[test]
    fn a_rank_without_visible_keys_counts_nothing() {
        let parts =
            [found([5.0, 6.0], [HIDDEN, 2.0]), found([7.0, -1e300], [1.0, HIDDEN])];
        let question =
            "a rank that says −∞ counts nothing, and the other one is the answer";
        compare(&parts, &found([7.0, 6.0], [1.0, 2.0]), question);
        let parts =
            [found([5.0, 6.0], [HIDDEN, 2.0]), found([7.0, 6.0], [HIDDEN, HIDDEN])];
        let question =
            "no rank has a key that this query sees, so it gets zeros: −∞ − (−∞) is NaN";
        compare(&parts, &found([0.0, 6.0], [HIDDEN, 2.0]), question);
    }
}
