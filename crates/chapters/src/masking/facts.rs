//! The chapter's numbers.

use crate::sentences::{BANK, Steps, projected};
use anyhow::Result;
use attention::{Float, Mask, example, softmax};
use nalgebra::{DMatrix, DVector};

/// 1 where a query may see a key, `hidden` where it may not.
pub fn allowed(mask: &Mask, n_q: usize, n_k: usize, hidden: f64) -> Result<DMatrix<f64>> {
    let allowed = mask.sized(n_q, n_k)?.allowed_matrix();
    Ok(allowed.map(|seen| if seen { 1.0 } else { hidden }))
}

/// The first sentence of the running example, with its hand-made projections: under a causal mask, and without.
pub fn causal_and_free() -> Result<[Steps; 2]> {
    let x = example::river().x;
    Ok([projected(&x, &x, &Mask::causal())?, projected(&x, &x, &Mask::none())?])
}

/// The weights of the running example, which a causal mask multiplies by 0 after softmax.
pub fn masked_after_softmax(x: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    let weights = projected(x, x, &Mask::none())?.weights;
    Ok(weights.component_mul(&allowed(&Mask::causal(), 6, 6, 0.0)?))
}

/// The running example with a last word that is three times as long.
pub fn with_a_longer_last_word() -> DMatrix<f64> {
    let mut x = example::river().x;
    x.row_mut(BANK).scale_mut(3.0);
    x
}

/// A row of scores with this added to all of them, in the place of −∞, and its weights.
pub fn everything_hidden<T: Float>(added: T) -> Result<(DVector<T>, DVector<T>)> {
    let hidden = SCORES.map(|score| nalgebra::convert::<f64, T>(score) + added);
    let hidden = DVector::from_row_slice(&hidden);
    let weights = softmax(&hidden)?;
    Ok((hidden, weights))
}

pub const SCORES: [f64; 3] = [2.0, 1.0, 0.1];

/// The distance from −10⁹ to the next number, in `f64` and in `f32`.
pub fn spacing() -> (f64, f32) {
    let (double, single) = (-1e9_f64, -1e9_f32);
    (double.next_up() - double, single.next_up() - single)
}
