//! The layer in numbers: what a layer with readable parameters adds to a word, and what a start with other spreads does.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
