//! The same computations by others.

mod facts;
mod page;

pub use facts::{Cell, time};
pub use page::generate;
