//! Debugging attention: a healthy layer's numbers, those of patients, and what a fault does to training.

#[cfg(test)]
mod claims;
mod facts;
mod page;
mod training;

pub use page::generate;
