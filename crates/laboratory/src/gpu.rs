//! A multiprocessor on paper: what its parts do in a clock, the banks of its shared memory, and a plan of who works when.
//!
//! The rates are those of an H100, from [`hardware`](crate::hardware).

mod banks; // of shared memory
mod pipeline; // who has the tensor cores when

pub use crate::hardware::{BANKS, COMPARISONS, EXPONENTIALS, LANES, TENSOR, WARP};
pub use banks::{Ask, busiest_bank, clocks, warp};
pub use pipeline::{
    ARRIVAL, Bar, CONSUMERS, Lengths, Plan, ROWS, STAGES, Span, TILES, Work,
};
