//! The same attention with shapes in the types, where a forgotten transpose does not compile.

use crate::float::Float;
use nalgebra::SMatrix;

/// Returns scaled dot-product attention whose shapes the compiler checks: there is no error left to return.
///
/// Shapes: `q` (N_Q, D_K), `k` (N_K, D_K), `v` (N_K, D_V) → (N_Q, D_V). No mask.
///
/// Sizes of 0 are types too. Without keys the output is 0, as of every query that sees nothing; with queries and keys of
/// width 0 it is NaN, since the scores are 0 / √0; without queries or values it has no entries.
///
/// ```
/// use nalgebra::{SMatrix, matrix};
///
/// let q = matrix![1.0_f64, 0.0];
/// let k = matrix![1.0, 0.0; 1.0, 0.0];
/// let v = matrix![10.0; 20.0];
/// let output: SMatrix<f64, 1, 1> = attention::static_shapes::attention_static(&q, &k, &v);
/// assert_eq!(output, matrix![15.0]);
///
/// let (no_keys, no_values) = (SMatrix::<f64, 0, 2>::zeros(), SMatrix::<f64, 0, 1>::zeros());
/// assert_eq!(attention::static_shapes::attention_static(&q, &no_keys, &no_values), matrix![0.0]);
/// ```
// ANCHOR: attention_static
pub fn attention_static<
    T: Float,
    const N_Q: usize,
    const N_K: usize,
    const D_K: usize,
    const D_V: usize,
>(
    q: &SMatrix<T, N_Q, D_K>,
    k: &SMatrix<T, N_K, D_K>,
    v: &SMatrix<T, N_K, D_V>,
) -> SMatrix<T, N_Q, D_V> {
    let root = nalgebra::convert::<f64, T>(D_K as f64).sqrt();
    let mut weights: SMatrix<T, N_Q, N_K> = q * k.transpose() / root;
    for mut row in weights.row_iter_mut() {
        let max = row.max();
        row.apply(|x| *x = (*x - max).exp());
        let sum = row.sum();
        row /= sum;
    }
    weights * v
}
// ANCHOR_END: attention_static

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, attention};
    use nalgebra::DMatrix;

    #[test]
    fn equals_the_dynamic_one() {
        let q = SMatrix::<f64, 3, 4>::from_fn(|i, j| ((i + 2 * j) as f64).sin());
        let k = SMatrix::<f64, 5, 4>::from_fn(|i, j| ((3 * i + j) as f64).cos());
        let v = SMatrix::<f64, 5, 2>::from_fn(|i, j| (i as f64) - (j as f64));
        let dynamic = attention(
            &DMatrix::from_column_slice(3, 4, q.as_slice()),
            &DMatrix::from_column_slice(5, 4, k.as_slice()),
            &DMatrix::from_column_slice(5, 2, v.as_slice()),
            Mask::none(),
        );
        let fixed = attention_static(&q, &k, &v);
        assert!((fixed - dynamic.unwrap().0).amax() < 1e-15);
    }
}
