//! What the chapter computes; what it makes of records is with the ladder and with the peers.

use crate::double::Double;

/// The problem of the ladder: tokens, the width of a head, and heads. The peers are compared at other sizes too, with as many heads.
pub const N: usize = 2048;
pub const D: usize = 64;
pub const HEADS: usize = 8;

/// How far Taylor's polynomial of 2^x with so many terms is off at most between −1/2 and 1/2.
pub fn error_of_taylor(terms: i32) -> f64 {
    // With more digits than an f64 has: what rounding adds is another matter.
    let off = |x: f64| {
        let y = Double::from(x) * Double::LN_2;
        let (mut term, mut sum) = (Double::from(1.0), Double::from(1.0));
        for k in 1..terms {
            term = term * y / Double::from(f64::from(k));
            sum = sum + term;
        }
        (sum / y.exp() - Double::from(1.0)).rounded().abs()
    };
    (0..=100).map(|i| off(f64::from(i) / 100.0 - 0.5)).fold(0.0, f64::max)
}

/// Half the distance from 1 to the next number of an `f32` and of an `f64`: what rounding alone may do.
pub const ROUNDING: [f64; 2] = [f32::EPSILON as f64 / 2.0, f64::EPSILON / 2.0];
