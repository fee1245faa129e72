//! The chapter's numbers.

use super::row::Row;
use crate::random;
use crate::sentences::{BANK, Steps, projected};
use anyhow::Result;
use attention::{Mask, example};
use laboratory::traffic::{Counts, Memory, SlowMatrix, blocks};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// Keys in a tile.
pub const TILE: usize = 64;
/// Width of a value, where only counting is done.
pub const VALUE_WIDTH: usize = 64;

/// The largest whole number whose exponential an `f64` can hold.
pub fn largest_exponent_f64() -> f64 {
    f64::MAX.ln().floor()
}

/// Independent numbers from a normal distribution.
pub fn normal(n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    random::normal(n, 1, rng).as_slice().to_vec()
}

// ------------------------------------------------------------------------------------------------ sweeps over a row

/// The length of a row that does not fit into fast memory, which holds a quarter of it.
pub const LONG: usize = 4096;

/// A row of scores, and the value of each.
pub fn long_row() -> (DMatrix<f64>, Vec<f64>) {
    let scores = DMatrix::from_fn(1, LONG, |_, j| (0.7 * j as f64).sin());
    (scores, (0..LONG).map(|j| (0.3 * j as f64).cos()).collect())
}

/// Returns the results of the textbook's program, of the one that divides at the end, and of online softmax: the average of the values with weights
/// that are the softmax of the row, and how much of the row it read and wrote, as the machine of the chapter on the memory
/// wall counts it.
pub fn sweeps() -> Result<[(f64, Counts); 3]> {
    Ok([run(textbook)?, run(divide_last)?, run(online)?])
}

type Program = fn(&mut SlowMatrix<f64>, &[f64]) -> Result<f64>;

fn run(program: Program) -> Result<(f64, Counts)> {
    let (scores, values) = long_row();
    let memory = Memory::new(LONG / 4);
    let average = program(&mut memory.put("scores", scores), &values)?;
    Ok((average, memory.report().matrix("scores")))
}

/// Lets `f` see every score, and replace it if `store`.
fn sweep(
    row: &mut SlowMatrix<f64>,
    store: bool,
    mut f: impl FnMut(usize, &mut f64),
) -> Result<()> {
    for columns in blocks(row.shape().1, 256) {
        let mut tile = row.load(0..1, columns.clone())?;
        for (score, j) in tile.view_mut().iter_mut().zip(columns.clone()) {
            f(j, score);
        }
        if store {
            row.store((0, columns.start), &tile)?;
        }
    }
    Ok(())
}

fn textbook(row: &mut SlowMatrix<f64>, values: &[f64]) -> Result<f64> {
    let (mut max, mut sum, mut average) = (f64::NEG_INFINITY, 0.0, 0.0);
    sweep(row, false, |_, s| max = max.max(*s))?;
    sweep(row, false, |_, s| sum += (*s - max).exp())?;
    sweep(row, true, |_, s| *s = (*s - max).exp() / sum)?;
    sweep(row, false, |j, weight| average += *weight * values[j])?;
    Ok(average)
}

fn divide_last(row: &mut SlowMatrix<f64>, values: &[f64]) -> Result<f64> {
    let (mut max, mut sum, mut weighted) = (f64::NEG_INFINITY, 0.0, 0.0);
    sweep(row, false, |_, s| max = max.max(*s))?;
    sweep(row, false, |j, s| {
        sum += (*s - max).exp();
        weighted += (*s - max).exp() * values[j];
    })?;
    Ok(weighted / sum)
}

fn online(row: &mut SlowMatrix<f64>, values: &[f64]) -> Result<f64> {
    let mut state = Row::empty();
    sweep(row, false, |j, s| state = state.absorb(&[(*s, values[j])]))?;
    Ok(state.output())
}

// ------------------------------------------------------------------------------------------------ one row

/// One key, and the state before and after it.
pub struct Step {
    pub token: &'static str,
    pub score: f64,
    pub value: f64,
    pub before: Row,
    pub after: Row,
}

impl Step {
    /// The factor of the old sums.
    pub fn correction(&self) -> f64 {
        (self.before.max - self.after.max).exp()
    }

    /// The term that is added to the sum.
    pub fn term(&self) -> f64 {
        (self.score - self.after.max).exp()
    }
}

/// “bank” asks, and both “the” are hidden: four scores, one after the other, and the output of the whole row at once.
pub fn by_hand() -> Result<(Vec<Step>, f64)> {
    let sentence = example::river();
    let is_seen = sentence.tokens.map(|token| token != "the");
    let mask = Mask::padding(&is_seen)?;
    let Steps { scores, v, output, .. } = projected(&sentence.x, &sentence.x, &mask)?;
    let mut row = Row::empty();
    let mut steps = vec![];
    for j in (0..6).filter(|&j| is_seen[j]) {
        let (score, value, before) = (scores[(BANK, j)], v[(j, 0)], row);
        row = row.absorb(&[(score, value)]);
        steps.push(Step { token: sentence.tokens[j], score, value, before, after: row });
    }
    Ok((steps, output[(BANK, 0)]))
}

/// Scores as they come, and the state after each.
pub struct Staircase {
    pub scores: Vec<f64>,
    pub states: Vec<Row>,
}

impl Staircase {
    /// The keys that raise the maximum, counted from 1.
    pub fn steps(&self) -> Vec<usize> {
        let is_step =
            |&j: &usize| j == 1 || self.states[j - 1].max != self.states[j - 2].max;
        (1..=self.states.len()).filter(is_step).collect()
    }
}

pub fn staircase() -> Staircase {
    let scores = normal(64, &mut ChaCha8Rng::seed_from_u64(4));
    let mut row = Row::empty();
    let absorb = |&score| {
        row = row.absorb(&[(score, 0.0)]);
        row
    };
    Staircase { states: scores.iter().map(absorb).collect(), scores }
}

// ------------------------------------------------------------------------------------------------ changes of the maximum

/// 1 + 1/2 + … + 1/n
pub fn harmonic(n: usize) -> f64 {
    (1..=n).map(|i| 1.0 / i as f64).sum()
}

/// The length of the row whose changes the chapter names.
pub const CHANGES_N: usize = 4096;

// ------------------------------------------------------------------------------------------------ cost

/// Returns the work that the correction of a tile adds to each of its scores, beside that of plain softmax.
pub struct Cost {
    /// Keys in a tile.
    pub tile: usize,
    pub exponentials: f64,
    /// A subtraction and an exponential for the correction, and a multiplication of the sum and of each entry of o.
    pub operations: f64,
    /// The same as a share of those of plain attention, as the chapter Counting counts them: 4d + 5 for each score.
    pub share: f64,
}

pub fn costs() -> [Cost; 5] {
    [1, 4, 16, TILE, 256].map(|tile| {
        let exponentials = 1.0 / tile as f64;
        let operations = (VALUE_WIDTH + 3) as f64 * exponentials;
        let share = operations / (4 * VALUE_WIDTH + 5) as f64;
        Cost { tile, exponentials, operations, share }
    })
}
