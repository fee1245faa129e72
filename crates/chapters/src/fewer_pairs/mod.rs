//! Fewer pairs in numbers: what each way to leave pairs out sees, loses, finds and costs.

#[cfg(test)]
mod claims;
mod facts;
mod page;

#[cfg(test)]
pub use page::costs;
pub use page::generate;
