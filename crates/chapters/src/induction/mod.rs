//! An induction head in numbers: when it is born, what it looks at, and what is lost without it.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
