//! Rotary positions: what must be equal is.

use crate::support::{numbers, off, random};
use attention::{Mask, MultiHeadAttention, Result, Rotary, positions::RotaryPairs};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

fn layer(pairs: RotaryPairs) -> Result<MultiHeadAttention<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    MultiHeadAttention::xavier_grouped(16, 4, 2, rng)?
        .with_rotary(Rotary::new(100.0, pairs)?)
}

/// Only distances count: all positions later by 1,000, and scores stay. In a head of its own each.
#[test]
fn products_of_turned_rows_depend_on_distances() -> Result<()> {
    let (q, k) = (random(6, 12, 1), random(6, 12, 2));
    for pairs in [RotaryPairs::Neighbours, RotaryPairs::Halves] {
        let rotary = Rotary::new(10_000.0, pairs)?;
        let scores = |first| -> Result<DMatrix<f64>> {
            let (q, k) = (rotary.turn(&q, 2, first)?, rotary.turn(&k, 2, first)?);
            Ok(q.columns(0, 6) * k.columns(0, 6).transpose())
        };
        assert!(off(&scores(1000)?, &scores(0)?) < 1e-12);
        let norms = |x: &DMatrix<f64>| DMatrix::from_fn(6, 1, |i, _| x.row(i).norm());
        assert!(off(&norms(&rotary.turn(&q, 2, 77)?), &norms(&q)) < 1e-12);
    }
    Ok(())
}

/// Weights with reordered columns make of one pairing the other, also with biases and shared keys.
#[test]
fn pairings_can_be_converted() -> Result<()> {
    let x = random(9, 16, 4);
    let mut neighbours = layer(RotaryPairs::Neighbours)?;
    neighbours.parameters.b_q = numbers::<f64>(1, 16, 5).row(0).into_owned();
    let mut halves = layer(RotaryPairs::Halves)?;
    halves.parameters = neighbours.parameters.clone();
    let (expected, _) = neighbours.forward(&x, Mask::causal())?;
    assert!(off(&halves.forward(&x, Mask::causal())?.0, &expected) > 0.01); // runs, and is wrong
    let reorder = |w: &DMatrix<f64>, heads| {
        RotaryPairs::Neighbours.reorder(w, heads, RotaryPairs::Halves)
    };
    let p = &mut halves.parameters;
    (p.w_q, p.w_k) = (reorder(&p.w_q, 4)?, reorder(&p.w_k, 2)?);
    let b_q = DMatrix::from_row_slice(1, 16, p.b_q.as_slice());
    p.b_q = reorder(&b_q, 4)?.row(0).into_owned();
    assert!(off(&halves.forward(&x, Mask::causal())?.0, &expected) < 1e-12);
    Ok(())
}

/// In `f32`, at position 131,072: as accurate as `f32` can be.
#[test]
fn angles_are_accurate_far_out() -> Result<()> {
    let (d, first) = (64, 131_072);
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
    let x = numbers::<f64>(1, d, 6);
    let expected = rotary.turn(&x, 1, first)?;
    let given = rotary.turn(&x.map(|x| x as f32), 1, first)?;
    let worst = given.iter().zip(&expected).map(|(&a, b)| (f64::from(a) - b).abs());
    assert!(worst.fold(0.0, f64::max) < 2e-7);
    Ok(())
}
