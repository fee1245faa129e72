//! Gradient checking: how far a measured slope is off, against its step, and what a check sees and does not see.

mod check;
#[cfg(test)]
mod claims;
mod faults;
#[cfg(test)]
mod layers;
mod page;
mod step;

pub use page::generate;
pub use step::exponential;
