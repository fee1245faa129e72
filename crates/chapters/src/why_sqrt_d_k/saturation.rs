//! Sharpness and gradients of softmax, with scores undivided, divided by √d and by d.

use super::facts::draw;
use crate::random::normal;
use anyhow::Result;
use attention::softmax::{softmax, softmax_backward};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::iter::{ParallelBridge, ParallelIterator};
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

pub const LENGTHS: [usize; 3] = [8, 64, 512];
pub const WIDTHS: [usize; 8] = [4, 8, 16, 32, 64, 128, 256, 512];
pub const ROWS: usize = 1000;
/// Of the tables, whose mean gradient without scaling is made by few rows.
const ROWS_OF_EIGHT: usize = 20_000;

/// A gradient below this is next to none, as [Claims, checked](crate::claims) has it.
pub const FAINT: f64 = 1e-6;

/// One row of weights, seen from several sides.
#[derive(Clone, Copy)]
pub struct Row {
    pub largest: f64,
    /// Divided by ln n, the most it can be.
    pub entropy: f64,
    /// The norm of the gradient with respect to the query.
    pub grad_query: f64,
    /// The share of the row's scores whose gradient is below [`FAINT`].
    pub faint_scores: f64,
}

/// Rows of weights of the same queries and keys.
#[derive(Default)]
pub struct Rows {
    pub unscaled: Vec<Row>,
    /// The rows with scores divided by √d.
    pub scaled: Vec<Row>,
    /// The rows with scores divided by d.
    pub divided_by_d: Vec<Row>,
}

/// Rows of each size, once they are drawn: two chapters look at them, and one of them only at some.
static DRAWN: LazyLock<BTreeMap<(usize, usize), OnceLock<Rows>>> = LazyLock::new(|| {
    let sizes = LENGTHS.into_iter().flat_map(|n| WIDTHS.map(|d| (n, d)));
    sizes.map(|size| (size, OnceLock::new())).collect()
});

/// Rows of weights, each of one random query and `n` of [`LENGTHS`] random keys of a width `d` of [`WIDTHS`].
pub fn rows(n: usize, d: usize) -> &'static Rows {
    DRAWN[&(n, d)].get_or_init(|| draw_rows(n, d, ROWS).expect("rows of weights"))
}

/// Many rows of eight keys, 512 wide.
pub fn rows_of_eight() -> &'static Rows {
    static DRAWN: LazyLock<Rows> =
        LazyLock::new(|| draw_rows(8, 512, ROWS_OF_EIGHT).expect("rows of weights"));
    &DRAWN
}

/// Draws the rows of these sizes on several threads, so that [`rows`] has them at hand.
pub fn draw_all(sizes: impl Iterator<Item = (usize, usize)> + Send) {
    sizes.par_bridge().for_each(|(n, d)| {
        rows(n, d);
    });
}

/// Returns the numbers of all sizes, those first that take longest.
pub fn largest_first() -> impl Iterator<Item = (usize, usize)> + Send {
    DRAWN.keys().rev().copied()
}

fn draw_rows(n: usize, d: usize, count: usize) -> Result<Rows> {
    let rng = &mut ChaCha8Rng::seed_from_u64((1000 * n + d) as u64);
    let mut rows = Rows::default();
    for _ in 0..count {
        let q = draw(d, rng);
        let keys = normal(d, n, rng); // one column per key
        let products = keys.tr_mul(&q); // (n)
        let grad_p = draw(n, rng); // the gradient that the weights are handed
        let row = |power: f64| -> Result<Row> {
            let divisor = (d as f64).powf(power);
            let p = softmax(&(&products / divisor))?;
            let grad_scores = softmax_backward(&p, &grad_p)?;
            let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
            let faint = grad_scores.iter().filter(|grad| grad.abs() < FAINT).count();
            Ok(Row {
                faint_scores: faint as f64 / n as f64,
                largest: p.max(),
                entropy: entropy / (n as f64).ln(),
                grad_query: (&keys * grad_scores).norm() / divisor, // scores = keysᵀ q / divisor
            })
        };
        rows.unscaled.push(row(0.0)?);
        rows.scaled.push(row(0.5)?);
        rows.divided_by_d.push(row(1.0)?);
    }
    Ok(rows)
}

pub fn mean(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    rows.iter().map(of).sum::<f64>() / rows.len() as f64
}

pub fn median(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    record::statistics::median(&rows.iter().map(of).collect::<Vec<_>>())
}

/// The share of rows of which this is true.
pub fn share(rows: &[Row], is: impl Fn(&Row) -> bool) -> f64 {
    mean(rows, |row| f64::from(is(row)))
}

fn mean_norm(rows: &[Row]) -> f64 {
    mean(rows, |row| row.grad_query)
}

/// The mean norm as it would be without the factor 1/a of the scores' division by a, the width to this power.
pub fn mean_through_softmax(rows: &[Row], d: usize, power: f64) -> f64 {
    mean_norm(rows) * (d as f64).powf(power)
}

/// The share of rows whose gradient is below one hundredth of the mean of all.
pub fn starved(rows: &[Row]) -> f64 {
    let mean_norm = mean_norm(rows);
    share(rows, |row| row.grad_query < 0.01 * mean_norm)
}

/// The gradient of each row beside the mean of all, as a power of ten.
pub fn logarithmic_sizes(rows: &[Row]) -> Vec<f64> {
    let mean_norm = mean_norm(rows);
    rows.iter().map(|row| (row.grad_query / mean_norm).log10()).collect()
}
