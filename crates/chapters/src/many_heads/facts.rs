//! The chapter's numbers.

use crate::random::normal;
use crate::sentences::projected;
use anyhow::Result;
use attention::{ForwardOptions, Mask, MultiHeadAttention, attention_weights, example};
use nalgebra::{DMatrix, DVector, dmatrix};
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Queries and keys by which an action asks two questions of the sentence about the river: who acts, and where?
pub fn two_questions() -> [DMatrix<f64>; 2] {
    let w_q = dmatrix![
        0.0, 0.0;
        0.0, 0.0;
        0.0, 0.0;
        2.0, 2.0; // an action asks both questions
    ];
    let w_k = dmatrix![
        1.0, 0.0; // water and money are signs of an actor,
        1.0, 0.0;
       -1.5, 1.2; // a place is none, but answers "where?"
        0.0, 0.0;
    ];
    let x = example::river().x;
    [&x * w_q, x * w_k]
}

/// The weights if one head asks both questions.
pub fn one_head() -> Result<DMatrix<f64>> {
    let [q, k] = two_questions();
    Ok(attention_weights(&q, &k, Mask::none())?.0)
}

/// The weights if each question has a head of its own.
pub fn two_heads() -> Result<[DMatrix<f64>; 2]> {
    let [q, k] = two_questions();
    let head = |h: usize| -> Result<DMatrix<f64>> {
        let [q, k] = [&q, &k].map(|joined| joined.columns(h, 1).into_owned());
        Ok(attention_weights(&q, &k, Mask::none())?.0)
    };
    Ok([head(0)?, head(1)?])
}

/// The weights of the last three words of one sentence, "the river bank", over the six of the other.
pub fn across_sentences() -> Result<DMatrix<f64>> {
    let queries = example::river().x.rows(3, 3).into_owned();
    Ok(projected(&queries, &example::city().x, &Mask::none())?.weights)
}

/// The number of rows of weights over which the sums under dropout are taken.
pub const ROWS: usize = 12_800;

/// The sums of rows of weights under dropout.
pub struct Dropout {
    /// The probability that a weight is dropped.
    pub p: f64,
    /// Weights in a row.
    pub n: usize,
    pub mean: f64,
    pub standard_deviation: f64,
    /// The standard deviation that the sizes of the weights let expect.
    pub predicted: f64,
    /// The share of rows that lost all their weights.
    pub lost: f64,
}

pub fn dropouts() -> Result<Vec<Dropout>> {
    let cases = [(0.1, 8), (0.1, 512), (0.5, 8), (0.5, 512)];
    cases.into_iter().map(|(p, n)| dropout(p, n)).collect()
}

fn dropout(p: f64, n: usize) -> Result<Dropout> {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let layer = MultiHeadAttention::<f64>::xavier(8, 1, rng)?;
    let x = normal(n, 8, rng);
    let (mut sums, mut squares) = (vec![], vec![]);
    while sums.len() < ROWS {
        let (_, cache) = layer.forward(&x, ForwardOptions::new().dropout(p, rng))?;
        let head = &cache.heads()[0];
        sums.extend(head.weights_used()?.column_sum().iter().copied());
        squares.push(head.weights.norm_squared() / n as f64);
    }
    let (sums, squares) = (DVector::from_vec(sums), DVector::from_vec(squares));
    let lost = sums.iter().filter(|&&sum| sum == 0.0).count();
    Ok(Dropout {
        p,
        n,
        mean: sums.mean(),
        standard_deviation: sums.variance().sqrt(),
        predicted: (p / (1.0 - p) * squares.mean()).sqrt(),
        lost: lost as f64 / sums.len() as f64,
    })
}
