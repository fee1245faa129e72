//! The numbers that kernels read and write: `f32`, or half of it.

use attention::cuda::{Numbers, Program, Tensor};
use half::bf16;
use std::fmt;

/// The numbers that a kernel reads and writes. It adds up in `f32` either way.
///
/// ```
/// use gpu::Precision;
///
/// assert_eq!(Precision::of(gpu::HOPPER), Precision::Bf16);
/// assert_eq!(Precision::F32.bytes(), 4);
/// assert_eq!(Precision::Bf16.round(3.1415927), 3.140625); // two to three decimal digits are left
/// let bytes = Precision::Bf16.encode(&[1.0, -2.5]);
/// assert_eq!(Precision::Bf16.decode(&bytes), [1.0, -2.5]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `f32`.
    F32,
    /// The upper half of an `f32`: sign, 8 bits of exponent and 7 bits of fraction.
    Bf16,
}

/// bf16 in the device's memory.
pub(crate) const BF16: Numbers = Numbers {
    bytes: 2,
    encode: |numbers| {
        numbers.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()
    },
    decode: |bytes| {
        let numbers = bytes.as_chunks().0.iter();
        numbers.map(|&x| bf16::from_le_bytes(x).to_f32()).collect()
    },
};

impl Precision {
    /// Returns the precision of a program's inputs and its output.
    pub fn of(program: Program) -> Self {
        Self::of_numbers(program.source().numbers)
    }

    /// Returns the precision of one of a program's tensors.
    pub(crate) fn of_tensor(program: Program, tensor: Tensor) -> Self {
        Self::of_numbers(program.source().numbers_of(tensor))
    }

    fn of_numbers(numbers: Numbers) -> Self {
        if numbers.bytes == BF16.bytes { Precision::Bf16 } else { Precision::F32 }
    }

    fn numbers(self) -> Numbers {
        match self {
            Precision::F32 => Numbers::F32,
            Precision::Bf16 => BF16,
        }
    }

    /// Returns the size of a number.
    pub fn bytes(self) -> usize {
        self.numbers().bytes
    }

    /// Returns the nearest number of this precision; of two that are equally near, the one whose last bit is 0.
    pub fn round(self, x: f32) -> f32 {
        match self {
            Precision::F32 => x,
            Precision::Bf16 => bf16::from_f32(x).to_f32(),
        }
    }

    /// Returns numbers, rounded, as they lie in the device's memory.
    pub fn encode(self, numbers: &[f32]) -> Vec<u8> {
        (self.numbers().encode)(numbers)
    }

    /// Returns the numbers that these bytes are.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        (self.numbers().decode)(bytes)
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        })
    }
}
