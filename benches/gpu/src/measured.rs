//! What a run measures.

use crate::grid::{Cell, Contestant};
use record::statistics::{median, ratio};

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

/// What one cell gave.
#[derive(Debug)]
pub struct MeasuredCell {
    pub cell: Cell,
    /// The seconds of each round, of those who took part.
    pub rounds: Vec<(Contestant, Vec<f64>)>,
}

impl MeasuredCell {
    fn of(&self, contestant: Contestant) -> Option<&Vec<f64>> {
        self.rounds
            .iter()
            .find(|(other, _)| *other == contestant)
            .map(|(_, rounds)| rounds)
    }

    /// The median of the rounds, in seconds.
    pub fn seconds(&self, contestant: Contestant) -> Option<f64> {
        Some(median(self.of(contestant)?))
    }

    /// How many times as long as ours the other one took, and the spread of that.
    pub fn ratio(&self, other: Contestant, ours: Contestant) -> Option<(f64, f64)> {
        Some(ratio(self.of(other)?, self.of(ours)?))
    }
}
