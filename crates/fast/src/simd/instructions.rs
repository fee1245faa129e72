//! Sets of instructions, chosen at run time.

use super::vectors::Element;
use attention::{Result, engine::wrong_value};
use pulp::{Simd, WithSimd};
use std::marker::PhantomData;

/// The instructions that [`Flash`](crate::Flash) is to use.
///
/// ```
/// use fast::{Flash, Instructions};
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
    /// use fast::Instructions;
    /// assert_eq!(Instructions::available()[0], Instructions::Portable);
    /// ```
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|set| set.run(Nothing).is_some()).collect()
    }

    /// The fastest that this processor has.
    pub(crate) fn best() -> Self {
        let mut fastest_first = Self::ALL.into_iter().rev();
        let best = fastest_first.find(|set| set.run(Nothing).is_some());
        best.expect("every processor has the portable ones")
    }

    /// Returns the sizes of their vectors and products.
    ///
    /// # Panics
    /// This processor does not have them.
    pub fn sizes<T: crate::Float>(self) -> Sizes {
        self.run(SizesOf::<T>(PhantomData)).expect("instructions of this processor")
    }

    /// # Errors
    /// This processor does not have them.
    pub(crate) fn check(self) -> Result<Self> {
        self.run(Nothing).map(|()| self).ok_or_else(|| {
            let expected = format!("this processor has {:?}", Self::available());
            wrong_value("instructions", format!("{self:?}"), expected)
        })
    }

    /// Runs `work` as it was compiled for these instructions; `None` if this processor does
    /// not have them.
    pub(crate) fn run<W: Work>(self, work: W) -> Option<W::Output> {
        match self {
            // In a browser code is sent over a network, and what is larger isn't faster there.
            #[cfg(target_family = "wasm")]
            Self::Portable => Some(compiled::<_, _, 1, 2>(pulp::Scalar128b, work)),
            #[cfg(not(target_family = "wasm"))]
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
}

/// Something that is compiled for every set of instructions. Its products keep `MR` vectors times `NR` numbers in registers.
/// `run`, and what it calls in inner loops, must be inlined always: a function that is called is compiled without them.
pub(crate) trait Work {
    type Output;
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(
        self,
        simd: S,
    ) -> Self::Output;
}

/// The numbers that fit into registers.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Numbers in a vector.
    pub lanes: usize,
    /// Numbers in `MR` vectors: one factor of the product that registers hold.
    pub panel: usize,
    /// `NR`: the other factor.
    pub numbers: usize,
}

struct SizesOf<T>(PhantomData<T>);

impl<T: Element> Work for SizesOf<T> {
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
pub(crate) trait InstructionSet: Simd {
    /// True if it multiplies and adds in one instruction. Elsewhere, to ask for that is to call a slow function.
    const FUSED: bool;
    /// True if it has 32 registers for vectors; others have 16.
    const MANY_REGISTERS: bool;
}

impl InstructionSet for pulp::Scalar128b {
    const FUSED: bool = false;
    const MANY_REGISTERS: bool = false;
}

#[cfg(target_arch = "x86_64")]
impl InstructionSet for pulp::x86::V3 {
    const FUSED: bool = true;
    const MANY_REGISTERS: bool = false;
}

#[cfg(target_arch = "x86_64")]
impl InstructionSet for pulp::x86::V4 {
    const FUSED: bool = true;
    const MANY_REGISTERS: bool = true;
}

#[cfg(target_arch = "aarch64")]
impl InstructionSet for pulp::aarch64::Neon {
    const FUSED: bool = true;
    const MANY_REGISTERS: bool = true;
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

/// a · b + c
#[inline(always)]
pub(crate) fn mul_add<S: InstructionSet, T: Element>(
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
