//! The program that the book builds: attention as it stands on paper, one file a chapter, on nothing but nalgebra's matrices.
//!
//! A token is a row. Shapes that do not fit panic, as nalgebra's do. The folder compiles alone, so it can be handed in; and what it
//! says is the definition to which the tests hold every other program of this crate.

mod attention;
mod backward;
mod cache;
mod check;
mod heads;
mod layer;
mod masks;
mod model;
mod online;
mod positions;
mod scores;
mod softmax;
#[cfg(test)]
mod tests;
mod tiled;
mod tiled_backward;
mod train;

pub use {attention::*, backward::*, cache::*, check::*, heads::*, layer::*, masks::*};
pub use {model::*, online::*, positions::*, scores::*, softmax::*, tiled::*};
pub use {tiled_backward::*, train::*};

/// One row a token; or one row a query, and one column a key.
pub type Matrix = nalgebra::DMatrix<f64>;
