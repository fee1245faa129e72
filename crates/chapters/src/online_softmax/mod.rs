//! Online softmax in numbers: one row by hand, what it costs, how often the maximum changes, and what rounding does to it.

#[cfg(test)]
mod claims;
mod drawings;
mod facts;
mod page;
mod rounding;
mod row;

pub use page::generate;
