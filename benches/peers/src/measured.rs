//! What a run measures.

use crate::grid::Cell;
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
    /// The seconds that each peer needed in each round in which it took its turn.
    pub rounds: BTreeMap<Kernel, Vec<f64>>,
}
