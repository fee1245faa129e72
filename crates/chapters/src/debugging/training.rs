//! Layers with and without a fault, in training.

use super::facts::layer;
use crate::random::normal;
use anyhow::Result;
use attention::{Adam, Mask};
use laboratory::{AttentionLayer, Fault, Patient};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

const POSITIONS: usize = 6;
const CONTENT: usize = 2;
const WIDTH: usize = CONTENT + POSITIONS;
pub const STEPS: usize = 300;
pub const BATCH: usize = 4;
pub const RATE: f64 = 0.03;
const TESTS: usize = 64;

/// Tokens of two random numbers and a position, one-hot: (6, 8).
fn sequence(rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    let content = normal(POSITIONS, CONTENT, rng);
    DMatrix::from_fn(POSITIONS, WIDTH, |i, c| match c {
        c if c < CONTENT => content[(i, c)],
        c => f64::from(c - CONTENT == i),
    })
}

/// The mean of squared errors over outputs which have a target, and its gradient. The target of output `i` is the
/// content of token `i + ahead`.
fn loss(output: &DMatrix<f64>, x: &DMatrix<f64>, ahead: isize) -> (f64, DMatrix<f64>) {
    let count = ((POSITIONS - 1) * CONTENT) as f64;
    let mut grad = DMatrix::zeros(output.nrows(), output.ncols());
    let mut loss = 0.0;
    for i in 0..POSITIONS {
        let Some(target) = i.checked_add_signed(ahead).filter(|&t| t < POSITIONS) else {
            continue;
        };
        for c in 0..CONTENT {
            let error = output[(i, c)] - x[(target, c)];
            loss += error * error / count;
            grad[(i, c)] = 2.0 * error / count;
        }
    }
    (loss, grad)
}

/// The mean loss of what answers, on sequences that were not trained on.
fn test(
    ahead: isize,
    answer: impl Fn(&DMatrix<f64>) -> Result<DMatrix<f64>>,
) -> Result<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(99);
    let losses = (0..TESTS).map(|_| {
        let x = sequence(rng);
        Ok(loss(&answer(&x)?, &x, ahead).0)
    });
    Ok(losses.sum::<Result<f64>>()? / TESTS as f64)
}

/// Trains with Adam at this learning rate; the loss on sequences that were not trained on.
fn train(mut patient: Patient, ahead: isize, rate: f64) -> Result<f64> {
    let mask = Mask::causal();
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let mut adam = Adam::new(rate);
    adam.beta_2 = 0.99;
    for _ in 0..STEPS {
        let xs: Vec<_> = (0..BATCH).map(|_| sequence(rng)).collect();
        let passes = xs.iter().map(|x| Ok(patient.forward(x, None, &mask)?));
        let passes = passes.collect::<Result<Vec<_>>>()?.into_iter();
        let (outputs, caches): (Vec<_>, Vec<_>) = passes.unzip();
        let answers = outputs.iter().zip(&xs);
        let grad_outputs =
            answers.map(|(output, x)| loss(output, x, ahead).1 / BATCH as f64);
        let mut gradients = patient.parameters().zeros_like();
        for (cache, grad_output) in caches.iter().zip(grad_outputs) {
            gradients += &patient.backward(cache, &grad_output)?.parameters;
        }
        adam.step(&mut patient, &gradients)?;
    }
    test(ahead, |x| Ok(patient.forward(x, None, &mask)?.0))
}

/// A layer's loss before training, and after training to say the previous token or the next one.
pub struct Losses {
    pub fault: Option<Fault>,
    pub previous: f64,
    pub next: f64,
}

/// The healthy layer first, then each fault but the padding's and the positions': all sequences are of one length, and come at once.
pub fn losses() -> Result<Vec<Losses>> {
    let trained = |fault| {
        let patient = Patient::new(layer(WIDTH, 2, 0)?, fault)?;
        let previous = train(patient.clone(), -1, RATE)?;
        let next = train(patient, 1, RATE)?;
        Ok(Losses { fault, previous, next })
    };
    let shows = |fault: &&Fault| {
        !matches!(fault, Fault::ForgottenPadding | Fault::PositionOfTheChunk)
    };
    let faults = Patient::FAULTS.into_par_iter().filter(shows).copied().map(Some);
    rayon::iter::once(None).chain(faults).map(trained).collect()
}

/// The loss that is reached without looking at anything, if the answer is always 0.
pub fn loss_of_zero(ahead: isize) -> Result<f64> {
    test(ahead, |x| Ok(x * 0.0))
}
