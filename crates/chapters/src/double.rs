//! Numbers of twice the digits: the sum of two `f64`, the second one smaller than the last digit of the first.
//!
//! What is measured in `f64` needs something more exact to be compared with.
//!
//! # Source
//! T. J. Dekker, *A floating-point technique for extending the available precision* (1971).

use std::ops::{Add, Div, Mul, Neg, Sub};

/// About 32 decimal digits, as long as the second one is not too small to have all of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Double(f64, f64);

impl From<f64> for Double {
    fn from(x: f64) -> Self {
        Double(x, 0.0)
    }
}

/// a + b, and what rounding took from it.
fn exact_sum(a: f64, b: f64) -> Double {
    let sum = a + b;
    let of_b = sum - a;
    Double(sum, (a - (sum - of_b)) + (b - of_b))
}

impl Add for Double {
    type Output = Double;
    fn add(self, other: Double) -> Double {
        let Double(high, low) = exact_sum(self.0, other.0);
        let Double(middle, rest) = exact_sum(self.1, other.1);
        let Double(high, low) = exact_sum(high, low + middle);
        exact_sum(high, low + rest)
    }
}

impl Neg for Double {
    type Output = Double;
    fn neg(self) -> Double {
        Double(-self.0, -self.1)
    }
}

impl Sub for Double {
    type Output = Double;
    fn sub(self, other: Double) -> Double {
        self + -other
    }
}

impl Mul for Double {
    type Output = Double;
    fn mul(self, other: Double) -> Double {
        let product = self.0 * other.0;
        let rest = self.0.mul_add(other.0, -product);
        exact_sum(product, rest + (self.0 * other.1 + self.1 * other.0))
    }
}

impl Div for Double {
    type Output = Double;
    fn div(self, other: Double) -> Double {
        let mut rest = self;
        let mut quotient = Double::from(0.0);
        for _ in 0..3 {
            let digits = Double::from(rest.0 / other.0);
            quotient = quotient + digits;
            rest = rest - digits * other;
        }
        quotient
    }
}

impl Double {
    /// ln 2.
    pub const LN_2: Double = Double(std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);

    /// The nearest `f64`.
    pub fn rounded(self) -> f64 {
        self.0 + self.1
    }

    /// By its series, of a number that was made small: eˣ = 2ᵏ (e^(r/256))²⁵⁶ with x = k ln 2 + r.
    pub fn exp(self) -> Double {
        let k = (self.0 / std::f64::consts::LN_2).round();
        let r = (self - Double::from(k) * Self::LN_2) * Double::from(1.0 / 256.0);
        // 12! (1 + r + r²/2! + … + r¹²/12!), so that only one division is needed.
        let (mut sum, mut factorial) = (Double::from(1.0), 1.0);
        for i in (1..=12).rev() {
            factorial *= f64::from(i);
            sum = sum * r + Double::from(factorial);
        }
        let mut result = sum / Double::from(factorial);
        for _ in 0..8 {
            result = result * result;
        }
        result * Double::from(2.0_f64.powi(k as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Off by this much, as a share of `right`.
    fn off(given: Double, right: Double) -> f64 {
        ((given - right) / right).rounded().abs()
    }

    #[test]
    fn thirty_digits_are_right() {
        // e = 2.718281828459045 + 1.4456468917292502e-16, as its digits are known.
        let e = Double(std::f64::consts::E, 1.445_646_891_729_250_2e-16);
        assert!(off(Double::from(1.0).exp(), e) < 1e-29);
        assert!(off(Double::LN_2.exp(), Double::from(2.0)) < 1e-29);
        for x in [-300.3, -20.0, -0.7, -1e-9, 0.3, 55.5].map(Double::from) {
            assert!(off(x.exp() * (-x).exp(), Double::from(1.0)) < 1e-28, "{x:?}");
        }
        let third = Double::from(1.0) / Double::from(3.0);
        assert!(off(third + third + third, Double::from(1.0)) < 1e-31);
    }
}
