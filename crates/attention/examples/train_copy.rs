//! A model of two attention layers learns to copy: it reads some letters and a mark, and repeats the letters.
//!
//! `cargo run --release --example train_copy`
//!
//! Everything that trains it is here: an embedding of letters and positions, two causal layers with residual connections, a
//! linear map to one score a letter, cross-entropy, and Adam as a loop over named matrices.

use attention::nalgebra::{DMatrix, DMatrixView, DMatrixViewMut, RowDVector};
use attention::rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use attention::{
    AttentionLayer, Mask, MultiHeadAttention, MultiHeadCache, Result, linear,
    linear_backward, softmax_rows,
};
use indicatif::{ProgressBar, ProgressStyle};
use rand_distr::{Distribution, StandardNormal};

const LETTERS: usize = 10; // and the mark, which is letter number 10
const LENGTH: usize = 8; // letters to be copied
const D_MODEL: usize = 32;
const STEPS: usize = 400;
const BATCH: usize = 16;

/// What a layer keeps of each sequence of a batch.
type Caches = Vec<MultiHeadCache<f32>>;

/// What is learned, and of the same shape, the gradients of the loss.
#[derive(Clone)]
struct Model {
    letters: DMatrix<f32>,   // (LETTERS + 1, d_model): what a letter is
    positions: DMatrix<f32>, // (2 LENGTH, d_model): where it stands
    layers: Vec<MultiHeadAttention<f32>>,
    w: DMatrix<f32>, // (d_model, LETTERS): what the next letter is
    b: DMatrix<f32>, // (1, LETTERS)
}

impl Model {
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
        Ok(Model { letters, positions, layers, w, b: DMatrix::zeros(1, LETTERS) })
    }

    fn matrices(&self) -> Vec<DMatrixView<'_, f32>> {
        let outer = [&self.letters, &self.positions, &self.w, &self.b];
        let layers = self.layers.iter().flat_map(|layer| layer.parameters.named());
        outer
            .map(DMatrix::as_view)
            .into_iter()
            .chain(layers.map(|named| named.1))
            .collect()
    }

    fn matrices_mut(&mut self) -> Vec<DMatrixViewMut<'_, f32>> {
        let outer = [&mut self.letters, &mut self.positions, &mut self.w, &mut self.b];
        let layers =
            self.layers.iter_mut().flat_map(|layer| layer.parameters.named_mut());
        outer
            .map(DMatrix::as_view_mut)
            .into_iter()
            .chain(layers.map(|named| named.1))
            .collect()
    }

    fn zeros_like(&self) -> Self {
        let mut zeros = self.clone();
        zeros.matrices_mut().iter_mut().for_each(|matrix| matrix.fill(0.0));
        zeros
    }

    /// The mean cross-entropy of the copied letters, the share that is right, and the gradients.
    fn loss_and_gradients(&self, batch: &[Vec<usize>]) -> Result<(f32, f32, Model)> {
        let mut gradients = self.zeros_like();
        let (xs, caches) = self.forward(batch)?;
        let (loss, right, grad_xs) = self.loss(batch, &xs, &mut gradients)?;
        self.backward(batch, &caches, grad_xs, &mut gradients)?;
        Ok((loss, right, gradients))
    }

    /// What the last layer says of each sequence, (n, d_model), and what each layer keeps for the backward pass.
    fn forward(&self, batch: &[Vec<usize>]) -> Result<(Vec<DMatrix<f32>>, Vec<Caches>)> {
        let causal = Mask::causal();
        let options = |_| &causal; // for each sequence of the batch
        let embed = |text: &Vec<usize>| {
            DMatrix::from_fn(text.len() - 1, D_MODEL, |i, j| {
                self.letters[(text[i], j)] + self.positions[(i, j)]
            })
        };
        let mut xs: Vec<DMatrix<f32>> = batch.iter().map(embed).collect();
        let mut caches = vec![];
        // Each layer adds what it found to what it was given.
        for layer in &self.layers {
            let (outputs, cache) = layer.forward_batch(&xs, options)?;
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
        gradients: &mut Model,
    ) -> Result<(f32, f32, Vec<DMatrix<f32>>)> {
        let bias = RowDVector::from_row_slice(self.b.as_slice());
        let weight = 1.0 / (batch.len() * LENGTH) as f32;
        let (mut loss, mut right) = (0.0, 0.0);
        let mut grad_xs = vec![];
        for (text, x) in batch.iter().zip(xs) {
            let probabilities = softmax_rows(&linear(x, &self.w, &bias)?)?; // (n, LETTERS)
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
        gradients: &mut Model,
    ) -> Result<()> {
        for (at, layer) in self.layers.iter().enumerate().rev() {
            let of_layer = layer.backward_batch(&caches[at], &grad_xs)?;
            for (grad_x, by_layer) in grad_xs.iter_mut().zip(of_layer.xs) {
                *grad_x += by_layer;
            }
            gradients.layers[at].parameters = of_layer.parameters;
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

/// D. P. Kingma, J. Ba, *Adam* (2015): the running means of each gradient and of its square. The second one forgets faster (0.99)
/// than in the paper (0.999), for a short training.
struct Adam {
    means: Model,
    squares: Model,
    steps: i32,
}

impl Adam {
    fn new(model: &Model) -> Self {
        Adam { means: model.zeros_like(), squares: model.zeros_like(), steps: 0 }
    }

    fn step(&mut self, model: &mut Model, gradients: &Model, rate: f32) {
        self.steps += 1;
        let (first, second) =
            (1.0 - 0.9_f32.powi(self.steps), 1.0 - 0.99_f32.powi(self.steps));
        let matrices = model.matrices_mut().into_iter().zip(gradients.matrices());
        let means =
            self.means.matrices_mut().into_iter().zip(self.squares.matrices_mut());
        for ((mut matrix, gradient), (mut mean, mut square)) in matrices.zip(means) {
            mean.zip_apply(&gradient, |m, g| *m = 0.9 * *m + 0.1 * g);
            square.zip_apply(&gradient, |s, g| *s = 0.99 * *s + 0.01 * g * g);
            matrix.zip_zip_apply(&mean, &square, |x, m, s| {
                *x -= rate * (m / first) / ((s / second).sqrt() + 1e-8);
            });
        }
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
    let mut adam = Adam::new(&model);
    let bar = ProgressBar::new(STEPS as u64).with_style(
        ProgressStyle::with_template("{bar:40} step {pos} of {len}: {msg}")
            .expect("a template of indicatif"),
    );
    for step in 1..=STEPS {
        let batch: Vec<_> = (0..BATCH).map(|_| draw(rng)).collect();
        let (loss, right, gradients) = model.loss_and_gradients(&batch)?;
        adam.step(&mut model, &gradients, 0.005);
        bar.set_message(format!("loss {loss:.3}, {:.0} % right", 100.0 * right));
        bar.inc(1);
        if step % 50 == 0 || step == 1 {
            bar.suspend(|| {
                println!("step {step:4}: loss {loss:.4}, {:5.1} % right", 100.0 * right)
            });
        }
    }
    bar.finish();

    let unseen: Vec<_> = (0..100).map(|_| draw(rng)).collect();
    let (loss, right, _) = model.loss_and_gradients(&unseen)?;
    println!(
        "100 sequences it has not seen: loss {loss:.4}, {:.1} % right",
        100.0 * right
    );
    assert!(right > 0.99, "it has not learned to copy");
    Ok(())
}
