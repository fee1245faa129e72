//! Across machines: attention over several ranks, what it sends, who waits, and what a model of time says of a thousand devices.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
