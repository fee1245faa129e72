//! # Build it yourself: scores
//!
//! easy, 10 minutes, without `attention::`
//!
//! The second file of your program has one function of one line. `scores` says how well each query fits each key: it is their dot
//! product, divided by the root of their width, $S = Q K^\top / \sqrt{d_k}$.
//!
//! Queries $Q$ are $(n_q, d_k)$ and keys $K$ are $(n_k, d_k)$. Return a matrix $(n_q, n_k)$ with a row for each query and a column for
//! each key. There may be more keys than queries, or fewer.
//!
//! Queries and keys of different widths can't be compared. Then the function panics, as a product of matrices with the wrong
//! shapes does.
//!
//! # Hint
//!
//! Write the shapes on paper: $(n_q, d_k)$ and $(n_k, d_k)$ go in, and $(n_q, n_k)$ comes out. Which of the two has to be transposed, and
//! which comes first?
//!
//! # Hint
//!
//! The width $d_k$ is the number of columns of `q`, and of `k`. The number of rows has no part in the scale.
//!
//! # Hint
//!
//! `q * k.transpose()` is the matrix of all dot products. `q.ncols()` is an integer: make it an `f64` with `as f64`, and then take the root.
//! A matrix divided by a number is divided entry by entry.

use attention::plain::*;

// PROGRAM scores
// FAULT not-transposed: is `k` transposed in the product?
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k / (q.ncols() as f64).sqrt()
// FAULT keys-first: A row belongs to a query, and a column to a key
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > k * q.transpose() / (q.ncols() as f64).sqrt()
// FAULT not-scaled: This is what you get if nothing divides the product
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k.transpose()
// FAULT by-the-width: if the width divides it, and not the root of the width
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k.transpose() / q.ncols() as f64
// FAULT multiplied: if the root multiplies it in place of dividing it
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k.transpose() * (q.ncols() as f64).sqrt()
// FAULT number-of-keys: if the root of the number of keys divides it
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k.transpose() / (k.nrows() as f64).sqrt()
// FAULT number-of-queries: if the root of the number of queries divides it
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k.transpose() / (q.nrows() as f64).sqrt()
// FAULT integer-root: if the root is rounded down to an integer
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > q * k.transpose() / q.ncols().isqrt() as f64
// FAULT cut-short: Does your loop stop where the shorter of the two ends?
// - q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
// > let dot = |i: usize, j: usize| -> f64 {
// >     q.row(i).iter().zip(k.row(j).iter()).map(|(a, b)| a * b).sum()
// > };
// > Matrix::from_fn(q.nrows(), k.nrows(), dot) / (q.ncols() as f64).sqrt()

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// Numbers between −1 and 1 that look random.
    fn numbers(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| {
            let at = (100 * seed + 10 * i + j + 1) as f64;
            (at * at * 0.754_877_666).fract() * 2.0 - 1.0
        })
    }

    /// Whether one is the other times a number.
    fn in_proportion(a: &Matrix, b: &Matrix) -> bool {
        (a * b.norm() - b * a.norm()).norm() < 1e-9 * a.norm() * b.norm()
    }

    #[test]
    fn each_query_meets_each_key() {
        // 1·3 + 2·0 = 3, 1·1 + 2·2 = 5, 0·3 + 1·0 = 0, 0·1 + 1·2 = 2
        let (q, k) = (dmatrix![1.0, 2.0; 0.0, 1.0], dmatrix![3.0, 0.0; 1.0, 2.0]);
        let products = dmatrix![3.0, 5.0; 0.0, 2.0];
        let got = scores(&q, &k);
        assert!(
            !in_proportion(&got, &(&q * &k)),
            "the queries (1, 2) and (0, 1) met the columns of the keys, one feature of all keys, and not the keys (3, 0) and (1, 2): is `k` transposed in the product?"
        );
        assert!(
            !in_proportion(&got, &products.transpose()),
            "the score of query 0 and key 1 stands in row 1 and column 0. A row belongs to a query, and a column to a key"
        );
        assert!(
            in_proportion(&got, &products),
            "the queries (1, 2) and (0, 1) and the keys (3, 0) and (1, 2) have the dot products{products}Whatever divides them, your scores should stand in the same proportion, and they are{got}"
        );
    }

    #[test]
    fn the_root_of_the_width_divides() {
        for (n_q, n_k, width) in [(2, 3, 4), (3, 2, 16), (2, 3, 7)] {
            // All numbers are 1, so each dot product is the width.
            let ones = |rows| Matrix::repeat(rows, width, 1.0);
            let score = scores(&ones(n_q), &ones(n_k))[0];
            let (product, root) = (width as f64, (width as f64).sqrt());
            for (wrong, what) in [
                (product, "if nothing divides the product"),
                (1.0, "if the width divides it, and not the root of the width"),
                (product * root, "if the root multiplies it in place of dividing it"),
                (
                    product / (n_k as f64).sqrt(),
                    "if the root of the number of keys divides it",
                ),
                (
                    product / (n_q as f64).sqrt(),
                    "if the root of the number of queries divides it",
                ),
                (
                    product / f64::from(width.isqrt() as u32),
                    "if the root is rounded down to an integer",
                ),
            ] {
                assert!(
                    (wrong - root).abs() < 1e-9 || (score - wrong).abs() > 1e-9,
                    "{n_q} queries and {n_k} keys of width {width}, all ones: the dot product is {product} and the score {score:.4}. This is what you get {what}"
                );
            }
            assert!(
                (score - root).abs() < 1e-9,
                "{n_q} queries and {n_k} keys of width {width}, all ones: the dot product is {product}, so the score is {product} / √{width} = {root:.4}, and yours is {score:.4}"
            );
        }
    }

    #[test]
    fn every_score_is_that_of_its_pair() {
        for (n_q, n_k, width) in [(3, 5, 2), (5, 2, 3), (1, 4, 6), (4, 1, 1)] {
            let (q, k) = (numbers(n_q, width, 1), numbers(n_k, width, 2));
            let got = scores(&q, &k);
            assert!(
                got.shape() == (n_q, n_k),
                "{n_q} queries and {n_k} keys: your scores have the shape {:?}, and there should be a row for each query and a column for each key",
                got.shape()
            );
            for (i, j) in (0..n_q).flat_map(|i| (0..n_k).map(move |j| (i, j))) {
                let mut product = 0.0;
                for c in 0..width {
                    product += q[(i, c)] * k[(j, c)];
                }
                let right = product / (width as f64).sqrt();
                assert!(
                    (got[(i, j)] - right).abs() < 1e-12,
                    "{n_q} queries and {n_k} keys of width {width}: the score of query {i} and key {j} is {right:.4}, and yours {:.4}. Does it depend on anything but these two rows and their width?",
                    got[(i, j)]
                );
            }
        }
    }

    #[test]
    fn different_widths_are_refused() {
        for (of_q, of_k) in [(2, 3), (3, 2)] {
            let (q, k) = (numbers(2, of_q, 1), numbers(2, of_k, 2));
            let came = std::panic::catch_unwind(|| scores(&q, &k));
            assert!(
                came.is_err(),
                "queries of width {of_q} and keys of width {of_k} got scores, and should panic. Does your loop stop where the shorter of the two ends?"
            );
        }
    }
}
