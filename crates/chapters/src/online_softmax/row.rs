//! The state of online softmax for one row.

use crate::gradient_checking::exponential;

/// The state of one row with values of width 1, from additions, multiplications and divisions alone, which have the same
/// last digit on every machine.
#[derive(Clone, Copy)]
pub struct Row {
    pub max: f64,
    pub sum: f64,
    pub weighted: f64,
}

impl Row {
    pub fn empty() -> Self {
        Row { max: f64::NEG_INFINITY, sum: 0.0, weighted: 0.0 }
    }

    /// e^(m − m'), which is 0 for a row that has seen nothing.
    fn correction(self, max: f64) -> f64 {
        if self.max.is_finite() { exponential(self.max - max) } else { 0.0 }
    }

    /// Takes one more tile: scores, each with its value.
    pub fn absorb(self, keys: &[(f64, f64)]) -> Self {
        let max = keys.iter().fold(self.max, |max, &(score, _)| max.max(score));
        let (mut sum, mut weighted) = (0.0, 0.0);
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

    pub fn output(self) -> f64 {
        self.weighted / self.sum
    }

    pub fn log_sum_exp(self) -> f64 {
        self.max + self.sum.ln()
    }
}
