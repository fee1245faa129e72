//! # Project and attend
//!
//! medium, 25 minutes, without `linear` `SingleHeadAttention` `MultiHeadAttention`
//!
//! Write the forward pass of a layer with one head: queries, keys and values from $X$, causal attention, which is
//! given, and the output projection. All four linear maps have biases.
//!
//! Then use what the chapter says about biases. `without_two_biases` returns the parameters of another layer, whose
//! $b_K$ and $b_V$ are zero and whose outputs are the same. A model stored like this has fewer numbers to load.
//!
//! `Parameters` has the fields `w_q`, `w_k`, `w_v`, `w_o` and `b_q`, `b_k`, `b_v`, `b_o`. Don't call the crate's
//! layers or `linear`.
//!
//! # Hint
//!
//! How many of your four products have a bias? And to which rows is a bias added?
//!
//! # Hint
//!
//! Weights of a row sum to 1, so each row of $O$ contains $b_V$ once. Which row do you get when $b_V$ alone goes
//! through the output projection, and where could you add it instead?
//!
//! # Hint
//!
//! A helper `project(x, w, b)`: compute `x * w`, then `for mut row in y.row_iter_mut() { row += b; }`. For the
//! second function start from `p.clone()`, fill two biases with zeros, and change a third one.

use attention::{Mask, Parameters, attention};
use nalgebra::{DMatrix, RowDVector};

/// Causal attention with the scale: `q` and `k` (n, d_k), `v` (n, d_v) → (n, d_v).
pub fn attend(q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>) -> DMatrix<f64> {
    attention(q, k, v, Mask::causal()).expect("the shapes fit").0
}

// SOLUTION
/// x (n, d_in) → (n, d_out)
fn project(x: &DMatrix<f64>, w: &DMatrix<f64>, b: &RowDVector<f64>) -> DMatrix<f64> {
    // FAULT the-crate: this exercise asks you to do without it
    // > let mut y = attention::linear(x, w, b).unwrap();
    let mut y = x * w;
    // FAULT first-row: a bias is added to every row
    // > for mut row in y.row_iter_mut().take(1) {
    for mut row in y.row_iter_mut() {
        row += b;
    }
    y
}
// END

/// Returns the layer's output Y (n, d_model) for `x` (n, d_model).
pub fn layer(p: &Parameters<f64>, x: &DMatrix<f64>) -> DMatrix<f64> {
    // SOLUTION
    // FAULT no-query-bias: the bias of the queries is missing
    // > let q = x * &p.w_q;
    let q = project(x, &p.w_q, &p.b_q); // (n, d_k)
    let k = project(x, &p.w_k, &p.b_k); // (n, d_k)
    let v = project(x, &p.w_v, &p.b_v); // (n, d_v)
    let o = attend(&q, &k, &v); // (n, d_v)
    // FAULT no-output-bias: the bias of the output is missing
    // > o * &p.w_o
    project(&o, &p.w_o, &p.b_o) // (n, d_model)
    // END
}

/// Returns parameters with zeros for `b_k` and `b_v`, whose layer has the same outputs as that of `p`.
pub fn without_two_biases(p: &Parameters<f64>) -> Parameters<f64> {
    // SOLUTION
    let mut fewer = p.clone();
    fewer.b_k.fill(0.0); // it moves all scores of a row together
    fewer.b_v.fill(0.0);
    // Each row of O contained b_V once, so each row of Y contained b_V W_O.
    // FAULT value-bias-lost: what did b_V add to each row of Y?
    fewer.b_o += &p.b_v * &p.w_o;
    fewer
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, Parameters, SingleHeadAttention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// A layer and an input: n = 6, d_model = 5, d_k = 3, d_v = 2, and biases that aren't zero.
    fn example(seed: u64) -> (Parameters<f64>, DMatrix<f64>) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut p = Parameters::xavier(5, 3, 2, rng).unwrap();
        for bias in [&mut p.b_q, &mut p.b_k, &mut p.b_v, &mut p.b_o] {
            bias.apply(|b| *b = rng.random_range(0.5..1.5));
        }
        (p, DMatrix::from_fn(6, 5, |_, _| rng.random_range(-1.0..1.0)))
    }

    fn reference(p: &Parameters<f64>, x: &DMatrix<f64>) -> DMatrix<f64> {
        SingleHeadAttention::from(p.clone()).forward(x, Mask::causal()).unwrap().0
    }

    #[test]
    fn the_output_is_that_of_a_layer() {
        for seed in 0..3 {
            let (p, x) = example(seed);
            let (y, right) = (layer(&p, &x), reference(&p, &x));
            assert!(
                y.shape() == (6, 5),
                "Y has the shape of X, (n, d_model): yours has the shape {:?}, expected {:?}",
                y.shape(),
                (6, 5)
            );
            let [mut no_q, mut no_v, mut no_o] = [p.clone(), p.clone(), p.clone()];
            no_q.b_q.fill(0.0);
            no_v.b_v.fill(0.0);
            no_o.b_o.fill(0.0);
            for (wrong, name) in [(no_q, "queries"), (no_v, "values"), (no_o, "output")] {
                let same = (&y - reference(&wrong, &x)).amax() < 1e-10;
                assert!(
                    !same,
                    "this is what you get where the bias of the {name} is missing"
                );
            }
            let off = (y - right).amax();
            assert!(
                off < 1e-12,
                "an entry of Y is off by {off:.3}, and no bias is missing. Which of the five lines of the layer is wrong?"
            );
        }
    }

    #[test]
    fn biases_reach_every_token() {
        let (mut p, x) = example(7);
        for w in [&mut p.w_q, &mut p.w_k, &mut p.w_v, &mut p.w_o] {
            w.fill(0.0);
        }
        let y = layer(&p, &x); // nothing is left but b_O
        for (i, row) in y.row_iter().enumerate() {
            let off = (row - &p.b_o).amax();
            assert!(
                off < 1e-12,
                "with all matrices zero, row {i} of Y should be b_O: a bias is added to every row"
            );
        }
    }

    #[test]
    fn two_biases_can_go() {
        for seed in 3..6 {
            let (p, x) = example(seed);
            let fewer = without_two_biases(&p);
            assert!(
                fewer.b_k.amax() == 0.0 && fewer.b_v.amax() == 0.0,
                "b_K and b_V should be zero"
            );
            let change = reference(&fewer, &x) - reference(&p, &x);
            let lost = &p.b_v * &p.w_o;
            let is_lost = change.row_iter().all(|row| (row + &lost).amax() < 1e-10);
            assert!(
                !is_lost,
                "each row of Y has lost the same numbers: what did b_V add to each row of Y?"
            );
            assert!(
                change.amax() < 1e-12,
                "outputs move by up to {:.3}: they should stay as they were",
                change.amax()
            );
        }
    }
}
