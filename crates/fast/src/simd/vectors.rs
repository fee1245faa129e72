//! Vector instructions under names that serve `f32` and `f64`, on every instruction set that this crate is compiled for.
//!
//! [`pulp`] has a function for each instruction and each type of number. What is here gives its functions the names that the
//! inner loops need, and no others.

use pulp::Simd;

/// A number that vectors are made of: `f32` or `f64`. Each function does to all entries of a vector what its name says.
pub trait Element: Copy + Send + Sync + 'static {
    /// Numbers of this size are whole: to add it rounds to an integer, which then stands in the last bits.
    const ROUND: Self;
    /// A vector of these numbers.
    type Vector<S: Simd>: Copy;

    /// Returns the count of numbers in a vector.
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
    /// Fewer numbers than a vector has, and zeros after them.
    fn load_some<S: Simd>(simd: S, slice: &[Self]) -> Self::Vector<S>;
    /// The sum of all entries.
    fn sum_of_vector<S: Simd>(simd: S, x: Self::Vector<S>) -> Self;
    /// Exchanges rows and columns of the squares that lie in each 128 bits of four vectors, of 4 × 4 or of 2 × 2 numbers.
    fn transpose_squares<S: Simd>(
        simd: S,
        x: [Self::Vector<S>; 4],
    ) -> [Self::Vector<S>; 4];
    /// 2^k, for the whole numbers k that stand in the last bits of `rounded` after [`Element::ROUND`] was added to them.
    fn power_of_two<S: Simd>(simd: S, rounded: Self::Vector<S>) -> Self::Vector<S>;
}

/// The names that pulp has for numbers of this type, and for whole numbers of as many bits.
macro_rules! element {
    (
        $float:ident,
        bits: $bits:ident, lanes: $lanes:ident, vector: $vector:ident,
        as_vectors: $as_vectors:ident, as_vectors_mut: $as_vectors_mut:ident,
        splat: $splat:ident, add: $add:ident, sub: $sub:ident, mul: $mul:ident,
        fused: $fused:ident, greater: $greater:ident, select: $select:ident,
        to_bits: $to_bits:ident, from_bits: $from_bits:ident,
        splat_bits: $splat_bits:ident, add_bits: $add_bits:ident,
        mul_bits: $mul_bits:ident,
        load_some: $load_some:ident, sum: $sum:ident,
        transpose: |$simd:ident, $x:ident| $transpose:expr
    ) => {
        impl Element for $float {
            const ROUND: $float =
                1.5 * (1_u64 << (<$float>::MANTISSA_DIGITS - 1)) as $float;
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
            fn load_some<S: Simd>(simd: S, slice: &[Self]) -> S::$vector {
                simd.$load_some(slice)
            }
            #[inline(always)]
            fn sum_of_vector<S: Simd>(simd: S, x: S::$vector) -> Self {
                simd.$sum(x)
            }
            #[inline(always)]
            fn transpose_squares<S: Simd>(
                $simd: S,
                $x: [S::$vector; 4],
            ) -> [S::$vector; 4] {
                $transpose
            }
            #[inline(always)]
            fn power_of_two<S: Simd>(simd: S, rounded: S::$vector) -> S::$vector {
                const MANTISSA: u32 = <$float>::MANTISSA_DIGITS - 1;
                const BIAS: $bits = <$float>::MAX_EXP as $bits - 1;
                let from_round = BIAS.wrapping_sub(<$float as Element>::ROUND.to_bits());
                let bits = simd.$to_bits(rounded);
                let exponent = simd.$add_bits(bits, simd.$splat_bits(from_round));
                // The product with this power of two moves the exponent to its place.
                simd.$from_bits(simd.$mul_bits(exponent, simd.$splat_bits(1 << MANTISSA)))
            }
        }
    };
}

element! {
    f32,
    bits: u32,
    lanes: F32_LANES,
    vector: f32s,
    as_vectors: as_simd_f32s,
    as_vectors_mut: as_mut_simd_f32s,
    splat: splat_f32s,
    add: add_f32s,
    sub: sub_f32s,
    mul: mul_f32s,
    fused: mul_add_f32s,
    greater: greater_than_f32s,
    select: select_f32s,
    to_bits: transmute_u32s_f32s,
    from_bits: transmute_f32s_u32s,
    splat_bits: splat_u32s,
    add_bits: add_u32s,
    mul_bits: mul_u32s,
    load_some: partial_load_f32s,
    sum: reduce_sum_f32s,
    transpose: |simd, x| simd.deinterleave_shfl_f32s(x)
}
element! {
    f64,
    bits: u64,
    lanes: F64_LANES,
    vector: f64s,
    as_vectors: as_simd_f64s,
    as_vectors_mut: as_mut_simd_f64s,
    splat: splat_f64s,
    add: add_f64s,
    sub: sub_f64s,
    mul: mul_f64s,
    fused: mul_add_f64s,
    greater: greater_than_f64s,
    select: select_f64s,
    to_bits: transmute_u64s_f64s,
    from_bits: transmute_f64s_u64s,
    splat_bits: splat_u64s,
    add_bits: add_u64s,
    mul_bits: mul_u64s,
    load_some: partial_load_f64s,
    sum: reduce_sum_f64s,
    transpose: |simd, x| {
        let halves = [[x[0], x[1]], [x[2], x[3]]];
        let [[a, b], [c, d]] = halves.map(|half| simd.deinterleave_shfl_f64s(half));
        [a, b, c, d]
    }
}
