//! The chapter's numbers.

use anyhow::Result;
use attention::{Mask, ScoreRule, attention_weights};
use nalgebra::DMatrix;

/// The weights of tokens that are all alike, under a causal mask: without positions, and with the bias of the first of eight
/// heads, which costs 1/2 for each token of distance.
pub fn weights_of_equals() -> Result<[DMatrix<f64>; 2]> {
    let x = DMatrix::<f64>::zeros(6, 2);
    let weights =
        |mask: Mask| -> Result<DMatrix<f64>> { Ok(attention_weights(&x, &x, mask)?.0) };
    let falling = Mask::causal().with_scores(ScoreRule::slopes(&[0.5])?);
    Ok([weights(Mask::causal())?, weights(falling)?])
}
