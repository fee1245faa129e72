//! The tests of the crate, in one program, which is linked once. `cargo test --test suite gradients` runs those of one file.

mod layer;

mod batches;
mod cached;
mod errors;
mod examples;
mod flash;
mod flash_allocations;
mod from_pytorch;
mod golden;
mod gradients;
mod inspect;
mod names;
mod online_softmax;
mod options;
mod precision;
mod properties;
mod score_rules;
mod serde;
mod shared_keys;
mod split_keys;
mod training;
mod views;
mod what_a_student_writes;
