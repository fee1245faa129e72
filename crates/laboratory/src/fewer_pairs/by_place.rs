//! Pairs that are left out by where their tokens stand.

use attention::engine::Engine as _;
use attention::engine::check_positive;
use attention::flash::Inputs;
use attention::{Mask, Result};
use fast::{Flash, Float};
use nalgebra::DMatrix;

/// Returns the output of dilated attention: each token sees itself and every `step`-th token before it, `width` tokens in all.
///
/// Such a pattern has a few pairs in every tile, so no tile can be skipped. But a token only ever meets tokens of its own residue
/// class modulo `step`. Class by class, the pattern is a window.
///
/// Shapes: `q` and `k` (n, d), `v` (n, d_v) → (n, d_v).
///
/// # Errors
/// `width` or `step` is 0, or the shapes don't fit.
///
/// # Source
/// I. Beltagy, M. E. Peters, A. Cohan, *Longformer* (2020), section 3.1.
///
/// ```
/// use fast::Flash;
/// use laboratory::fewer_pairs::by_place::dilated;
/// use nalgebra::{DMatrix, dmatrix};
///
/// let equal = DMatrix::<f64>::zeros(6, 2);
/// let v = dmatrix![0.0; 1.0; 2.0; 3.0; 4.0; 5.0];
/// let output = dilated(&equal, &equal, &v, 2, 3, &Flash::new())?;
/// assert_eq!(output[5], (5.0 + 2.0) / 2.0); // itself, and the third token back
/// # Ok::<(), attention::Error>(())
/// ```
pub fn dilated<T: Float>(
    q: &DMatrix<T>,
    k: &DMatrix<T>,
    v: &DMatrix<T>,
    width: usize,
    step: usize,
    flash: &Flash,
) -> Result<DMatrix<T>> {
    check_positive("step", step)?;
    let mask = Mask::window(width)?;
    let mut output = DMatrix::zeros(v.nrows(), v.ncols());
    for class in 0..step.min(v.nrows()) {
        let tokens: Vec<usize> = (class..v.nrows()).step_by(step).collect();
        let [q, k, v] = [q, k, v].map(|matrix| matrix.select_rows(&tokens));
        let inputs = Inputs::new(&q, &k, &v, &mask)?;
        for (&token, row) in tokens.iter().zip(flash.forward(&inputs)?.output.row_iter())
        {
            output.row_mut(token).copy_from(&row);
        }
    }
    Ok(output)
}

/// Returns the causal mask in which the blocks of `size` tokens see themselves, the block before, and every `step`-th block from the
/// first one on.
///
/// # Errors
/// `n`, `size` or `step` is 0.
///
/// # Source
/// R. Child et al., *Generating Long Sequences with Sparse Transformers* (2019), section 4.2, in blocks.
///
/// ```
/// let mask = laboratory::fewer_pairs::by_place::local_and_strided(12, 2, 3)?.sized(12, 12)?;
/// assert!(mask.allows(11, 10) && mask.allows(11, 9)); // its own block, and the one before
/// assert!(mask.allows(11, 6) && mask.allows(11, 1)); // each third block
/// assert!(!mask.allows(11, 5) && !mask.allows(2, 3));
/// # Ok::<(), attention::Error>(())
/// ```
pub fn local_and_strided(n: usize, size: usize, step: usize) -> Result<Mask> {
    check_positive("size", size)?;
    check_positive("step", step)?;
    let count = n.div_ceil(size);
    let allowed = DMatrix::from_fn(count, count, |a, b| b + 1 >= a || b % step == 0);
    Ok(Mask::causal().and(Mask::blocks(size, allowed)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::random;
    use attention::attention;

    /// Against the pattern as a matrix.
    #[test]
    fn dilated_attention_is_that_of_its_mask() {
        for (n, width, step) in
            [(1, 1, 1), (7, 2, 3), (50, 4, 5), (40, 100, 7), (9, 3, 20)]
        {
            let (q, k, v) = (random(n, 4, 0), random(n, 4, 1), random(n, 3, 2));
            let seen = |i: usize, j: usize| {
                j <= i && (i - j).is_multiple_of(step) && (i - j) / step < width
            };
            let mask = Mask::dense(DMatrix::from_fn(n, n, seen)).unwrap();
            let (expected, _) = attention(&q, &k, &v, mask).unwrap();
            let output = dilated(&q, &k, &v, width, step, &Flash::new()).unwrap();
            assert!((output - expected).amax() < 1e-14, "{n} {width} {step}");
        }
    }
}
