//! The ways to exponentiate that [`LibraryFlash`](crate::LibraryFlash) can be told to take.
//!
//! The system's `exp` takes one number at a time. The loops here are plain enough for the compiler to turn into vector
//! instructions: no calls, no branches, no table. [`pulp`] compiles each of them for several instruction sets and picks one
//! at run time.

use fast::Float;

/// A way to compute the exponentials of a tile.
///
/// ```
/// use laboratory::{Exponentials, LibraryFlash};
///
/// let slower = LibraryFlash { exponentials: Exponentials::OneByOne, ..LibraryFlash::default() };
/// assert_eq!(LibraryFlash::default().exponentials, Exponentials::Vector);
/// # assert_eq!(slower.exponentials, Exponentials::OneByOne);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exponentials {
    /// The system's `exp`, one call for each.
    OneByOne,
    /// A polynomial, in the vector instructions that every processor of this family has.
    Portable,
    /// A polynomial, in the widest vector instructions that this processor has.
    Vector,
}

/// Something to do to whole columns, whichever way the exponentials are computed.
pub(crate) trait Columns<T> {
    fn run(self, exp2: impl Fn(T) -> T);
}

impl Exponentials {
    /// Runs the loops of `columns` with this way to compute `2^x`.
    pub(crate) fn apply<T: Float>(self, columns: impl Columns<T>) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
