//! Fewer pairs in numbers: what each way to leave pairs out sees, loses, finds and costs; and the tables of such ways.

#[cfg(test)]
mod claims;
pub mod facts;
mod page;

#[cfg(test)]
pub use page::costs;
pub use page::{costs_of, generate, losses};
