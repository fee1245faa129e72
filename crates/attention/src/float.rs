//! The numbers that this crate computes with.

use nalgebra::RealField;

/// A real number: `f64` where gradients are checked, `f32` where memory or time counts, or any other that nalgebra computes with.
pub trait Float: RealField + Copy {}

impl<T: RealField + Copy> Float for T {}
