//! Kernel 6 on paper: the registers of a thread, and a tile's way through a consumer.

use super::banks::D;
use super::machine::{COMPARISONS, EXPONENTIALS, LANES, TENSOR};
use gpu::tiles::backward_hopper::QUERIES;
use laboratory::gpu::ROWS;

/// Threads of a consumer, which share each of its matrices.
const THREADS: usize = 128;

/// Registers of a thread of a consumer, by what they hold.
pub struct Registers {
    /// The sums that the consumer owns.
    pub sums: usize,
    /// Scores; and as many gradients of weights.
    pub entries: usize,
    /// Left factors of the sums, two numbers in a register.
    pub factors: usize,
}

impl Registers {
    /// For tiles of so many rows that pass, and so many sums.
    pub fn new(passing: usize, sums: usize) -> Self {
        let entries = ROWS * passing / THREADS;
        Self { sums: sums * ROWS * D / THREADS, entries, factors: sums * entries / 2 }
    }

    pub fn all(&self) -> usize {
        self.sums + 2 * self.entries + self.factors
    }
}

/// Clocks of a consumer's pieces of work for one tile of queries.
pub struct Plan {
    /// Each of the four products.
    pub product: usize,
    /// From scores to weights: a multiply-add, an exponential and half a conversion for each.
    pub weights: usize,
    /// From gradients of weights to those of scores: a difference, a product and half a conversion.
    pub d_scores: usize,
}

impl Plan {
    /// Of `backward_keys`.
    pub fn of_keys() -> Self {
        let entries = ROWS * QUERIES;
        let conversions = entries / 2 / COMPARISONS;
        Self {
            product: entries * D / TENSOR,
            weights: entries / LANES + entries / EXPONENTIALS + conversions,
            d_scores: 2 * entries / LANES + conversions,
        }
    }

    /// Clocks from one tile to the next of a consumer that is alone: two products, weights beside a third, the fourth beside
    /// the gradients of scores.
    pub fn of_tile(&self) -> usize {
        2 * self.product
            + self.product.max(self.weights)
            + self.product.max(self.d_scores)
    }
}
