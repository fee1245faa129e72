//! # Catch the hidden ones
//!
//! medium, 30 minutes, without `attention::`
//!
//! A colleague wants to merge a new causal attention of several heads. Random inputs look fine, the loss falls, and
//! there is no other program to compare with. Write `is_right`, which accepts a right one and rejects what only
//! training would hide.
//!
//! You may call the candidate as often as you like, with any inputs: `q`, `k` and `v` are $(n, h d)$, and so is the
//! output. Choose numbers for which you know the answer by hand, and properties that any right program has. The
//! table *Which test catches which* is a start. A right program may round in its own way.
//!
//! Don't call the crate.
//!
//! # Hint
//!
//! Which outputs may change if the last token does? What should each head return if it is called alone, on its own
//! columns? What is the output for one query and two keys whose scores are 1 and 0?
//!
//! # Hint
//!
//! Some faults need large scores: rows that lie far apart, such as one near 1,000 and one near −1,000. Others need
//! a difference between widths, such as $d$ of one head and $h d$ of all. And a NaN compares as false.
//!
//! # Hint
//!
//! Five checks are enough. With queries of zeros, row $i$ is the mean of the first $i + 1$ values. Another last
//! token leaves earlier outputs alone. Two heads give what each gives alone. In one head of width 4, $q = k_1$ =
//! ones and $k_0$ = zeros, the weight of the second token on itself is $1/(1 + e^{-2})$. And scores of ±1,000, in
//! different rows and in one row, give finite outputs.

use nalgebra::DMatrix;

/// Causal attention: q, k and v (n, h·d) and the number of heads h → (n, h·d).
pub type Attention<'a> =
    &'a dyn Fn(&DMatrix<f64>, &DMatrix<f64>, &DMatrix<f64>, usize) -> DMatrix<f64>;

/// Returns whether a causal attention is right, up to rounding.
pub fn is_right(attention: Attention) -> bool {
    // SOLUTION
    let matrix = |rows, columns, seed: f64| {
        DMatrix::from_fn(rows, columns, |i, j| {
            (seed + 2.3 * i as f64 - 1.7 * j as f64).sin()
        })
    };
    // FAULT exact: in its own way
    // > let is_small = |off: &f64| *off == 0.0;
    let is_small = |off: &f64| off.abs() < 1e-9; // false for NaN
    let same = |a: &DMatrix<f64>, b: &DMatrix<f64>| (a - b).iter().all(is_small);

    // Queries of zeros see the mean of the values so far.
    let v = matrix(4, 4, 3.0);
    let means = DMatrix::from_fn(4, 4, |i, c| v.column(c).rows(0, i + 1).mean());
    let is_mean =
        same(&attention(&DMatrix::zeros(4, 4), &matrix(4, 4, 2.0), &v, 2), &means);

    // Another last token changes no earlier output.
    let x = matrix(5, 4, 1.0);
    let mut other = x.clone();
    other.row_mut(4).fill(3.0);
    let (before, after) =
        (attention(&x, &x, &x, 2), attention(&other, &other, &other, 2));
    // FAULT no-change: keys that it may not see
    // > let is_causal = true;
    let is_causal = same(&before.rows(0, 4).into_owned(), &after.rows(0, 4).into_owned());

    // Each head, alone.
    let head = |m: &DMatrix<f64>, first| m.columns(first, 2).into_owned();
    let alone = |first| {
        let x = head(&x, first);
        same(&attention(&x, &x, &x, 1), &head(&before, first))
    };
    // FAULT one-head: asks with another head's queries
    // > let is_split = true;
    let is_split = alone(0) && alone(2);

    // A score of 2 = 4 / √4 against 0.
    let k = DMatrix::from_fn(2, 4, |i, _| i as f64);
    let scaled = attention(&DMatrix::repeat(2, 4, 1.0), &k, &k, 1)[(1, 0)];
    // FAULT no-scale: divided by the root
    // > let is_scaled = true;
    let is_scaled = (scaled - 1.0 / (1.0 + (-2.0_f64).exp())).abs() < 1e-9;

    // Scores of −1000; of −1000 and 1000; of 1000, −1000 and −500.
    let far = DMatrix::from_column_slice(3, 1, &[1000.0, 1000.0, -1000.0]);
    // FAULT one-key: subtracts the first score of a row
    // > let k = DMatrix::repeat(3, 1, -1.0);
    let k = DMatrix::from_column_slice(3, 1, &[-1.0, 1.0, 0.5]);
    let ones = DMatrix::repeat(3, 1, 1.0);
    // FAULT small-scores: far apart
    // > let is_stable = true;
    let is_stable = same(&attention(&far, &k, &ones, 1), &ones);

    is_mean && is_causal && is_split && is_scaled && is_stable
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::engine::{Engine, Tiled};
    use attention::flash::Inputs;
    use attention::{Mask, softmax_rows};
    use nalgebra::DMatrix;

    /// Calls an attention of one head for each head, with the masked scores (n, n) and the values.
    fn by_heads<'a>(
        scale: impl Fn(f64, f64) -> f64 + 'a,
        head: impl Fn(DMatrix<f64>, &DMatrix<f64>) -> DMatrix<f64> + 'a,
    ) -> impl Fn(&DMatrix<f64>, &DMatrix<f64>, &DMatrix<f64>, usize) -> DMatrix<f64> + 'a
    {
        move |q, k, v, h| {
            let d = q.ncols() / h;
            let mut output = q.clone();
            for first in (0..q.ncols()).step_by(d) {
                let [q, k, v] = [q, k, v].map(|m| m.columns(first, d).into_owned());
                let scores = q * k.transpose() * scale(d as f64, (h * d) as f64);
                output.columns_mut(first, d).copy_from(&head(scores, &v));
            }
            output
        }
    }

    fn hide(scores: DMatrix<f64>, with: f64) -> DMatrix<f64> {
        DMatrix::from_fn(scores.nrows(), scores.ncols(), |i, j| {
            if j > i { with } else { scores[(i, j)] }
        })
    }

    fn rows(scores: &DMatrix<f64>) -> DMatrix<f64> {
        softmax_rows(scores).unwrap()
    }

    const HIDDEN: f64 = f64::NEG_INFINITY;

    fn by_width(d: f64, _: f64) -> f64 {
        1.0 / d.sqrt()
    }

    #[test]
    fn right_ones_are_accepted() {
        let plain = by_heads(by_width, |scores, v| rows(&hide(scores, HIDDEN)) * v);
        assert!(
            is_right(&plain),
            "you reject a right attention, which works head by head, with its matrix of weights, and rounds in its own way"
        );
        let tiles = |q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>, h: usize| {
            let inputs =
                Inputs::new(q, k, v, Mask::causal()).and_then(|all| all.with_heads(h));
            Tiled::default().forward(&inputs.unwrap()).unwrap().output
        };
        assert!(
            is_right(&tiles),
            "you reject a right attention, which works by tiles, and so rounds in its own way"
        );
        let rounded = by_heads(by_width, |scores, v| {
            rows(&hide(scores, HIDDEN)) * v * (1.0 + 1e-14)
        });
        assert!(
            is_right(&rounded),
            "you reject an attention that rounds in its own way, in the fourteenth digit"
        );
    }

    #[test]
    fn leaks_are_rejected() {
        let columns = by_heads(by_width, |scores, v| {
            rows(&hide(scores, HIDDEN).transpose()).transpose() * v
        });
        assert!(
            !is_right(&columns),
            "you accept an attention whose softmax runs down the columns"
        );
        let after = by_heads(by_width, |scores, v| hide(rows(&scores), 0.0) * v);
        assert!(
            !is_right(&after),
            "you accept an attention that masks after softmax: its weights depend on keys that it may not see"
        );
        let shifted = by_heads(by_width, |scores, v| {
            // What a query may not see moves its score with itself a little.
            let mut seen = hide(scores.clone(), HIDDEN);
            for i in 0..scores.nrows() {
                seen[(i, i)] +=
                    1e-3 * scores.row(i).columns_range(i + 1..).iter().sum::<f64>();
            }
            let scores = seen;
            rows(&scores) * v
        });
        assert!(
            !is_right(&shifted),
            "you accept an attention whose weights depend a little on keys that it may not see"
        );
    }

    #[test]
    fn heads_that_are_mixed_up_are_rejected() {
        let plain = by_heads(by_width, |scores, v| rows(&hide(scores, HIDDEN)) * v);
        let merged = |q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>, h: usize| {
            let (joined, n, d) = (plain(q, k, v, h), q.nrows(), q.ncols() / h);
            // The numbers in the order (head, token, column), read as (token, head · column).
            let numbers: Vec<f64> = (0..n * h * d)
                .map(|i| joined[(i / d % n, i / (n * d) * d + i % d)])
                .collect();
            DMatrix::from_row_slice(n, h * d, &numbers)
        };
        assert!(
            !is_right(&merged),
            "you accept an attention whose heads are merged without a transpose"
        );
        let swapped = |q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>, h: usize| {
            // Only the weights are those of another head: means of values stay right.
            let d = q.ncols() / h;
            let turned =
                DMatrix::from_fn(q.nrows(), q.ncols(), |i, c| q[(i, (c + d) % (h * d))]);
            plain(&turned, k, v, h)
        };
        assert!(
            !is_right(&swapped),
            "you accept an attention in which a head asks with another head's queries"
        );
    }

    #[test]
    fn wrong_scales_are_rejected() {
        for scale in [
            |_: f64, _: f64| 1.0,
            |d: f64, _: f64| 1.0 / d,
            |d: f64, _: f64| 0.7 / d.sqrt(),
        ] {
            let wrong = by_heads(scale, |scores, v| rows(&hide(scores, HIDDEN)) * v);
            assert!(
                !is_right(&wrong),
                "you accept scores that aren't divided by the root of a head's width"
            );
        }
        let by_model = by_heads(
            |_, d_model| 1.0 / d_model.sqrt(),
            |scores, v| rows(&hide(scores, HIDDEN)) * v,
        );
        assert!(
            !is_right(&by_model),
            "you accept scores that are divided by the root of d_model, where several heads are narrower"
        );
    }

    #[test]
    fn what_fails_at_large_scores_is_rejected() {
        let one_maximum = by_heads(by_width, |scores, v| {
            let scores = hide(scores, HIDDEN);
            let mut weights = scores.map(|score| (score - scores.max()).exp());
            weights.row_iter_mut().for_each(|mut row| row /= row.sum());
            weights * v
        });
        assert!(
            !is_right(&one_maximum),
            "you accept one maximum for the whole matrix, which gives NaN once two rows are far apart"
        );
        let none = by_heads(by_width, |scores, v| {
            let mut weights = hide(scores, HIDDEN).map(f64::exp);
            weights.row_iter_mut().for_each(|mut row| row /= row.sum());
            weights * v
        });
        assert!(
            !is_right(&none),
            "you accept a softmax that subtracts no maximum: what is the exponential of 1,000?"
        );
        type Row<'a> = &'a [f64];
        let largest = |row: Row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let first = |row: Row| row[0];
        let mean = |row: Row| row.iter().sum::<f64>() / row.len() as f64;
        let from_zero = |row: Row| largest(row).max(0.0);
        let subtracts = |what: &dyn Fn(Row) -> f64| {
            let wrong = by_heads(by_width, |scores, v| {
                let mut output = v * 0.0;
                for i in 0..scores.nrows() {
                    let row: Vec<f64> = (0..=i).map(|j| scores[(i, j)]).collect();
                    let weights = row.iter().map(|score| (score - what(&row)).exp());
                    let sum: f64 = weights.clone().sum();
                    for (j, weight) in weights.enumerate() {
                        let mut place = output.row_mut(i);
                        place += v.row(j) * (weight / sum);
                    }
                }
                output
            });
            is_right(&wrong)
        };
        assert!(
            subtracts(&largest),
            "you reject a softmax that subtracts the largest score of each row, as it should"
        );
        assert!(
            !subtracts(&first),
            "you accept a softmax that subtracts the first score of a row: what if it is −1,000, and the second 1,000?"
        );
        assert!(
            !subtracts(&mean),
            "you accept a softmax that subtracts the mean of a row: what if its scores are −1,000 and 1,000?"
        );
        assert!(
            !subtracts(&from_zero),
            "you accept a softmax whose maximum begins at 0: what if all scores of a row are near −1,000?"
        );
    }
}
