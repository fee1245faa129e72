//! Exponentials of whole columns at once, and the loops around them.
//!
//! The system's `exp` takes one number at a time. The loops here are plain enough for the compiler to turn into vector
//! instructions: no calls, no branches, no table. [`pulp`] compiles each of them for several instruction sets and picks one
//! at run time.

use super::vectors::Element;
use nalgebra::RealField;
use std::f64::consts::LN_2;

/// How the exponentials of a tile are computed.
///
/// ```
/// use attention::flash::{Exponentials, LibraryFlash};
///
/// let slower = LibraryFlash::new().with_exponentials(Exponentials::OneByOne);
/// assert_eq!(LibraryFlash::new().exponentials(), Exponentials::Vector);
/// # assert_eq!(slower.exponentials(), Exponentials::OneByOne);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exponentials {
    /// By the system's `exp`, one call for each.
    OneByOne,
    /// By a polynomial, in the vector instructions that every processor of this family has.
    Portable,
    /// By a polynomial, in the widest vector instructions that this processor has.
    Vector,
}

/// Something to do to whole columns, whichever way the exponentials are computed.
pub(super) trait Columns<T> {
    fn run(self, exp2: impl Fn(T) -> T);
}

impl Exponentials {
    // ANCHOR: dispatch
    /// Runs the loops of `columns` with this way to compute `2^x`.
    pub(super) fn apply<T: Float>(self, columns: impl Columns<T>) {
        self.apply_with(pulp::Arch::new(), columns); // what this processor has
    }

    fn apply_with<T: Float>(self, arch: pulp::Arch, columns: impl Columns<T>) {
        match self {
            Exponentials::OneByOne => columns.run(T::exp2),
            Exponentials::Portable => columns.run(T::exp2_polynomial::<false>),
            // Compiled for each instruction set that `pulp` knows; the processor chooses.
            Exponentials::Vector => match arch {
                pulp::Arch::Scalar => columns.run(T::exp2_polynomial::<false>),
                arch => arch.dispatch(
                    #[inline(always)]
                    || columns.run(T::exp2_polynomial::<true>),
                ),
            },
        }
    }
    // ANCHOR_END: dispatch
}

/// `f32` or `f64`: the numbers that the fast path knows. No other type can implement it.
///
/// ```
/// use attention::flash::Float;
///
/// assert!((f32::exp2_polynomial::<false>(-1.5) - 0.35355338).abs() < 1e-7);
/// assert_eq!(f64::exp2_polynomial::<false>(f64::NEG_INFINITY), 0.0);
/// ```
pub trait Float: RealField + Copy + Element {
    /// 2 to this power is no normal number any more.
    const LOWEST: Self;
    /// Numbers of this size are whole: to add it rounds to an integer, which then stands in the last bits.
    const ROUND: Self;
    /// Taylor's coefficients of `2^x`, as many as this type can use.
    const TAYLOR: &'static [f64];

    /// `2^x`, in arithmetic that vectorises, for `x` below the type's largest exponent (127 or 1023). Exactly 0 from half
    /// a power of two below the smallest normal number on; NaN stays NaN, and +∞ becomes NaN.
    ///
    /// `FUSED` multiplies and adds in one step: faster where the processor can, and much slower where it cannot.
    fn exp2_polynomial<const FUSED: bool>(x: Self) -> Self;
}

/// Taylor's coefficients of `base^x = e^(x ln base)`: `(ln base)^k / k!`.
// ANCHOR: taylor
pub(super) const fn taylor<const N: usize>(ln_base: f64) -> [f64; N] {
    let mut coefficients = [1.0; N];
    let mut k = 1;
    while k < N {
        coefficients[k] = coefficients[k - 1] * ln_base / k as f64;
        k += 1;
    }
    coefficients
}
// ANCHOR_END: taylor

macro_rules! float {
    ($float:ty, $bits:ty, terms: $terms:literal) => {
        impl Float for $float {
            const LOWEST: $float = 1.0 - <$float>::MAX_EXP as $float;
            const ROUND: $float =
                1.5 * (1_u64 << (<$float>::MANTISSA_DIGITS - 1)) as $float;
            const TAYLOR: &[f64] = &taylor::<$terms>(LN_2);

            // ANCHOR: exp2
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
            // ANCHOR_END: exp2
        }
    };
}

float!(f32, u32, terms: 8);
float!(f64, u64, terms: 14);

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

    struct Fill<'a, T>(&'a mut [T]);

    impl<T: Float> Columns<T> for Fill<'_, T> {
        #[inline(always)]
        fn run(self, exp2: impl Fn(T) -> T) {
            self.0.iter_mut().for_each(|x| *x = exp2(*x));
        }
    }

    /// Every instruction set that `pulp` compiles for and this processor has, the best one last.
    fn instruction_sets() -> Vec<pulp::Arch> {
        let mut sets = vec![pulp::Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            sets.extend(pulp::x86::V3::try_new().map(pulp::Arch::V3));
            sets.extend(pulp::x86::V4::try_new().map(pulp::Arch::V4));
        }
        #[cfg(target_arch = "aarch64")]
        sets.extend(pulp::aarch64::Neon::try_new().map(pulp::Arch::Neon));
        sets
    }

    /// A processor with AVX2 and FMA, but without AVX-512, is not left to scalar code.
    #[test]
    fn every_instruction_set_of_this_processor_gives_the_same_exponentials() {
        fn check<T: Float>(set: pulp::Arch, epsilon: f64) {
            let inputs: Vec<f64> =
                (0..1000).map(|i| 1.0 - 0.117 * f64::from(i)).collect();
            let mut outputs: Vec<T> =
                inputs.iter().map(|&x| nalgebra::convert(x)).collect();
            Exponentials::Vector.apply_with(set, Fill(&mut outputs));
            for (&y, x) in outputs.iter().zip(&inputs) {
                let rounded: T = nalgebra::convert(*x);
                let x: f64 = nalgebra::try_convert(rounded).expect("a number");
                let y: f64 = nalgebra::try_convert(y).expect("a number");
                assert!(
                    (y / x.exp2() - 1.0).abs() < 2.0 * epsilon,
                    "{set:?}: 2^{x} is {y}"
                );
            }
        }
        let sets = instruction_sets();
        println!("{sets:?}");
        for &set in &sets {
            check::<f32>(set, f32::EPSILON.into());
            check::<f64>(set, f64::EPSILON);
        }
        let name = |set: &pulp::Arch| format!("{set:?}");
        assert_eq!(name(&pulp::Arch::new()), name(&sets[sets.len() - 1]), "not the best");
    }

    /// Zeros of the slots that nothing is written to would pass for correct.
    #[test]
    fn all_ways_agree() {
        let inputs: Vec<f32> = (0..100).map(|i| 1.0 - 0.37 * i as f32).collect();
        for way in [Exponentials::OneByOne, Exponentials::Portable, Exponentials::Vector]
        {
            let mut outputs = inputs.clone();
            way.apply(Fill(&mut outputs));
            for (y, x) in outputs.iter().zip(&inputs) {
                assert!(
                    (y / x.exp2() - 1.0).abs() < 2.0 * f32::EPSILON,
                    "{way:?} of {x}"
                );
            }
        }
    }
}
