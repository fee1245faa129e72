//! Scaled dot-product attention in numbers: the running example, two worked examples, and patterns of weights.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
