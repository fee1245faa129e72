//! # Merge two parts
//!
//! medium, 20 minutes
//!
//! Two machines hold different keys of one long text. Each has computed attention of the same queries over its own
//! keys, and sends only its output and its log-sum-exps. Put them together, as if one machine had seen all keys. This is how machines share a text that none of them could hold alone.
//!
//! A part is an output $(n_q, d_v)$ and a vector of $n_q$ log-sum-exps. Return the part of the union of the keys, so
//! that a third part can be merged with it.
//!
//! A query may have seen nothing in a part. Then its row is zeros and its log-sum-exp is $-\infty$. It may have seen
//! nothing in both. Log-sum-exps may be in the thousands.
//!
//! # Hint
//!
//! One machine has seen a thousand keys, the other three. Which sum, known to each machine, tells how much its output
//! should count?
//!
//! # Hint
//!
//! Each query has two factors, $e^{L_1 - L}$ and $e^{L_2 - L}$, which sum to 1. $L$ is the log-sum-exp of $L_1$ and
//! $L_2$: subtract the larger one before you exponentiate.
//!
//! # Hint
//!
//! For each row: `m = l_1.max(l_2)`. If that is $-\infty$, leave the row at zeros. Otherwise
//! `sum = (l_1 - m).exp() + (l_2 - m).exp()`, and $L$ is `m + sum.ln()`.

use nalgebra::{DMatrix, DVector};

/// Attention over some of the keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The output over these keys, (n_q, d_v).
    pub output: DMatrix<f64>,
    /// The log-sum-exp of each query's scores, n_q numbers.
    pub log_sum_exp: DVector<f64>,
}

/// Merges two parts over different keys into the part over all of them.
pub fn merge(first: &Part, second: &Part) -> Part {
    // SOLUTION
    let (n_q, d_v) = first.output.shape();
    let mut output = DMatrix::zeros(n_q, d_v);
    let mut log_sum_exp = DVector::from_element(n_q, f64::NEG_INFINITY);
    for i in 0..n_q {
        let (l_1, l_2) = (first.log_sum_exp[i], second.log_sum_exp[i]);
        // FAULT overflow: e to the power of a thousand
        // > let max = if l_1.max(l_2) == f64::NEG_INFINITY { l_1 } else { 0.0 };
        // FAULT first-part: the larger of the row's two
        // > let max = if l_1.max(l_2) == f64::NEG_INFINITY { l_1.max(l_2) } else { l_1 };
        // FAULT smaller: the larger of the row's two
        // > let max = if l_1.min(l_2).is_finite() { l_1.min(l_2) } else { l_1.max(l_2) };
        // FAULT mean: the larger of the row's two
        // > let max = if l_1.min(l_2).is_finite() { (l_1 + l_2) / 2.0 } else { l_1.max(l_2) };
        // FAULT from-zero: e to the power of −2000 is 0
        // > let max = if l_1.max(l_2) == f64::NEG_INFINITY { l_1 } else { l_1.max(l_2).max(0.0) };
        // FAULT one-for-all: a maximum of its own
        // > let max = if l_1.max(l_2) == f64::NEG_INFINITY { l_1 } else { first.log_sum_exp.max().max(second.log_sum_exp.max()) };
        let max = l_1.max(l_2);
        // FAULT empty-with-empty: −∞ − (−∞) is NaN
        // > if false {
        if max == f64::NEG_INFINITY {
            continue;
        }
        log_sum_exp[i] = max + ((l_1 - max).exp() + (l_2 - max).exp()).ln();
        // FAULT half-and-half: more keys, or larger scores, count more
        // > let [a, b] = [0.5, 0.5];
        let [a, b] = [l_1, l_2].map(|l| (l - log_sum_exp[i]).exp());
        output.set_row(i, &(first.output.row(i) * a + second.output.row(i) * b));
    }
    // FAULT larger-only: for the next merge
    // > log_sum_exp = first.log_sum_exp.zip_map(&second.log_sum_exp, f64::max);
    // > Part { output, log_sum_exp }
    Part { output, log_sum_exp }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::{DMatrix, DVector, dmatrix, dvector};
    use std::ops::Range;

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// What a machine with these keys finds. Query 1 sees even keys only.
    fn part(scale: f64, keys: Range<usize>) -> Part {
        let (q, k, v) = (draw(4, 3, 0) * scale, draw(9, 3, 1) * scale, draw(9, 2, 2));
        let allowed = DMatrix::from_fn(4, keys.len(), |i, j| {
            i != 1 || (keys.start + j).is_multiple_of(2)
        });
        let (keys, values) = (k.rows_range(keys.clone()), v.rows_range(keys));
        let (output, cache) =
            attention(&q, keys, values, Mask::dense(allowed).unwrap()).unwrap();
        Part { output, log_sum_exp: cache.log_sum_exp }
    }

    fn compare(came: &Part, right: &Part, what: &str, question: &str) {
        let off = (&came.output - &right.output).amax();
        assert!(off < 1e-12, "{what}: the output is off by {off:.2e}: {question}");
        for (i, (came, right)) in
            came.log_sum_exp.iter().zip(right.log_sum_exp.iter()).enumerate()
        {
            assert!(
                came == right || (came - right).abs() < 1e-10,
                "{what}: log-sum-exp {i} should be {right:.4} and is {came:.4}: it counts all keys, for the next merge"
            );
        }
    }

    #[test]
    fn two_parts_make_the_whole() {
        for cut in [1, 4, 8] {
            let merged = merge(&part(1.0, 0..cut), &part(1.0, cut..9));
            compare(
                &merged,
                &part(1.0, 0..9),
                &format!("{cut} keys and {} keys", 9 - cut),
                "more keys, or larger scores, count more",
            );
        }
    }

    #[test]
    fn three_parts_merge_in_any_order() {
        let [a, b, c] = [0..2, 2..3, 3..9].map(|keys| part(1.0, keys));
        for merged in [
            merge(&merge(&a, &b), &c),
            merge(&a, &merge(&b, &c)),
            merge(&merge(&c, &a), &b),
        ] {
            compare(
                &merged,
                &part(1.0, 0..9),
                "three parts",
                "is the log-sum-exp of the first two right?",
            );
        }
    }

    #[test]
    fn large_scores_do_not_overflow() {
        // Rows with these log-sum-exps; the first part has outputs of 1, the second of 3.
        let check = |rows: &[(f64, f64)], question: &str| {
            let n_q = rows.len();
            let made = |number: f64, l: Vec<f64>| Part {
                output: DMatrix::repeat(n_q, 1, number),
                log_sum_exp: DVector::from_vec(l),
            };
            let (l_1, l_2) = rows.iter().copied().unzip();
            let merged = merge(&made(1.0, l_1), &made(3.0, l_2));
            for (i, (l_1, l_2)) in rows.iter().enumerate() {
                let larger = l_1.max(*l_2);
                let l = larger + (-(l_1 - l_2).abs()).exp().ln_1p();
                let right = (l_1 - l).exp() + 3.0 * (l_2 - l).exp();
                let (came, output) = (merged.log_sum_exp[i], merged.output[i]);
                let question = if came.is_finite() && output.is_finite() {
                    "more keys, or larger scores, count more"
                } else {
                    question
                };
                assert!(
                    (came - l).abs() < 1e-9 && (output - right).abs() < 1e-9,
                    "log-sum-exps of {l_1} and {l_2}, outputs of 1 and 3: merged, the log-sum-exp should be {l:.3} and is {came:.3}, and the output {right:.3}, and is {output:.3}: {question}"
                );
            }
        };
        check(
            &[(2000.0, 1999.0)],
            "e to the power of a thousand is too large for an f64",
        );
        check(
            &[(-2000.0, -2001.0)],
            "e to the power of −2000 is 0 in an f64. Which of the two do you subtract?",
        );
        for row in [(-2000.0, 2000.0), (2000.0, -2000.0)] {
            check(&[row], "do you subtract the larger of the row's two?");
        }
        check(
            &[(2000.0, 1999.0), (-2000.0, -2001.0), (2.0, 3.0)],
            "alone, each of these rows is right. Does each have a maximum of its own?",
        );
        let merged = merge(&part(60.0, 0..4), &part(60.0, 4..9));
        compare(
            &merged,
            &part(60.0, 0..9),
            "large scores",
            "more keys, or larger scores, count more",
        );
    }

    #[test]
    fn an_empty_part_changes_nothing() {
        let nothing = f64::NEG_INFINITY;
        let empty = Part {
            output: DMatrix::zeros(2, 2),
            log_sum_exp: DVector::from_element(2, nothing),
        };
        let half = Part {
            output: dmatrix![3.0, 4.0; 0.0, 0.0],
            log_sum_exp: dvector![-2000.0, nothing],
        };
        for merged in [
            merge(&empty, &half),
            merge(&half, &empty),
            merge(&merge(&empty, &empty), &half),
        ] {
            assert!(
                !merged.output.row(1).iter().any(|x| x.is_nan()),
                "a query that saw nothing in both parts gets NaN: −∞ − (−∞) is NaN"
            );
            assert!(merged == half, "merged with an empty part, a part stays as it is");
        }
    }
}
