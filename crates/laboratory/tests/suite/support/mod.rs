//! What the tests of all crates share, one problem of attention, and random problems with the definition that they are held to.

mod one_problem;
pub mod random_layers;
pub mod random_problems;
#[allow(dead_code)] // what the tests of that crate need
#[path = "../../../../attention/tests/support/mod.rs"]
mod samples;

pub use one_problem::{Answer, Problem, answer, each_view, tolerance};
pub use random_problems::mask;
pub use samples::*;
