//! Shared keys in numbers: what a token leaves in memory, and how much work waits for each of its bytes.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
