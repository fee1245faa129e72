//! The solutions, with their tests, and as rust-analyzer sees them while a task is written.
#![allow(dead_code)] // what a task hands out to its reader need not be used by its tests

automod::dir!("tasks");
