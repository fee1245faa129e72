//! Why √d_k: the spread of dot products as they get longer, and its effect on softmax.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod saturation;

pub use page::generate;
pub use saturation::{FAINT, draw_all, mean, rows, share};
