//! Does yours pass?: the cases of `suite/`, and what known implementations get in them.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
