//! Rounding errors of a row, taken in several ways.

use super::facts::{TILE, normal};
use super::row::Row;
use crate::gradient_checking::exponential;
use nalgebra::{RealField, convert};
use qd::Quad;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use record::statistics::quantile;
use std::collections::BTreeMap;

/// The types of which rounding is asked.
pub trait Number: RealField + Copy + Into<f64> {}

impl<T: RealField + Copy + Into<f64>> Number for T {}

/// One row of scores, each with its value of width 1.
pub struct Keys<T>(pub Vec<(T, T)>);

impl<T: Number> Keys<T> {
    /// Normal scores, values between 0 and 1.
    pub fn random(n: usize, seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let scores = normal(n, rng);
        let with_value = |score| (convert(score), convert(rng.random_range(0.0..1.0)));
        Keys(scores.into_iter().map(with_value).collect())
    }

    /// Rising scores: the maximum changes with every key.
    fn sorted(&self) -> Self {
        let mut keys = self.0.clone();
        keys.sort_by(|a, b| a.0.into().total_cmp(&b.0.into()));
        Keys(keys)
    }

    /// `width` keys at a time.
    fn absorbed(&self, width: usize) -> T {
        self.0.chunks(width).fold(Row::empty(), Row::absorb).output()
    }

    /// A tree whose leaves are tiles.
    fn tree(&self) -> T {
        let tiles = self.0.chunks(TILE);
        let mut rows: Vec<_> = tiles.map(|tile| Row::empty().absorb(tile)).collect();
        while rows.len() > 1 {
            let merged = |pair: &[Row<T>]| pair.iter().copied().reduce(Row::merge);
            rows = rows.chunks(2).filter_map(merged).collect();
        }
        rows[0].output()
    }

    /// Softmax of the whole row, and then the average, with sums that `add` takes.
    fn plain(&self, add: fn(&[T]) -> T) -> T {
        let max = self.0.iter().fold(self.0[0].0, |max, &(score, _)| max.max(score));
        let weights = self.0.iter().map(|&(score, _)| exponential(score - max));
        let weights: Vec<T> = weights.collect();
        let sum = add(&weights);
        let terms =
            weights.iter().zip(&self.0).map(|(&weight, &(_, v))| weight / sum * v);
        add(&terms.collect::<Vec<T>>())
    }

    /// Returns the average in twice the digits of an `f64`.
    pub fn exact(&self) -> Quad {
        let max = self.0.iter().fold(f64::NEG_INFINITY, |max, key| max.max(key.0.into()));
        let (mut sum, mut weighted) = (Quad::ZERO, Quad::ZERO);
        for &(score, value) in &self.0 {
            let weight = (Quad::from(score.into()) - Quad::from(max)).exp();
            sum += weight;
            weighted += weight * Quad::from(value.into());
        }
        weighted / sum
    }
}

fn one_by_one<T: Number>(terms: &[T]) -> T {
    terms.iter().fold(T::zero(), |sum, &term| sum + term)
}

/// Each half by itself, and then both.
fn as_a_tree<T: Number>(terms: &[T]) -> T {
    match terms {
        [] => T::zero(),
        &[term] => term,
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            as_a_tree(left) + as_a_tree(right)
        }
    }
}

/// The share by which an output is off, in units of u, half the gap between 1 and the next number of the type.
pub fn error<T: Number>(output: T, exact: Quad) -> f64 {
    let u = T::default_epsilon().into() / 2.0;
    ((Quad::from(output.into()) - exact) / exact).0.abs() / u
}

// ------------------------------------------------------------------------------------------------ over many rows

/// A way to take a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// In groups of so many keys.
    Tiles(usize),
    /// Tiles of [`TILE`] keys, merged as a tree.
    Tree,
    /// Plain softmax, with sums that are taken one by one.
    Plain,
    /// Plain softmax, with sums that are taken as trees.
    PlainTree,
    /// One key at a time, with rising scores.
    Rising,
    /// Plain softmax of rising scores.
    RisingPlain,
}

impl Way {
    pub const ONE: Self = Self::Tiles(1);
    pub const TILES: Self = Self::Tiles(TILE);
    /// The ways that do not see the whole row.
    pub const ONLINE: [Self; 3] = [Self::ONE, Self::TILES, Self::Tree];
    const OTHERS: [Self; 4] =
        [Self::Plain, Self::PlainTree, Self::Rising, Self::RisingPlain];

    fn output<T: Number>(self, keys: &Keys<T>) -> T {
        match self {
            Self::Tiles(width) => keys.absorbed(width),
            Self::Tree => keys.tree(),
            Self::Plain => keys.plain(one_by_one),
            Self::PlainTree => keys.plain(as_a_tree),
            Self::Rising => keys.sorted().absorbed(1),
            Self::RisingPlain => keys.sorted().plain(one_by_one),
        }
    }
}

/// The rows over which errors are averaged.
pub const ROWS: usize = 60;

/// The mean errors of some ways.
pub type Errors = BTreeMap<Way, f64>;

/// Returns the errors over [`ROWS`] rows of `n` random keys.
fn mean_errors<T: Number>(n: usize, ways: &[Way]) -> Errors {
    let of_row = |seed| {
        let keys = Keys::<T>::random(n, seed);
        let exact = keys.exact();
        ways.iter().map(|way| error(way.output(&keys), exact)).collect::<Vec<_>>()
    };
    let errors: Vec<_> = (0..ROWS as u64).into_par_iter().map(of_row).collect();
    let mean = |i| errors.iter().map(|row: &Vec<f64>| row[i] / ROWS as f64).sum();
    ways.iter().enumerate().map(|(i, &way)| (way, mean(i))).collect()
}

/// The length of the longest rows.
pub const LONGEST: usize = 1 << 14;

/// The mean errors by length, in `f64`.
pub fn errors_in_f64() -> Vec<(usize, Errors)> {
    let ways = [&Way::ONLINE[..], &Way::OTHERS].concat();
    (6..=14).map(|power| 1 << power).map(|n| (n, mean_errors::<f64>(n, &ways))).collect()
}

/// Returns the same in `f32`, at fewer lengths, for the ways that don't see the whole row.
pub fn errors_in_f32() -> Vec<(usize, Errors)> {
    let lengths = [6, 8, 10, 12, 14].map(|power| 1 << power);
    lengths.map(|n| (n, mean_errors::<f32>(n, &Way::ONLINE))).into()
}

// ------------------------------------------------------------------------------------------------ one row in many orders

/// The number of random orders that are tried, and the number of keys in the row.
pub const ORDERS: usize = 1000;
pub const N_OF_ORDERS: usize = 1000;

/// Errors over all orders.
pub struct Spread {
    pub median: f64,
    pub largest: f64,
}

/// One row in many orders: by plain softmax, one key at a time, and split anywhere.
pub fn spreads<T: Number>() -> [Spread; 3] {
    let mut keys = Keys::<T>::random(N_OF_ORDERS, 18);
    let exact = keys.exact();
    let rng = &mut ChaCha8Rng::seed_from_u64(18);
    let mut errors = [vec![], vec![], vec![]];
    for _ in 0..ORDERS {
        keys.0.shuffle(rng);
        let split = split_anywhere(&keys.0, rng).output();
        let outputs = [keys.plain(one_by_one), keys.absorbed(1), split];
        for (errors, output) in errors.iter_mut().zip(outputs) {
            errors.push(error(output, exact));
        }
    }
    errors.map(|errors| Spread {
        median: quantile(&errors, 0.5),
        largest: quantile(&errors, 1.0),
    })
}

/// Split, and split again: down to single keys, or to tiles of a few.
fn split_anywhere<T: Number>(keys: &[(T, T)], rng: &mut ChaCha8Rng) -> Row<T> {
    if keys.len() == 1 || keys.len() <= 16 && rng.random_bool(0.2) {
        return Row::empty().absorb(keys);
    }
    let (left, right) = keys.split_at(rng.random_range(1..keys.len()));
    split_anywhere(left, rng).merge(split_anywhere(right, rng))
}
