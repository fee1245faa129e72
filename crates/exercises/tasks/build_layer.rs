//! # Build it yourself: a layer
//!
//! easy, 15 minutes, without `attention::`
//!
//! The fifth file of your program has what is learned: four matrices. `Layer::forward` gets `x` $(n, d_{\text{model}})$ and a mask. Queries,
//! keys and values are `x` times `w_q`, `w_k` and `w_v`. Your `attention` makes an output of them, and that output times `w_o` is
//! returned, $(n, d_{\text{model}})$. There are no biases, and `x` isn't added.
//!
//! `random` returns a matrix of the shape that it's given. Each entry is a new number from `normal`, divided by the root of the number of
//! *rows*. `Layer::new` returns a layer with four such matrices, each $(d_{\text{model}}, d_{\text{model}})$ and each drawn anew.
//!
//! # Hint
//!
//! A token is a row, so a matrix stands on the right: `x * &self.w_q`. How many products with a matrix of the layer does `forward` have?
//!
//! # Hint
//!
//! `attention` returns a pair, and you need the first of it, `.0`. In `random`, `Matrix::from_fn` calls a closure for each entry. Where do
//! you have to call `normal`, so that the entries differ?
//!
//! # Hint
//!
//! `Matrix::from_fn(rows, columns, |_, _| normal() / …)`. In `new`, `random(d_model, d_model, normal)` four times, and then
//! `Layer { w_q, w_k, w_v, w_o }`.

use attention::plain::*;

// PROGRAM softmax scores masks attention layer
// FAULT without-w-o: Is the output of attention multiplied by `w_o`?
// - attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
// > attention(&q, &k, &v, sees).0
// FAULT w-o-transposed: if `w_o` is transposed
// - attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
// > attention(&q, &k, &v, sees).0 * self.w_o.transpose()
// FAULT w-v-transposed: if `w_v` is transposed
// - let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_v);
// > let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * self.w_v.transpose());
// FAULT values-by-w-k: if values are made by `w_k`
// - let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_v);
// > let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_k);
// FAULT input-averaged: if the input is averaged in place of the values
// - attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
// > attention(&q, &k, &(0.0 * v + x), sees).0 * &self.w_o
// FAULT input-added: if the input is added, which is for the model around it to do
// - attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
// > attention(&q, &k, &v, sees).0 * &self.w_o + x
// FAULT weights-returned: if `w_o` multiplies the weights in place of the output
// - attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
// > attention(&q, &k, &v, sees).1 * &self.w_o
// FAULT asks-and-answers: Do queries come from `w_q`, and keys from `w_k`?
// - let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_v);
// > let (q, k, v) = (x * &self.w_k, x * &self.w_q, x * &self.w_v);
// FAULT w-k-transposed: Is `w_k` transposed?
// - let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_v);
// > let (q, k, v) = (x * &self.w_q, x * self.w_k.transpose(), x * &self.w_v);
// FAULT w-q-transposed: Is `w_q` transposed?
// - let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_v);
// > let (q, k, v) = (x * self.w_q.transpose(), x * &self.w_k, x * &self.w_v);
// FAULT no-mask: Does `forward` hand `sees` on to `attention`?
// - attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
// > attention(&q, &k, &v, |_, _| true).0 * &self.w_o
// FAULT not-divided: Is a drawn number divided at all?
// - Matrix::from_fn(rows, columns, |_, _| normal() / (rows as f64).sqrt())
// > Matrix::from_fn(rows, columns, |_, _| normal())
// FAULT by-the-rows: Divide by the root of the number of rows, not by the number
// - Matrix::from_fn(rows, columns, |_, _| normal() / (rows as f64).sqrt())
// > Matrix::from_fn(rows, columns, |_, _| normal() / rows as f64)
// FAULT columns: A product sums over the rows of the matrix, so their number counts
// - Matrix::from_fn(rows, columns, |_, _| normal() / (rows as f64).sqrt())
// > Matrix::from_fn(rows, columns, |_, _| normal() / (columns as f64).sqrt())
// FAULT one-number: Is `normal` called for each entry, or once for all?
// - Matrix::from_fn(rows, columns, |_, _| normal() / (rows as f64).sqrt())
// > Matrix::repeat(rows, columns, normal() / (rows as f64).sqrt())
// FAULT one-matrix: A layer that starts with the same matrix twice
// - let mut matrix = || random(d_model, d_model, normal);
// > let first = random(d_model, d_model, normal);
// > let matrix = || first.clone();

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

    fn near(a: &Matrix, b: &Matrix) -> bool {
        a.shape() == b.shape() && (a - b).norm() < 1e-9 // false for NaN
    }

    fn before(query: usize, key: usize) -> bool {
        key <= query
    }

    #[test]
    fn two_tokens_by_hand() {
        // All queries are zero, so each token gets the mean of what it sees.
        let (w_v, w_o) = (dmatrix![1.0, 0.0; 1.0, 2.0], dmatrix![1.0, 1.0; 0.0, 1.0]);
        let w_k = dmatrix![1.0, 0.0; 0.0, 3.0];
        let layer = Layer {
            w_q: Matrix::zeros(2, 2),
            w_k: w_k.clone(),
            w_v: w_v.clone(),
            w_o: w_o.clone(),
        };
        let x = dmatrix![1.0, 3.0; 5.0, 7.0];
        // The values are (1 + 3, 2·3) = (4, 6) and (5 + 7, 2·7) = (12, 14), their mean is (8, 10), and times w_o it is (8, 8 + 10).
        let right = dmatrix![8.0, 18.0; 8.0, 18.0];
        let got = layer.forward(&x, |_, _| true);
        let mean = Matrix::repeat(2, 2, 0.5);
        for (wrong, what) in [
            (
                &mean * &x * &w_v,
                "without the last product. Is the output of attention multiplied by `w_o`?",
            ),
            (&mean * &x * &w_v * w_o.transpose(), "if `w_o` is transposed"),
            (&mean * &x * w_v.transpose() * &w_o, "if `w_v` is transposed"),
            (&mean * &x * &w_k * &w_o, "if values are made by `w_k`"),
            (&mean * &x * &w_o, "if the input is averaged in place of the values"),
            (
                &right + &x,
                "if the input is added, which is for the model around it to do",
            ),
            (&mean * &w_o, "if `w_o` multiplies the weights in place of the output"),
        ] {
            assert!(
                !near(&got, &wrong),
                "two tokens, (1, 3) and (5, 7), whose queries are zero: the output is{got}This is what you get {what}"
            );
        }
        assert!(
            near(&got, &right),
            "two tokens, (1, 3) and (5, 7), whose queries are zero: the values are (4, 6) and (12, 14), their mean is (8, 10), and the output should be (8, 18) for both. Yours is{got}"
        );
        let got = layer.forward(&x, before);
        let right = dmatrix![4.0, 10.0; 8.0, 18.0];
        assert!(
            near(&got, &right),
            "the first of the same two tokens sees only itself, so its output is (4, 6) times `w_o`, (4, 10), and the second stays (8, 18). Yours are{got}Does `forward` hand `sees` on to `attention`?"
        );
    }

    #[test]
    fn the_one_who_asks_looks() {
        // Queries (0, 200) and (0, 0), keys (0, 0) and (1, 1): the first token asks for what the second is found by.
        let (w_q, w_k) = (dmatrix![0.0, 200.0; 0.0, 0.0], dmatrix![0.0, 0.0; 1.0, 1.0]);
        let one = || Matrix::identity(2, 2);
        let layer = Layer { w_q, w_k, w_v: one(), w_o: one() };
        let got = layer.forward(&one(), |_, _| true);
        let said = "token 0 has the query (0, 200) and the key (0, 0), and token 1 the query (0, 0) and the key (1, 1): so token 0 looks at token 1, and token 1 at both alike";
        for (wrong, what) in [
            (
                dmatrix![0.5, 0.5; 1.0, 0.0],
                "token 1 looks at token 0. Do queries come from `w_q`, and keys from `w_k`?",
            ),
            (
                dmatrix![0.5, 0.5; 0.0, 1.0],
                "token 1 looks at itself. Is `w_q` transposed?",
            ),
            (Matrix::repeat(2, 2, 0.5), "both look at both alike. Is `w_k` transposed?"),
        ] {
            assert!(!near(&got, &wrong), "{said}. In your layer {what}");
        }
        assert!(
            near(&got, &dmatrix![0.0, 1.0; 0.5, 0.5]),
            "{said}. The values are (1, 0) and (0, 1), so the output should be (0, 1) and (½, ½), and yours is{got:.4}"
        );
    }

    #[test]
    fn a_layer_by_loops() {
        let (n, d) = (5, 3);
        let [w_q, w_k, w_v, w_o] = [1, 2, 3, 4].map(|seed| 2.0 * numbers(d, d, seed));
        let x = numbers(n, d, 5);
        let mut right = Matrix::zeros(n, d);
        for i in 0..n {
            let (mut sum, mut output) = (0.0, Matrix::zeros(1, d));
            for j in 0..=i {
                let (q, k) = (x.row(i) * &w_q, x.row(j) * &w_k);
                let share = (q.dot(&k) / (d as f64).sqrt()).exp();
                sum += share;
                output += share * x.row(j) * &w_v;
            }
            right.set_row(i, &(output / sum * &w_o).row(0));
        }
        let layer = Layer { w_q, w_k, w_v, w_o };
        let got = layer.forward(&x, before);
        assert!(
            got.shape() == (n, d),
            "the output has the shape of `x`, ({n}, {d}), and yours has {:?}",
            got.shape()
        );
        assert!(
            near(&got, &right),
            "five tokens of width 3 under a causal mask: the output should be{right:.4}and yours is{got:.4}Take the four matrices one by one: where does each stand, on which side?"
        );
    }

    #[test]
    fn entries_are_drawn_and_divided() {
        for (rows, columns) in [(4, 9), (16, 2), (2, 3)] {
            let mut calls = 0;
            let drawn = random(rows, columns, &mut || {
                calls += 1;
                1.0
            });
            let said =
                format!("`random({rows}, {columns}, …)`, where each drawn number is 1,");
            assert!(
                drawn.shape() == (rows, columns),
                "{said} has the shape {:?}",
                drawn.shape()
            );
            assert!(
                calls == rows * columns,
                "{said} draws {calls} numbers for {} entries. Is `normal` called for each entry, or once for all?",
                rows * columns
            );
            let (got, right) = (drawn[0], 1.0 / (rows as f64).sqrt());
            for (wrong, what) in [
                (1.0, "Is a drawn number divided at all?"),
                (
                    1.0 / rows as f64,
                    "Divide by the root of the number of rows, not by the number",
                ),
                (
                    1.0 / (columns as f64).sqrt(),
                    "A product sums over the rows of the matrix, so their number counts, not that of the columns",
                ),
            ] {
                assert!(
                    (got - wrong).abs() > 1e-9,
                    "{said} has entries of {got:.4}, and should have {right:.4}. {what}"
                );
            }
            assert!(
                (drawn - Matrix::repeat(rows, columns, right)).amax() < 1e-9,
                "{said} has entries of {got:.4}, and should have 1 / √{rows} = {right:.4} everywhere"
            );
        }
    }

    #[test]
    fn a_new_layer_has_four_matrices_of_its_own() {
        let mut last = 0.0;
        let layer = Layer::new(4, &mut || {
            last += 1.0;
            last
        });
        let all = [&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o];
        let mut entries = vec![];
        for (matrix, name) in all.into_iter().zip(["w_q", "w_k", "w_v", "w_o"]) {
            assert!(
                matrix.shape() == (4, 4),
                "`{name}` of `Layer::new(4, …)` should have the shape (4, 4), and has {:?}",
                matrix.shape()
            );
            entries.extend(matrix.iter().copied());
        }
        for (one, two) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            assert!(
                all[one] != all[two],
                "`normal` returns another number each time, and two of the four matrices are the same. A layer that starts with the same matrix twice has queries that are keys, or keys that are values: is each matrix drawn anew?"
            );
        }
        entries.sort_by(f64::total_cmp);
        let numbers: Vec<_> = (1..=64).map(|number| f64::from(number) / 2.0).collect();
        assert!(
            entries == numbers,
            "`normal` returns 1, 2, 3 and so on up to 64, and the entries of the four matrices should be these, divided by √4 = 2. The smallest is {}, the largest {}",
            entries[0],
            entries[63]
        );
    }
}
