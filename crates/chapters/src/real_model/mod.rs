//! What the heads of two real models do: recorded by the crate `model`, in `crates/model/opened`.

#[cfg(test)]
mod claims;
pub mod facts;
mod page;

pub use page::generate;
