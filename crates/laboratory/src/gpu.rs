//! A multiprocessor on paper: the rates of its parts, the banks of its shared memory, and the time-line of a kernel.
//!
//! The rates are those of NVIDIA's *CUDA C++ Programming Guide* for compute capability 9.0.

mod banks; // of shared memory
mod pipeline; // the time-line of the tensor cores

pub use banks::{Ask, busiest_bank, clocks, warp};
pub use pipeline::{
    ARRIVAL, Bar, CONSUMERS, Lengths, Plan, ROWS, STAGES, Span, TILES, Work,
};

/// Additions, multiplications or both at once in `f32`, in a clock.
pub const LANES: usize = 128;
/// The same of the tensor cores, in bf16.
pub const TENSOR: usize = 2048;
/// Comparisons, minima, maxima and conversions from `f32`, in a clock.
pub const COMPARISONS: usize = 64;
/// Exponentials in a clock.
pub const EXPONENTIALS: usize = 16;
/// Banks of shared memory, each of which delivers a word of four bytes in a clock.
pub const BANKS: usize = 32;
/// Threads that run in step.
pub const WARP: usize = 32;
