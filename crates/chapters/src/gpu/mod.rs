//! On a GPU: what the kernels ask of the machine, counted; what follows from that; and what was measured, if anything was.
//!
//! Each topic computes in its own file here, and is worded and drawn in the file of the same name in `page`.

mod backward;
mod banks;
#[cfg(test)]
mod claims;
mod compiled;
mod decoding;
mod fragments;
mod ladder;
pub mod machine;
mod measured;
mod page;
mod pipeline;
mod published;
mod race;
mod short;
mod source;

pub use page::generate;
