//! What `Flash` alone promises.

mod errors;
mod invariance;
mod overflow;
mod pages;
mod pairs;
mod threads;
