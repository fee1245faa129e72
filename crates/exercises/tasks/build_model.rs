//! # Build it yourself: a whole model
//!
//! hard, 120 minutes, without `attention::`
//!
//! All that stands around attention, forward and backward. `rms_norm` brings each row to a mean square of 1, where $10^{-5}$ is added to the
//! mean square. An `Mlp` computes $\operatorname{silu}(x W_1)\, W_2$. A `Model` looks up a row for each token, sends the rows through its
//! blocks, and returns a norm of them times the unembedding, $(n, \text{vocabulary})$. In a block, normalised rows enter the heads, what comes
//! out is added to the rows, and the same again with the MLP.
//!
//! `loss_and_gradients` predicts each token but the first from those before it.
//! Its gradients have the form of a model, so that `matrices` lists both in one order: embedding, unembedding, then each block's four matrices
//! of the layer and two of the MLP. In `new`, the embedding has the variance 1, and every other matrix one over its rows.
//!
//! # Hint
//!
//! Go in the order of the tests: the norm, the MLP, the forward pass, and only then backward. For the norm's gradient, what changes if a row
//! grows and keeps its direction? Nothing: that part of the gradient is lost.
//!
//! # Hint
//!
//! Backward, a sum hands its gradient to both of its parts. The rows go past each half and through it, so `grad_x += …`: the gradient that
//! goes past stays, and what comes back through the norm is added.
//!
//! # Hint
//!
//! `gradients = self.clone()`, then each matrix is overwritten. Walk through `kept.iter().enumerate().rev()`. The norm before a half is
//! `rms_norm_backward(&kept.middle, …)` with what entered *it*, and `Heads { layer, ..*heads }` puts the gradient of a layer in the form of heads.
//! The embedding begins at 0, and each position adds its row of `grad_x` to the row of its token.

use attention::plain::*;

// PROGRAM softmax scores masks attention layer heads positions backward check train model
// FAULT norm-of-columns: each row by itself
// - (x.row(i).norm_squared() / x.ncols() as f64 + 1e-5).sqrt()
// > (x.column(i % x.ncols()).norm_squared() / x.nrows() as f64 + 1e-5).sqrt()
// FAULT sum-of-squares: the mean of the squares, not their sum
// - (x.row(i).norm_squared() / x.ncols() as f64 + 1e-5).sqrt()
// > (x.row(i).norm_squared() + 1e-5).sqrt()
// FAULT part-along: no part along the row
// - (grad[(i, c)] - y[(i, c)] * along[i]) / root_mean_square(x, i)
// > grad[(i, c)] / root_mean_square(x, i)
// FAULT not-divided: does the gradient of the norm divide by the root
// - (grad[(i, c)] - y[(i, c)] * along[i]) / root_mean_square(x, i)
// > grad[(i, c)] - y[(i, c)] * along[i]
// FAULT sigmoid-alone: silu is h · sigmoid(h)
// - (x * &self.w_1).map(|h| h * sigmoid(h)) * &self.w_2
// > (x * &self.w_1).map(|h| sigmoid(h)) * &self.w_2
// FAULT slope-of-sigmoid: the slope of silu
// - let slope = hidden.map(|h| sigmoid(h) * (1.0 + h * (1.0 - sigmoid(h))));
// > let slope = hidden.map(|h| sigmoid(h) * (1.0 - sigmoid(h)));
// FAULT small-embedding: the embedding has the variance 1
// - let embedding = random(vocabulary, d, normal) * (vocabulary as f64).sqrt();
// > let embedding = random(vocabulary, d, normal);
// FAULT no-positions: are queries and keys turned to their positions
// - heads: Heads { layer: Layer::new(d, normal), n_heads, turn: Some(rotate) },
// > heads: Heads { layer: Layer::new(d, normal), n_heads, turn: None },
// FAULT sees-the-future: a later token changes
// - let (found, of_heads) = heads.forward(&rms_norm(&x), causal);
// > let (found, of_heads) = heads.forward(&rms_norm(&x), |_, _| true);
// FAULT no-norm: Normalised rows enter each half
// - let (found, of_heads) = heads.forward(&rms_norm(&x), causal);
// > let (found, of_heads) = heads.forward(&x, causal);
// FAULT nothing-goes-past: what a half finds is added to the rows
// - let end = &middle + mlp.forward(&rms_norm(&middle));
// > let end = mlp.forward(&rms_norm(&middle));
// FAULT own-token: each token is predicted from those before it
// - let (read, next) = (&tokens[..tokens.len() - 1], &tokens[1..]);
// > let (read, next) = (&tokens[1..], &tokens[1..]);
// FAULT gradient-not-past: w_2 of the MLP of block 0
// - grad_x += rms_norm_backward(&kept.start, &grad);
// > grad_x = rms_norm_backward(&kept.start, &grad);
// FAULT wrong-rows: of the heads of block
// - grad_x += rms_norm_backward(&kept.middle, &grad);
// > grad_x += rms_norm_backward(&kept.start, &grad);
// FAULT last-place-of-a-token: matrix 0, the embedding
// - row += grad_x.row(i); // wherever the token stands
// > row.copy_from(&grad_x.row(i));
// FAULT embedding-kept: matrix 0, the embedding
// - gradients.embedding.fill(0.0);

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// Numbers that look random, of mean 0 and variance 1.
    fn numbers() -> impl FnMut() -> f64 {
        let mut n = 0.0_f64;
        move || {
            n += 1.0;
            (n * n * 0.7).sin() * 2.0_f64.sqrt()
        }
    }

    fn draw(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    #[test]
    fn the_norm_brings_rows_to_one_size() {
        // (1, 7) has the mean square 25, and (30, 40) 1250.
        let y = rms_norm(&dmatrix![1.0, 7.0; 30.0, 40.0]);
        let right =
            dmatrix![0.2, 1.4; 30.0 / 1250.0_f64.sqrt(), 40.0 / 1250.0_f64.sqrt()];
        assert!(
            (&y - right).amax() < 1e-5,
            "the row (1, 7) should be divided by 5, the root of the mean of the squares, not their sum, and each row by itself. Yours: {:?}",
            y.as_slice()
        );
    }

    #[test]
    fn the_gradient_of_the_norm_is_measured() {
        let (x, grad) = (3.0 * draw(3, 4, 0), draw(3, 4, 1));
        let came = rms_norm_backward(&x, &grad);
        for i in 0..3 {
            let cosine =
                came.row(i).dot(&x.row(i)) / came.row(i).norm() / x.row(i).norm();
            assert!(
                cosine.abs() < 1e-4,
                "row {i}: a longer row has the same norm, so its gradient has no part along the row. Yours has a cosine of {cosine:.3} with it"
            );
        }
        let measured = numerical_gradient(|x| rms_norm(x).dot(&grad), &x);
        assert!(
            (&came - measured).amax() < 1e-8,
            "the direction is right and the size isn't: does the gradient of the norm divide by the root?"
        );
    }

    #[test]
    fn the_mlp_is_silu_between_two_products() {
        let mlp = Mlp { w_1: dmatrix![1.0, -1.0], w_2: dmatrix![1.0; 10.0] };
        // silu(1) = 1 / (1 + e⁻¹), and silu(−1) = −1 / (1 + e).
        let e = 1.0_f64.exp();
        let right = 1.0 / (1.0 + 1.0 / e) - 10.0 / (1.0 + e);
        let came = mlp.forward(&dmatrix![1.0])[0];
        assert!(
            (came - right).abs() < 1e-12,
            "x = 1, w_1 = (1, −1), w_2 = (1, 10): silu(1) + 10 silu(−1) = {right:.4}, not {came:.4}: silu is h · sigmoid(h)"
        );
    }

    #[test]
    fn the_gradients_of_the_mlp_are_measured() {
        let (x, grad) = (draw(3, 2, 0), draw(3, 2, 1));
        let mlp = Mlp { w_1: draw(2, 5, 2), w_2: draw(5, 2, 3) };
        let (grad_x, grads) = mlp.backward(&x, &grad);
        let loss = |x: &Matrix, w_1: &Matrix, w_2: &Matrix| {
            Mlp { w_1: w_1.clone(), w_2: w_2.clone() }.forward(x).dot(&grad)
        };
        let Mlp { w_1, w_2 } = &mlp;
        for (name, came, right) in [
            ("w_2", grads.w_2, numerical_gradient(|w| loss(&x, w_1, w), w_2)),
            ("w_1", grads.w_1, numerical_gradient(|w| loss(&x, w, w_2), w_1)),
            ("x", grad_x, numerical_gradient(|x| loss(x, w_1, w_2), &x)),
        ] {
            assert!(
                came.shape() == right.shape() && (&came - &right).amax() < 1e-8,
                "the gradient of {name} isn't the one that is measured. Between the products stands the slope of silu: sigmoid(h) · (1 + h · (1 − sigmoid(h)))"
            );
        }
    }

    #[test]
    fn a_new_model_has_rows_of_one_size() {
        let mut model = Model::new([50, 16, 2, 4], &mut numbers());
        let variance = |matrix: &Matrix| matrix.norm_squared() / matrix.len() as f64;
        let came = variance(&model.embedding);
        assert!(
            (came - 1.0).abs() < 0.2,
            "the entries of the embedding have a mean square of {came:.3}: the embedding has the variance 1"
        );
        let Block { heads, mlp } = &model.blocks[1];
        let (came, right) = (variance(&mlp.w_2), 1.0 / 64.0);
        assert!(
            mlp.w_1.shape() == (16, 64) && (came / right - 1.0).abs() < 0.2,
            "with d_model = 16 the MLP is 64 wide inside, and w_2 has a mean square of {right:.4}, one over its rows. Yours is {:?} and {came:.4}",
            mlp.w_1.shape()
        );
        assert!(
            heads.n_heads == 4 && heads.turn.is_some(),
            "a block has 4 heads here: are queries and keys turned to their positions?"
        );
        let shapes: Vec<_> = model.matrices().iter().map(|it| it.shape()).collect();
        assert!(
            shapes.len() == 14 && shapes[..2] == [(50, 16), (16, 50)],
            "`matrices` lists embedding and unembedding first, then six of each block, so 14 of two blocks: yours are {shapes:?}"
        );
    }

    #[test]
    fn the_forward_pass_adds_halves_to_the_rows() {
        let model = Model::new([5, 4, 1, 2], &mut numbers());
        let tokens = [3, 0, 2];
        let (scores, kept, end) = model.forward(&tokens);
        assert!(
            scores.shape() == (3, 5) && kept.len() == 1,
            "three tokens of a vocabulary of five: scores should be (3, 5), and are {:?}",
            scores.shape()
        );
        let Block { heads, mlp } = &model.blocks[0];
        let x = model.embedding.select_rows(&tokens);
        let middle = &x + heads.forward(&rms_norm(&x), causal).0;
        let of_all = &x + heads.forward(&rms_norm(&x), |_, _| true).0;
        let right = &middle + mlp.forward(&rms_norm(&middle));
        assert!(
            (&kept[0].middle - of_all).amax() > 1e-9,
            "a later token changes what an earlier one finds: is the mask causal?"
        );
        assert!(
            (&kept[0].start - &x).amax() < 1e-12
                && (&kept[0].middle - &middle).amax() < 1e-12,
            "what is kept should be the rows that enter the block, and the rows after its heads. Normalised rows enter each half, and what it finds is added"
        );
        assert!(
            (&end - &right).amax() < 1e-12,
            "the rows that leave the block are wrong: what a half finds is added to the rows"
        );
        assert!(
            (scores - rms_norm(&end) * &model.unembedding).amax() < 1e-12,
            "the last rows are normalised once more, then multiplied by the unembedding"
        );
    }

    #[test]
    fn every_gradient_is_measured() {
        let model = Model::new([5, 4, 2, 2], &mut numbers());
        let text = [0, 3, 1, 3, 4, 2, 2];
        let (loss, mut gradients) = model.loss_and_gradients(&text);
        let right = cross_entropy(&model.forward(&text[..6]).0, &text[1..]).0;
        assert!(
            (loss - right).abs() < 1e-12,
            "the loss of seven tokens should be {right:.4}, and yours is {loss:.4}: each token is predicted from those before it, so six are read, and six are compared"
        );
        // From the last matrix that a gradient reaches to the first.
        let names = ["w_q", "w_k", "w_v", "w_o", "w_1", "w_2"];
        let mut order = vec![(1, "the unembedding".to_owned())];
        for block in [1, 0] {
            for (at, name) in names.iter().enumerate().rev() {
                let half = if at < 4 { "heads" } else { "MLP" };
                order.push((
                    2 + 6 * block + at,
                    format!("{name} of the {half} of block {block}"),
                ));
            }
        }
        order.push((0, "the embedding".to_owned()));
        for (at, name) in order {
            let loss = |moved: &Matrix| {
                let mut model = model.clone();
                *model.matrices()[at] = moved.clone();
                model.loss_and_gradients(&text).0
            };
            let measured = numerical_gradient(loss, &*model.clone().matrices()[at]);
            let off = (&*gradients.matrices()[at] - measured).amax();
            assert!(
                off < 1e-7,
                "the gradient of matrix {at}, {name}, is off by {off:.2e}: all that the loss meets before it is right. A token that stands twice adds twice"
            );
        }
    }

    #[test]
    fn a_model_learns_a_line_by_heart() {
        let mut model = Model::new([5, 8, 1, 2], &mut numbers());
        let (text, mut adam) = ([0, 3, 1, 3, 4, 2, 2, 0], Adam::new(0.02));
        for _ in 0..150 {
            let (_, mut gradients) = model.loss_and_gradients(&text);
            adam.step(model.matrices(), gradients.matrices());
        }
        let loss = model.loss_and_gradients(&text).0;
        assert!(
            loss < 0.02,
            "after 150 steps a model should know a line of eight tokens by heart, and the loss is {loss:.3}"
        );
    }
}
