//! Why √d_k: how dot products spread as they get longer, and what softmax makes of that.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod saturation;

pub use page::generate;
pub use saturation::{FAINT, ROWS, draw_all, mean, median, rows, share};
