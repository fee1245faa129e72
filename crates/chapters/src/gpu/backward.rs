//! Kernel 6 on paper: the registers of a thread, and a tile's way through a consumer.

use super::banks::D;
use super::ladder::crossed;
use super::machine::{COMPARISONS, EXPONENTIALS, LANES, TENSOR, WARP};
use gpu::tiles::backward_hopper::{CONSUMERS, KEYS, QUERIES};
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

/// Clocks of shared memory for a tile of one consumer.
pub struct Loads {
    /// Both factors of the scores and of the gradients of the weights.
    pub factors: f64,
    /// The right factors of the sums.
    pub of_sums: f64,
    /// The tiles that pass, once for both consumers.
    pub arriving: f64,
    /// The two numbers of each query that passes: for each, a load by a warp is a clock, and brings it for two columns.
    pub numbers: f64,
}

impl Loads {
    /// For tiles of so many rows that pass, and so many sums.
    pub fn new(passing: usize, sums: usize, numbers: usize) -> Self {
        let bytes = |rows: usize| (rows * 16 * 2) as f64; // of a factor, 16 deep
        let clocks = |count: usize, bytes: f64| crossed(count as f64 * bytes);
        Self {
            factors: clocks(2 * D / 16, bytes(ROWS) + bytes(passing)),
            of_sums: clocks(sums * passing / 16, bytes(D)),
            arriving: clocks(2 * passing, (D * 2) as f64) / CONSUMERS as f64,
            numbers: (numbers * passing / 8 * THREADS / WARP) as f64,
        }
    }

    /// Of `backward_keys` and of `backward_queries`.
    pub fn of_functions() -> [Self; 2] {
        [Self::new(QUERIES, 2, 2), Self::new(KEYS, 1, 0)]
    }

    pub fn all(&self) -> f64 {
        self.factors + self.of_sums + self.arriving + self.numbers
    }
}

/// Clocks of a consumer's threads for one tile, step by step.
pub struct Threads {
    /// A multiply-add for each score.
    pub scaled: usize,
    pub exponentials: usize,
    /// Half a conversion to bf16 for each weight that is a left factor.
    pub converted: usize,
    /// A difference and a product for each gradient of a score.
    pub d_scores: usize,
    /// Half a conversion for each of these.
    pub d_converted: usize,
}

impl Threads {
    fn new(passing: usize, sums: usize) -> Self {
        let entries = ROWS * passing;
        let conversions = entries / 2 / COMPARISONS;
        Self {
            scaled: entries / LANES,
            exponentials: entries / EXPONENTIALS,
            converted: (sums - 1) * conversions,
            d_scores: 2 * entries / LANES,
            d_converted: conversions,
        }
    }

    /// Of `backward_keys` and of `backward_queries`.
    pub fn of_functions() -> [Self; 2] {
        [Self::new(QUERIES, 2), Self::new(KEYS, 1)]
    }
}

/// Clocks of a consumer's pieces of work for one tile.
pub struct Plan {
    /// Each of the products.
    pub product: usize,
    /// From scores to weights.
    pub weights: usize,
    /// From gradients of weights to those of scores.
    pub d_scores: usize,
    sums: usize,
}

impl Plan {
    /// Of `backward_keys` and of `backward_queries`.
    pub fn of_functions() -> [Self; 2] {
        [(QUERIES, 2), (KEYS, 1)].map(|(passing, sums)| {
            let of = Threads::new(passing, sums);
            Self {
                product: ROWS * passing * D / TENSOR,
                weights: of.scaled + of.exponentials + of.converted,
                d_scores: of.d_scores + of.d_converted,
                sums,
            }
        })
    }

    /// Clocks of all its products.
    pub fn products(&self) -> usize {
        (2 + self.sums) * self.product
    }

    /// Clocks from one tile to the next of a consumer that is alone: two products, weights beside a third, and the gradients of scores,
    /// beside a fourth if there is one.
    pub fn of_tile(&self) -> usize {
        let fourth = (self.sums - 1) * self.product;
        2 * self.product + self.product.max(self.weights) + fourth.max(self.d_scores)
    }
}
