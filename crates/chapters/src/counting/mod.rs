//! What is counted of attention, and what was measured.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod roofline;

pub use page::{generate, records};
pub use roofline::ridge;
