//! The tests of the crate, in one program, which is linked once. `cargo test --test suite gradients` runs those of one file. In the book's
//! repository every engine passes the suite of engines, too, and PyTorch's values are compared: in `crates/laboratory/tests`.

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)] // its `main`; the example has tests of its own, which run here
#[path = "../../examples/first_steps.rs"]
mod first_steps;

mod gradients;
mod masks;
mod memory;
mod plain;
mod positions;
mod score_rules;
mod what_a_student_writes;
