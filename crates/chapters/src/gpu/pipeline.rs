//! The plan of kernel 4, with the numbers that its source has.

use super::banks::D;
use gpu::tiles::hopper;
use laboratory::gpu::{CONSUMERS, Lengths};

const _: () = assert!(hopper::CONSUMERS == CONSUMERS);

/// The plan of kernel 4.
pub fn of_hopper() -> Lengths {
    Lengths::new(hopper::KEYS, D)
}
