//! The chapter's numbers.

use crate::sentences::{LEFT, projected};
use anyhow::Result;
use attention::{Mask, attention_weights, example};
use nalgebra::{DMatrix, dmatrix};

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

/// What "left" gets back if each word tells the two numbers of its key: from one head for both questions; from two heads, each
/// with a column of its own; and from the mean of the two heads' weights.
pub fn answers_to_left() -> Result<[[f64; 2]; 3]> {
    let [_, values] = two_questions();
    let one = one_head()?;
    let [first, second] = two_heads()?;
    let mean = (&first + &second) / 2.0;
    let answer =
        |weights: &DMatrix<f64>, c| weights.row(LEFT).transpose().dot(&values.column(c));
    Ok([
        [answer(&one, 0), answer(&one, 1)],
        [answer(&first, 0), answer(&second, 1)],
        [answer(&mean, 0), answer(&mean, 1)],
    ])
}

/// The weights of the last three words of one sentence, "the river bank", over the six of the other.
pub fn across_sentences() -> Result<DMatrix<f64>> {
    let queries = example::river().x.rows(3, 3).into_owned();
    Ok(projected(&queries, &example::city().x, &Mask::none())?.weights)
}
