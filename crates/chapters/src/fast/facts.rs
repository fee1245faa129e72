//! The chapter's own numbers. Those from records are with the ladder and with the peers.

use qd::Quad;

/// The problem of the ladder: tokens, the width of a head, and heads. The peers are compared at other sizes too, with as many heads.
pub const N: usize = 2048;
pub const D: usize = 64;
pub const HEADS: usize = 8;

/// FLOPs of the products over so many tokens: 4 h n² d forward, 3.5 times that with the backward pass, half with a causal mask.
pub fn flops(n: usize, backward: bool, causal: bool) -> f64 {
    let forward = (4 * HEADS * n * n * D) as f64;
    forward * if backward { 3.5 } else { 1.0 } * if causal { 0.5 } else { 1.0 }
}

/// Returns the largest error of Taylor's polynomial of 2^x with so many terms between −1/2 and 1/2.
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
