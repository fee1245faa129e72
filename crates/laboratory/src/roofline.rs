//! The steps of attention as a roofline sees them.

use crate::cost::AttentionShape;
use attention::Result;

/// A step of attention: its operations and the bytes that it has to move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// Operations, by the convention of [`AttentionShape::flops`].
    pub flops: f64,
    /// Bytes, each matrix counted once.
    pub bytes: f64,
}

impl Step {
    /// Operations a byte.
    pub fn intensity(&self) -> f64 {
        self.flops / self.bytes
    }
}

/// Scores, scale, softmax and values one by one, and the whole of attention, for numbers of `element` bytes. Taken one by one, each
/// step reads its inputs and writes its result. The whole moves queries, keys, values, weights and output once.
///
/// # Errors
/// As [`AttentionShape::bytes`].
///
/// ```
/// let shape = laboratory::cost::AttentionShape::self_attention(1, 4096, 64, 64, 1);
/// let [scores, scale, .., whole] = laboratory::roofline::steps(&shape, 4)?;
/// assert_eq!(scale.intensity(), 1.0 / 8.0); // one operation for a number read and one written
/// assert!(scores.intensity() > 31.0);
/// assert_eq!(whole.intensity(), shape.intensity(4)?);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn steps(shape: &AttentionShape, element: usize) -> Result<[Step; 5]> {
    let (flops, sizes) = (shape.flops()?, shape.bytes(element)?);
    let step = |name, flops: u128, bytes: u128| Step {
        name,
        flops: flops as f64,
        bytes: bytes as f64,
    };
    let squares = sizes.weights / element as u128;
    Ok([
        step("scores", flops.scores, sizes.q + sizes.k + sizes.weights),
        step("scale", squares, 2 * sizes.weights), // read and written
        step("softmax", flops.softmax, 2 * sizes.weights),
        step("values", flops.values, sizes.weights + sizes.v + sizes.output),
        step("whole", flops.core(), sizes.total()),
    ])
}
