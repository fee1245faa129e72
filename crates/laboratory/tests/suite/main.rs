//! The tests of the crate and of all engines, in one program. `cargo test -p laboratory --test suite by_engines` runs those of engines.

mod engines; // the suite that every engine passes
mod foreign;
mod support;

mod by_engines;
mod caches;
mod diagnose;
mod errors;
mod fast;
mod flash;
mod from_pytorch;
mod golden;
mod library;
mod precision;
mod random_cases;
