//! The ways to attend that the book compares, with their sizes.

use super::by_place::{dilated, local_and_strided};
use super::hashing::HashedAttention;
use super::linear::{Features, LinearAttention};
use attention::engine::Engine as _;
use attention::flash::Inputs;
use attention::{Mask, Result};
use fast::{Flash, Float};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// A causal way to attend.
///
/// ```
/// use attention::{Mask, flash::flash};
/// use fast::Flash;
/// use laboratory::fewer_pairs::Method;
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(40, 4, |i, j| (i as f64 + 2.0 * j as f64).sin());
/// let output = Method::Window.forward([&x, &x, &x], &Flash::new())?;
/// assert!((output - flash(&x, &x, &x, Mask::causal())?).amax() < 1e-14); // a window longer than the text
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// All pairs, by [`Flash`].
    Full,
    /// The last [`Method::WIDTH`] tokens, and the first [`Method::SINKS`].
    Window,
    /// [`Method::WIDTH`] tokens, every [`Method::STEP`]-th.
    Dilated,
    /// Blocks of [`Method::BLOCK`] tokens: their own, the one before, and every √(n / block)-th.
    Blocks,
    /// Buckets of about [`Method::BUCKET`] keys, in [`Method::ROUNDS`] rounds.
    Hashed,
    /// Features elu(x) + 1, in chunks of [`Method::CHUNK`].
    Linear,
    /// [`Method::FEATURES`] random features, in the same chunks.
    RandomFeatures,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 7] = [
        Method::Full,
        Method::Window,
        Method::Dilated,
        Method::Blocks,
        Method::Hashed,
        Method::Linear,
        Method::RandomFeatures,
    ];
    /// Keys of a query in a window, and in a dilated window.
    pub const WIDTH: usize = 256;
    /// First tokens that all others see beside their window.
    pub const SINKS: usize = 4;
    /// The distance between keys of a dilated window.
    pub const STEP: usize = 8;
    /// Tokens of a block.
    pub const BLOCK: usize = 128;
    /// Keys of a bucket, on average.
    pub const BUCKET: usize = 128;
    /// Rounds of hashing.
    pub const ROUNDS: usize = 2;
    /// Tokens of a chunk of linear attention.
    pub const CHUNK: usize = 64;
    /// Random features of a query or a key.
    pub const FEATURES: usize = 256;

    /// Returns the name, as in a table.
    ///
    /// ```
    /// assert_eq!(laboratory::fewer_pairs::Method::Full.name(), "full");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Method::Full => "full",
            Method::Window => "window and sinks",
            Method::Dilated => "dilated window",
            Method::Blocks => "blocks",
            Method::Hashed => "hashed",
            Method::Linear => "linear",
            Method::RandomFeatures => "random features",
        }
    }

    /// Returns the output.
    ///
    /// Shapes: `[q, k, v]` (n, d) each → (n, d).
    ///
    /// # Errors
    /// The shapes don't fit.
    ///
    /// ```
    /// use fast::Flash;
    /// use laboratory::fewer_pairs::Method;
    ///
    /// let x = nalgebra::DMatrix::<f32>::identity(8, 8);
    /// assert_eq!(Method::Linear.forward([&x, &x, &x], &Flash::new())?.row(0), x.row(0));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward<T: Float>(
        self,
        [q, k, v]: [&DMatrix<T>; 3],
        flash: &Flash,
    ) -> Result<DMatrix<T>> {
        let (n, d) = q.shape();
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let masked = |mask: Mask| Ok(flash.forward(&Inputs::new(q, k, v, mask)?)?.output);
        let linear = |features| -> Result<_> {
            Ok(LinearAttention::new(features, Self::CHUNK)?.forward(q, k, v)?.0)
        };
        match self {
            Method::Full => masked(Mask::causal()),
            Method::Window => masked(Mask::window_with_sinks(Self::WIDTH, Self::SINKS)?),
            Method::Dilated => dilated(q, k, v, Self::WIDTH, Self::STEP, flash),
            Method::Blocks => masked(Self::blocks(n)?),
            Method::Hashed => {
                let buckets = 2 * n.div_ceil(2 * Self::BUCKET);
                HashedAttention::new(d, buckets, Self::ROUNDS, rng)?
                    .forward(q, k, v, flash)
            }
            Method::Linear => linear(Features::Elu),
            Method::RandomFeatures => linear(Features::random(Self::FEATURES, d, rng)?),
        }
    }

    /// The mask of [`Method::Blocks`].
    fn blocks(n: usize) -> Result<Mask> {
        let count = n.div_ceil(Self::BLOCK);
        local_and_strided(n, Self::BLOCK, count.isqrt().max(1))
    }
}
