//! Attention with fewer pairs of queries and keys, or with none: what may be left out, and what that loses.
//!
//! All of it is causal and of one head. [`by_place`] leaves pairs out by where their tokens stand, [`hashing`] by what is in them,
//! and [`linear`] forms no pairs at all. [`Method`] has the sizes that the book compares.

pub mod by_place;
pub mod hashing;
pub mod linear;
mod method;

pub use method::Method;
