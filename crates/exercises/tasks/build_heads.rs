//! # Build it yourself: heads
//!
//! medium, 45 minutes, without `attention::`
//!
//! The sixth file shares a layer's columns out among heads of width $d = d_{\text{model}} / h$. Start at the end of the file.
//!
//! - `split` cuts $(n, d_{\text{model}})$ into $h$ matrices $(n, d)$ of neighbouring columns, and `join` undoes it.
//! - `attend` gets the heads' queries, keys and values, and returns the joined outputs and each head's weights. All heads share a mask.
//! - `project` returns queries, keys and values of all heads. If there is a `turn`, each head's queries and keys go through it, with `first`
//!   and the direction 1. Values don't.
//! - `forward` projects from position 0, attends, multiplies by `w_o`, and returns the output $(n, d_{\text{model}})$ and `Kept`, whose fields
//!   say what they hold.
//!
//! # Hint
//!
//! Take two tokens, $(1, 2, 3, 4)$ and $(5, 6, 7, 8)$, and two heads. Write down what `split` returns. For `join`, from which head does
//! column $c$ come, and from which of its columns?
//!
//! # Hint
//!
//! `all.columns(start, d).into_owned()` copies `d` columns. With the division of integers, column $c$ comes from head `c / d`, and there it
//! is column `c % d`. In `attend`, hand `&sees` to each call, since one call would use up `sees`.
//!
//! # Hint
//!
//! `attend`: collect the pairs of `(0..self.n_heads).map(|h| attention(&q[h], &k[h], &v[h], &sees))`; `unzip` makes two lists of a
//! list of pairs. `project`: `[w_q, w_k, w_v].map(|w| self.split(&(x * w)))`, then `if let Some(turn) = self.turn`, and
//! `for rows in q.iter_mut().chain(&mut k)`.

use attention::plain::*;

// PROGRAM softmax scores masks attention layer heads
// FAULT same-columns: Every head has the first columns
// - (0..self.n_heads).map(|h| all.columns(h * d, d).into_owned()).collect()
// > (0..self.n_heads).map(|_| all.columns(0, d).into_owned()).collect()
// FAULT interleaved: The heads take columns in turns
// - (0..self.n_heads).map(|h| all.columns(h * d, d).into_owned()).collect()
// > let h = self.n_heads;
// > let of = |r| Matrix::from_fn(all.nrows(), d, |i, c| all[(i, c * h + r)]);
// > (0..h).map(of).collect()
// FAULT overlapping: Head 1 begins one column after head 0
// - (0..self.n_heads).map(|h| all.columns(h * d, d).into_owned()).collect()
// > (0..self.n_heads).map(|h| all.columns(h, d).into_owned()).collect()
// FAULT reshaped: Head 0 has all columns of the first tokens
// - (0..self.n_heads).map(|h| all.columns(h * d, d).into_owned()).collect()
// > let (n, wide) = all.shape();
// > let entry = |at: usize| all[(at / wide, at % wide)];
// > let of = |h| Matrix::from_fn(n, d, |i, c| entry((h * n + i) * d + c));
// > (0..self.n_heads).map(of).collect()
// FAULT width-is-count: A head's width is d_model / n_heads
// - let d = all.ncols() / self.n_heads;
// > let d = self.n_heads;
// FAULT joined-in-turns: `join` takes a column from each head in turns
// - Matrix::from_fn(n, d * heads.len(), |i, c| heads[c / d][(i, c % d)])
// > let h = heads.len();
// > Matrix::from_fn(n, d * h, |i, c| heads[c % h][(i, c / h)])
// FAULT stacked: `join` puts heads below each other
// - Matrix::from_fn(n, d * heads.len(), |i, c| heads[c / d][(i, c % d)])
// > Matrix::from_fn(n * heads.len(), d, |i, c| heads[i / n][(i % n, c)])
// FAULT summed: `join` adds heads up
// - Matrix::from_fn(n, d * heads.len(), |i, c| heads[c / d][(i, c % d)])
// > heads.iter().fold(Matrix::zeros(n, d), |sum, head| sum + head)
// FAULT keys-of-one-head: head 1 used the keys of head 0
// - let heads = (0..self.n_heads).map(|h| attention(&q[h], &k[h], &v[h], &sees));
// > let heads = (0..self.n_heads).map(|h| attention(&q[h], &k[0], &v[h], &sees));
// FAULT one-mask: the mask is for every head
// - let heads = (0..self.n_heads).map(|h| attention(&q[h], &k[h], &v[h], &sees));
// > let heads = (0..self.n_heads)
// >     .map(|h| attention(&q[h], &k[h], &v[h], |i, j| h > 0 || sees(i, j)));
// FAULT wide-scale: a head divides by the root of its own width
// - let heads = (0..self.n_heads).map(|h| attention(&q[h], &k[h], &v[h], &sees));
// > let narrow = 1.0 / (self.n_heads as f64).sqrt();
// > let heads = (0..self.n_heads)
// >     .map(|h| attention(&(&q[h] * narrow), &k[h], &v[h], &sees));
// FAULT transposed: Is a projection transposed?
// - let [mut q, mut k, v] = [w_q, w_k, w_v].map(|w| self.split(&(x * w)));
// > let [mut q, mut k, v] = [w_q, w_k, w_v].map(|w| self.split(&(x * w.transpose())));
// FAULT keys-by-w-q: Keys come from `w_k`
// - let [mut q, mut k, v] = [w_q, w_k, w_v].map(|w| self.split(&(x * w)));
// > let [mut q, mut k, v] = [w_q, w_q, w_v].map(|w| self.split(&(x * w)));
// FAULT values-turned: Values go through `turn`, and shouldn't
// - let [mut q, mut k, v] = [w_q, w_k, w_v].map(|w| self.split(&(x * w)));
// > let [mut q, mut k, mut v] = [w_q, w_k, w_v].map(|w| self.split(&(x * w)));
// FAULT values-turned
// - q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, 1.0));
// > let all = q.iter_mut().chain(&mut k).chain(&mut v);
// > all.for_each(|rows| *rows = turn(rows, first, 1.0));
// FAULT queries-alone: Queries went through `turn`, and keys didn't
// - q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, 1.0));
// > q.iter_mut().for_each(|rows| *rows = turn(rows, first, 1.0));
// FAULT first-ignored: Is `first` handed on to `turn`?
// - q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, 1.0));
// > q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, 0, 1.0));
// FAULT turned-back: The direction −1 is for gradients
// - q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, 1.0));
// > q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, -1.0));
// FAULT turned-before-split: `turn` gets the rows of one head at a time
// - q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, 1.0));
// > q = self.split(&turn(&join(&q), first, 1.0));
// > k = self.split(&turn(&join(&k), first, 1.0));
// FAULT without-w-o: the output is what the heads found, not yet mixed
// - let output = &attended * &self.layer.w_o; // (n, d_model)
// > let output = attended.clone();
// FAULT kept-output: `attended` should be what came before `w_o`
// - (output, Kept { x: x.clone(), qkv, weights, attended })
// > (output.clone(), Kept { x: x.clone(), qkv, weights, attended: output })
// FAULT from-one: The first token of `forward` has position 0
// - let qkv = self.project(x, 0);
// > let qkv = self.project(x, 1);

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

    /// Heads with random matrices.
    fn example(d_model: usize, n_heads: usize, turn: Option<Turn>) -> Heads {
        let [w_q, w_k, w_v, w_o] =
            [1, 2, 3, 4].map(|seed| 1.5 * numbers(d_model, d_model, seed));
        Heads { layer: Layer { w_q, w_k, w_v, w_o }, n_heads, turn }
    }

    /// A `turn` that shows what it was given: it adds 1000 · direction + position to the last column.
    fn mark(rows: &Matrix, first: usize, direction: f64) -> Matrix {
        let last = rows.ncols() - 1;
        Matrix::from_fn(rows.nrows(), rows.ncols(), |i, c| {
            let more =
                if c == last { 1000.0 * direction + (first + i) as f64 } else { 0.0 };
            rows[(i, c)] + more
        })
    }

    /// A `turn` whose effect depends on the distance of two rows: by the angle of the position, in the first two columns.
    fn swing(rows: &Matrix, first: usize, direction: f64) -> Matrix {
        let mut turned = rows.clone();
        for i in 0..rows.nrows() {
            let (sin, cos) = (direction * (first + i) as f64).sin_cos();
            turned[(i, 0)] = rows[(i, 0)] * cos - rows[(i, 1)] * sin;
            turned[(i, 1)] = rows[(i, 0)] * sin + rows[(i, 1)] * cos;
        }
        turned
    }

    /// The columns of head h.
    fn cut(all: &Matrix, d: usize, h: usize) -> Matrix {
        Matrix::from_fn(all.nrows(), d, |i, c| all[(i, h * d + c)])
    }

    /// The output and the weights of one head, by loops. The scores are divided by the root of `width`.
    fn one_head(
        [q, k, v]: [&Matrix; 3],
        sees: impl Fn(usize, usize) -> bool,
        width: usize,
    ) -> (Matrix, Matrix) {
        let mut weights = Matrix::zeros(q.nrows(), k.nrows());
        let mut output = Matrix::zeros(q.nrows(), v.ncols());
        for i in 0..q.nrows() {
            for j in (0..k.nrows()).filter(|&j| sees(i, j)) {
                let score = q.row(i).dot(&k.row(j)) / (width as f64).sqrt();
                weights[(i, j)] = score.exp();
            }
            let sum = weights.row(i).sum();
            for j in 0..k.nrows() {
                weights[(i, j)] /= sum;
                for c in 0..v.ncols() {
                    output[(i, c)] += weights[(i, j)] * v[(j, c)];
                }
            }
        }
        (output, weights)
    }

    fn side_by_side(heads: &[Matrix]) -> Matrix {
        let columns = heads.iter().flat_map(|head| head.column_iter());
        Matrix::from_columns(&columns.collect::<Vec<_>>())
    }

    #[test]
    fn two_tokens_are_split() {
        let all = dmatrix![1.0, 2.0, 3.0, 4.0; 5.0, 6.0, 7.0, 8.0];
        let got = example(4, 2, None).split(&all);
        assert!(
            got.len() == 2,
            "two heads should get a matrix each, and `split` returns {}",
            got.len()
        );
        let said = format!(
            "the tokens (1, 2, 3, 4) and (5, 6, 7, 8), split for two heads, give head 0{}and head 1{}",
            got[0], got[1]
        );
        for (wrong, what) in [
            ([1.0, 2.0, 1.0, 2.0], "Every head has the first columns"),
            (
                [1.0, 3.0, 2.0, 4.0],
                "The heads take columns in turns, and a head has neighbours",
            ),
            (
                [1.0, 2.0, 2.0, 3.0],
                "Head 1 begins one column after head 0, and should begin after its last",
            ),
        ] {
            let first = [(0, 0), (0, 1)].map(|at| got[0][at]);
            let second = [(0, 0), (0, 1)].map(|at| got[1][at]);
            assert!([first, second].concat() != wrong, "{said}{what}");
        }
        assert!(
            got[0] != dmatrix![1.0, 2.0; 3.0, 4.0],
            "{said}Head 0 has all columns of the first tokens, and should have some columns of all tokens"
        );
        assert!(
            got == [dmatrix![1.0, 2.0; 5.0, 6.0], dmatrix![3.0, 4.0; 7.0, 8.0]],
            "{said}Head 0 should have (1, 2) and (5, 6), and head 1 (3, 4) and (7, 8)"
        );
    }

    #[test]
    fn two_heads_are_joined() {
        let heads = [dmatrix![1.0, 2.0; 5.0, 6.0], dmatrix![3.0, 4.0; 7.0, 8.0]];
        let got = join(&heads);
        let said = format!("joining 1, 2; 5, 6 and 3, 4; 7, 8 gives{got}");
        assert!(
            got.shape() != (4, 2),
            "{said}`join` puts heads below each other, and should put them side by side"
        );
        assert!(
            got.shape() != (2, 2),
            "{said}`join` adds heads up, and should put them side by side"
        );
        assert!(
            got != dmatrix![1.0, 3.0, 2.0, 4.0; 5.0, 7.0, 6.0, 8.0],
            "{said}`join` takes a column from each head in turns, and should take all of a head before it goes on"
        );
        assert!(
            got == dmatrix![1.0, 2.0, 3.0, 4.0; 5.0, 6.0, 7.0, 8.0],
            "{said}It should give 1, 2, 3, 4; 5, 6, 7, 8"
        );
    }

    #[test]
    fn joining_undoes_splitting() {
        for (n, d_model, n_heads) in [(3, 6, 2), (2, 6, 3), (5, 4, 1), (1, 8, 8)] {
            let (all, d) = (numbers(n, d_model, 5), d_model / n_heads);
            let parts = example(d_model, n_heads, None).split(&all);
            let said = format!("{n_heads} heads, d_model = {d_model}");
            for (h, part) in parts.iter().enumerate() {
                assert!(
                    part.shape() == (n, d),
                    "{said}: head {h} should have the shape ({n}, {d}), and has {:?}. A head's width is d_model / n_heads",
                    part.shape()
                );
                assert!(
                    near(part, &cut(&all, d, h)),
                    "{said}: head {h} should have the {d} columns from column {} on",
                    h * d
                );
            }
            assert!(
                near(&join(&parts), &all),
                "{said}: `join` doesn't undo `split`. From which head does column c come, and from which of its columns?"
            );
        }
    }

    #[test]
    fn each_head_attends_to_its_own() {
        // Queries of two tokens and keys of three, for two heads of width 3.
        let parts = |n: usize, seed: usize| [0, 1].map(|h| 2.0 * numbers(n, 3, seed + h));
        let (q, k, v) = (parts(2, 1), parts(3, 3), parts(3, 5));
        let sees = |query: usize, key: usize| query > 0 || key < 2;
        let (output, weights) = example(6, 2, None).attend([&q, &k, &v], sees);
        let right = [0, 1].map(|h| one_head([&q[h], &k[h], &v[h]], sees, 3));
        assert!(
            weights.len() == 2,
            "two heads have a matrix of weights each, and `attend` returns {}",
            weights.len()
        );
        let said = "two heads with queries (2, 3) and keys (3, 3), where query 0 doesn't see key 2";
        for (h, weights) in weights.iter().enumerate() {
            assert!(
                weights.shape() == (2, 3),
                "{said}: head {h} has weights of the shape {:?}, and should have a row for each query and a column for each key",
                weights.shape()
            );
            assert!(
                weights[(0, 2)] == 0.0,
                "{said}: head {h} gives it the weight {:.3}, but the mask is for every head",
                weights[(0, 2)]
            );
            let wide = one_head([&q[h], &k[h], &v[h]], sees, 6).1;
            assert!(
                !near(weights, &wide),
                "{said}: head {h} divided by √6, and a head divides by the root of its own width, which `attention` does already"
            );
            let others = one_head([&q[h], &k[0], &v[h]], sees, 3).1;
            assert!(
                h == 0 || !near(weights, &others),
                "{said}: head 1 used the keys of head 0"
            );
            assert!(
                near(weights, &right[h].1),
                "{said}: the weights of head {h} should be{:.4}and are{weights:.4}",
                right[h].1
            );
        }
        let [(first, _), (second, _)] = right;
        assert!(
            near(&output, &side_by_side(&[first, second])),
            "{said}: the weights are right, and the joined outputs aren't. Does each head average its own values, and does `attend` call `join`?"
        );
    }

    #[test]
    fn each_head_projects() {
        let heads = example(6, 2, None);
        let x = numbers(4, 6, 7);
        let Layer { w_q, w_k, w_v, .. } = &heads.layer;
        let got = heads.project(&x, 5);
        for (at, w, name) in [(0, w_q, "queries"), (1, w_k, "keys"), (2, w_v, "values")] {
            assert!(
                got[at].len() == 2,
                "two heads: `project` returns the {name} of {}",
                got[at].len()
            );
            for (h, rows) in got[at].iter().enumerate() {
                let is = |other: &Matrix| near(rows, &cut(other, 3, h));
                assert!(
                    !is(&(&x * w.transpose())),
                    "the {name} of head {h} are x · wᵀ. Is a projection transposed?"
                );
                assert!(
                    at != 1 || !is(&(&x * w_q)),
                    "the keys of head {h} are its queries. Keys come from `w_k`"
                );
                assert!(
                    is(&(&x * w)),
                    "the {name} of head {h} should be three columns of x times the matrix of the {name}"
                );
            }
        }
    }

    #[test]
    fn queries_and_keys_are_turned() {
        let heads = example(6, 2, Some(mark));
        let x = numbers(4, 6, 7);
        let [plain, got] = [None, Some(mark as Turn)]
            .map(|turn| Heads { turn, ..heads.clone() }.project(&x, 5));
        let said = "with a `turn`, and `first` = 5,";
        let is = |at: usize, h: usize, right: &Matrix| near(&got[at][h], right);
        for h in 0..2 {
            assert!(
                is(2, h, &plain[2][h]),
                "{said} the values of head {h} change. Values go through `turn`, and shouldn't"
            );
            for (at, name) in [(0, "queries"), (1, "keys")] {
                let rows = &plain[at][h];
                assert!(
                    !(is(at, 0, &plain[at][0])
                        && is(at, 1, &mark(&plain[at][1], 5, 1.0))),
                    "{said} the {name} of head 1 are turned, and those of head 0 aren't: `turn` gets the rows of one head at a time, after `split`"
                );
                assert!(
                    at == 0 || !is(at, h, rows),
                    "{said} the keys of head {h} stay as they were. Queries went through `turn`, and keys didn't"
                );
                for (wrong, what) in [
                    (
                        mark(rows, 0, 1.0),
                        "turned as if the first token had position 0. Is `first` handed on to `turn`?",
                    ),
                    (
                        mark(rows, 5, -1.0),
                        "turned the other way. The direction −1 is for gradients, and 1 for queries and keys",
                    ),
                ] {
                    assert!(
                        !is(at, h, &wrong),
                        "{said} the {name} of head {h} are {what}"
                    );
                }
                assert!(
                    is(at, h, &mark(rows, 5, 1.0)),
                    "{said} the {name} of head {h} should be `turn(rows, 5, 1.0)`, where rows are those without a `turn`"
                );
            }
        }
    }

    #[test]
    fn forward_is_all_of_it() {
        let (n, d) = (5, 2);
        for (n_heads, turn) in [(1, None), (3, None), (3, Some(swing as Turn))] {
            let heads = example(n_heads * d, n_heads, turn);
            let x = numbers(n, n_heads * d, 7);
            let Layer { w_q, w_k, w_v, w_o } = &heads.layer;
            let turned = |rows: Matrix| match turn {
                Some(turn) => turn(&rows, 0, 1.0),
                None => rows,
            };
            let of_head = |h: usize| {
                [
                    turned(cut(&(&x * w_q), d, h)),
                    turned(cut(&(&x * w_k), d, h)),
                    cut(&(&x * w_v), d, h),
                ]
            };
            let all: Vec<_> = (0..n_heads).map(of_head).collect();
            let (outputs, weights): (Vec<_>, Vec<_>) =
                all.iter().map(|qkv| one_head(qkv.each_ref(), before, d)).unzip();
            let attended = side_by_side(&outputs);
            let (output, kept) = heads.forward(&x, before);
            let said = format!(
                "n_heads = {n_heads}, width {d}{}, causal:",
                if turn.is_some() { ", turned to their positions" } else { "" }
            );
            assert!(
                !near(&output, &attended),
                "{said} the output is what the heads found, not yet mixed by `w_o`"
            );
            assert!(
                near(&output, &(&attended * w_o)),
                "{said} the output should be{:.4}and is{output:.4}",
                &attended * w_o
            );
            assert!(near(&kept.x, &x), "{said} the field `x` of `Kept` isn't the input");
            assert!(
                !near(&kept.attended, &output),
                "{said} the field `attended` of `Kept` is the output. `attended` should be what came before `w_o`"
            );
            assert!(
                near(&kept.attended, &attended),
                "{said} the field `attended` of `Kept` isn't what the heads found, side by side"
            );
            let same_weights = kept.weights.len() == n_heads
                && kept.weights.iter().zip(&weights).all(|(a, b)| near(a, b));
            assert!(same_weights, "{said} the field `weights` of `Kept` is wrong");
            for (at, name) in ["queries", "keys", "values"].into_iter().enumerate() {
                for (h, rows) in kept.qkv[at].iter().enumerate() {
                    assert!(
                        turn.is_none()
                            || at == 2
                            || !near(rows, &swing(&swing(&all[h][at], 0, -1.0), 1, 1.0)),
                        "{said} the {name} of head {h} in `Kept` are turned one step too far. The first token of `forward` has position 0"
                    );
                    assert!(
                        near(rows, &all[h][at]),
                        "{said} the {name} of head {h} in `Kept` are wrong: they should be those with which the head attended"
                    );
                }
            }
        }
    }
}
