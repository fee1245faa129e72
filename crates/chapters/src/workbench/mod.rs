//! The workbench: what stands still on its page, and what the page says of its experiments.

#[cfg(test)]
mod claims;
mod page;

pub use page::generate;
