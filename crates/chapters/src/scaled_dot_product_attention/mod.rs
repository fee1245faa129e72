//! Scaled dot-product attention in numbers: the running example, and two worked examples.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
