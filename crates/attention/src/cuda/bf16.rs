//! Sixteen bits with the range of an `f32`.

/// A bfloat16: the upper half of an `f32`, sign, 8 bits of exponent and 7 bits of fraction.
///
/// ```
/// use attention::cuda::Bf16;
///
/// assert_eq!(Bf16::from_f32(1.0).to_f32(), 1.0);
/// assert_eq!(Bf16::from_f32(3.1415927).to_f32(), 3.140625); // two to three decimal digits are left
/// assert!(Bf16::from_f32(f32::NAN).to_f32().is_nan());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bf16(
    /// The bits.
    pub u16,
);

impl Bf16 {
    /// The nearest number; of two that are equally near, the one whose last bit is 0. What is too large becomes
    /// infinite, and NaN stays NaN.
    ///
    /// ```
    /// use attention::cuda::Bf16;
    ///
    /// let step = 2.0_f32.powi(-7); // from 1 to the next number
    /// assert_eq!(Bf16::from_f32(1.0 + 0.5 * step).to_f32(), 1.0);
    /// assert_eq!(Bf16::from_f32(1.0 + 1.5 * step).to_f32(), 1.0 + 2.0 * step);
    /// assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    /// ```
    // ANCHOR: rounding
    pub fn from_f32(x: f32) -> Self {
        let bits = x.to_bits();
        if x.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40); // a NaN whose fraction is not cut to 0
        }
        let last_kept = (bits >> 16) & 1;
        Bf16(((bits + 0x7fff + last_kept) >> 16) as u16) // a carry may reach the exponent
    }

    /// The same number: every bfloat16 is an `f32`.
    ///
    /// ```
    /// assert_eq!(attention::cuda::Bf16(0x3fc0).to_f32(), 1.5);
    /// ```
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
    // ANCHOR_END: rounding
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each finite bfloat16 is its own nearest, and the halves between two neighbours go to the even one.
    #[test]
    fn all_of_them_and_the_halves_between() {
        for bits in 0..=u16::MAX {
            let x = Bf16(bits).to_f32();
            if x.is_nan() {
                assert!(Bf16::from_f32(x).to_f32().is_nan(), "{bits:#x}");
                continue;
            }
            assert_eq!(Bf16::from_f32(x), Bf16(bits));
            if x.is_infinite() {
                continue;
            }
            let half = (u32::from(bits) << 16) + 0x8000; // between this one and the next away from zero
            let even = Bf16(bits + (bits & 1));
            assert_eq!(Bf16::from_f32(f32::from_bits(half)), even, "{bits:#x}");
            assert_eq!(Bf16::from_f32(f32::from_bits(half - 1)), Bf16(bits));
            assert_eq!(Bf16::from_f32(f32::from_bits(half + 1)), Bf16(bits + 1));
        }
        for bits in [0x7f80_0001, 0xff80_0001, 0x7fff_ffff, u32::MAX] {
            assert!(Bf16::from_f32(f32::from_bits(bits)).to_f32().is_nan(), "{bits:#x}");
        }
    }
}
