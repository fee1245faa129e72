//! The picture on the first page, who looks at whom in the running example, and how to take the crate.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
