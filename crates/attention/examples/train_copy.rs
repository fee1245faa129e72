//! A model of two attention layers learns to copy: it reads some letters and a mark, and repeats the letters.
//!
//! `cargo run --release --example train_copy`
//!
//! All of the model is here: an embedding of letters and positions, two causal layers with residual connections, a linear map to
//! one score a letter, and cross-entropy. It names its parameters, so that [`Adam`] can train it.

use attention::{
    Adam, Mask, MultiHeadAttention, MultiHeadCache, NamedParameters, Parameters, Result,
    linear, linear_backward, named_parameters, softmax_rows,
};
use nalgebra::{DMatrix, RowDVector};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

const LETTERS: usize = 10; // and the mark, which is letter number 10
const LENGTH: usize = 8; // letters to be copied
const D_MODEL: usize = 32;
const STEPS: usize = 400;
const BATCH: usize = 16;

/// The caches of one layer, one for each sequence of a batch.
type Caches = Vec<MultiHeadCache<f32>>;

/// The parameters of the model; and of the same shape, with the parameters of layers for `Layer`, their gradients.
struct Model<Layer> {
    letters: DMatrix<f32>,   // (LETTERS + 1, d_model): what a letter is
    positions: DMatrix<f32>, // (2 LENGTH, d_model): where it stands
    layers: Vec<Layer>,
    w: DMatrix<f32>,    // (d_model, LETTERS): what the next letter is
    b: RowDVector<f32>, // (1, LETTERS)
}

named_parameters! {
    impl[Layer: NamedParameters<f32>] NamedParameters<f32> for Model<Layer> {
        letters, positions, layers, w, b
    }
}

impl Model<MultiHeadAttention<f32>> {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self> {
        let mut normal = |rows, columns, deviation: f32| {
            DMatrix::from_fn(rows, columns, |_, _| {
                let z: f32 = StandardNormal.sample(rng);
                deviation * z
            })
        };
        let letters = normal(LETTERS + 1, D_MODEL, 0.5);
        let positions = normal(2 * LENGTH, D_MODEL, 0.5);
        let w = normal(D_MODEL, LETTERS, (D_MODEL as f32).sqrt().recip());
        let layer = |_| MultiHeadAttention::xavier(D_MODEL, 4, rng);
        let layers = (0..2).map(layer).collect::<Result<_>>()?;
        Ok(Model { letters, positions, layers, w, b: RowDVector::zeros(LETTERS) })
    }

    /// The mean cross-entropy of the copied letters, the share that is right, and the gradients.
    fn loss_and_gradients(
        &self,
        batch: &[Vec<usize>],
    ) -> Result<(f32, f32, Model<Parameters<f32>>)> {
        let mut gradients = Model {
            letters: 0.0 * &self.letters,
            positions: 0.0 * &self.positions,
            layers: vec![],
            w: 0.0 * &self.w,
            b: 0.0 * &self.b,
        };
        let (xs, caches) = self.forward(batch)?;
        let (loss, right, grad_xs) = self.loss(batch, &xs, &mut gradients)?;
        self.backward(batch, &caches, grad_xs, &mut gradients)?;
        Ok((loss, right, gradients))
    }

    /// The last layer's vectors for each sequence, (n, d_model), and the caches of all layers.
    fn forward(&self, batch: &[Vec<usize>]) -> Result<(Vec<DMatrix<f32>>, Vec<Caches>)> {
        let embed = |text: &Vec<usize>| {
            DMatrix::from_fn(text.len() - 1, D_MODEL, |i, j| {
                self.letters[(text[i], j)] + self.positions[(i, j)]
            })
        };
        let mut xs: Vec<DMatrix<f32>> = batch.iter().map(embed).collect();
        let mut caches = vec![];
        // Each layer adds what it found to what it was given.
        for layer in &self.layers {
            let (outputs, cache) = layer.forward_batch(&xs, Mask::causal())?;
            xs.iter_mut().zip(outputs).for_each(|(x, output)| *x += output);
            caches.push(cache);
        }
        Ok((xs, caches))
    }

    /// The loss: at each position from the mark on, the next letter is known. Adds the gradients of the linear map to
    /// `gradients`, and returns the loss, the share that is right, and the gradients with respect to `xs`.
    fn loss(
        &self,
        batch: &[Vec<usize>],
        xs: &[DMatrix<f32>],
        gradients: &mut Model<Parameters<f32>>,
    ) -> Result<(f32, f32, Vec<DMatrix<f32>>)> {
        let weight = 1.0 / (batch.len() * LENGTH) as f32;
        let (mut loss, mut right) = (0.0, 0.0);
        let mut grad_xs = vec![];
        for (text, x) in batch.iter().zip(xs) {
            let probabilities = softmax_rows(&linear(x, &self.w, &self.b)?)?; // (n, LETTERS)
            let mut grad_scores = DMatrix::zeros(probabilities.nrows(), LETTERS);
            for i in LENGTH..2 * LENGTH {
                let next = text[i + 1];
                loss -= weight * probabilities[(i, next)].ln();
                let said = probabilities.row(i).transpose().imax();
                right += if said == next { weight } else { 0.0 };
                grad_scores.row_mut(i).copy_from(&(probabilities.row(i) * weight));
                grad_scores[(i, next)] -= weight;
            }
            let (grad_x, grad_w, grad_b) = linear_backward(x, &self.w, &grad_scores)?;
            gradients.w += grad_w;
            gradients.b += grad_b;
            grad_xs.push(grad_x);
        }
        Ok((loss, right, grad_xs))
    }

    /// The gradient goes through each layer and past it, down to the letters and their positions.
    fn backward(
        &self,
        batch: &[Vec<usize>],
        caches: &[Caches],
        mut grad_xs: Vec<DMatrix<f32>>,
        gradients: &mut Model<Parameters<f32>>,
    ) -> Result<()> {
        for (layer, caches) in self.layers.iter().zip(caches).rev() {
            let of_layer = layer.backward_batch(caches, &grad_xs)?;
            for (grad_x, by_layer) in grad_xs.iter_mut().zip(of_layer.xs) {
                *grad_x += by_layer;
            }
            gradients.layers.insert(0, of_layer.parameters);
        }
        for (text, grad_x) in batch.iter().zip(&grad_xs) {
            for (i, row) in grad_x.row_iter().enumerate() {
                let mut letter = gradients.letters.row_mut(text[i]);
                letter += row;
                let mut position = gradients.positions.row_mut(i);
                position += row;
            }
        }
        Ok(())
    }
}

/// Letters, the mark, and the letters again.
fn draw(rng: &mut ChaCha8Rng) -> Vec<usize> {
    let letters: Vec<_> = (0..LENGTH).map(|_| rng.random_range(0..LETTERS)).collect();
    [&letters[..], &[LETTERS], &letters[..]].concat()
}

fn main() -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut model = Model::new(rng)?;
    let mut adam = Adam::new(0.005);
    adam.beta_2 = 0.99; // forgets faster than in the paper, for a short training
    for step in 1..=STEPS {
        let batch: Vec<_> = (0..BATCH).map(|_| draw(rng)).collect();
        let (loss, right, gradients) = model.loss_and_gradients(&batch)?;
        adam.step(&mut model, &gradients)?;
        if step % 50 == 0 || step == 1 {
            println!("step {step:4}: loss {loss:.4}, {:5.1} % right", 100.0 * right);
        }
    }

    let unseen: Vec<_> = (0..100).map(|_| draw(rng)).collect();
    let (loss, right, _) = model.loss_and_gradients(&unseen)?;
    println!(
        "100 sequences it has not seen: loss {loss:.4}, {:.1} % right",
        100.0 * right
    );
    assert!(right > 0.99, "it has not learned to copy");
    Ok(())
}
