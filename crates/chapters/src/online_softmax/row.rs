//! The state of online softmax for one row.

use crate::gradient_checking::exponential;
use nalgebra::{RealField, convert};

/// The state of one row with values of width 1, from additions, multiplications and divisions alone, which have the same
/// last digit on every machine.
#[derive(Clone, Copy)]
pub struct Row<T> {
    pub max: T,
    pub sum: T,
    pub weighted: T,
}

impl<T: RealField + Copy> Row<T> {
    pub fn empty() -> Self {
        Row { max: convert(f64::NEG_INFINITY), sum: T::zero(), weighted: T::zero() }
    }

    /// e^(m − m'), which is 0 for a row that has seen nothing.
    fn correction(self, max: T) -> T {
        if self.max.is_finite() { exponential(self.max - max) } else { T::zero() }
    }

    /// Takes one more tile: scores, each with its value.
    pub fn absorb(self, keys: &[(T, T)]) -> Self {
        let max = keys.iter().fold(self.max, |max, &(score, _)| max.max(score));
        let (mut sum, mut weighted) = (T::zero(), T::zero());
        for &(score, value) in keys {
            let weight = exponential(score - max);
            sum += weight;
            weighted += weight * value;
        }
        let correction = self.correction(max);
        Row {
            max,
            sum: self.sum * correction + sum,
            weighted: self.weighted * correction + weighted,
        }
    }

    pub fn merge(self, other: Self) -> Self {
        let max = self.max.max(other.max);
        let [a, b] = [self, other].map(|row| row.correction(max));
        Row {
            max,
            sum: self.sum * a + other.sum * b,
            weighted: self.weighted * a + other.weighted * b,
        }
    }

    pub fn output(self) -> T {
        self.weighted / self.sum
    }

    pub fn log_sum_exp(self) -> T {
        self.max + self.sum.ln()
    }
}
