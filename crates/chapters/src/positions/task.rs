//! A task that asks for a place: what was the token three before this one?

use crate::random::normal;
use anyhow::Result;
use attention::{
    Adam, Mask, MultiHeadAttention, Rotary, ScoreRule, named_parameters,
    positions::{RotaryPairs, sinusoidal_positions},
    score_rule::DistanceBuckets,
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::LazyLock;

pub const D_MODEL: usize = 16;
pub const CONTENT: usize = 8;
pub const HEADS: usize = 2;
pub const BACK: usize = 3;
pub const TRAINED: usize = 32;
pub const STEPS: usize = 1500;
const BATCH: usize = 8;
const BUCKETS: usize = 8; // distances up to so many have entries of their own

/// The ways to say where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    None,
    Learned,
    Sinusoidal,
    Alibi,
    Table,
    Rotary,
}

impl Positions {
    pub const ALL: [Positions; 6] = [
        Positions::None,
        Positions::Learned,
        Positions::Sinusoidal,
        Positions::Alibi,
        Positions::Table,
        Positions::Rotary,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Positions::None => "none",
            Positions::Learned => "a learned row for each position",
            Positions::Sinusoidal => "sinusoidal",
            Positions::Alibi => "ALiBi",
            Positions::Table => "a learned bias by distance",
            Positions::Rotary => "rotary",
        }
    }
}

/// A layer, and what it learns of positions.
pub struct Model {
    positions: Positions,
    layer: MultiHeadAttention<f64>,
    rows: DMatrix<f64>,  // (TRAINED, D_MODEL), added to the input
    table: DMatrix<f64>, // (buckets, HEADS)
}

/// The gradients with respect to a model's parameters.
struct Gradients {
    layer: attention::Parameters<f64>,
    rows: DMatrix<f64>,
    table: DMatrix<f64>,
}

named_parameters! { impl[] NamedParameters<f64> for Model { layer, rows, table } }
named_parameters! { impl[] NamedParameters<f64> for Gradients { layer, rows, table } }

impl Model {
    fn new(positions: Positions) -> Result<Self> {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let mut layer = MultiHeadAttention::xavier(D_MODEL, HEADS, rng)?;
        if positions == Positions::Rotary {
            layer = layer.with_rotary(Rotary::new(100.0, RotaryPairs::Halves)?)?;
        }
        // Not zeros: rotary positions turn the biases, too, and those say where a token stands whatever it is.
        layer.parameters.b_q.copy_from(&normal(1, D_MODEL, rng));
        layer.parameters.b_k.copy_from(&normal(1, D_MODEL, rng));
        let rows = match positions {
            Positions::Learned => normal(TRAINED, D_MODEL, rng) * 0.5,
            _ => DMatrix::zeros(TRAINED, D_MODEL),
        };
        let table = DMatrix::zeros(2 * BUCKETS + 1, HEADS);
        Ok(Model { positions, layer, rows, table })
    }

    /// What the layer is given for these tokens. Learned rows know no position beyond the last: it stands for all that follow.
    fn input(&self, tokens: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        let n = tokens.nrows();
        Ok(match self.positions {
            Positions::Learned => {
                let row = |i: usize| i.min(TRAINED - 1);
                DMatrix::from_fn(n, D_MODEL, |i, c| {
                    tokens[(i, c)] + self.rows[(row(i), c)]
                })
            }
            Positions::Sinusoidal => tokens + sinusoidal_positions::<f64>(n, D_MODEL)?,
            _ => tokens.clone(),
        })
    }

    fn mask(&self) -> Result<Mask> {
        Ok(match self.positions {
            Positions::Alibi => Mask::causal().with_scores(ScoreRule::alibi(HEADS)?),
            Positions::Table => {
                let buckets = DistanceBuckets::clipped(BUCKETS)?;
                Mask::causal().with_scores(ScoreRule::table(&self.table, buckets)?)
            }
            _ => Mask::causal(),
        })
    }

    /// The trained models, one for each of the ways and in their order. Side by side, since a step on texts this short is too little work for
    /// several threads.
    pub fn all_trained() -> &'static [Self] {
        static ALL: LazyLock<Vec<Model>> = LazyLock::new(|| {
            let trained = |&positions| Model::trained(positions).expect("a training");
            Positions::ALL.par_iter().map(trained).collect()
        });
        &ALL
    }

    /// Trains on texts of `TRAINED` random tokens.
    fn trained(positions: Positions) -> Result<Self> {
        let mut model = Model::new(positions)?;
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut adam = Adam::new(0.02);
        for step in 0..STEPS {
            adam.rate = 0.02 * (1.0 - step as f64 / STEPS as f64);
            let texts: Vec<_> = (0..BATCH).map(|_| text(TRAINED, rng)).collect();
            let inputs: Vec<_> =
                texts.iter().map(|text| model.input(text)).collect::<Result<_>>()?;
            let (outputs, caches) = model.layer.forward_batch(&inputs, model.mask()?)?;
            let grads: Vec<_> = texts
                .iter()
                .zip(&outputs)
                .map(|(text, output)| error(text, output))
                .collect();
            let of_batch = model.layer.backward_batch(&caches, &grads)?;
            let mut rows = DMatrix::zeros(TRAINED, D_MODEL);
            if positions == Positions::Learned {
                of_batch.xs.iter().for_each(|x| rows += x);
            }
            let table = of_batch.tables.first().cloned();
            let table = table.unwrap_or(DMatrix::zeros(2 * BUCKETS + 1, HEADS));
            let gradients = Gradients { layer: of_batch.parameters, rows, table };
            adam.step(&mut model, &gradients)?;
        }
        Ok(model)
    }

    /// The mean squared error on new texts of `n` tokens: over all tokens that have one to look up, and of longer texts than were trained over
    /// those that stand beyond. The mean of all tokens, 0, has an error of 1.
    pub fn loss(&self, n: usize) -> Result<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(2);
        let texts = (4096 / n).max(1);
        let mut sum = 0.0;
        for _ in 0..texts {
            let text = text(n, rng);
            let (output, _) = self.layer.forward(&self.input(&text)?, self.mask()?)?;
            sum += error(&text, &output).rows_range(counted(n)).norm_squared();
        }
        Ok(sum / (texts * counted(n).len() * CONTENT) as f64)
    }

    /// The distance, other than the right one, that gets most weight in a text of `n` tokens, and its weight: the means over the heads and
    /// the last quarter of the tokens.
    pub fn largest_wrong_distance(&self, n: usize) -> Result<(usize, f64)> {
        let text = text(n, &mut ChaCha8Rng::seed_from_u64(3));
        let (_, cache) = self.layer.forward(&self.input(&text)?, self.mask()?)?;
        let queries = n - n / 4..n;
        let weight = |distance: usize| {
            let of_head = |weights: &DMatrix<f64>| -> f64 {
                queries.clone().map(|i| weights[(i, i - distance)]).sum()
            };
            let sum: f64 = cache.heads().iter().map(|head| of_head(&head.weights)).sum();
            sum / (HEADS * queries.len()) as f64
        };
        let wrong = (0..queries.start).filter(|distance| *distance != BACK);
        let weights = wrong.map(|distance| (distance, weight(distance)));
        Ok(weights.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default())
    }

    /// The largest entry of each head's column of the table, as a distance.
    #[cfg(test)]
    pub fn largest_biases(&self) -> Vec<isize> {
        let largest = |h| self.table.column(h).argmax().0 as isize - BUCKETS as isize;
        (0..HEADS).map(largest).collect()
    }
}

/// The tokens of a text whose errors count.
fn counted(n: usize) -> Range<usize> {
    if n > TRAINED { TRAINED..n } else { BACK..n }
}

/// Random tokens (n, D_MODEL): numbers in the last half of the columns, zeros in the others, which leave room for positions.
fn text(n: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    let mut text = DMatrix::zeros(n, D_MODEL);
    text.columns_mut(D_MODEL - CONTENT, CONTENT).copy_from(&normal(n, CONTENT, rng));
    text
}

/// The output less the token three before; zeros where there is none.
fn error(text: &DMatrix<f64>, output: &DMatrix<f64>) -> DMatrix<f64> {
    let mut error = output.clone();
    let n = text.nrows();
    let mut rows = error.rows_mut(BACK, n - BACK);
    rows -= text.rows(0, n - BACK);
    error.rows_mut(0, BACK).fill(0.0);
    error
}
