//! Decoding in numbers: the work with and without a cache, and what a step waits for.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
#[cfg(test)]
pub use page::steps;
