//! The solutions with their tests, as rust-analyzer and clippy see them while a task is written.
#![allow(dead_code)] // what a task hands out to its reader need not be used by its tests

#[path = "../tasks"]
mod tasks {
    automod::dir!("tasks");
}
