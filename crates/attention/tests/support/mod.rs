//! What tests share: samples that are exhaustive by construction, random problems with the definition that they are held to, and what
//! an error blames. Crates beside this one include this file by its path.

mod one_problem;
pub mod random_layers;
pub mod random_problems;
mod samples;

pub use one_problem::{Answer, Problem, answer, numbers, off, tolerance};
pub use samples::{
    blame, mask_of_chunk, masks, options, parameters, random, score_rules,
};
