//! # Build it yourself: the backward pass
//!
//! hard, 60 minutes, without `attention::`
//!
//! The eighth file walks back. A gradient has the shape of what it belongs to.
//!
//! - `softmax_backward` returns the gradient of the scores, from the weights and the gradient of the weights, all $(n_q, n_k)$.
//! - `attention_backward` returns the gradients of queries, keys and values, in this order. The weights are those of the forward pass.
//! - `Heads::backward` gets what `forward` kept and the gradient of the output $(n, d_{\text{model}})$. It returns the gradient of `x`, and
//!   the gradients of the four matrices as a `Layer`. If there is a `turn`, the gradients of each head's queries and keys are turned back, from
//!   position 0 with the direction −1.
//!
//! # Hint
//!
//! If $Y = A B$, then $dA = dY\, B^\top$ and $dB = A^\top dY$. Find the products of the forward pass, last one first, and write down the
//! shape of each gradient. Which input is used three times?
//!
//! # Hint
//!
//! Softmax: in each row, subtract the mean of the gradients *under the weights*, and multiply by the weight.
//! `weights.component_mul(grad_weights).column_sum()` has that mean for each row. The scale $1 / \sqrt{d_k}$ comes once, before $dQ$ and $dK$.
//!
//! # Hint
//!
//! `Heads::backward`: the gradient of `attended` is `grad_output * w_o.transpose()`. `self.split` it, call `attention_backward` for each
//! head, turn the first two results back, and `join` the heads' gradients of each kind. Then `grad_x` is a sum of three products, and the
//! gradient of `w_q` is `x.transpose() * grad_q`.

use attention::plain::*;

// PROGRAM softmax scores masks attention layer heads backward
// FAULT no-mean: This is the weight times the gradient, and no mean was subtracted
// - weights[(i, j)] * (grad_weights[(i, j)] - means[i])
// > weights[(i, j)] * grad_weights[(i, j)]
// FAULT no-factor: The mean is subtracted, and the factor of the weight is missing
// - weights[(i, j)] * (grad_weights[(i, j)] - means[i])
// > grad_weights[(i, j)] - means[i]
// FAULT plain-mean: The plain mean of the row is subtracted
// - let means = weights.component_mul(grad_weights).column_sum(); // (n_q)
// > let means = grad_weights.column_mean();
// FAULT averaged: The weights make a mean already, so add up
// - let means = weights.component_mul(grad_weights).column_sum(); // (n_q)
// > let means = weights.component_mul(grad_weights).column_mean();
// FAULT per-key: The subtracted numbers belong to the columns
// - let means = weights.component_mul(grad_weights).column_sum(); // (n_q)
// > let means = weights.component_mul(grad_weights).row_sum();
// FAULT per-key
// - weights[(i, j)] * (grad_weights[(i, j)] - means[i])
// > weights[(i, j)] * (grad_weights[(i, j)] - means[j])
// FAULT grad-v-not-transposed: A value hears from each query that used it
// - let grad_v = weights.transpose() * grad_output;
// > let grad_v = weights * grad_output;
// FAULT v-not-transposed: The weight of value j gets the product of the output's gradient with row j of `v`
// - let grad_weights = grad_output * v.transpose();
// > let grad_weights = grad_output * v;
// FAULT softmax-skipped: Did the gradient of the weights go through `softmax_backward`?
// - let grad_scores = softmax_backward(weights, &grad_weights);
// > let grad_scores = grad_weights;
// FAULT scale-never: The scale of the scores is missing
// - let grad_products = grad_scores / (q.ncols() as f64).sqrt();
// > let grad_products = grad_scores;
// FAULT scale-twice: The scale is there twice
// - let grad_products = grad_scores / (q.ncols() as f64).sqrt();
// > let grad_products = grad_scores / q.ncols() as f64;
// FAULT scale-inverted: The scale divides in the backward pass, too
// - let grad_products = grad_scores / (q.ncols() as f64).sqrt();
// > let grad_products = grad_scores * (q.ncols() as f64).sqrt();
// FAULT width-of-values: You divide by √d_v
// - let grad_products = grad_scores / (q.ncols() as f64).sqrt();
// > let grad_products = grad_scores / (v.ncols() as f64).sqrt();
// FAULT own-queries: A query's gradient is a sum of keys, not of queries
// - [&grad_products * k, grad_products.transpose() * q, grad_v]
// > [&grad_products * q, grad_products.transpose() * k, grad_v]
// FAULT grad-k-not-transposed: A key hears from each query that met it
// - [&grad_products * k, grad_products.transpose() * q, grad_v]
// > [&grad_products * k, &grad_products * q, grad_v]
// FAULT swapped: the gradient of the queries comes first, and then that of the keys
// - [&grad_products * k, grad_products.transpose() * q, grad_v]
// > [grad_products.transpose() * q, &grad_products * k, grad_v]
// FAULT w-o-gradient-transposed: the gradient of `w_o` is transposed
// - let grad_w_o = attended.transpose() * grad_output;
// > let grad_w_o = grad_output.transpose() * attended;
// FAULT w-o-not-transposed: Does the gradient go back through `w_o` transposed?
// - let grad_attended = self.split(&(grad_output * w_o.transpose()));
// > let grad_attended = self.split(&(grad_output * w_o));
// FAULT w-o-skipped: Does the gradient go back through `w_o` at all?
// - let grad_attended = self.split(&(grad_output * w_o.transpose()));
// > let grad_attended = self.split(grad_output);
// FAULT weights-of-one-head: Each head goes back through its own weights
// - let mut of_head = attention_backward(&q[h], &k[h], &v[h], &weights[h], grad);
// > let mut of_head = attention_backward(&q[h], &k[h], &v[h], &weights[0], grad);
// FAULT not-turned-back: Queries and keys were turned, so their gradients have to be turned back
// - of_head[..2].iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
// FAULT turned-again: turned the same way once more
// - of_head[..2].iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
// > of_head[..2].iter_mut().for_each(|grad| *grad = turn(grad, 0, 1.0));
// FAULT values-turned: Values were not turned
// - of_head[..2].iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
// > of_head.iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
// FAULT queries-alone: Keys were turned as queries were
// - of_head[..2].iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
// > of_head[..1].iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
// FAULT without-keys: The way through the keys is missing
// - + &grad_k * w_k.transpose()
// FAULT without-values: The way through the values is missing
// - + &grad_v * w_v.transpose();
// > ;
// FAULT matrices-not-transposed: A gradient goes back through the transposed matrix
// - let grad_x = &grad_q * w_q.transpose()
// > let grad_x = &grad_q * w_q
// FAULT gradients-transposed: the gradient of `w_v` is transposed
// - let [w_q, w_k, w_v] = [grad_q, grad_k, grad_v].map(|grad| x.transpose() * grad);
// > let [w_q, w_k, w_v] = [grad_q, grad_k, grad_v].map(|grad| grad.transpose() * x);

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
        a.shape() == b.shape() && (a - b).norm() < 1e-6 // false for NaN
    }

    fn before(query: usize, key: usize) -> bool {
        key <= query
    }

    /// The slope of a loss for each entry, by moving it a little up and down.
    fn slopes(x: &Matrix, loss: impl Fn(&Matrix) -> f64) -> Matrix {
        Matrix::from_fn(x.nrows(), x.ncols(), |i, j| {
            let moved = |step: f64| {
                let mut x = x.clone();
                x[(i, j)] += step;
                loss(&x)
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        })
    }

    /// The softmax of the scores that are seen.
    fn shares(scores: &Matrix, sees: impl Fn(usize, usize) -> bool) -> Matrix {
        let (n, m) = scores.shape();
        let mut weights =
            Matrix::from_fn(
                n,
                m,
                |i, j| if sees(i, j) { scores[(i, j)].exp() } else { 0.0 },
            );
        for mut row in weights.row_iter_mut() {
            row /= row.sum();
        }
        weights
    }

    fn weights_of(q: &Matrix, k: &Matrix) -> Matrix {
        shares(&(q * k.transpose() / (q.ncols() as f64).sqrt()), before)
    }

    /// Turns each pair of columns by the angle of the row's position.
    fn swing(rows: &Matrix, first: usize, direction: f64) -> Matrix {
        let mut turned = rows.clone();
        for i in 0..rows.nrows() {
            let (sin, cos) = (direction * (first + i) as f64).sin_cos();
            for c in (0..rows.ncols()).step_by(2) {
                turned[(i, c)] = rows[(i, c)] * cos - rows[(i, c + 1)] * sin;
                turned[(i, c + 1)] = rows[(i, c)] * sin + rows[(i, c + 1)] * cos;
            }
        }
        turned
    }

    /// Heads of width 2 with random matrices.
    fn example(n_heads: usize, turn: Option<Turn>) -> Heads {
        let d_model = 2 * n_heads;
        let [w_q, w_k, w_v, w_o] =
            [1, 2, 3, 4].map(|seed| 1.5 * numbers(d_model, d_model, seed));
        Heads { layer: Layer { w_q, w_k, w_v, w_o }, n_heads, turn }
    }

    /// The output's product with `grad`, by loops. For one token or several, each of which sees itself and what is before it.
    fn loss(heads: &Heads, x: &Matrix, grad: &Matrix) -> f64 {
        let Layer { w_q, w_k, w_v, w_o } = &heads.layer;
        let mut attended = Matrix::zeros(x.nrows(), x.ncols());
        for h in 0..heads.n_heads {
            let cut = |w: &Matrix| (x * w).columns(2 * h, 2).into_owned();
            let (mut q, mut k) = (cut(w_q), cut(w_k));
            if let Some(turn) = heads.turn {
                (q, k) = (turn(&q, 0, 1.0), turn(&k, 0, 1.0));
            }
            attended.columns_mut(2 * h, 2).copy_from(&(weights_of(&q, &k) * cut(w_v)));
        }
        (attended * w_o).dot(grad)
    }

    /// The slopes of the loss for `x`, `w_q`, `w_k`, `w_v` and `w_o`.
    fn measured(heads: &Heads, x: &Matrix, grad: &Matrix) -> [Matrix; 5] {
        let of = |at: usize| {
            let all = |heads: &mut Heads, w: &Matrix| match at {
                1 => heads.layer.w_q = w.clone(),
                2 => heads.layer.w_k = w.clone(),
                3 => heads.layer.w_v = w.clone(),
                _ => heads.layer.w_o = w.clone(),
            };
            let Layer { w_q, w_k, w_v, w_o } = &heads.layer;
            slopes([x, w_q, w_k, w_v, w_o][at], |moved| {
                if at == 0 {
                    return loss(heads, moved, grad);
                }
                let mut heads = heads.clone();
                all(&mut heads, moved);
                loss(&heads, x, grad)
            })
        };
        [0, 1, 2, 3, 4].map(of)
    }

    /// What your `backward` returns, after your `forward`.
    fn yours(heads: &Heads, x: &Matrix, grad: &Matrix) -> [Matrix; 5] {
        let (_, kept) = heads.forward(x, before);
        let (grad_x, Layer { w_q, w_k, w_v, w_o }) = heads.backward(&kept, grad);
        [grad_x, w_q, w_k, w_v, w_o]
    }

    #[test]
    fn softmax_by_hand() {
        let (weights, grad) =
            (dmatrix![0.5, 0.5; 0.25, 0.75], dmatrix![2.0, 0.0; 4.0, 0.0]);
        // The means are ½·2 + ½·0 = 1 and ¼·4 + ¾·0 = 1.
        let right = dmatrix![0.5, -0.5; 0.75, -0.75];
        let got = softmax_backward(&weights, &grad);
        let said =
            format!("the weights{weights}with the gradients{grad}give the scores{got}");
        let minus = |mean: Matrix| weights.component_mul(&(&grad - mean));
        for (wrong, what) in [
            (
                minus(Matrix::zeros(2, 2)),
                "This is the weight times the gradient, and no mean was subtracted",
            ),
            (
                grad.add_scalar(-1.0),
                "The mean is subtracted, and the factor of the weight is missing",
            ),
            (
                minus(dmatrix![1.0, 1.0; 2.0, 2.0]),
                "The plain mean of the row is subtracted, and it should be the mean under the weights",
            ),
            (
                minus(Matrix::repeat(2, 2, 0.5)),
                "The subtracted mean is half of what it should be. The weights make a mean already, so add up, and don't divide",
            ),
            (
                minus(dmatrix![2.0, 0.0; 2.0, 0.0]),
                "The subtracted numbers belong to the columns, and should belong to the rows: in nalgebra `column_sum` gives one number for each row",
            ),
        ] {
            assert!(!near(&got, &wrong), "{said}{what}");
        }
        assert!(
            near(&got, &right),
            "{said}The means under the weights are 1 in both rows, so it should be{right}"
        );
    }

    #[test]
    fn softmax_as_measured() {
        for (n_q, n_k) in [(3, 5), (4, 2), (1, 6)] {
            let (scores, grad) = (2.0 * numbers(n_q, n_k, 1), numbers(n_q, n_k, 2));
            let everything = |_: usize, _: usize| true;
            let right = slopes(&scores, |it| shares(it, everything).dot(&grad));
            let got = softmax_backward(&shares(&scores, everything), &grad);
            assert!(
                got.shape() == (n_q, n_k),
                "weights ({n_q}, {n_k}): the gradient of the scores has the same shape, and yours has {:?}",
                got.shape()
            );
            for (i, row) in got.row_iter().enumerate() {
                assert!(
                    row.sum().abs() < 1e-9,
                    "weights ({n_q}, {n_k}): row {i} of the gradient sums to {:.4}, and should sum to 0, since raising all scores of a row alike changes no weight",
                    row.sum()
                );
            }
            assert!(
                near(&got, &right),
                "weights ({n_q}, {n_k}): the slopes, as measured, are{right:.5}and yours{got:.5}"
            );
        }
    }

    #[test]
    fn two_tokens_by_hand() {
        let (q, k) = (dmatrix![2.0, 2.0; 0.0, 2.0], dmatrix![2.0, 0.0; 2.0, 4.0]);
        let (v, grad) = (dmatrix![2.0, 1.0; 0.0, 4.0], dmatrix![1.0, 0.0; 0.0, 1.0]);
        let weights = dmatrix![0.5, 0.5; 1.0, 0.0];
        let [grad_q, grad_k, grad_v] = attention_backward(&q, &k, &v, &weights, &grad);
        // dV: value 0 is used by both queries, ½·(1, 0) + 1·(0, 1), and value 1 by the first, ½·(1, 0).
        let right_v = dmatrix![0.5, 1.0; 0.5, 0.0];
        assert!(
            !near(&grad_v, &(&weights * &grad)),
            "the gradient of the values is the product of the weights with that of the output, {grad_v}A value hears from each query that used it, which is a column of the weights: is a transpose missing?"
        );
        assert!(
            near(&grad_v, &right_v),
            "two queries with the weights (½, ½) and (1, 0), whose outputs have the gradients (1, 0) and (0, 1): the gradient of the values should be{right_v}and is{grad_v}"
        );
        // dA = (2, 0) and (1, 4), with the means 1 and 1, so the gradient of the scores is (½, −½) and (0, 0).
        // dQ: (½·(2, 0) − ½·(2, 4)) / √2 = (0, −2) / √2
        let root = 2.0_f64.sqrt();
        let (right_q, right_k) =
            (dmatrix![0.0, -2.0; 0.0, 0.0] / root, dmatrix![1.0, 1.0; -1.0, -1.0] / root);
        let scores = |grad_weights: Matrix| {
            Matrix::from_fn(2, 2, |i, j| {
                let mean = weights.row(i).dot(&grad_weights.row(i));
                weights[(i, j)] * (grad_weights[(i, j)] - mean)
            }) / root
        };
        let said = "two queries with the weights (½, ½) and (1, 0):";
        assert!(
            !near(&grad_q, &right_k) || !near(&grad_k, &right_q),
            "{said} the gradient of the queries comes first, and then that of the keys, and yours are the other way round"
        );
        let from_v = scores(&grad * &v) * &k;
        assert!(
            !near(&grad_q, &from_v),
            "{said} the gradient of the weights was computed with `v` not transposed. The weight of value j gets the product of the output's gradient with row j of `v`"
        );
        assert!(
            !near(&grad_q, &(&grad * v.transpose() * &k / root)),
            "{said} the gradient of the queries is{grad_q:.4}Did the gradient of the weights go through `softmax_backward`?"
        );
        let products = scores(&grad * v.transpose());
        assert!(
            !near(&grad_q, &(&products * &q)),
            "{said} the gradient of the queries is{grad_q:.4}A query's gradient is a sum of keys, not of queries, because it was multiplied by keys"
        );
        let in_proportion =
            |a: &Matrix, b: &Matrix| near(&(a * b.norm()), &(b * a.norm()));
        assert!(
            in_proportion(&grad_q, &right_q),
            "{said} the gradients of the scores should be (½, −½) and (0, 0), so that of the queries should be, up to the scale, (0, −2) and (0, 0). Yours is{grad_q:.4}"
        );
        assert!(
            !in_proportion(&grad_k, &(&products * &q)),
            "{said} the gradient of the keys is{grad_k:.4}A key hears from each query that met it, which is a column of the scores: is a transpose missing?"
        );
        assert!(
            in_proportion(&grad_k, &right_k),
            "{said} the gradient of the queries has the right direction. That of the keys should be, up to the scale, (1, 1) and (−1, −1), and is{grad_k:.4}"
        );
    }

    #[test]
    fn attention_as_measured() {
        for [n, d_k, d_v] in [[4, 5, 3], [2, 2, 6], [5, 3, 1]] {
            let [q, k] = [1, 2].map(|seed| 1.5 * numbers(n, d_k, seed));
            let (v, grad) = (numbers(n, d_v, 3), numbers(n, d_v, 4));
            let loss =
                |q: &Matrix, k: &Matrix, v: &Matrix| (weights_of(q, k) * v).dot(&grad);
            let right = [
                slopes(&q, |q| loss(q, &k, &v)),
                slopes(&k, |k| loss(&q, k, &v)),
                slopes(&v, |v| loss(&q, &k, v)),
            ];
            let got = attention_backward(&q, &k, &v, &weights_of(&q, &k), &grad);
            let (root, other) = ((d_k as f64).sqrt(), (d_v as f64).sqrt());
            let sizes = format!("{n} tokens, d_k = {d_k}, d_v = {d_v}, causal:");
            for (at, name) in [(2, "values"), (0, "queries"), (1, "keys")] {
                let (got, right) = (&got[at], &right[at]);
                assert!(
                    got.shape() == right.shape(),
                    "{sizes} the gradient of the {name} should have the shape {:?}, and has {:?}",
                    right.shape(),
                    got.shape()
                );
                for (factor, what) in [
                    (root, "The scale of the scores is missing"),
                    (1.0 / root, "The scale is there twice"),
                    (
                        root * root,
                        "The scale divides in the backward pass, too, and here it multiplies",
                    ),
                    (
                        root / other,
                        "You divide by √d_v, and the scores were divided by √d_k",
                    ),
                ] {
                    assert!(
                        !near(got, &(right * factor)),
                        "{sizes} the gradient of the {name} is {factor:.3} times what it should be. {what}"
                    );
                }
                assert!(
                    near(got, right),
                    "{sizes} the gradient of the {name}, as measured, is{right:.5}and yours is{got:.5}"
                );
            }
        }
    }

    #[test]
    fn cross_attention_has_gradients_too() {
        // Three queries and five keys, all visible.
        let [q, k] = [(3, 1), (5, 2)].map(|(n, seed)| numbers(n, 2, seed));
        let (v, grad) = (numbers(5, 4, 3), numbers(3, 4, 4));
        let weights = |q: &Matrix, k: &Matrix| {
            shares(&(q * k.transpose() / 2.0_f64.sqrt()), |_, _| true)
        };
        let right = [
            slopes(&q, |q| (weights(q, &k) * &v).dot(&grad)),
            slopes(&k, |k| (weights(&q, k) * &v).dot(&grad)),
        ];
        let got = attention_backward(&q, &k, &v, &weights(&q, &k), &grad);
        for (at, name) in [(0, "queries"), (1, "keys")] {
            assert!(
                near(&got[at], &right[at]),
                "three queries and five keys: the gradient of the {name}, as measured, is{:.5}and yours is{:.5}",
                right[at],
                got[at]
            );
        }
    }

    #[test]
    fn one_token_by_hand() {
        // One token sees itself with the weight 1, so the layer is x · w_v · w_o.
        let [zero, w_v, w_o] = [
            Matrix::zeros(2, 2),
            dmatrix![1.0, 2.0; 0.0, 1.0],
            dmatrix![1.0, 0.0; 3.0, 1.0],
        ];
        let layer = Layer { w_q: zero.clone(), w_k: zero.clone(), w_v, w_o };
        let heads = Heads { layer, n_heads: 1, turn: None };
        let (x, grad) = (dmatrix![1.0, 2.0], dmatrix![1.0, -1.0]);
        let [grad_x, w_q, w_k, grad_v, grad_o] = yours(&heads, &x, &grad);
        // attended = (1, 2) · w_v = (1, 4); its gradient is (1, −1) · w_oᵀ = (1, 2).
        let right_o = dmatrix![1.0, -1.0; 4.0, -4.0];
        let said = "one token, (1, 2), whose output has the gradient (1, −1):";
        assert!(
            !near(&grad_o, &right_o.transpose()),
            "{said} the gradient of `w_o` is transposed. Row c should belong to column c of `attended`, which is (1, 4)"
        );
        assert!(
            near(&grad_o, &right_o),
            "{said} `attended` is (1, 4), so the gradient of `w_o` should be{right_o}and is{grad_o}"
        );
        let right_v = dmatrix![1.0, 2.0; 2.0, 4.0];
        let with = |grad: Matrix| x.transpose() * grad;
        for (wrong, what) in [
            (
                with(dmatrix![-2.0, -1.0]),
                "Does the gradient go back through `w_o` transposed?",
            ),
            (with(grad.clone()), "Does the gradient go back through `w_o` at all?"),
        ] {
            assert!(
                !near(&grad_v, &wrong) && !near(&grad_v, &wrong.transpose()),
                "{said} the gradient of `w_v` is{grad_v}{what}"
            );
        }
        assert!(
            near(&grad_v, &right_v),
            "{said} the gradient of the values is (1, −1) · w_oᵀ = (1, 2), so that of `w_v` should be{right_v}and is{grad_v}"
        );
        // (1, 2) · w_vᵀ = (5, 2)
        let right = dmatrix![5.0, 2.0];
        assert!(
            !near(&grad_x, &zero.rows(0, 1).into_owned()),
            "{said} the gradient of x is zero. The way through the values is missing"
        );
        assert!(
            near(&grad_x, &right),
            "{said} the gradient of the values is (1, 2), so that of x should be (1, 2) · w_vᵀ = (5, 2), and is{grad_x}"
        );
        assert!(
            near(&w_q, &zero) && near(&w_k, &zero),
            "{said} it has nowhere else to look, so the gradients of `w_q` and `w_k` should be zero"
        );
    }

    #[test]
    fn gradients_of_matrices_as_measured() {
        for n_heads in [1, 3] {
            let heads = example(n_heads, None);
            let (x, grad) = (numbers(4, 2 * n_heads, 5), numbers(4, 2 * n_heads, 6));
            let (got, right) = (yours(&heads, &x, &grad), measured(&heads, &x, &grad));
            let said = format!("n_heads = {n_heads}, width 2, four tokens, causal:");
            for (at, name) in [(4, "`w_o`"), (3, "`w_v`"), (1, "`w_q`"), (2, "`w_k`")] {
                let (got, right) = (&got[at], &right[at]);
                assert!(
                    !near(got, &right.transpose()),
                    "{said} the gradient of {name} is transposed. It is a product: the transpose of what was multiplied by {name}, times a gradient"
                );
                assert!(
                    near(got, right),
                    "{said} the gradient of {name}, as measured, is{right:.5}and yours is{got:.5}{}",
                    if n_heads == 1 {
                        "Which gradient does it need, and of which product is it a factor?"
                    } else {
                        "With one head it was right. Each head goes back through its own weights, queries, keys and values"
                    }
                );
            }
        }
    }

    #[test]
    fn the_input_is_used_three_times() {
        // With the identity for x, the gradient of `w_q` is that of the queries.
        let heads = example(2, None);
        let (x, grad) = (Matrix::identity(4, 4), numbers(4, 4, 6));
        let (got, right) = (&yours(&heads, &x, &grad)[0], measured(&heads, &x, &grad));
        let said = "two heads, and an x that is the identity: the gradient of x is a sum of three products, since x is used three times.";
        let Layer { w_q, w_k, w_v, .. } = &heads.layer;
        for (w, grad, name, matrix) in [
            (w_q, &right[1], "queries", "w_q"),
            (w_k, &right[2], "keys", "w_k"),
            (w_v, &right[3], "values", "w_v"),
        ] {
            let others = &right[0] - grad * w.transpose();
            assert!(!near(got, &others), "{said} The way through the {name} is missing");
            assert!(
                !near(got, &(others + grad * w)),
                "{said} One of them has `{matrix}` where it should have its transpose. A gradient goes back through the transposed matrix"
            );
        }
        assert!(
            near(got, &right[0]),
            "{said} As measured, it is{:.5}and yours is{got:.5}",
            right[0]
        );
        for n_heads in [1, 3] {
            let heads = example(n_heads, None);
            let (x, grad) = (numbers(5, 2 * n_heads, 5), numbers(5, 2 * n_heads, 6));
            let (got, right) =
                (&yours(&heads, &x, &grad)[0], &measured(&heads, &x, &grad)[0]);
            assert!(
                near(got, right),
                "n_heads = {n_heads}, width 2, five tokens: the gradient of x, as measured, is{right:.5}and yours is{got:.5}"
            );
        }
    }

    #[test]
    fn turned_heads_as_measured() {
        // x is the identity, so the gradient of `w_q` is that of the queries, all heads side by side.
        let heads = example(2, Some(swing));
        let (x, grad) = (Matrix::identity(4, 4), numbers(4, 4, 6));
        let (got, right) = (yours(&heads, &x, &grad), measured(&heads, &x, &grad));
        let said = "two heads, with queries and keys turned to their positions:";
        assert!(
            !near(&got[3], &swing(&right[3], 0, -1.0)),
            "{said} the gradients of the values are turned back. Values were not turned"
        );
        let is_turned = |at: usize, by: f64| near(&got[at], &swing(&right[at], 0, by));
        assert!(
            !(is_turned(1, 0.0) && is_turned(2, 1.0)),
            "{said} the gradients of the queries are right, and those of the keys aren't turned back. Keys were turned as queries were"
        );
        for (at, name) in [(1, "queries"), (2, "keys")] {
            assert!(
                !is_turned(at, 2.0),
                "{said} the gradients of the {name} are turned the same way once more, and the direction should be −1"
            );
            assert!(
                !is_turned(at, 1.0),
                "{said} the gradients of the {name} are those of turned {name}. Queries and keys were turned, so their gradients have to be turned back"
            );
        }
        for (at, name) in
            [(4, "`w_o`"), (3, "`w_v`"), (1, "`w_q`"), (2, "`w_k`"), (0, "x")]
        {
            let (got, right) = (&got[at], &right[at]);
            assert!(
                near(got, right),
                "{said} the gradient of {name}, as measured, is{right:.5}and yours is{got:.5}"
            );
        }
    }
}
