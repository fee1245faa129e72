//! # Memory that grows linearly
//!
//! medium, 30 minutes, without `attention::`
//!
//! The obvious program stores a matrix of $n^2$ weights. But an output row needs only its own row of weights. Compute
//! causal attention one query at a time, so that four times the tokens take four times the memory.
//!
//! `q` is $(n_q, d)$, `k` is $(n_k, d)$, `v` is $(n_k, d_v)$, and the output is $(n_q, d_v)$. As in *Decoding*, the last
//! query stands at the last key, and a query that sees nothing gets zeros. Scores may be in the thousands. Don't call the
//! crate.
//!
//! An allocator counts your bytes. Besides the output, the function may hold as many numbers as four rows of scores. It
//! should also ask for memory as often for a long text as for a short one.
//!
//! # Hint
//!
//! What does query $i$ need of the other queries? Which key is the last one that it sees, if $n_q$ and $n_k$ differ?
//!
//! # Hint
//!
//! One vector of $n_k$ numbers, allocated before the loop, can serve all queries: first it holds the scores of a row,
//! then their exponentials. Operators of nalgebra that return a new matrix or vector allocate it. Unsigned numbers
//! can't be negative, so `i + 1 - n_q` panics before you add `n_k`.
//!
//! # Hint
//!
//! Query $i$ sees `seen = (i + 1 + n_k).saturating_sub(n_q)` keys. For each $j$ below `seen`, set `weights[j]` to the
//! scaled `q.row(i).dot(&k.row(j))`. Find the largest of these `seen`, exponentiate, sum. Then add `weights[j] * v[(j, c)]` to
//! `output[(i, c)]` in two plain loops.

use nalgebra::{DMatrix, DVector};

/// Causal attention, one query at a time.
///
/// Shapes: `q` (n_q, d), `k` (n_k, d), `v` (n_k, d_v) → (n_q, d_v).
pub fn attention_by_rows(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
) -> DMatrix<f64> {
    // SOLUTION
    let (n_q, n_k, d_v) = (q.nrows(), k.nrows(), v.ncols());
    let scale = 1.0 / (q.ncols() as f64).sqrt();
    let mut output = DMatrix::zeros(n_q, d_v);
    // FAULT whole-matrix: a matrix of n² numbers is alive
    // > let mut weights = DMatrix::<f64>::zeros(n_q, n_k);
    // FAULT copy-of-keys: copies all of Q, K or V
    // > let mut weights = (DVector::<f64>::zeros(n_k), k.transpose()).0;
    let mut weights = DVector::<f64>::zeros(n_k);
    for i in 0..n_q {
        // Query i stands at key i + n_k − n_q.
        // FAULT first-corner: the last query stands at the last key
        // > let seen = (i + 1).min(n_k);
        let seen = (i + 1 + n_k).saturating_sub(n_q);
        // FAULT new-row: ask once, before the loop
        // > let mut weights = DVector::<f64>::zeros(n_k);
        let weights = &mut weights;
        for j in 0..seen {
            weights[j] = q.row(i).dot(&k.row(j)) * scale;
        }
        // FAULT overflow: what is the exponential of a thousand
        // > let largest = 0.0;
        // FAULT from-zero: or a 0 that it began with
        // > let largest = weights.iter().take(seen).fold(0.0_f64, |a, b| a.max(*b));
        // FAULT first-entry: subtract the largest of the scores
        // > let largest = weights[0];
        // FAULT absolute: or a 0 that it began with
        // > let largest = weights.iter().take(seen).fold(0.0_f64, |a, b| a.max(b.abs()));
        // FAULT the-crate: this exercise asks you to do without it
        // > let largest = attention::softmax(&weights.clone_owned()).map_or(0.0, |_| weights.max());
        // FAULT hidden-maximum: subtract the largest of the scores that this query sees
        // > let largest = (q.row(i) * k.transpose()).max() * scale;
        let largest = weights.iter().take(seen).fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        let mut sum = 0.0;
        for j in 0..seen {
            weights[j] = (weights[j] - largest).exp();
            sum += weights[j];
        }
        for c in 0..d_v {
            for j in 0..seen {
                output[(i, c)] += weights[j] / sum * v[(j, c)];
            }
        }
    }
    output
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    fn compare(q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>, question: &str) {
        let (expected, _) = attention(q, k, v, Mask::causal()).unwrap();
        let came = attention_by_rows(q, k, v);
        let (n_q, n_k) = (q.nrows(), k.nrows());
        assert!(
            came.shape() == expected.shape(),
            "the output has one row per query, as wide as the values: {:?}, and yours is {:?}",
            expected.shape(),
            came.shape()
        );
        for i in 0..n_q {
            let off = (came.row(i) - expected.row(i)).amax();
            let is = if came.row(i).iter().any(|number| number.is_nan()) {
                "NaN".to_owned()
            } else {
                format!("off by {off:.2e}")
            };
            let question = if i + n_k < n_q {
                &format!(
                    "the first {} queries see no key, and should get zeros",
                    n_q - n_k
                )
            } else if n_q == n_k && i == 0 && k.amax() < 2.0 {
                "row 0 sees key 0 alone, so its output should be value 0"
            } else {
                question
            };
            assert!(
                is != "NaN" && off < 1e-12,
                "{n_q} queries, {n_k} keys: row {i} is {is}: {question}"
            );
        }
    }

    #[test]
    fn it_equals_attention() {
        compare(
            &draw(9, 4, 0),
            &draw(9, 4, 1),
            &draw(9, 3, 2),
            "are the scores scaled, and does each row sum to 1?",
        );
    }

    #[test]
    fn the_last_query_stands_beside_the_last_key() {
        for (n_q, n_k) in [(3, 8), (1, 5), (6, 4)] {
            compare(
                &draw(n_q, 4, 0),
                &draw(n_k, 4, 1),
                &draw(n_k, 3, 2),
                "the last query stands at the last key",
            );
        }
    }

    #[test]
    fn large_scores_do_not_overflow() {
        // Each query has the scores 1000, 999, …, and then 0, 1000, 2000, ….
        let (q, v) = (DMatrix::repeat(4, 1, 1.0), draw(4, 3, 2));
        let falling = DMatrix::from_fn(4, 1, |j, _| 1000.0 - j as f64);
        compare(&q, &falling, &v, "what is the exponential of a thousand?");
        let rising = DMatrix::from_fn(4, 1, |j, _| 1000.0 * j as f64);
        compare(
            &q,
            &rising,
            &v,
            "subtract the largest of the scores that this query sees, and of no others",
        );
        let low = DMatrix::from_fn(4, 1, |j, _| -1000.0 - j as f64);
        compare(
            &q,
            &low,
            &v,
            "all scores are near −1000. Is your maximum the largest of the scores that this query sees, or a 0 that it began with?",
        );
    }

    #[test]
    fn memory_grows_like_the_text() {
        let [short, long] = [40, 160].map(|n| {
            let (q, k, v) = (draw(n, 4, 0), draw(n, 4, 1), draw(n, 3, 2));
            allocation_counter::measure(|| drop(attention_by_rows(&q, &k, &v)))
        });
        let growth = long.bytes_max as f64 / short.bytes_max as f64;
        assert!(
            growth < 8.0,
            "memory grows {growth:.0}-fold for 4 times the tokens: a matrix of n² numbers is alive"
        );
        let allowed = 8 * (160 * 3 + 4 * 160);
        assert!(
            long.bytes_max <= allowed,
            "memory is linear, but {} bytes too much for 160 tokens: `.transpose()` copies all of Q, K or V, and a product allocates its result",
            long.bytes_max - allowed
        );
        let [short, long] = [short, long].map(|counts| counts.count_total);
        assert!(
            long <= short + 2,
            "it asks for memory {short} times for 40 tokens and {long} times for 160: ask once, before the loop, and use the row again"
        );
    }
}
