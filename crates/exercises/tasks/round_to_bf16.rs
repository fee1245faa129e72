//! # Keep a few bits
//!
//! easy, 20 minutes
//!
//! An `f32` has a sign, eight bits of exponent and 23 of fraction. A bf16 has the same sign and exponent, and keeps the upper 7 bits of the
//! fraction. TF32, another format of tensor cores, keeps 10 of them. To try out what a format does to attention, we want the
//! rounded number as an `f32` again.
//!
//! Round to the nearest number with `kept` bits of fraction, and ties to even: of two that are equally near, take the one whose last kept
//! bit is 0. A number that becomes too large becomes infinite. Infinity stays infinite, and NaN stays NaN. Work on the bits.
//!
//! # Hint
//!
//! As whole numbers, the bits of positive `f32`s are in the same order as the numbers. So what is half of the last kept bit, as a whole
//! number? And what does a carry out of the fraction do?
//!
//! # Hint
//!
//! Add something to the bits, then clear those that are dropped. Adding half of the last kept bit rounds ties up. Adding one less rounds
//! them down. Which do you want, depending on the last kept bit?
//!
//! # Hint
//!
//! With `let dropped = 23 - kept;` the half is `1 << (dropped - 1)`, and the last kept bit is `(bits >> dropped) & 1`. Add
//! the half less one, and the last kept bit. Answer for NaN before: the addition could turn it into something else.

/// Returns x, rounded to `kept` bits of fraction, 1 to 22 of the 23.
pub fn rounded(x: f32, kept: u32) -> f32 {
    // SOLUTION
    // FAULT nan: is NaN still NaN
    // > if false {
    if x.is_nan() {
        return x;
    }
    let bits = x.to_bits();
    let dropped = 23 - kept;
    let last_kept = (bits >> dropped) & 1;
    // FAULT cut-off: were the last bits only cut off
    // > let nearest = bits;
    // FAULT ties-away: is as far from both neighbours with 10 bits
    // > let nearest = bits + (1 << (dropped - 1));
    // FAULT always-bf16: does it depend on `kept`
    // > let nearest = bits + 0x7fff + ((bits >> 16) & 1);
    let nearest = bits + (1 << (dropped - 1)) - 1 + last_kept; // a carry may reach the exponent
    f32::from_bits(nearest >> dropped << dropped)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// From 1 to the next number.
    fn step(kept: u32) -> f32 {
        2.0_f32.powi(-(kept as i32))
    }

    #[test]
    fn the_nearest_is_chosen() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for kept in [7, 10, 2, 22] {
            for _ in 0..500 {
                let x = rng.random_range(-4.0_f32..4.0)
                    * 2.0_f32.powi(rng.random_range(-100..100));
                let power =
                    2.0_f64.powi((x.to_bits() >> 23 & 0xff) as i32 - 127 - kept as i32);
                let expected = ((x as f64 / power).round_ties_even() * power) as f32;
                let given = rounded(x, kept);
                // With one bit less, half of all numbers are ties.
                let is_tie = (x as f64 / power).fract().abs() == 0.5;
                assert!(
                    !is_tie || given == expected,
                    "{x:e} is as far from both neighbours with {kept} bits of fraction, and became {given:e}, not {expected:e}: which of the two is even?"
                );
                let question = if given.abs() < expected.abs() {
                    "were the last bits only cut off?"
                } else {
                    "does it depend on `kept` which bits are dropped?"
                };
                assert!(
                    given == expected,
                    "{x:e} with {kept} bits of fraction: got {given:e}, but {expected:e} is nearer: {question}"
                );
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        for kept in [7, 10, 3] {
            let step = step(kept);
            for (halves, even) in [(1.0, 0.0), (3.0, 4.0), (5.0, 4.0), (7.0, 8.0)] {
                for sign in [1.0, -1.0] {
                    let (x, even) = (
                        sign * (1.0 + 0.5 * halves * step),
                        sign * (1.0 + 0.5 * even * step),
                    );
                    let given = rounded(x, kept);
                    assert!(
                        given == even,
                        "{x} is as far from both neighbours with {kept} bits of fraction, and became {given}: which of the two is even?"
                    );
                }
            }
        }
    }

    #[test]
    fn a_carry_reaches_the_exponent() {
        for kept in [7, 10] {
            let given = rounded(2.0 - 0.25 * step(kept), kept);
            assert!(
                given == 2.0,
                "just below 2 with {kept} bits of fraction: got {given}: was the carry lost?"
            );
            assert!(
                rounded(f32::MAX, kept) == f32::INFINITY,
                "the largest f32 is nearer to infinity than to what {kept} bits of fraction can hold"
            );
        }
    }

    #[test]
    fn what_is_no_number_stays() {
        for bits in [0x7f80_0001, 0xff80_0001, 0x7fff_ffff, 0xffc0_0000_u32] {
            let x = f32::from_bits(bits);
            let given = std::panic::catch_unwind(|| rounded(x, 7));
            let is_nan = given.as_ref().is_ok_and(|given| given.is_nan());
            assert!(
                is_nan,
                "the NaN with the bits {bits:#x} became {:?}: is NaN still NaN after your addition?",
                given.ok()
            );
        }
        for x in [f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0, -0.375] {
            assert!(
                rounded(x, 7) == x,
                "{x} can be kept as it is, and became {}",
                rounded(x, 7)
            );
        }
    }
}
