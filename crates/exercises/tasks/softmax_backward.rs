//! # Gradients of rows, without a Jacobian
//!
//! medium, 25 minutes, without `attention::`
//!
//! Training sends a gradient back through every row of weights. A Jacobian for each row would take $n_k^2$ numbers, too
//! much for a long text. Use memory for a few matrices $(n_q, n_k)$, the shape of all below.
//!
//! Write two functions. The first gets the weights $P = \operatorname{softmax}(S)$, row by row, and the gradient $G$ with
//! respect to $P$. It returns the gradient with respect to the scores $S$. The second gets $P$ and the gradient with
//! respect to $\ln P$, because many losses take the logarithm of a weight. It also returns the gradient
//! with respect to $S$.
//!
//! Some weights have underflowed to 0. Their true logarithms are finite, so in the second function their scores do get
//! a gradient. No pair is hidden. Don't call the crate.
//!
//! # Hint
//!
//! First function: the chapter's equation for one row is $p \odot (g - \langle g, p \rangle)$. Over which entries of a matrix does
//! $\langle g, p \rangle$ run, and how many such numbers are there?
//!
//! # Hint
//!
//! For the second function, write $\ln p_i = x_i - \operatorname{lse}(x)$. The chapter has the gradient of log-sum-exp.
//! What is $\partial \ln p_i / \partial x_j$? Nothing in it is divided by $p_i$.
//!
//! # Hint
//!
//! First function: `for i in 0..n_q`, take `weights.row(i)` and `grad.row(i)`; `a.dot(&b)` is one number. Second
//! function: here, too, each row needs one number. Adding the same to all scores of a row changes nothing, so a row of
//! the result sums to 0.

use nalgebra::DMatrix;

/// Returns the gradient with respect to the scores, given that with respect to the weights.
///
/// Shapes: `weights`, `grad_weights` (n_q, n_k) → (n_q, n_k).
pub fn softmax_backward(
    weights: &DMatrix<f64>,
    grad_weights: &DMatrix<f64>,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT the-crate: this exercise asks you to do without it
    // > let mut grad = attention::softmax::softmax_rows_backward(weights, grad_weights).unwrap();
    let mut grad = grad_weights.clone();
    // FAULT columns: did the average run down a column?
    // > for (i, mut row) in grad.column_iter_mut().enumerate() {
    for (i, mut row) in grad.row_iter_mut().enumerate() {
        // FAULT columns
        // > let p = weights.column(i);
        let p = weights.row(i);
        // FAULT jacobian: One Jacobian takes
        // > let jacobian = DMatrix::from_diagonal(&p.transpose()) - p.transpose() * p;
        // > row.copy_from(&(grad_weights.row(i) * jacobian));
        // > if true { continue; }
        // > let average = 0.0;
        let average = row.dot(&p);
        // FAULT plain-mean: weight them by p
        // > row.add_scalar_mut(-grad_weights.row(i).mean());
        // FAULT no-average: this is what you get without the average
        row.add_scalar_mut(-average);
        // FAULT no-factor: without the factor p
        row.component_mul_assign(&p);
    }
    grad
    // END
}

/// Returns the gradient with respect to the scores, given that with respect to the logarithms of the weights.
///
/// Shapes: `weights`, `grad_logarithms` (n_q, n_k) → (n_q, n_k).
pub fn log_softmax_backward(
    weights: &DMatrix<f64>,
    grad_logarithms: &DMatrix<f64>,
) -> DMatrix<f64> {
    // SOLUTION
    // FAULT of-weights: as the gradient with respect to the weights
    // > if true { return softmax_backward(weights, grad_logarithms); }
    // > let mut grad = grad_logarithms.clone();
    // FAULT through-division: is a weight in a denominator?
    // > if true { return softmax_backward(weights, &grad_logarithms.component_div(weights)); }
    // > let mut grad = grad_logarithms.clone();
    let mut grad = grad_logarithms.clone();
    for (i, mut row) in grad.row_iter_mut().enumerate() {
        let sum = row.sum();
        // FAULT not-weighted: should sum to zero
        // > row.add_scalar_mut(-sum);
        row -= weights.row(i) * sum;
    }
    grad
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::softmax_rows;
    use nalgebra::{DMatrix, dmatrix};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    fn same(a: &DMatrix<f64>, b: &DMatrix<f64>) -> bool {
        (a - b).norm() < 1e-9 // false for NaN
    }

    fn draw(n_q: usize, n_k: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(n_q, n_k, |_, _| StandardNormal.sample(rng))
    }

    /// The slopes of a loss, measured by moving each score a little up and down.
    fn slopes(
        scores: &DMatrix<f64>,
        loss: impl Fn(&DMatrix<f64>) -> f64,
    ) -> DMatrix<f64> {
        DMatrix::from_fn(scores.nrows(), scores.ncols(), |i, j| {
            let moved = |step: f64| {
                let mut scores = scores.clone();
                scores[(i, j)] += step;
                loss(&softmax_rows(&scores).unwrap())
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        })
    }

    /// The first entry that is wrong, in words.
    fn wrong_entry(got: &DMatrix<f64>, right: &DMatrix<f64>) -> Option<String> {
        assert!(
            got.shape() == right.shape(),
            "yours has the shape {:?}, and a gradient has the shape of the scores, {:?}",
            got.shape(),
            right.shape()
        );
        let near = |at: usize| (got[at] - right[at]).abs() < 1e-7;
        let at = (0..got.len()).find(|&at| !near(at))?;
        let (i, j) = (at % got.nrows(), at / got.nrows());
        let (got, right) = (got[at], right[at]);
        Some(format!("entry ({i}, {j}) is {got:.5}, and the measured slope {right:.5}"))
    }

    #[test]
    fn it_is_the_slope_of_the_loss() {
        for (n_q, n_k) in [(1, 4), (3, 5), (4, 2)] {
            let (scores, g) = (draw(n_q, n_k, 1), draw(n_q, n_k, 2));
            let p = softmax_rows(&scores).unwrap();
            let got = softmax_backward(&p, &g);
            let Some(entry) = wrong_entry(&got, &slopes(&scores, |p| p.dot(&g))) else {
                continue;
            };
            let minus = |mean: &dyn Fn(usize, usize) -> f64| {
                DMatrix::from_fn(n_q, n_k, |i, j| g[(i, j)] - mean(i, j))
            };
            let average = |i: usize, _: usize| p.row(i).dot(&g.row(i));
            let column = |_: usize, j: usize| p.column(j).dot(&g.column(j));
            for (wrong, what) in [
                (p.component_mul(&g), "this is what you get without the average"),
                (minus(&average), "this is what you get without the factor p"),
                (
                    p.component_mul(&minus(&|i, _| g.row(i).mean())),
                    "the average is a plain mean of the gradients: weight them by p",
                ),
                (
                    p.component_mul(&minus(&column)),
                    "did the average run down a column? A row belongs to a query",
                ),
            ] {
                assert!(!same(&got, &wrong), "first function: {entry}: {what}");
            }
            panic!(
                "first function: {entry}, for {n_q} queries and {n_k} keys: does each row subtract its own ⟨g, p⟩ before it multiplies?"
            );
        }
    }

    #[test]
    fn it_is_the_slope_of_a_loss_of_logarithms() {
        let (scores, g) = (draw(3, 5, 3), draw(3, 5, 4));
        let got = log_softmax_backward(&softmax_rows(&scores).unwrap(), &g);
        let entry = wrong_entry(&got, &slopes(&scores, |p| p.map(f64::ln).dot(&g)));
        for (i, row) in got.row_iter().enumerate() {
            assert!(
                row.sum().abs() < 1e-9,
                "row {i} of the second function sums to {:.4}: it should sum to zero, since a shift of all scores changes no weight",
                row.sum()
            );
        }
        let of_weights = slopes(&scores, |p| p.dot(&g));
        assert!(
            !((&got - of_weights).norm() < 1e-6),
            "the second function treats `grad_logarithms` as the gradient with respect to the weights"
        );
        assert!(entry.is_none(), "second function: {}", entry.unwrap_or_default());
    }

    #[test]
    fn a_weight_of_zero_does_no_harm() {
        let p = softmax_rows(&dmatrix![0.0, -1000.0, 1.0]).unwrap();
        let (g, share) = (dmatrix![1.0, 2.0, 3.0], 1.0_f64.exp() / (1.0 + 1.0_f64.exp()));
        let right = [1.0 - 6.0 * (1.0 - share), 2.0, 3.0 - 6.0 * share];
        let got = log_softmax_backward(&p, &g);
        assert!(
            got.iter().all(|it| it.is_finite()),
            "second function: a weight underflowed to 0, and the gradient is {:.3?}: is a weight in a denominator?",
            got.as_slice()
        );
        let near = |j: usize| (got[j] - right[j]).abs() < 1e-9;
        let why = if near(0) && near(2) && got[1] == 0.0 {
            "a weight that underflowed to 0 still has a logarithm, so its score gets a gradient"
        } else {
            "this is wrong without any underflow, too"
        };
        assert!(
            (0..3).all(near),
            "second function: for G = (1, 2, 3), yours is {:.3?}, expected {right:.3?}: {why}",
            got.as_slice()
        );
    }

    #[test]
    fn memory_grows_with_the_rows_not_with_their_square() {
        let (p, g) = (softmax_rows(&draw(3, 400, 5)).unwrap(), draw(3, 400, 6));
        let functions = [softmax_backward, log_softmax_backward];
        for (name, function) in ["first", "second"].into_iter().zip(functions) {
            let used = allocation_counter::measure(|| {
                std::hint::black_box(function(&p, &g));
            });
            let (bytes, jacobian, matrix) = (used.bytes_max, 8 * 400 * 400, 8 * 3 * 400);
            assert!(
                bytes < jacobian / 2,
                "for 3 rows of 400 weights the {name} function used {bytes} bytes. One Jacobian takes {jacobian}, one matrix like G {matrix}"
            );
        }
    }
}
