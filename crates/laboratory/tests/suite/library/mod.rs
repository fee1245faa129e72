//! The crate `attention`: what holds for any input, and every misuse. What a copy of that crate carries of its tests is beside it.

mod batches;
mod errors;
mod online_softmax;
mod properties;
mod serde;
mod training;
mod views;
