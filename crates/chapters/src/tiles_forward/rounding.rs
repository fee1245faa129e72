//! The accuracy of tiles, compared with attention in twice the digits.

use super::facts::TILE;
use crate::random::normal;
use crate::tiles_traffic::facts::D;
use anyhow::Result;
use attention::flash::{Inputs, Tiles, tiled_attention};
use attention::{Float, Mask, attention, scaled_scores};
use nalgebra::{DMatrix, RealField, convert, try_convert};
use qd::Quad;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::prelude::*;
use std::ops::Add;

/// The errors of the naive program with sums one by one, of tiles of 1, 16, 64 and 256 keys, and of the crate's, with sums in parts: the root of
/// the mean square of the differences, in units of the type's rounding and of the entries' own size.
pub type Errors = [f64; 6];

/// Returns the errors in `f32` and in `f64`, at each length.
pub fn errors() -> Result<Vec<(usize, [Errors; 2])>> {
    [256, 1024, 4096].into_iter().map(|n| Ok((n, errors_of_length(n)?))).collect()
}

fn errors_of_length(n: usize) -> Result<[Errors; 2]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    // Numbers that an f32 holds, so that both types begin with the same.
    let inputs = [TILE, n, n].map(|n| normal(n, D, rng).map(|x| f64::from(x as f32)));
    let exact = exactly(&inputs);
    Ok([errors_in::<f32>(&inputs, &exact)?, errors_in::<f64>(&inputs, &exact)?])
}

fn errors_in<T: Float>(
    inputs: &[DMatrix<f64>; 3],
    exact: &DMatrix<Quad>,
) -> Result<Errors> {
    let [q, k, v] = inputs.each_ref().map(|m| m.map(convert::<f64, T>));
    let mask = Mask::none();
    let inputs = Inputs::new(&q, &k, &v, &mask)?;
    let tiled = |keys| -> Result<f64> {
        let tiles = Tiles { queries: TILE, keys };
        Ok(error(&tiled_attention(&inputs, tiles)?.output, exact))
    };
    Ok([
        error(&summed_one_by_one(&q, &k, &v)?, exact),
        tiled(1)?,
        tiled(16)?,
        tiled(64)?,
        tiled(256)?,
        error(&attention(&q, &k, &v, &mask)?.0, exact),
    ])
}

/// Attention to about 30 digits, rounded to f64 with what is left over.
fn exactly([q, k, v]: &[DMatrix<f64>; 3]) -> DMatrix<Quad> {
    let of_query = |i: usize| -> Vec<Quad> {
        let score = |j: usize| {
            let product = |c| Quad::from(q[(i, c)]) * Quad::from(k[(j, c)]);
            (0..D).map(product).fold(Quad::ZERO, Add::add) / Quad::from(8.0) // √64
        };
        let scores: Vec<Quad> = (0..k.nrows()).map(score).collect();
        let rounded = scores.iter().map(|score| score.0);
        let max = Quad::from(rounded.fold(f64::NEG_INFINITY, f64::max));
        let weights: Vec<Quad> = scores.iter().map(|&s| (s - max).exp()).collect();
        let sum = weights.iter().copied().fold(Quad::ZERO, Add::add);
        let column = |c: usize| {
            let products = weights.iter().zip(v.as_slice()[c * v.nrows()..].iter());
            products.fold(Quad::ZERO, |sum, (&w, &x)| sum + w * Quad::from(x)) / sum
        };
        (0..D).map(column).collect()
    };
    let rows: Vec<_> = (0..q.nrows()).into_par_iter().map(of_query).collect();
    DMatrix::from_fn(q.nrows(), D, |i, c| rows[i][c])
}

fn error<T: RealField + Copy>(output: &DMatrix<T>, exact: &DMatrix<Quad>) -> f64 {
    let rounding: f64 = try_convert(T::default_epsilon()).unwrap_or(f64::NAN) / 2.0;
    let mut differences = 0.0;
    let mut sizes = 0.0;
    for (&x, &exact) in output.iter().zip(exact.iter()) {
        let x: f64 = try_convert(x).unwrap_or(f64::NAN);
        differences += (Quad::from(x) - exact).0.powi(2);
        sizes += exact.0.powi(2);
    }
    (differences / sizes).sqrt() / rounding
}

/// The naive program, which adds one exponential after the other to the sum of its row.
fn summed_one_by_one<T: Float>(
    q: &DMatrix<T>,
    k: &DMatrix<T>,
    v: &DMatrix<T>,
) -> Result<DMatrix<T>> {
    let mut weights = scaled_scores(q, k)?;
    for mut row in weights.row_iter_mut() {
        let max = row.max();
        row.apply(|x| *x = (*x - max).exp());
        let sum = row.iter().fold(T::zero(), |sum, &x| sum + x);
        row.unscale_mut(sum);
    }
    Ok(weights * v)
}
