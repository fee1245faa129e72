//! Who tests attention?: what became of planted faults in the tests of public projects, and tests of a few lines that find them.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
