//! Claims, checked: what people repeat about attention, each computed, and a verdict that follows from the computation.

mod facts;
mod page;
#[cfg(test)]
mod tests;
mod verdict;

pub use page::generate;
