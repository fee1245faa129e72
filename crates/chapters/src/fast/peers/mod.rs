//! The same computations by others.

mod facts;
mod page;

#[cfg(test)]
pub use facts::compared;
pub use facts::{Cell, time};
pub use page::generate;
