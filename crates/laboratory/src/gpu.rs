//! A multiprocessor on paper: the rates of its parts, the banks of its shared memory, and the time-lines of a kernel.
//!
//! The rates are those of an H100, from [`hardware`](crate::hardware).

mod banks; // of shared memory
mod pipeline; // the time-line of the tensor cores

pub use crate::hardware::{BANKS, COMPARISONS, EXPONENTIALS, LANES, TENSOR, WARP};
pub use banks::{Ask, busiest_bank, clocks, warp};
pub use pipeline::{Bar, CONSUMERS, Lengths, ROWS, Span, Work};
