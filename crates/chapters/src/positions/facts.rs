//! The chapter's numbers.

use anyhow::Result;
use attention::{
    Mask, Rotary, ScoreRule, attention_weights,
    positions::{RotaryPairs, sinusoidal_positions},
};
use half::bf16;
use nalgebra::DMatrix;

/// The width of the vectors whose scores are compared.
pub const WIDTH: usize = 64;
/// The distances that are drawn.
pub const FURTHEST: usize = 64;

/// The product of two sinusoidal rows, so many positions apart, as a share of that of a row with itself.
pub fn product_of_waves() -> Result<Vec<f64>> {
    let rows = sinusoidal_positions::<f64>(FURTHEST + 1, WIDTH)?;
    let product = |distance: usize| rows.row(0).dot(&rows.row(distance));
    Ok((0..=FURTHEST).map(|distance| product(distance) / product(0)).collect())
}

/// The product of two rows of ones, turned to their positions, as a share of that where they stand together.
pub fn product_of_turned() -> Result<Vec<f64>> {
    let rotary = Rotary::new(10_000.0, RotaryPairs::Neighbours)?;
    let ones = DMatrix::<f64>::repeat(FURTHEST + 1, WIDTH, 1.0);
    let turned = rotary.turn(&ones, 1, 0)?;
    let product = |distance: usize| turned.row(0).dot(&turned.row(distance));
    Ok((0..=FURTHEST).map(|distance| product(distance) / product(0)).collect())
}

/// The weights of tokens that are all alike, under a causal mask: without positions, and with a bias that costs 1 for each token of
/// distance.
pub fn weights_of_equals() -> Result<[DMatrix<f64>; 2]> {
    let x = DMatrix::<f64>::zeros(6, 2);
    let weights =
        |mask: Mask| -> Result<DMatrix<f64>> { Ok(attention_weights(&x, &x, mask)?.0) };
    let falling = Mask::causal().with_scores(ScoreRule::slopes(&[1.0])?);
    Ok([weights(Mask::causal())?, weights(falling)?])
}

/// The cosine of the first pair's angle at a position: exact, and with the position rounded to sixteen bits.
pub fn cosines(position: isize) -> Result<(f64, f64)> {
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
    let rounded = bf16::from_f64(position as f64).to_f64() as isize;
    let cosine = |position| rotary.angle(position, 0, WIDTH).cos();
    Ok((cosine(position), cosine(rounded)))
}

/// By how much an angle is off at most, over all pairs and a hundred positions up to this one, that is computed in `f32` from its frequency
/// in `f32`.
pub fn off_in_single(last: isize) -> Result<f64> {
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
    let off = |position: isize, pair: usize| {
        let frequency = 10_000_f32.powf(-2.0 * pair as f32 / WIDTH as f32);
        let angle = position as f32 * frequency;
        (f64::from(angle) - rotary.angle(position, pair, WIDTH)).abs()
    };
    let positions = last - 99..=last;
    let all = positions
        .flat_map(|position| (0..WIDTH / 2).map(move |pair| off(position, pair)));
    Ok(all.fold(0.0, f64::max))
}
