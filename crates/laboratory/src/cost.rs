//! The cost of attention: floating-point operations, bytes, and their ratio.
//!
//! Conventions. A multiply-add counts as two operations. Softmax counts five per score: the running maximum, the
//! subtraction, the exponential, the sum and the division, one each. Bytes are those of queries, keys, values, weights and
//! output, each counted once; the traffic of scores, scaling and masks between slow and fast memory is not in them. A causal
//! mask, which makes half of the core's work unnecessary, is not counted either.

use attention::Result;
use attention::engine::{check_positive, wrong_value};

/// The sizes of an attention layer at work on a batch.
///
/// ```
/// use laboratory::cost::AttentionShape;
///
/// let shape = AttentionShape::self_attention(1, 4096, 512, 64, 1);
/// let flops = shape.flops()?;
/// assert_eq!(flops.scores, 2 * 4096 * 4096 * 64);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences (B).
    pub batch: usize,
    /// Queries of each sequence.
    pub n_q: usize,
    /// Keys of each sequence.
    pub n_k: usize,
    /// The model's width.
    pub d_model: usize,
    /// The width of one head's queries and keys.
    pub d_k: usize,
    /// The width of one head's values.
    pub d_v: usize,
    /// Heads.
    pub n_heads: usize,
}

/// Floating-point operations of one forward pass, step by step.
///
/// ```
/// let flops = laboratory::cost::AttentionShape::self_attention(1, 128, 64, 64, 1).flops()?;
/// assert_eq!(flops.total(), flops.projections + flops.core());
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flops {
    /// The four projections, without biases.
    pub projections: u128,
    /// `q kᵀ`.
    pub scores: u128,
    /// Softmax, at five operations a score.
    pub softmax: u128,
    /// Weights times values.
    pub values: u128,
}

impl Flops {
    /// Returns the operations without the projections: scores, softmax, values.
    ///
    /// ```
    /// let flops = laboratory::cost::AttentionShape::self_attention(1, 10, 4, 4, 1).flops()?;
    /// assert_eq!(flops.core(), 2 * 10 * 10 * 4 + 5 * 10 * 10 + 2 * 10 * 10 * 4);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn core(&self) -> u128 {
        self.scores.saturating_add(self.softmax).saturating_add(self.values)
    }

    /// Returns the operations of all steps.
    ///
    /// ```
    /// let flops = laboratory::cost::AttentionShape::self_attention(1, 10, 4, 4, 1).flops()?;
    /// assert_eq!(flops.total(), 8 * 10 * 4 * 4 + flops.core());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn total(&self) -> u128 {
        self.projections.saturating_add(self.core())
    }
}

/// Bytes of the matrices of one forward pass.
///
/// ```
/// let bytes = laboratory::cost::AttentionShape::self_attention(1, 4096, 512, 64, 1).bytes(4)?;
/// assert_eq!(bytes.weights, 64 << 20); // 4096² numbers of 4 bytes are 64 MiB
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// Queries.
    pub q: u128,
    /// Keys.
    pub k: u128,
    /// Values.
    pub v: u128,
    /// The (n_q, n_k) matrix of weights, of every head.
    pub weights: u128,
    /// The heads' outputs.
    pub output: u128,
}

impl Bytes {
    /// Returns the bytes of all matrices.
    ///
    /// ```
    /// let bytes = laboratory::cost::AttentionShape::self_attention(1, 10, 4, 4, 1).bytes(8)?;
    /// assert_eq!(bytes.total(), 8 * (4 * 10 * 4 + 10 * 10));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn total(&self) -> u128 {
        [self.q, self.k, self.v, self.weights, self.output]
            .into_iter()
            .fold(0, u128::saturating_add)
    }
}

impl AttentionShape {
    /// Returns the sizes of self-attention of `n` tokens, with heads whose queries, keys and values are `d` wide.
    ///
    /// ```
    /// let shape = laboratory::cost::AttentionShape::self_attention(2, 128, 512, 64, 8);
    /// assert_eq!((shape.n_q, shape.n_k, shape.d_k, shape.d_v), (128, 128, 64, 64));
    /// ```
    pub fn self_attention(
        batch: usize,
        n: usize,
        d_model: usize,
        d: usize,
        n_heads: usize,
    ) -> Self {
        AttentionShape { batch, n_q: n, n_k: n, d_model, d_k: d, d_v: d, n_heads }
    }

    fn check(&self) -> Result<()> {
        check_positive("batch", self.batch)?;
        check_positive("n_q", self.n_q)?;
        check_positive("n_k", self.n_k)?;
        check_positive("d_model", self.d_model)?;
        check_positive("d_k", self.d_k)?;
        check_positive("d_v", self.d_v)?;
        check_positive("n_heads", self.n_heads)
    }

    /// Returns the operations of one forward pass. With one head and d_k = d_v = d these are 8·B·n·d_model·d for the
    /// projections, 4·B·n²·d for both products, and 5·B·n² for softmax.
    ///
    /// # Errors
    /// A size is 0, or the counts and their sums do not fit 128 bits.
    ///
    /// ```
    /// let flops = laboratory::cost::AttentionShape::self_attention(1, 128, 512, 64, 1).flops()?;
    /// assert_eq!(flops.projections, 8 * 128 * 512 * 64);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn flops(&self) -> Result<Flops> {
        self.check()?;
        let Self { batch, n_q, n_k, d_model, d_k, d_v, n_heads } = *self;
        let all = [batch, n_heads];
        let linear = |n: usize, d: usize| count(&[2, n, d_model, d], &all);
        let projections =
            [linear(n_q, d_k)?, linear(n_k, d_k)?, linear(n_k, d_v)?, linear(n_q, d_v)?];
        Ok(Flops {
            projections: projections.into_iter().fold(0, u128::saturating_add),
            scores: count(&[2, n_q, n_k, d_k], &all)?,
            softmax: count(&[5, n_q, n_k], &all)?,
            values: count(&[2, n_q, n_k, d_v], &all)?,
        })
    }

    /// Returns the operations of one backward pass, each beside the step that it differentiates. Every product forward gives two
    /// backward, one for each factor; softmax takes four operations a weight: a product and a sum for the mean, a
    /// difference and a product.
    ///
    /// # Errors
    /// As [`AttentionShape::flops`].
    ///
    /// ```
    /// let shape = laboratory::cost::AttentionShape::self_attention(1, 128, 512, 64, 8);
    /// let (forward, backward) = (shape.flops()?, shape.backward_flops()?);
    /// assert_eq!(backward.projections, 2 * forward.projections);
    /// assert_eq!(backward.softmax, 4 * 8 * 128 * 128);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward_flops(&self) -> Result<Flops> {
        let forward = self.flops()?;
        Ok(Flops {
            projections: forward.projections.saturating_mul(2),
            scores: forward.scores.saturating_mul(2),
            softmax: count(&[4, self.n_q, self.n_k], &[self.batch, self.n_heads])?,
            values: forward.values.saturating_mul(2),
        })
    }

    /// Returns the bytes of queries, keys, values, weights and output, for numbers of `element` bytes (4 for `f32`).
    ///
    /// # Errors
    /// A size is 0, or the counts and their sums do not fit 128 bits.
    ///
    /// ```
    /// let bytes = laboratory::cost::AttentionShape::self_attention(1, 4096, 2048, 64, 32).bytes(4)?;
    /// assert_eq!(bytes.weights, 2 << 30); // 32 heads: 2 GiB
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn bytes(&self, element: usize) -> Result<Bytes> {
        self.check()?;
        check_positive("element", element)?;
        let Self { batch, n_q, n_k, d_k, d_v, n_heads, .. } = *self;
        let all = [batch, n_heads, element];
        Ok(Bytes {
            q: count(&[n_q, d_k], &all)?,
            k: count(&[n_k, d_k], &all)?,
            v: count(&[n_k, d_v], &all)?,
            weights: count(&[n_q, n_k], &all)?,
            output: count(&[n_q, d_v], &all)?,
        })
    }

    /// Returns the arithmetic intensity in FLOP/byte: the core's operations over [`AttentionShape::bytes`]. In `f32`, with one
    /// width d for all, n(4d + 5) / (4(4d + n)).
    ///
    /// # Errors
    /// As [`AttentionShape::bytes`].
    ///
    /// ```
    /// let intensity = laboratory::cost::AttentionShape::self_attention(1, 4096, 512, 64, 1).intensity(4)?;
    /// let by_hand = 4096.0 * (4.0 * 64.0 + 5.0) / (4.0 * (4.0 * 64.0 + 4096.0));
    /// assert!((intensity - by_hand).abs() < 1e-12);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn intensity(&self, element: usize) -> Result<f64> {
        Ok(self.flops()?.core() as f64 / self.bytes(element)?.total() as f64)
    }

    /// Returns the number of tokens at which the core's two products cost as much as the projections, and beyond which they cost
    /// more: 2·d_model, for as many keys as queries.
    ///
    /// ```
    /// assert_eq!(laboratory::cost::AttentionShape::self_attention(1, 128, 512, 64, 8).crossover(), 1024);
    /// ```
    pub fn crossover(&self) -> usize {
        self.d_model.saturating_mul(2)
    }
}

/// A product of sizes, or an error where it does not fit. Four bits are left free, so that neither the sums of such
/// products nor the backward pass, which doubles them, can overflow: there are at most 13 of them in any total.
fn count(sizes: &[usize], more: &[usize]) -> Result<u128> {
    let product = sizes
        .iter()
        .chain(more)
        .try_fold(1_u128, |product, &size| product.checked_mul(size as u128));
    let fits = product.filter(|product| product.leading_zeros() >= 4);
    fits.ok_or_else(|| {
        let because = "its operations and bytes, and their sums, must fit 128 bits";
        wrong_value("shape", "too large", because)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let shape = AttentionShape {
            batch: 2,
            n_q: 3,
            n_k: 5,
            d_model: 8,
            d_k: 4,
            d_v: 6,
            n_heads: 2,
        };
        let flops = shape.flops().unwrap();
        // 2 sequences × 2 heads × 2 operations × (rows × inner × columns)
        assert_eq!(
            flops.projections,
            4 * 2 * (3 * 8 * 4 + 5 * 8 * 4 + 5 * 8 * 6 + 3 * 6 * 8)
        );
        assert_eq!(flops.scores, 4 * 2 * 3 * 5 * 4);
        assert_eq!(flops.softmax, 4 * 5 * 3 * 5);
        assert_eq!(flops.values, 4 * 2 * 3 * 5 * 6);
        let backward = shape.backward_flops().unwrap();
        assert_eq!(backward.scores, 2 * flops.scores); // grad_q and grad_k
        assert_eq!(backward.values, 2 * flops.values); // grad_weights and grad_v
        assert_eq!(backward.softmax, 4 * 4 * 3 * 5);
        assert_eq!(backward.projections, 2 * flops.projections);
        let bytes = shape.bytes(4).unwrap();
        assert_eq!(bytes.total(), 4 * 4 * (3 * 4 + 5 * 4 + 5 * 6 + 3 * 5 + 3 * 6));
    }

    #[test]
    fn the_score_matrix_grows_with_the_square() {
        let weights =
            |n| AttentionShape::self_attention(1, n, 64, 16, 4).bytes(4).unwrap().weights;
        for n in [16, 32, 64] {
            assert_eq!(weights(2 * n), 4 * weights(n));
        }
    }

    #[test]
    fn products_equal_projections_at_the_crossover() {
        let shape = AttentionShape::self_attention(1, 128, 512, 64, 8);
        let at = |n| AttentionShape { n_q: n, n_k: n, ..shape }.flops().unwrap();
        let flops = at(shape.crossover());
        assert_eq!(flops.scores + flops.values, flops.projections);
    }

    #[test]
    fn too_large_is_an_error() {
        let shape =
            AttentionShape::self_attention(usize::MAX, usize::MAX, 1, usize::MAX, 1);
        assert!(shape.flops().is_err());
        assert!(shape.backward_flops().is_err());
        assert!(shape.bytes(4).is_err());
    }

    /// A count that is let through can be summed and doubled without saturating.
    #[test]
    fn sums_do_not_saturate() {
        let huge = |n_heads| AttentionShape {
            batch: 1 << 60,
            n_q: 1,
            n_k: 1,
            d_model: 1,
            d_k: 1,
            d_v: 1,
            n_heads,
        };
        assert!(huge(1 << 62).flops().is_err()); // softmax alone: 5 · 2^122 > 2^124
        let largest = huge(1 << 61);
        let (forward, backward) =
            (largest.flops().unwrap(), largest.backward_flops().unwrap());
        // 2^121 times 8 + 2 + 5 + 2 forward, 16 + 4 + 4 + 4 backward
        assert_eq!(forward.total(), 17 << 121);
        assert_eq!(backward.total(), 28 << 121);
    }
}
