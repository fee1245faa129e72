//! The ladder: its parts, its steps, and how far runs of it are apart.

mod bars;
mod facts;
mod page;
mod runs;

pub use facts::Ladder;
pub use page::generate;
