//! Exponentials of plain arithmetic: no call, no branch, no table, so that they can be computed in vector instructions.

use super::instructions::{InstructionSet, Instructions, Work, mul_add};
use super::vectors::Element;
use crate::engine::Compiled;
use std::f64::consts::{LN_2, LOG2_E};

/// `f32` or `f64`: the numbers that this engine computes with. No other type can implement it.
///
/// ```
/// use fast::Float;
///
/// assert!((f32::exp2_polynomial::<false>(-1.5) - 0.35355338).abs() < 1e-7);
/// assert_eq!(f64::exp2_polynomial::<false>(f64::NEG_INFINITY), 0.0);
///
/// let mut x = [0.0, 1.0, f64::NEG_INFINITY];
/// f64::exp_all(&mut x);
/// assert_eq!(x, [1.0, std::f64::consts::E, 0.0]);
/// ```
pub trait Float: attention::Float + Element + Series + Compiled {
    /// Replaces each number by its exponential `e^x`, with the best vector instructions that this processor has: many times as fast
    /// as one call of `exp` after another. At most 1.5 units in the last place off; 0 below half the smallest normal number.
    fn exp_all(x: &mut [Self]);

    /// `2^x`, in arithmetic that vectorises, for `x` below the type's largest exponent (127 or 1023). Exactly 0 from half
    /// a power of two below the smallest normal number on; NaN stays NaN, and +∞ becomes NaN.
    ///
    /// `FUSED` multiplies and adds in one step: faster where the processor can, and much slower where it cannot.
    fn exp2_polynomial<const FUSED: bool>(x: Self) -> Self;
}

/// The constants that a type's exponentials are made of, and its bits.
pub trait Series: Sized + 'static {
    /// 2 to this power is no normal number any more.
    const LOWEST: Self;
    /// Taylor's coefficients of `2^x`, as many as this type can use.
    const TAYLOR: &'static [f64];
}

/// Taylor's coefficients of `base^x = e^(x ln base)`: `(ln base)^k / k!`.
const fn taylor<const N: usize>(ln_base: f64) -> [f64; N] {
    let mut coefficients = [1.0; N];
    let mut k = 1;
    while k < N {
        coefficients[k] = coefficients[k - 1] * ln_base / k as f64;
        k += 1;
    }
    coefficients
}

macro_rules! float {
    ($float:ty, $bits:ty, terms: $terms:literal) => {
        impl Series for $float {
            const LOWEST: $float = 1.0 - <$float>::MAX_EXP as $float;
            const TAYLOR: &[f64] = &taylor::<$terms>(LN_2);
        }

        impl Float for $float {
            fn exp_all(x: &mut [$float]) {
                exp_all(x);
            }

            #[inline(always)]
            fn exp2_polynomial<const FUSED: bool>(x: $float) -> $float {
                const MANTISSA: u32 = <$float>::MANTISSA_DIGITS - 1; // its bits: 23 or 52
                const BIAS: $bits = <$float>::MAX_EXP as $bits - 1; // 127 or 1023
                // Numbers of this size are whole: to add it rounds to an integer, which
                // then stands in the last bits.
                const ROUND: $float = 1.5 * (1_u64 << MANTISSA) as $float;
                const COEFFICIENTS: [f64; $terms] = taylor(LN_2);

                let lowest = -(BIAS as $float); // 2^lowest is no normal number any more
                let x = if x < lowest { lowest } else { x }; // `max` would swallow a NaN
                let rounded = x + ROUND;
                let fraction = x - (rounded - ROUND); // from −1/2 to 1/2
                let mut power = COEFFICIENTS[$terms - 1] as $float; // by Horner's rule
                for k in (0..$terms - 1).rev() {
                    let c = COEFFICIENTS[k] as $float;
                    power = if FUSED {
                        power.mul_add(fraction, c)
                    } else {
                        power * fraction + c
                    };
                }
                // The integer, moved to where the exponent is: 2^integer, or 0.
                let integer = rounded.to_bits().wrapping_sub(ROUND.to_bits());
                power * <$float>::from_bits(integer.wrapping_add(BIAS) << MANTISSA)
            }
        }
    };
}

float!(f32, u32, terms: 8);
float!(f64, u64, terms: 14);

/// [`Float::exp2_polynomial`] of each entry, to the bit.
#[inline(always)]
pub(crate) fn exp2<S: InstructionSet, T: Float>(
    simd: S,
    x: T::Vector<S>,
) -> T::Vector<S> {
    let x = T::larger(simd, T::splat_vector(simd, T::LOWEST), x); // a NaN stays
    let round = T::splat_vector(simd, T::ROUND);
    let rounded = T::add_vectors(simd, x, round);
    let fraction = T::sub_vectors(simd, x, T::sub_vectors(simd, rounded, round));
    let coefficient = |k: usize| T::splat_vector(simd, nalgebra::convert(T::TAYLOR[k]));
    let mut power = coefficient(T::TAYLOR.len() - 1);
    for k in (0..T::TAYLOR.len() - 1).rev() {
        power = mul_add::<S, T>(simd, power, fraction, coefficient(k));
    }
    T::mul_vectors(simd, power, T::power_of_two(simd, rounded))
}

/// e^x of each entry, at most 1.5 ulp from the exact one and mostly the nearest number; 0 below half the smallest normal number.
///
/// # Source
/// W. J. Cody, W. Waite, *Software Manual for the Elementary Functions* (1980), for ln 2 in two parts.
#[inline(always)]
fn exp<S: InstructionSet, T: Float>(simd: S, x: T::Vector<S>) -> T::Vector<S> {
    const TAYLOR: [f64; 14] = taylor(1.0);
    // Products of the first part with whole exponents are exact: it has ten bits.
    const LN_2_FIRST: f64 = 355.0 / 512.0;
    const LN_2_REST: f64 = -2.121_944_400_546_905_8e-4;
    let splat = |x: f64| T::splat_vector(simd, nalgebra::convert(x));
    let minus = |x| T::sub_vectors(simd, splat(0.0), x);
    // What is beyond the range becomes 0 or ∞ at its end, and a NaN stays.
    let lowest = T::mul_vectors(simd, T::splat_vector(simd, T::LOWEST), splat(LN_2));
    let highest = T::sub_vectors(simd, splat(LN_2), lowest);
    let x = T::larger(simd, lowest, x);
    let x = minus(T::larger(simd, minus(highest), minus(x)));
    // x = k ln 2 + r, where k is whole and |r| is at most half of ln 2.
    let round = T::splat_vector(simd, T::ROUND);
    let rounded = mul_add::<S, T>(simd, x, splat(LOG2_E), round);
    let k = T::sub_vectors(simd, rounded, round);
    let r = mul_add::<S, T>(simd, k, splat(-LN_2_FIRST), x);
    let r = mul_add::<S, T>(simd, k, splat(-LN_2_REST), r);
    let last = T::TAYLOR.len() - 1;
    let mut power = splat(TAYLOR[last]);
    for k in (0..last).rev() {
        power = mul_add::<S, T>(simd, power, r, splat(TAYLOR[k]));
    }
    T::mul_vectors(simd, power, T::power_of_two(simd, rounded))
}

/// Replaces each number by its exponential, with the best instructions of this processor.
fn exp_all<T: Float>(x: &mut [T]) {
    Instructions::best().run(ExpAll(x));
}

struct ExpAll<'a, T>(&'a mut [T]);

impl<T: Float> Work for ExpAll<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        let (chunks, rest) = self.0.as_chunks_mut();
        for chunk in chunks {
            exp_some::<S, T>(simd, chunk);
        }
        let mut last = [T::zero(); SOME];
        last[..rest.len()].copy_from_slice(rest);
        exp_some::<S, T>(simd, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// So many numbers fill whole vectors on every processor.
const SOME: usize = 64;

#[inline(always)]
fn exp_some<S: InstructionSet, T: Float>(simd: S, x: &mut [T; SOME]) {
    for x in T::vectors_mut::<S>(x) {
        *x = exp::<S, T>(simd, *x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomial_is_as_exact_as_its_type() {
        let mut worst = [0.0_f64; 4];
        for i in 0..200_000 {
            let x = f64::from((-126.0 + 0.001_26 * f64::from(i)) as f32).min(126.0);
            let exact = x.exp2();
            let off = |y: f64| ((y - exact) / exact).abs();
            let values = [
                f64::from(f32::exp2_polynomial::<false>(x as f32)),
                f64::from(f32::exp2_polynomial::<true>(x as f32)),
                f64::exp2_polynomial::<false>(x),
                f64::exp2_polynomial::<true>(x),
            ];
            for (worst, value) in worst.iter_mut().zip(values) {
                *worst = worst.max(off(value));
            }
        }
        let ulp = [f32::EPSILON, f32::EPSILON].map(f64::from);
        assert!(worst[0] < ulp[0] && worst[1] < ulp[1], "{worst:?}");
        assert!(
            worst[2] < 1.5 * f64::EPSILON && worst[3] < 1.5 * f64::EPSILON,
            "{worst:?}"
        );
    }

    #[test]
    fn what_is_no_number_stays_none_and_what_is_too_small_is_zero() {
        fn check<T: Float>(tiny: f64) {
            let of = |x: f64| T::exp2_polynomial::<false>(nalgebra::convert(x));
            assert!(of(f64::NAN) != of(f64::NAN));
            assert!(of(f64::INFINITY) != of(f64::INFINITY));
            for x in [f64::NEG_INFINITY, -1e30, tiny - 1.0] {
                assert_eq!(of(x), T::zero());
            }
            assert!(of(tiny) > T::zero());
            assert_eq!(of(0.0), T::one());
        }
        check::<f32>(-126.0);
        check::<f64>(-1022.0);
    }

    struct Exponentiate<'a, T>(&'a mut [T]);

    impl<T: Float> Work for Exponentiate<'_, T> {
        /// True if multiply-adds are fused.
        type Output = bool;

        #[inline(always)]
        fn run<S: InstructionSet, const MR: usize, const NR: usize>(
            self,
            simd: S,
        ) -> bool {
            for x in T::vectors_mut::<S>(self.0) {
                *x = exp2::<S, T>(simd, *x);
            }
            S::FUSED
        }
    }

    #[test]
    fn exponentials_are_as_exact_as_their_type() {
        /// The largest distance from the exact ones, in units in the last place.
        fn worst<T: Float>(instructions: Instructions, lowest: f64, bits: i32) -> f64 {
            let x = (0..300_000).map(|i| lowest * (f64::from(i) / 300_000.0).powi(3));
            let x: Vec<T> = x.map(nalgebra::convert).collect();
            let mut y = x.clone();
            let all = ExpAll::<T>(&mut y);
            instructions.run(all).expect("available");
            let number = |x: T| nalgebra::try_convert::<T, f64>(x).expect("a number");
            let off = x.iter().zip(&y).map(|(&x, &y)| {
                let exact = number(x).exp();
                let ulp = exact.log2().floor().exp2() * f64::from(1 - bits).exp2();
                (number(y) - exact).abs() / ulp
            });
            off.fold(0.0, f64::max)
        }
        for instructions in Instructions::available() {
            // The system's exp, to which these are compared, is itself not always the nearest f64.
            let double = worst::<f64>(instructions, -708.3, 53);
            let single = worst::<f32>(instructions, -87.3, 24);
            println!("{instructions:?}: {double:.2} and {single:.2} ulp");
            assert!(double <= 1.0 && single < 1.5, "{instructions:?}: {double} {single}");
        }
    }

    #[test]
    fn exponentials_of_what_is_no_number_and_beyond_the_range() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let x = [0.0, -inf, -745.0, -1e300, inf, 710.0, 1e300, nan];
        let right = [1.0, 0.0, 0.0, 0.0, inf, inf, inf, nan];
        for count in 0..x.len() {
            let (mut y, mut z) = (x[count..].to_vec(), x[count..].to_vec());
            let mut single: Vec<f32> = y.iter().map(|&x| x as f32).collect();
            exp_all(&mut y);
            exp_all(&mut single);
            z.iter_mut().zip(&right[count..]).for_each(|(z, &right)| *z = right);
            assert_eq!(format!("{y:?}"), format!("{z:?}"));
            let single: Vec<f64> = single.into_iter().map(f64::from).collect();
            assert_eq!(format!("{single:?}"), format!("{z:?}"));
        }
    }

    /// Also at the edge of what is 0, at infinities and NaN.
    #[test]
    fn vectors_exponentiate_as_numbers_do() {
        fn check<T: Float>(edge: f64, bits: impl Fn(T) -> u64) {
            let mut x: Vec<T> = (0..1018)
                .map(|i| nalgebra::convert(1.0 + edge * f64::from(i) / 1000.0))
                .collect();
            x.extend(
                [f64::NAN, f64::NEG_INFINITY, f64::INFINITY]
                    .map(nalgebra::convert::<f64, T>),
            );
            x.extend([edge - 0.4, edge - 0.6, 0.0].map(nalgebra::convert::<f64, T>));
            for instructions in Instructions::available() {
                let mut y = x.clone();
                let fused = instructions.run(Exponentiate(&mut y)).expect("available");
                for (&x, &y) in x.iter().zip(&y) {
                    let right = if fused {
                        T::exp2_polynomial::<true>(x)
                    } else {
                        T::exp2_polynomial::<false>(x)
                    };
                    let same = bits(y) == bits(right) || y != y && right != right;
                    assert!(same, "{instructions:?}: 2^{x} is {y} and not {right}");
                }
            }
        }
        check::<f32>(-126.0, |x| x.to_bits().into());
        check::<f64>(-1022.0, f64::to_bits);
    }
}
