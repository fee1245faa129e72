//! The examples have tests of their own, which run here.

#![allow(dead_code)] // `main`

#[path = "../../examples/first_steps.rs"]
mod first_steps;
