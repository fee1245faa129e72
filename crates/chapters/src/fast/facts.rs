//! What the chapter computes; what it makes of records is with the ladder and with the peers.

use qd::Quad;

/// The problem of the ladder: tokens, the width of a head, and heads. The peers are compared at other sizes too, with as many heads.
pub const N: usize = 2048;
pub const D: usize = 64;
pub const HEADS: usize = 8;

/// How far Taylor's polynomial of 2^x with so many terms is off at most between −1/2 and 1/2.
pub fn error_of_taylor(terms: i32) -> f64 {
    // With more digits than an f64 has: what rounding adds is another matter.
    let off = |x: f64| {
        let y = Quad::from(x) * Quad::LN_2;
        let (mut term, mut sum) = (Quad::ONE, Quad::ONE);
        for k in 1..terms {
            term = term * y / Quad::from(f64::from(k));
            sum += term;
        }
        (sum / y.exp() - Quad::ONE).0.abs()
    };
    (0..=100).map(|i| off(f64::from(i) / 100.0 - 0.5)).fold(0.0, f64::max)
}

/// Half the distance from 1 to the next number of an `f32` and of an `f64`: what rounding alone may do.
pub const ROUNDING: [f64; 2] = [f32::EPSILON as f64 / 2.0, f64::EPSILON / 2.0];
