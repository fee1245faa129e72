//! The plan of kernel 4, with the numbers that its source has.

use super::banks::D;
use gpu::tiles::hopper;
use laboratory::gpu::{CONSUMERS, Lengths, Plan, STAGES};

const _: () = assert!(hopper::STAGES == STAGES && hopper::CONSUMERS == CONSUMERS);

/// Tiles drawn.
pub const SHOWN: usize = 4;

/// The plan of kernel 4.
pub fn of_hopper() -> (Lengths, Plan) {
    let lengths = Lengths::new(hopper::KEYS, D);
    (lengths, Plan::new(lengths))
}
