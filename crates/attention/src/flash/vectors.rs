//! Vector instructions under names that serve `f32` and `f64`, on every instruction set that this crate is compiled for.
//!
//! [`pulp`] has a function for each instruction and each type of number, and chooses at run time for which instruction set
//! a piece of code is compiled. What is here gives its functions the names that the inner loops need, and no others.

use super::Float;
use super::exponential::taylor;
use crate::error::{Error, Result};
use nalgebra::RealField;
use pulp::{Simd, WithSimd};
use std::any::{Any, TypeId};
use std::f64::consts::{LN_2, LOG2_E};
use std::marker::PhantomData;

/// The instructions that [`Flash`](super::Flash) is to use.
///
/// ```
/// use attention::flash::{Flash, Instructions};
///
/// let best = *Instructions::available().last().unwrap();
/// assert_eq!(Flash::new().instructions(), best);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructions {
    /// Those that every processor of the family has, for vectors of 128 bits, and no fused multiply-add.
    Portable,
    /// NEON: vectors of 128 bits, 32 of them in registers.
    Neon,
    /// AVX2 and FMA: vectors of 256 bits, 16 of them in registers.
    Avx2,
    /// AVX-512: vectors of 512 bits, 32 of them in registers.
    Avx512,
}

impl Instructions {
    const ALL: [Self; 4] = [Self::Portable, Self::Neon, Self::Avx2, Self::Avx512];

    /// Those that this processor has, from the slowest to the fastest.
    ///
    /// ```
    /// use attention::flash::Instructions;
    /// assert_eq!(Instructions::available()[0], Instructions::Portable);
    /// ```
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|set| set.run(Nothing).is_some()).collect()
    }

    /// The fastest that this processor has.
    pub(super) fn best() -> Self {
        let mut fastest_first = Self::ALL.into_iter().rev();
        let best = fastest_first.find(|set| set.run(Nothing).is_some());
        best.expect("every processor has the portable ones")
    }

    /// What their vectors and products hold.
    pub(super) fn sizes<T: Float>(self) -> Sizes {
        self.run(SizesOf::<T>(PhantomData)).expect("instructions of this processor")
    }

    /// # Errors
    /// This processor does not have them.
    pub(super) fn check(self) -> Result<Self> {
        self.run(Nothing).map(|()| self).ok_or_else(|| Error::Unsupported {
            argument: "instructions",
            given: format!("{self:?}"),
            expected: format!("this processor has {:?}", Self::available()),
        })
    }

    // ANCHOR: run
    /// Runs `work` as it was compiled for these instructions; `None` if this processor does
    /// not have them.
    pub(super) fn run<W: Work>(self, work: W) -> Option<W::Output> {
        match self {
            Self::Portable => Some(compiled::<_, _, 2, 6>(pulp::Scalar128b, work)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => {
                Some(compiled::<_, _, 3, 8>(pulp::aarch64::Neon::try_new()?, work))
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Some(compiled::<_, _, 2, 6>(pulp::x86::V3::try_new()?, work)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Some(compiled::<_, _, 3, 8>(pulp::x86::V4::try_new()?, work)),
            _ => None, // those of other families of processors
        }
    }
    // ANCHOR_END: run
}

/// Something that is compiled for every set of instructions. Its products keep `MR` vectors times `NR` numbers in registers.
/// `run`, and what it calls in inner loops, must be inlined always: a function that is called is compiled without them.
pub(super) trait Work {
    type Output;
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(
        self,
        simd: S,
    ) -> Self::Output;
}

/// How much fits into registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Numbers in a vector.
    pub lanes: usize,
    /// Numbers in `MR` vectors: one factor of the product that registers hold.
    pub panel: usize,
    /// `NR`: the other factor.
    pub numbers: usize,
}

struct SizesOf<T>(PhantomData<T>);

impl<T: Float> Work for SizesOf<T> {
    type Output = Sizes;
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, _: S) -> Sizes {
        let lanes = T::lanes::<S>();
        Sizes { lanes, panel: MR * lanes, numbers: NR }
    }
}

struct Nothing;

impl Work for Nothing {
    type Output = ();
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, _: S) {}
}

/// A set of instructions, as a type: what is generic over it is compiled once for each.
pub(super) trait InstructionSet: Simd {
    /// Whether it multiplies and adds in one instruction. Where it does not, to ask for that is to call a slow function.
    const FUSED: bool;
}

impl InstructionSet for pulp::Scalar128b {
    const FUSED: bool = false;
}

#[cfg(target_arch = "x86_64")]
impl InstructionSet for pulp::x86::V3 {
    const FUSED: bool = true;
}

#[cfg(target_arch = "x86_64")]
impl InstructionSet for pulp::x86::V4 {
    const FUSED: bool = true;
}

#[cfg(target_arch = "aarch64")]
impl InstructionSet for pulp::aarch64::Neon {
    const FUSED: bool = true;
}

fn compiled<S: InstructionSet, W: Work, const MR: usize, const NR: usize>(
    simd: S,
    work: W,
) -> W::Output {
    struct Compiled<S, W, const MR: usize, const NR: usize>(S, W);

    impl<S: InstructionSet, W: Work, const MR: usize, const NR: usize> WithSimd
        for Compiled<S, W, MR, NR>
    {
        type Output = W::Output;

        #[inline(always)]
        fn with_simd<Same: Simd>(self, _: Same) -> W::Output {
            self.1.run::<S, MR, NR>(self.0)
        }
    }
    simd.vectorize(Compiled::<S, W, MR, NR>(simd, work))
}

/// A number that vectors are made of: `f32` or `f64`. Each function does to all entries of a vector what its name says.
pub trait Element: Copy + Send + Sync + 'static {
    /// A vector of these numbers.
    type Vector<S: Simd>: Copy;

    /// How many numbers there are in a vector.
    fn lanes<S: Simd>() -> usize;
    /// A slice as vectors. What fills no vector is left out.
    fn vectors<S: Simd>(slice: &[Self]) -> &[Self::Vector<S>];
    /// A slice as vectors that can be written to. What fills no vector is left out.
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [Self::Vector<S>];

    /// The same number everywhere.
    fn splat_vector<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// a + b
    fn add_vectors<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// a − b
    fn sub_vectors<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// a · b
    fn mul_vectors<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// a · b + c, rounded once.
    fn fused<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// The larger one of `a` and `b`; `b` where one of them is NaN.
    fn larger<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// 2^k, for the whole numbers k that stand in the last bits of `rounded` after [`Float::ROUND`] was added to them.
    fn power_of_two<S: Simd>(simd: S, rounded: Self::Vector<S>) -> Self::Vector<S>;
}

macro_rules! element {
    ($float:ident, $bits:ident, $lanes:ident, $vector:ident, $as_vectors:ident, $as_vectors_mut:ident, $splat:ident, $add:ident,
     $sub:ident, $mul:ident, $fused:ident, $greater:ident, $select:ident, $to_bits:ident, $from_bits:ident,
     $splat_bits:ident, $add_bits:ident, $mul_bits:ident) => {
        impl Element for $float {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn lanes<S: Simd>() -> usize {
                S::$lanes
            }
            #[inline(always)]
            fn vectors<S: Simd>(slice: &[Self]) -> &[S::$vector] {
                S::$as_vectors(slice).0
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [S::$vector] {
                S::$as_vectors_mut(slice).0
            }
            #[inline(always)]
            fn splat_vector<S: Simd>(simd: S, x: Self) -> S::$vector {
                simd.$splat(x)
            }
            #[inline(always)]
            fn add_vectors<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn sub_vectors<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn mul_vectors<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn fused<S: Simd>(
                simd: S,
                a: S::$vector,
                b: S::$vector,
                c: S::$vector,
            ) -> S::$vector {
                simd.$fused(a, b, c)
            }
            #[inline(always)]
            fn larger<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$select(simd.$greater(a, b), a, b)
            }
            #[inline(always)]
            fn power_of_two<S: Simd>(simd: S, rounded: S::$vector) -> S::$vector {
                const MANTISSA: u32 = <$float>::MANTISSA_DIGITS - 1;
                const BIAS: $bits = <$float>::MAX_EXP as $bits - 1;
                let from_round = BIAS.wrapping_sub(<$float as Float>::ROUND.to_bits());
                let bits = simd.$to_bits(rounded);
                let exponent = simd.$add_bits(bits, simd.$splat_bits(from_round));
                // The product with this power of two moves the exponent to its place.
                simd.$from_bits(simd.$mul_bits(exponent, simd.$splat_bits(1 << MANTISSA)))
            }
        }
    };
}

element!(
    f32,
    u32,
    F32_LANES,
    f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    splat_f32s,
    add_f32s,
    sub_f32s,
    mul_f32s,
    mul_add_f32s,
    greater_than_f32s,
    select_f32s,
    transmute_u32s_f32s,
    transmute_f32s_u32s,
    splat_u32s,
    add_u32s,
    mul_u32s
);
element!(
    f64,
    u64,
    F64_LANES,
    f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    splat_f64s,
    add_f64s,
    sub_f64s,
    mul_f64s,
    mul_add_f64s,
    greater_than_f64s,
    select_f64s,
    transmute_u64s_f64s,
    transmute_f64s_u64s,
    splat_u64s,
    add_u64s,
    mul_u64s
);

/// a · b + c
#[inline(always)]
pub(super) fn mul_add<S: InstructionSet, T: Float>(
    simd: S,
    a: T::Vector<S>,
    b: T::Vector<S>,
    c: T::Vector<S>,
) -> T::Vector<S> {
    if S::FUSED {
        T::fused(simd, a, b, c)
    } else {
        T::add_vectors(simd, T::mul_vectors(simd, a, b), c)
    }
}

/// [`Float::exp2_polynomial`] of each entry, to the bit.
#[inline(always)]
pub(super) fn exp2<S: InstructionSet, T: Float>(
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

/// e^x of each number, with the best instructions of this processor. Numbers for which there are none are asked for their own
/// `exp`.
pub(crate) fn exp_all<T: RealField + Copy>(x: &mut [T]) {
    let instructions = Instructions::best();
    if TypeId::of::<T>() == TypeId::of::<f64>() {
        instructions.run(ExpAll::<T, f64>(x, PhantomData));
    } else if TypeId::of::<T>() == TypeId::of::<f32>() {
        instructions.run(ExpAll::<T, f32>(x, PhantomData));
    } else {
        x.iter_mut().for_each(|x| *x = x.exp());
    }
}

/// Numbers of a type `T` that is `F`.
struct ExpAll<'a, T, F>(&'a mut [T], PhantomData<F>);

impl<T: RealField + Copy, F: Float> Work for ExpAll<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        let (chunks, rest) = self.0.as_chunks_mut();
        for chunk in chunks {
            exp_some::<S, T, F>(simd, chunk);
        }
        let mut last = [T::zero(); SOME];
        last[..rest.len()].copy_from_slice(rest);
        exp_some::<S, T, F>(simd, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// So many numbers fill whole vectors on every processor.
const SOME: usize = 64;

#[inline(always)]
fn exp_some<S: InstructionSet, T: RealField, F: Float>(simd: S, x: &mut [T; SOME]) {
    let x: &mut [F; SOME] = (x as &mut dyn Any).downcast_mut().expect("T is F");
    for x in F::vectors_mut::<S>(x) {
        *x = exp::<S, F>(simd, *x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Exponentiate<'a, T>(&'a mut [T]);

    impl<T: Float> Work for Exponentiate<'_, T> {
        /// Whether multiply-adds are fused.
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
            let all = ExpAll::<T, T>(&mut y, PhantomData);
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
