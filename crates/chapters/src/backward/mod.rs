//! The backward pass in numbers: a worked example, the three paths into X, what is kept, and a layer that learns.

#[cfg(test)]
mod claims;
mod facts;
mod learning;
mod page;

pub use page::generate;
