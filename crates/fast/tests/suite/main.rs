//! The tests of the crate, in one program. `cargo test --test suite in_f64` runs those of one precision.

#[path = "../../../attention/tests/engines/mod.rs"]
mod engines; // the suite that every engine passes
#[allow(dead_code, unused_imports)] // what the crate `attention` alone needs
#[path = "../../../attention/tests/support/mod.rs"]
mod support;

mod allocations;
mod by_engines;
mod errors;
mod overflow;
mod pages;
mod threads;
