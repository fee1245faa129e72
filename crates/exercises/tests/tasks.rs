//! The solutions with their tests, as rust-analyzer and clippy see them while a task is written.
#![allow(dead_code)] // what a task hands out to its reader need not be used by its tests
#![allow(clippy::neg_cmp_op_on_partial_ord)] // NaN has to fail
#![allow(clippy::excessive_precision, clippy::type_complexity)] // constants as they are known; types that a reader meets once

#[path = "../tasks"]
mod tasks {
    automod::dir!("tasks");
}
