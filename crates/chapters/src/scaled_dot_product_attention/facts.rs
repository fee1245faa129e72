//! The chapter's numbers.

use crate::sentences::{self, Steps};
use anyhow::Result;
use attention::{Mask, attention_weights, row_entropy};
use nalgebra::{DMatrix, dmatrix};

/// Two small examples, by their names.
pub fn worked_examples() -> Result<[(&'static str, Steps); 2]> {
    let steps =
        |[q, k, v]: [DMatrix<f64>; 3]| sentences::steps(&q, &k, &v, &Mask::none());
    let a = [
        dmatrix![1.0, 0.0, 1.0; 0.0, 1.0, 0.0],
        dmatrix![1.0, 0.0, 0.0; 0.0, 1.0, 1.0],
        dmatrix![10.0, 20.0, 30.0; 40.0, 50.0, 60.0],
    ];
    Ok([("a", steps(a)?), ("b", steps(sentences::example_b())?)])
}

/// Tokens of a pattern.
pub const N: usize = 8;

/// The length of the queries in the figures. The keys have length 1.
pub const QUERY_LENGTH: f64 = 20.0;

/// A pattern that weights often show. Which keys a query matches decides where a row looks; the query's length decides
/// how sharply.
pub struct Pattern {
    pub name: &'static str,
    /// The mean entropy of the rows, with queries as long as keys.
    pub entropy_of_short_queries: f64,
    /// The same, with queries as long as those of the figures.
    pub entropy: f64,
    /// Its weights with queries as long as those of the figures.
    pub weights: DMatrix<f64>,
}

/// Entropy of a row whose weights are equal: more is not possible.
pub fn largest_entropy() -> f64 {
    (N as f64).ln()
}

pub fn patterns() -> Result<[Pattern; 4]> {
    let rows_match = |key: [usize; N]| {
        DMatrix::from_fn(N, N, |i, j| if key[i] == j { 1.0 } else { 0.0 })
    };
    let identity = DMatrix::identity(N, N);
    let groups = rows_match([0, 0, 0, 1, 1, 2, 2, 2]);
    Ok([
        pattern("diagonal", &identity, &identity)?,
        pattern("stripe", &rows_match([0; N]), &identity)?,
        pattern("block", &groups, &groups)?,
        pattern("diffuse", &DMatrix::zeros(N, N), &identity)?,
    ])
}

fn pattern(name: &'static str, q: &DMatrix<f64>, k: &DMatrix<f64>) -> Result<Pattern> {
    let (short, _) = attention_weights(q, k, Mask::none())?;
    let (weights, _) = attention_weights(&(q * QUERY_LENGTH), k, Mask::none())?;
    Ok(Pattern {
        name,
        entropy_of_short_queries: row_entropy(&short)?.mean(),
        entropy: row_entropy(&weights)?.mean(),
        weights,
    })
}
