//! A layer that learns to look up a number by a name, with all parameters trained and with queries and keys held.

use anyhow::Result;
use attention::{ForwardOptions, Parameters, SingleHeadAttention};
use nalgebra::DMatrix;
use rand::seq::SliceRandom;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

const NAMES: usize = 6;
const D_MODEL: usize = 2 * NAMES + 1;
/// The column of X that holds the numbers.
const NUMBER: usize = 2 * NAMES;
pub const STEPS: usize = 800;
const BATCH: usize = 32;
const RATE: f64 = 0.5;

/// Six tokens, each with a name, the name of the token that it looks for, and a number: [name | looks for | number].
/// The right answer is the number of the token that it looks for.
struct Task {
    x: DMatrix<f64>,
    target: DMatrix<f64>,
    /// The token that each token looks for.
    sought: Vec<usize>,
}

impl Task {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let mut names: Vec<usize> = (0..NAMES).collect();
        names.shuffle(rng);
        let mut wanted: Vec<usize> = (0..NAMES).collect();
        wanted.shuffle(rng);
        let mut x = DMatrix::zeros(NAMES, D_MODEL);
        for i in 0..NAMES {
            x[(i, names[i])] = 1.0;
            x[(i, NAMES + wanted[i])] = 1.0;
            x[(i, NUMBER)] = StandardNormal.sample(rng);
        }
        let token_called = |name| names.iter().position(|&other| other == name);
        let sought: Vec<_> = wanted.into_iter().filter_map(token_called).collect();
        let mut target = DMatrix::zeros(NAMES, D_MODEL);
        for (i, &j) in sought.iter().enumerate() {
            target[(i, NUMBER)] = x[(j, NUMBER)];
        }
        Task { x, target, sought }
    }
}

/// A layer after its training.
pub struct Trained {
    layer: SingleHeadAttention<f64>,
    /// The loss at each step.
    pub losses: Vec<f64>,
}

impl Trained {
    /// The mean of the losses of the last steps.
    pub fn loss_at_end(&self, steps: usize) -> f64 {
        self.losses[STEPS - steps..].iter().sum::<f64>() / steps as f64
    }

    /// The mean losses of ten steps each, with the step in their middle.
    pub fn smoothed(&self) -> impl Iterator<Item = (f64, f64)> {
        self.losses
            .chunks(10)
            .enumerate()
            .map(|(i, losses)| (10.0 * i as f64 + 5.0, losses.iter().sum::<f64>() / 10.0))
    }

    /// Returns the attention that each token of fresh sequences gives to the one that it looks for.
    pub fn found(&self) -> Result<Vec<f64>> {
        let rng = &mut ChaCha8Rng::seed_from_u64(9);
        let mut found = vec![];
        for _ in 0..1000 {
            let task = Task::draw(rng);
            let weights =
                self.layer.forward(&task.x, ForwardOptions::new())?.1.attention.weights;
            let sought = task.sought.into_iter().enumerate();
            found.extend(sought.map(|place| weights[place]));
        }
        Ok(found)
    }
}

pub fn with_all_trained() -> Result<Trained> {
    train(|_| true)
}

pub fn with_queries_and_keys_held() -> Result<Trained> {
    train(|parameter| !parameter.ends_with(['q', 'k']))
}

/// Gradient descent on fresh sequences, by the parameters whose names are chosen.
fn train(is_trained: fn(&str) -> bool) -> Result<Trained> {
    let rng = &mut ChaCha8Rng::seed_from_u64(8);
    let mut layer = SingleHeadAttention::<f64>::xavier(D_MODEL, NAMES, 2, rng)?;
    let share = 1.0 / (BATCH * NAMES) as f64;
    let mut losses = vec![];
    for _ in 0..STEPS {
        let tasks = (0..BATCH).map(|_| Task::draw(rng));
        let (xs, targets): (Vec<_>, Vec<_>) =
            tasks.map(|task| (task.x, task.target)).unzip();
        let (outputs, caches) = layer.forward_batch(&xs, ForwardOptions::new())?;
        let errors: Vec<_> = outputs.iter().zip(&targets).map(|(y, t)| y - t).collect();
        losses.push(share * errors.iter().map(|e| 0.5 * e.norm_squared()).sum::<f64>());

        // The loss is half a squared error, so its gradient is the error.
        let grad_outputs: Vec<_> =
            errors.into_iter().map(|error| error * share).collect();
        let mut gradients = layer.backward_batch(&caches, &grad_outputs)?.parameters;
        hold(&mut gradients, is_trained);
        layer.parameters.step(&gradients, RATE)?;
    }
    Ok(Trained { layer, losses })
}

/// Sets the gradients of all parameters to zero that are not trained.
fn hold(gradients: &mut Parameters<f64>, is_trained: fn(&str) -> bool) {
    let named = gradients.named_mut().into_iter();
    for (_, mut held) in named.filter(|(name, _)| !is_trained(name)) {
        held.fill(0.0);
    }
}
