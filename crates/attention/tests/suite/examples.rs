//! The examples have tests of their own, which run here.

#![allow(dead_code)] // each has a `main`

#[path = "../../examples/first_steps.rs"]
mod first_steps;
#[path = "../../examples/time_attention.rs"]
mod time_attention;
