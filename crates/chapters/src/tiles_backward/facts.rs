//! The bytes that are kept and moved, and the operations of computing weights again.

use crate::tiles_traffic::facts::{D, ELEMENT, Pass, Program, counted_over_lengths};
use anyhow::Result;
use laboratory::cost::AttentionShape;
use laboratory::hardware::H100;

/// Numbers that one head keeps for its backward pass: queries, keys, values and output, the weights, the log-sum-exp.
pub struct Kept {
    pub linear: usize,
    pub weights: usize,
    pub log_sum_exp: usize,
}

impl Kept {
    pub fn new(n: usize) -> Self {
        Kept { linear: 4 * n * D, weights: n * n, log_sum_exp: n }
    }

    pub fn naive(&self) -> usize {
        self.linear + self.weights
    }

    pub fn tiled(&self) -> usize {
        self.linear + self.log_sum_exp
    }

    pub fn ratio(&self) -> f64 {
        self.naive() as f64 / self.tiled() as f64
    }
}

/// The cost of both passes of the core, if weights are kept and if they are computed again.
pub struct Steps {
    pub naive: f64,
    pub tiled: f64,
}

impl Steps {
    pub fn new(n: usize) -> Result<Self> {
        let shape = AttentionShape::self_attention(1, n, D, D, 1);
        let (forward, back) = (shape.flops()?, shape.backward_flops()?);
        let products = back.scores + back.values + forward.scores;
        // Backward, for each score: a subtraction and an exponential for its weight, a difference and a product for its
        // gradient. And D, 2d for a row.
        let tiled_backward = products + (4 * n * n + 2 * n * D) as u128;
        Ok(Steps {
            naive: (forward.core() + back.core()) as f64,
            tiled: (forward.core() + tiled_backward) as f64,
        })
    }

    /// Returns the operations that computing again adds, as a share of both passes.
    pub fn more(&self) -> f64 {
        self.tiled / self.naive - 1.0
    }
}

/// The lengths of the table.
pub const LENGTHS: [usize; 5] = [256, 1024, 4096, 16_384, 65_536];

/// Operations of a weight that is computed again: a dot product, a subtraction, an exponential.
pub const OPERATIONS: usize = 2 * D + 2;

/// The cost of a weight that is fetched, beside that of one that is computed again.
pub struct Recompute {
    /// Operations in the time for a byte.
    pub ridge: f64,
    /// The ridge at which both take the same time.
    pub even: f64,
}

impl Recompute {
    /// Returns the cost on a machine with this ridge, with numbers of so many bytes, each written once and read once.
    pub fn new(ridge: f64, element: usize) -> Self {
        Recompute { ridge, even: OPERATIONS as f64 / (2 * element) as f64 }
    }

    /// Returns the time to fetch a weight as a multiple of the time to compute it.
    pub fn ratio(&self) -> f64 {
        self.ridge / self.even
    }
}

/// Returns the costs on an H100: in `f32` without tensor cores, in bf16 with them.
pub fn of_h100() -> [Recompute; 2] {
    [Recompute::new(H100.ridge_f32(), ELEMENT), Recompute::new(H100.ridge_bf16(), 2)]
}

// ---------------------------------------------------------------------------------------------------- traffic

/// The numbers that the chapter's formula gives, without its small terms.
pub fn by_formula(n: usize, capacity: usize) -> f64 {
    let [n, d, room] = [n, D, capacity].map(|x| x as f64);
    7.0 * n * d + 16.0 * (n * d).powi(2) / room
}

/// Counts of tiles: points of a figure.
pub fn counted() -> Result<Vec<(f64, f64)>> {
    counted_over_lengths(|_| Ok(vec![Program::TiledBackward(Pass::Backward.chosen()?)]))
}
