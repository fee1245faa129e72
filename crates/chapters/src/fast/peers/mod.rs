//! The same computations by others.

mod facts;
mod page;
mod words;

pub use facts::{Cell, time};
pub use page::generate;
