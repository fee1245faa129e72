//! Dropout of weights as a function: nothing is drawn and nothing is kept, since what happens to the weight of query i and key j in head h
//! follows from the seed and these three numbers. So programs that meet the weights in another order drop the same ones, and the backward
//! pass finds out again what the forward pass dropped.
//!
//! # Source
//! G. L. Steele, D. Lea, C. H. Flood, *Fast splittable pseudorandom number generators* (2014): SplitMix64, a counter and a function that
//! mixes its bits.

use crate::Float;
use nalgebra::DMatrix;

/// Weights are dropped with this probability, 0 ≤ p < 1, and the others are multiplied by 1/(1 − p).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dropout {
    pub probability: f64,
    pub seed: u64,
}

/// The distance between two states of the generator: 2⁶⁴ over the golden ratio, and odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// 64 bits, each of which depends on every bit of `state`.
#[inline(always)]
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Dropout {
    /// Returns the dropout of head number `head`.
    pub fn of_head(self, head: usize) -> HeadDropout {
        let of_head = mix(mix(self.seed.wrapping_add(GOLDEN)).wrapping_add(head as u64));
        let below = (self.probability * 2.0_f64.powi(64)) as u64;
        HeadDropout { of_head, below, kept: 1.0 / (1.0 - self.probability) }
    }
}

/// Which weights of one head are dropped. The others are divided by the share that is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadDropout {
    of_head: u64,
    below: u64, // a weight is dropped whose number is smaller
    kept: f64,
}

impl HeadDropout {
    /// Returns the factors of all weights (n_q, n_k): 0, or 1/(1 − p).
    pub(crate) fn matrix<T: Float>(self, (n_q, n_k): (usize, usize)) -> DMatrix<T> {
        let mut factors = DMatrix::repeat(n_q, n_k, T::one());
        for (j, mut column) in factors.column_iter_mut().enumerate() {
            self.multiply_queries(0, j, column.as_mut_slice());
        }
        factors
    }

    /// Returns the factor of the weight of query `i` and key `j`: 0, or 1/(1 − p).
    #[cfg(test)]
    pub fn factor<T: Float>(&self, i: usize, j: usize) -> T {
        let mut one = [T::one()];
        self.multiply(i, j, 0, &mut one);
        one[0]
    }

    /// Multiplies the weights of queries from `i` on and key `j` by their factors.
    #[inline(always)]
    pub fn multiply_queries<T: Float>(&self, i: usize, j: usize, weights: &mut [T]) {
        self.multiply(i, j, 1 << 32, weights);
    }

    /// Multiplies the weights of query `i` and keys from `j` on by their factors.
    #[inline(always)]
    pub fn multiply_keys<T: Float>(&self, i: usize, j: usize, weights: &mut [T]) {
        self.multiply(i, j, 1, weights);
    }

    /// The pair (i, j) has the number i · 2³² + j, and each weight's number is `step`
    /// after that of the last one.
    #[inline(always)]
    fn multiply<T: Float>(&self, i: usize, j: usize, step: u64, weights: &mut [T]) {
        let kept: T = nalgebra::convert(self.kept);
        let first = ((i as u64) << 32).wrapping_add(j as u64);
        let mut state = self.of_head.wrapping_add(first.wrapping_mul(GOLDEN));
        for weight in weights {
            let factor = if mix(state) < self.below { T::zero() } else { kept };
            *weight *= factor;
            state = state.wrapping_add(step.wrapping_mul(GOLDEN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROPOUT: Dropout = Dropout { probability: 0.3, seed: 7 };

    /// Pinned, so that a layer's results do not change in silence.
    #[test]
    fn the_same_weights_are_dropped_everywhere() {
        let head = DROPOUT.of_head(1);
        let dropped: Vec<(usize, usize)> = (0..3)
            .flat_map(|i| (0..6).map(move |j| (i, j)))
            .filter(|&(i, j)| head.factor::<f64>(i, j) == 0.0)
            .collect();
        assert_eq!(dropped, [(0, 0), (0, 2), (0, 3), (0, 4), (1, 0), (1, 2)]);
    }

    /// As many as the probability says, also of neighbours, of two heads and of two seeds; runs say what single factors do.
    #[test]
    fn factors_are_independent_of_each_other() {
        let n = 400;
        let share = |is: &dyn Fn(usize, usize) -> bool| {
            let count = (0..n * n).filter(|at| is(at / n, at % n)).count();
            count as f64 / (n * n) as f64
        };
        let (a, b) = (DROPOUT.of_head(0), DROPOUT.of_head(1));
        let c = Dropout { seed: 8, ..DROPOUT }.of_head(0);
        let drops =
            |head: HeadDropout, i: usize, j: usize| head.factor::<f32>(i, j) == 0.0;
        // Four standard deviations
        let near = |share: f64, p: f64| {
            (share - p).abs() < 4.0 * (p * (1.0 - p)).sqrt() / n as f64
        };
        assert!(near(share(&|i, j| drops(a, i, j)), 0.3));
        assert!(near(share(&|i, j| drops(a, i, j) && drops(a, i, j + 1)), 0.09));
        assert!(near(share(&|i, j| drops(a, i, j) && drops(a, i + 1, j)), 0.09));
        assert!(near(
            share(&|i, j| drops(a, i, j) && drops(a, j, i)),
            0.09 + 0.21 / n as f64
        ));
        assert!(near(share(&|i, j| drops(a, i, j) && drops(b, i, j)), 0.09));
        assert!(near(share(&|i, j| drops(a, i, j) && drops(c, i, j)), 0.09));
        let (mut queries, mut keys) = ([2.0_f64; 50], [2.0_f64; 50]);
        a.multiply_queries(3, 5, &mut queries);
        a.multiply_keys(3, 5, &mut keys);
        for at in 0..50 {
            assert_eq!(queries[at], 2.0 * a.factor::<f64>(3 + at, 5));
            assert_eq!(keys[at], 2.0 * a.factor::<f64>(3, 5 + at));
        }
        assert!(queries.contains(&(2.0 / 0.7)) && queries.contains(&0.0));
    }
}
