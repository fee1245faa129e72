//! What was measured.

use crate::grid::{Cell, Contestant};
use crate::torch::SIDE;
use record::rounds::Rounds;
use record::statistics::median;

/// What the run gave.
#[derive(Debug, Default)]
pub struct Measured {
    pub roofs: Roofs,
    pub cells: Vec<MeasuredCell>,
}

/// What the device can do at best.
#[derive(Debug, Default)]
pub struct Roofs {
    /// Bytes in a second, read and written.
    pub copy: f64,
    /// By the type of the numbers, the seconds of each product of two large matrices.
    pub products: Vec<(&'static str, Vec<f64>)>,
}

impl Roofs {
    /// What arithmetic in such numbers can come to, in operations a second.
    pub fn flops(&self, dtype: &str) -> Option<f64> {
        let (_, samples) = self.products.iter().find(|(name, _)| *name == dtype)?;
        Some(2.0 * (SIDE as f64).powi(3) / median(samples))
    }
}

/// What one cell gave.
#[derive(Debug)]
pub struct MeasuredCell {
    pub cell: Cell,
    pub rounds: Rounds<Contestant>,
}
