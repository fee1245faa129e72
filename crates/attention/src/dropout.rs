//! Dropout: which weights are set to zero.

use crate::simd::Float;
use nalgebra::DMatrix;

/// The probability that a weight is dropped, and the seed of the draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dropout {
    pub probability: f64,
    pub seed: u64,
}

impl Dropout {
    // ANCHOR: dropout
    /// The factors of the weights of head `h` (n_q, n_k): 0, or 1/(1 − p).
    pub fn matrix<T: Float>(&self, h: usize, (n_q, n_k): (usize, usize)) -> DMatrix<T> {
        let kept = nalgebra::convert(1.0 / (1.0 - self.probability));
        let mix = |z: u64| {
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let key = mix(self.seed).wrapping_add(h as u64);
        DMatrix::from_fn(n_q, n_k, |i, j| {
            let place = mix(key.wrapping_add((i as u64) << 32)).wrapping_add(j as u64);
            let unit = (mix(place) >> 11) as f64 / (1_u64 << 53) as f64;
            if unit < self.probability { T::zero() } else { kept }
        })
    }
    // ANCHOR_END: dropout
}
