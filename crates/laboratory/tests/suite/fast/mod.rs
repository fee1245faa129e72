//! What `Flash` alone promises.

mod errors;
mod overflow;
mod pages;
mod pairs;
mod threads;
