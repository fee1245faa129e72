//! Why let every position look at every other: one word in two sentences, a smoother, and the gradient's way back.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod recurrent;

pub use page::generate;
