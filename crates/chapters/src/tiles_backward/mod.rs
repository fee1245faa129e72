//! Tiles, backward: what is kept and what is computed again, in bytes, operations and last digits, and what it moves.

#[cfg(test)]
mod claims;
mod drawings;
mod facts;
mod page;
mod rounding;

pub use page::generate;
#[cfg(test)]
pub use page::keep_or_recompute;
