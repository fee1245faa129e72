//! A whole model in numbers: its curves, what it writes, and how fast it learns.

#[cfg(test)]
mod claims;
mod page;

pub use page::generate;
