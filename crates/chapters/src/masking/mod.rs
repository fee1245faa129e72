//! Masking in numbers: four masks, the running example under a causal one, and what finite masks do in three types.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
