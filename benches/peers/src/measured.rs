//! What was measured.

use crate::grid::Cell;
use record::rounds::Rounds;
use std::collections::BTreeMap;
use worker::Kernel;

/// What the run gave.
pub struct Measured {
    pub cells: Vec<MeasuredCell>,
    /// Of the peers' libraries.
    pub versions: BTreeMap<String, String>,
    /// What may have spoilt the measurements.
    pub warnings: Vec<String>,
}

/// What one cell gave.
pub struct MeasuredCell {
    pub cell: Cell,
    /// How far each peer is from the reference, as a part of the largest entry.
    pub differences: BTreeMap<Kernel, f64>,
    pub rounds: Rounds<Kernel>,
}
