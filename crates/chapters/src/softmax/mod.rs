//! Softmax in numbers: one example to the last digit, where it overflows, and what its Jacobian costs.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
