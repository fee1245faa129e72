//! The same bits: what leaves a row's bits alone, texts that were written alone and together, and what one order costs.

#[cfg(test)]
mod claims;
mod facts;
mod page;

#[cfg(test)]
pub use page::costs;
pub use page::generate;
