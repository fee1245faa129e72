//! Claims, checked: what people repeat about attention, each computed, and a verdict that follows from the computation.
//!
//! A file per subject, with one or more of the claims: first the numbers, then their wording.

mod counts;
mod draws;
mod examples;
mod flash;
mod formats;
mod numbers;
mod page;
mod roofline;
#[cfg(test)]
mod tests;
mod traffic;
mod verdict;

pub use page::generate;
