//! The tests of the crate, in one program, which is linked once. `cargo test --test suite gradients` runs those of one file.

#[path = "../engines/mod.rs"]
mod engines; // the suite that every engine passes
#[path = "../support/mod.rs"]
mod support;

mod layer;

mod batches;
mod by_engines;
mod cached;
mod errors;
mod examples;
mod from_pytorch;
mod golden;
mod gradients;
mod inspect;
mod masks;
mod names;
mod online_softmax;
mod options;
mod plain;
mod positions;
mod precision;
mod properties;
mod score_rules;
#[cfg(feature = "serde")]
mod serde;
mod training;
mod views;
mod what_a_student_writes;
