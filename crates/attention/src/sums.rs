//! Sums of many numbers that lose little to rounding.
//!
//! A running sum in `f32` of n numbers of one size is off by up to n/2 units in its last place, and from 2²⁴ on it does not grow
//! any more. A sum of sums of halves is off by log₂ n of them, and by a few more if the last halves are blocks of 64.
//!
//! # Source
//! N. J. Higham, *The accuracy of floating point summation* (1993).

use nalgebra::{DMatrix, DVector, RealField};

/// So many numbers are added one after the other: few enough to lose little, and enough to be quick.
const BLOCK: usize = 64;

/// Returns the sum of `numbers`, by halves.
pub(crate) fn sum<T: RealField + Copy>(numbers: &[T]) -> T {
    if numbers.len() <= BLOCK {
        return numbers.iter().fold(T::zero(), |sum, &x| sum + x);
    }
    let half = (numbers.len() / 2).next_multiple_of(BLOCK);
    sum(&numbers[..half]) + sum(&numbers[half..])
}

/// Returns the sum of each row of a matrix.
pub(crate) fn row_sums<T: RealField + Copy>(matrix: &DMatrix<T>) -> DVector<T> {
    let mut sums = RunningSum::new(matrix.nrows());
    matrix.column_iter().for_each(|column| sums.add(column.as_slice().iter().copied()));
    sums.finish()
}

/// The sum of vectors that come one after the other: of all rows at once, a column at a time.
///
/// Blocks of columns are summed, then pairs of blocks, pairs of pairs, and so on: `sums[k]` is the sum of 2ᵏ blocks.
pub(crate) struct RunningSum<T> {
    block: DVector<T>, // the last columns, up to a whole block
    columns: usize,    // of the block
    sums: Vec<Option<DVector<T>>>,
}

impl<T: RealField + Copy> RunningSum<T> {
    pub fn new(rows: usize) -> Self {
        RunningSum { block: DVector::zeros(rows), columns: 0, sums: vec![] }
    }

    /// Adds a column: one term for each row.
    pub fn add(&mut self, terms: impl Iterator<Item = T>) {
        if self.columns == BLOCK {
            self.close_block();
        }
        let sums = self.block.as_mut_slice().iter_mut();
        sums.zip(terms).for_each(|(sum, term)| *sum += term);
        self.columns += 1;
    }

    fn close_block(&mut self) {
        let empty = DVector::zeros(self.block.len());
        let mut carry = std::mem::replace(&mut self.block, empty);
        self.columns = 0;
        for sum in &mut self.sums {
            match sum.take() {
                Some(equal) => carry += equal,
                None => {
                    *sum = Some(carry);
                    return;
                }
            }
        }
        self.sums.push(Some(carry));
    }

    /// Returns the sum of each row.
    pub fn finish(self) -> DVector<T> {
        self.sums.into_iter().flatten().fold(self.block, |sum, part| sum + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A running sum of these stops at 2²⁴ and is off by a part in a thousand long before.
    #[test]
    fn many_equal_numbers_are_summed_to_the_last_digits() {
        const N: usize = 1 << 20;
        let x = 0.999_f32;
        let right = x * N as f32;
        let close = |sum: f32| (sum / right - 1.0).abs() < 8.0 * f32::EPSILON;
        let numbers = vec![x; N + 7];
        assert!(close(sum(&numbers[..N])));
        assert!(!close(numbers[..N].iter().sum()), "this test can fail");

        let mut running = RunningSum::new(2);
        (0..N).for_each(|_| running.add([x, x].into_iter()));
        let sums = running.finish();
        assert!(close(sums[0]) && close(sums[1]));
    }

    #[test]
    fn every_number_is_counted_once() {
        for n in [0, 1, 63, 64, 65, 128, 1000] {
            let numbers: Vec<f64> = (1..=n).map(f64::from).collect();
            let right = f64::from(n * (n + 1) / 2);
            assert_eq!(sum(&numbers), right);
            let mut running = RunningSum::new(1);
            numbers.iter().for_each(|&number| running.add([number].into_iter()));
            assert_eq!(running.finish()[0], right);
        }
    }
}
