//! The heads of a trained model in numbers: where they look, and what is lost without them.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
#[cfg(test)]
pub use page::norm_of;
