//! The tests of the crate, in one program, which is linked once. `cargo test --test suite gradients` runs those of one file. In the book's
//! repository every engine passes the suite of engines, too, and PyTorch's values are compared: in `crates/laboratory/tests`.

#[path = "../support/mod.rs"]
mod support;

mod examples;
mod gradients;
mod inspect;
mod masks;
mod names;
mod options;
mod plain;
mod positions;
mod score_rules;
mod what_a_student_writes;
