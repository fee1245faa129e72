//! Positions in numbers: waves, biases and angles as scores see them, what angles lose in 16 bits, and a task at lengths that were never
//! trained.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod task;

pub use page::generate;
