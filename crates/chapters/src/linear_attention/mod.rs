//! Linear attention in numbers: what its features lose, find and cost.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use facts::delta_rule;
#[cfg(test)]
pub use page::costs;
pub use page::generate;
