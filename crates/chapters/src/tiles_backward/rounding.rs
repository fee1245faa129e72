//! Rounding errors of weights that are computed again, and of a sum that is taken in any order.

use crate::random::normal;
use crate::records::least_and_most;
use crate::tiles_traffic::facts::D;
use anyhow::Result;
use attention::{
    scaled_scores,
    softmax::{log_sum_exp_rows, softmax_rows, softmax_rows_backward},
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use std::collections::BTreeSet;

const QUERIES: usize = 256;
const KEYS: usize = 512;

/// Half the gap between 1 and the next `f32`.
pub const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// Weights in `f32`, by softmax, and computed again from the log-sum-exp.
pub struct Weights {
    /// The scores, taken as they are in `f32`: only the weights have errors.
    pub scores: DMatrix<f32>,
    pub log_sum_exp: nalgebra::DVector<f32>,
    pub again: DMatrix<f32>,
    pub exact: DMatrix<f64>,
}

/// Returns the weights of random queries and keys, with scores that are larger and larger.
pub fn weights() -> Result<Vec<Weights>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let scores = scaled_scores(&normal(QUERIES, D, rng), &normal(KEYS, D, rng))?;
    let shifted = |shift| Weights::new(scores.map(|s| (s + shift) as f32));
    [0.0, 16.0, 128.0, 1024.0].into_iter().map(shifted).collect()
}

impl Weights {
    fn new(scores: DMatrix<f32>) -> Result<Self> {
        let log_sum_exp = log_sum_exp_rows(&scores)?;
        Ok(Weights {
            again: scores.map_with_location(|i, _, s| (s - log_sum_exp[i]).exp()),
            exact: softmax_rows(&scores.map(f64::from))?,
            log_sum_exp,
            scores,
        })
    }

    /// The largest relative error of these weights.
    fn off(&self, weights: &DMatrix<f32>) -> f64 {
        weights.zip_map(&self.exact, |a, e| (f64::from(a) / e - 1.0).abs()).max()
    }

    pub fn softmax_error(&self) -> Result<f64> {
        Ok(self.off(&softmax_rows(&self.scores)?))
    }

    pub fn again_error(&self) -> f64 {
        self.off(&self.again)
    }

    pub fn largest_log_sum_exp(&self) -> f64 {
        f64::from(self.log_sum_exp.max())
    }
}

// ---------------------------------------------------------------------------------------------------- order

/// Queries and keys of the sums, and how many orders are tried.
const QUERIES_OF_SUMS: usize = 32;
pub const KEYS_OF_SUMS: usize = 4096;
pub const ORDERS: usize = 200;

/// The gradient of some queries as a sum over tiles of keys, rounded in `f32`.
pub struct Sums {
    pub tiles: usize,
    /// The sum in `f64`.
    exact: DMatrix<f64>,
    /// The sums in random orders.
    pub shuffled: Vec<DMatrix<f32>>,
}

pub fn sums() -> Result<[Sums; 3]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let [q, grad_output] = [0, 1].map(|_| normal(QUERIES_OF_SUMS, D, rng));
    let [k, v] = [0, 1].map(|_| normal(KEYS_OF_SUMS, D, rng));
    let weights = softmax_rows(&scaled_scores(&q, &k)?)?;
    let grad_scores = softmax_rows_backward(&weights, &(grad_output * v.transpose()))?;
    let grad_products = grad_scores / (D as f64).sqrt();
    Ok([4, 16, 64].map(|tiles| {
        let width = KEYS_OF_SUMS / tiles;
        let share = |tile: usize| {
            let grads = grad_products.columns(tile * width, width);
            (grads * k.rows(tile * width, width)).map(|x| x as f32) // (queries, d)
        };
        Sums::new(&(0..tiles).map(share).collect::<Vec<_>>(), rng)
    }))
}

impl Sums {
    fn new(shares: &[DMatrix<f32>], rng: &mut ChaCha8Rng) -> Self {
        let add = |order: &[usize]| {
            let mut sum = DMatrix::<f32>::zeros(QUERIES_OF_SUMS, D);
            order.iter().for_each(|&tile| sum += &shares[tile]);
            sum
        };
        let mut order: Vec<usize> = (0..shares.len()).collect();
        let mut shuffled = || {
            order.shuffle(rng);
            add(&order)
        };
        Sums {
            tiles: shares.len(),
            exact: shares.iter().map(|share| share.map(f64::from)).sum(),
            shuffled: (0..ORDERS).map(|_| shuffled()).collect(),
        }
    }
}

/// The variation of all entries, over the orders of the sum.
pub struct Varied {
    /// The share of entries that vary.
    pub share: f64,
    /// Values of an entry, as a mean.
    pub mean: f64,
    /// The largest difference between two values of an entry, as a share of the entries' size.
    pub spread: f64,
}

impl Varied {
    pub fn of(sums: &Sums) -> Self {
        let of_entry =
            |i: usize| sums.shuffled.iter().map(|sum| sum[i].to_bits()).collect();
        let values: Vec<BTreeSet<u32>> = (0..sums.exact.len()).map(of_entry).collect();
        let n = values.len() as f64;
        let size = (sums.exact.norm_squared() / n).sqrt();
        let spread = |values: &BTreeSet<u32>| {
            let numbers = values.iter().map(|&bits| f64::from(f32::from_bits(bits)));
            let (least, most) = least_and_most(numbers);
            most - least
        };
        Varied {
            share: values.iter().filter(|values| values.len() > 1).count() as f64 / n,
            mean: values.iter().map(BTreeSet::len).sum::<usize>() as f64 / n,
            spread: values.iter().map(spread).fold(0.0, f64::max) / size,
        }
    }
}
