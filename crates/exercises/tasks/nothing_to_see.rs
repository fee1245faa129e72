//! # What is hidden stays hidden
//!
//! medium, 25 minutes
//!
//! The memory behind a padding token may hold anything, even NaN. One NaN that reaches an output can ruin the training. Write
//! the second half of attention, from scores to output, so that it can't.
//!
//! You get scores $(n_q, n_k)$, a matrix of the same shape that says what may be seen (`true`: may be seen), and values
//! $(n_k, d_v)$. The output is $(n_q, d_v)$. Four promises:
//!
//! - A hidden score or value never changes an output, even if it is NaN or infinite.
//! - A query that sees nothing gets zeros.
//! - Visible scores may have any finite size.
//! - A *visible* NaN does reach the outputs of the queries that see it, whatever its weight. An error has to show.
//!
//! # Hint
//!
//! List the places at which a hidden number could enter: the sum of scores and mask, the maximum, the denominator, the
//! average. In which of them does a weight of zero protect you?
//!
//! # Hint
//!
//! Choose each score, and don't add. Decide what a row of nothing but $-\infty$ becomes before you subtract its
//! maximum. In the average, leave out what is hidden, since $0 \cdot \text{NaN}$ is NaN.
//!
//! # Hint
//!
//! `DMatrix::from_fn(n_q, n_k, |i, j| if allowed[(i, j)] { … } else { … })`, then softmax of each row by hand. For the
//! output, loop over all pairs, and add `v.row(j) * weights[(i, j)]` to row i only where the pair is visible.

use nalgebra::DMatrix;

/// Returns for each query the average of the values that it may see, weighted by softmax of its scores.
///
/// Shapes: `scores` and `allowed` (n_q, n_k), `v` (n_k, d_v) → (n_q, d_v).
pub fn masked_average(
    scores: &DMatrix<f64>,
    allowed: &DMatrix<bool>,
    v: &DMatrix<f64>,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT finite: is a finite number standing in for −∞?
    // > const HIDDEN: f64 = -1e9;
    const HIDDEN: f64 = f64::NEG_INFINITY;
    let mut weights = DMatrix::from_fn(scores.nrows(), scores.ncols(), |i, j| {
        // FAULT added: NaN + (−∞) is NaN
        // > scores[(i, j)] + if allowed[(i, j)] { 0.0 } else { HIDDEN }
        if allowed[(i, j)] { scores[(i, j)] } else { HIDDEN }
    });
    for (i, mut row) in weights.row_iter_mut().enumerate() {
        // FAULT first-entry: the largest score that this query sees
        // > let largest = row[0];
        // FAULT mean: the largest score that this query sees
        // > let largest = row.iter().filter(|it| it.is_finite()).sum::<f64>() / row.iter().filter(|it| it.is_finite()).count() as f64;
        // FAULT from-zero: the largest score that this query sees
        // > let largest = row.max().max(0.0);
        // FAULT one-for-all: does each row subtract a largest score of its own
        // > let largest = (0..v.nrows()).flat_map(|j| (0..scores.nrows()).map(move |i| (i, j))).filter(|at| allowed[*at]).fold(f64::NEG_INFINITY, |a, at| a.max(scores[at]));
        // FAULT hidden-maximum: is it the largest of what this query sees
        // > let largest = scores.row(i).max();
        let largest = row.max();
        // By the mask: the largest of NaN and −∞ may be called −∞.
        let sees_nothing = !(0..v.nrows()).any(|j| allowed[(i, j)]);
        // FAULT empty-row: What is −∞ − (−∞)?
        // > if false {
        // FAULT by-the-maximum: a visible score that is NaN
        // > if largest == f64::NEG_INFINITY {
        if sees_nothing {
            row.fill(0.0);
        } else {
            row.apply(|score| *score = (*score - largest).exp());
            let sum = row.sum();
            row /= sum;
        }
    }
    let mut output = DMatrix::zeros(scores.nrows(), v.ncols());
    for (i, mut row) in output.row_iter_mut().enumerate() {
        for j in 0..v.nrows() {
            // FAULT empty-row
            // > if true {
            // FAULT zero-weight: even where its weight underflows
            // > if weights[(i, j)] != 0.0 {
            // FAULT plain-product: 0 · NaN is NaN
            // > if true {
            // FAULT swept: a visible NaN has to show
            // > if allowed[(i, j)] && v.row(j).iter().all(|it| !it.is_nan()) {
            if allowed[(i, j)] {
                row += v.row(j) * weights[(i, j)];
            }
        }
    }
    output
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, softmax_rows};
    use nalgebra::{DMatrix, dmatrix};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    fn draw(n: usize, d: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
        DMatrix::from_fn(n, d, |_, _| StandardNormal.sample(rng))
    }

    fn same(a: &DMatrix<f64>, b: &DMatrix<f64>) -> bool {
        (a - b).norm() < 1e-9 // false for NaN
    }

    /// Compares the first query's output with the right one.
    fn check(
        scores: &[f64],
        seen: &[bool],
        v: &DMatrix<f64>,
        right: &[f64],
        question: &str,
    ) {
        let scores = DMatrix::from_row_slice(1, scores.len(), scores);
        let allowed = DMatrix::from_row_slice(1, seen.len(), seen);
        let got = masked_average(&scores, &allowed, v);
        assert!(
            got.as_slice() == right,
            "scores {:?}, may be seen: {seen:?}; the output is {:.3?}, not {right:?}: {question}",
            scores.as_slice(),
            got.as_slice()
        );
    }

    const MIDDLE_HIDDEN: [bool; 3] = [true, false, true];

    #[test]
    fn ordinary_rows_are_those_of_the_crate() {
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let (scores, v) = (draw(3, 5, rng), draw(5, 2, rng));
        let allowed = DMatrix::from_fn(3, 5, |i, j| j <= i + 2 && (i + j) % 3 != 1);
        let mask = Mask::dense(allowed.clone()).unwrap().sized(3, 5).unwrap();
        let right = softmax_rows(&mask.apply(scores.clone()).unwrap()).unwrap() * &v;
        let got = masked_average(&scores, &allowed, &v);
        let zeros = allowed.map(|seen| if seen { 1.0 } else { 0.0 });
        let late = softmax_rows(&scores).unwrap().component_mul(&zeros) * &v;
        assert!(
            got.shape() == (3, 2),
            "the output has a row for each query: yours has the shape {:?}, expected {:?}",
            got.shape(),
            (3, 2)
        );
        assert!(
            !same(&got, &late),
            "these are the outputs if softmax comes before the mask"
        );
        assert!(
            same(&got, &right),
            "numbers of ordinary size, and a wrong output: {got:.4}"
        );
    }

    #[test]
    fn a_hidden_score_never_counts() {
        let v = dmatrix![2.0, 20.0; 5.0, 50.0; 4.0, 40.0];
        for hidden in [1e300, f64::NAN, f64::INFINITY] {
            let question = if hidden == 1e300 {
                "what do you subtract from the scores: is it the largest of what this query sees?"
            } else {
                "do you add the mask? NaN + (−∞) is NaN, and so is ∞ + (−∞)"
            };
            check(&[0.0, hidden, 0.0], &MIDDLE_HIDDEN, &v, &[3.0, 30.0], question);
        }
    }

    #[test]
    fn a_hidden_value_never_counts() {
        for hidden in [f64::NAN, f64::NEG_INFINITY] {
            let v = dmatrix![2.0, 20.0; 1.0, hidden; 4.0, 40.0];
            let question =
                "the hidden value isn't finite, and 0 · NaN is NaN, like 0 · ∞";
            check(&[0.0, 7.0, 0.0], &MIDDLE_HIDDEN, &v, &[3.0, 30.0], question);
        }
    }

    #[test]
    fn a_query_that_sees_nothing_gets_zeros() {
        let v = dmatrix![5.0, 1.0; 6.0, 2.0];
        let question = "a query that sees nothing gets zeros. What is −∞ − (−∞)?";
        check(&[1.0, 2.0], &[false, false], &v, &[0.0, 0.0], question);
    }

    #[test]
    fn visible_scores_may_have_any_size() {
        let v = dmatrix![1.0; 2.0; 3.0];
        for far in [-1e12, 1e4] {
            let question = "is a finite number standing in for −∞?";
            check(
                &[0.0, 0.0, far],
                &MIDDLE_HIDDEN,
                &v,
                &[if far < 0.0 { 1.0 } else { 3.0 }],
                "do you subtract the largest score that this query sees?",
            );
            check(
                &[far, 0.0, 0.0],
                &MIDDLE_HIDDEN,
                &v,
                &[if far < 0.0 { 3.0 } else { 1.0 }],
                "do you subtract the largest score that this query sees?",
            );
            let row = dmatrix![far, 0.0, far];
            let got = masked_average(&row, &dmatrix![true, false, true], &v)[0];
            assert!(
                !got.is_nan(),
                "scores {far} and {far} give NaN: do you subtract the largest score that this query sees, or a 0 that a maximum began with?"
            );
            check(&[far, 0.0, far], &MIDDLE_HIDDEN, &v, &[2.0], question);
        }
        let scores = dmatrix![1000.0, 0.0, 1000.0; -1000.0, 0.0, -1000.0];
        let allowed = DMatrix::from_fn(2, 3, |_, j| MIDDLE_HIDDEN[j]);
        let got = masked_average(&scores, &allowed, &v);
        assert!(
            got == dmatrix![2.0; 2.0],
            "two rows, one with scores of 1000 and one of −1000, give {:.3?}, not 2 and 2: does each row subtract a largest score of its own?",
            got.as_slice()
        );
    }

    #[test]
    fn what_is_seen_shows() {
        let v = dmatrix![2.0; f64::NAN];
        for score in [0.0, -2000.0] {
            let got = masked_average(&dmatrix![0.0, score], &dmatrix![true, true], &v)[0];
            let weight =
                if score == 0.0 { "" } else { ", even where its weight underflows" };
            assert!(
                got.is_nan(),
                "a value is NaN and visible, and the output is {got:.3}: a visible NaN has to show{weight}"
            );
        }
        check(&[0.0, 0.0], &[true, false], &v, &[2.0], "the NaN is hidden here");
        // As in the first row of a causal mask.
        let seen = dmatrix![true, false];
        let got = masked_average(&dmatrix![f64::NAN, 1.0], &seen, &dmatrix![2.0; 3.0])[0];
        assert!(
            got.is_nan(),
            "the only visible score is NaN, and the output is {got:.3}: a visible score that is NaN has to show. Does the mask say that \
             a row sees nothing, or the maximum?"
        );
    }
}
