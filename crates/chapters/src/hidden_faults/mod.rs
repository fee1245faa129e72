//! Faults that training hides, in numbers: the curves that `crates/model/examples/hidden_faults.rs` recorded.

#[cfg(test)]
mod claims;
mod page;

pub use page::generate;
