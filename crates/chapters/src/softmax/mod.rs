//! Softmax in numbers: one example to the last digit, and where it overflows.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
