//! # Cross-attention with many heads
//!
//! medium, 20 minutes
//!
//! A translator's layer looks things up in another text. Write its forward pass, cross-attention with several heads and without a
//! mask or biases: queries from $X$, keys and values from the context $C$, one attention for each head, the outputs
//! joined and projected.
//!
//! The attention of one head is given. It takes the scale as an argument. Which width belongs in it?
//!
//! Shapes: $X$ $(n_q, d_{\text{model}})$, $C$ $(n_k, d_{\text{model}})$, all four matrices
//! $(d_{\text{model}}, d_{\text{model}})$, result $(n_q, d_{\text{model}})$.
//!
//! # Hint
//!
//! Which columns of $Q$, $K$ and $V$ belong to the second of three heads? How many columns does each dot product of
//! a query with a key have?
//!
//! # Hint
//!
//! `q.columns(first, d)` is a view of `d` columns, and `into_owned()` makes a matrix of it. Joining is the reverse:
//! `joined.columns_mut(first, d).copy_from(&o)`.
//!
//! # Hint
//!
//! Let `d` be `x.ncols() / n_heads`. Loop over the heads with `first = head * d`, attend to three slices with the
//! scale `1.0 / (d as f64).sqrt()`, copy the result into `joined`, and return `joined * w_o`.

use attention::softmax_rows;
use nalgebra::DMatrix;

/// The attention of one head: `q` (n_q, d), `k` and `v` (n_k, d) → (n_q, d).
///
/// Products of queries and keys are multiplied by `scale`.
pub fn attend(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
    scale: f64,
) -> DMatrix<f64> {
    softmax_rows(&(q * k.transpose() * scale)).expect("they aren't empty") * v
}

/// The matrices of a layer, each (d_model, d_model).
pub struct Projections {
    pub w_q: DMatrix<f64>,
    pub w_k: DMatrix<f64>,
    pub w_v: DMatrix<f64>,
    pub w_o: DMatrix<f64>,
}

/// Returns the layer's output (n_q, d_model). `n_heads` divides d_model.
pub fn cross_attend(
    x: &DMatrix<f64>,
    context: &DMatrix<f64>,
    w: &Projections,
    n_heads: usize,
) -> DMatrix<f64> {
    // SOLUTION
    let d = x.ncols() / n_heads;
    let q = x * &w.w_q; // (n_q, d_model)
    // FAULT keys-from-x: the text that it reads doesn't matter
    // > let (k, v) = (x * &w.w_k, x * &w.w_v);
    let (k, v) = (context * &w.w_k, context * &w.w_v); // (n_k, d_model)
    // FAULT wide-scale: How wide is a head?
    // > let scale = 1.0 / (x.ncols() as f64).sqrt();
    let scale = 1.0 / (d as f64).sqrt();
    let mut joined = DMatrix::zeros(x.nrows(), x.ncols());
    for head in 0..n_heads {
        // FAULT same-slice: every head works on the first columns
        // > let slice = |m: &DMatrix<f64>| m.columns(0, d).into_owned();
        let slice = |m: &DMatrix<f64>| m.columns(head * d, d).into_owned();
        let o = attend(&slice(&q), &slice(&k), &slice(&v), scale); // (n_q, d)
        joined.columns_mut(head * d, d).copy_from(&o);
    }
    joined * &w.w_o
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{ForwardOptions, MultiHeadAttention, Parameters};
    use nalgebra::{DMatrix, RowDVector};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
    }

    fn projections(d: usize, seed: u64) -> Projections {
        let [w_q, w_k, w_v, w_o] = [1, 2, 3, 4].map(|i| random(d, d, 10 * seed + i));
        Projections { w_q, w_k, w_v, w_o }
    }

    /// The crate's layer, whose queries are multiplied by a factor.
    fn reference(
        x: &DMatrix<f64>,
        context: &DMatrix<f64>,
        w: &Projections,
        n_heads: usize,
        factor: f64,
    ) -> DMatrix<f64> {
        let [b_q, b_k, b_v, b_o] = [0; 4].map(|_| RowDVector::zeros(w.w_q.ncols()));
        let (w_q, w_k, w_v, w_o) =
            (&w.w_q * factor, w.w_k.clone(), w.w_v.clone(), w.w_o.clone());
        let parameters = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
        let layer = MultiHeadAttention::from_parameters(parameters, n_heads).unwrap();
        layer.forward(x, ForwardOptions::new().context(context)).unwrap().0
    }

    #[test]
    fn the_output_is_that_of_a_layer() {
        for (n_heads, d_model) in [(2, 8), (3, 12), (1, 5)] {
            let (x, context) = (random(3, d_model, 5), random(7, d_model, 6));
            let w = projections(d_model, n_heads as u64);
            let y = cross_attend(&x, &context, &w, n_heads);
            assert!(
                y.shape() == (3, d_model),
                "one row for each row of X: yours has the shape {:?}, expected {:?}",
                y.shape(),
                (3, d_model)
            );
            let d = d_model / n_heads;
            let (by_model, none) = (1.0 / (n_heads as f64).sqrt(), (d as f64).sqrt());
            let is = |factor| {
                (&y - reference(&x, &context, &w, n_heads, factor)).amax() < 1e-10
            };
            assert!(
                n_heads == 1 || !is(by_model),
                "{n_heads} heads: these scores are divided by √{d_model}. How wide is a head?"
            );
            assert!(!is(none), "{n_heads} heads: this is what you get without a scale");
            assert!(
                is(1.0),
                "{n_heads} heads: Y isn't that of a layer with these projections"
            );
        }
    }

    #[test]
    fn the_context_matters() {
        let (x, w) = (random(4, 6, 1), projections(6, 3));
        let [one, other] =
            [2, 3].map(|seed| cross_attend(&x, &random(5, 6, seed), &w, 2));
        assert!(
            one != other,
            "another context, and the same output: the text that it reads doesn't matter"
        );
    }

    #[test]
    fn heads_work_on_columns_of_their_own() {
        let (x, context, mut w) = (random(3, 8, 1), random(4, 8, 2), projections(8, 4));
        let before = cross_attend(&x, &context, &w, 2);
        w.w_q.columns_mut(4, 4).fill(0.0);
        w.w_v.columns_mut(4, 4).fill(0.0);
        let after = cross_attend(&x, &context, &w, 2);
        assert!(
            (before - after).amax() > 1e-3,
            "the second head's projections can be set to zero, and nothing changes: every head works on the first columns"
        );
    }
}
