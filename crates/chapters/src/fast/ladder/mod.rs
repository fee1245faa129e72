//! The ladder: its parts, its steps, and how far runs of it are apart.

mod bars;
mod facts;
mod page;
mod runs;

pub use facts::Ladder;
#[cfg(test)]
pub use facts::{LARGE, SMALL};
pub use page::generate;
