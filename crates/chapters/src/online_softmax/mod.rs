//! Online softmax in numbers: one row by hand, what it costs, and how often the maximum changes.

#[cfg(test)]
mod claims;
mod drawings;
mod facts;
mod page;
mod row;

pub use page::generate;
