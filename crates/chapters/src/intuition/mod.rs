//! Intuition: one word in two sentences, a smoother, and the gradient's path.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod recurrent;

pub use page::generate;
