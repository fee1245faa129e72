//! The chapter's numbers.

use crate::sentences::{self, Steps};
use anyhow::Result;
use attention::Mask;
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

/// A query, and below it three keys, for the reader's pencil.
pub fn by_hand() -> DMatrix<f64> {
    dmatrix![1.0, 2.0; 1.0, 0.0; 0.0, 1.0; 2.0, -1.0]
}
