//! The engine of [`attention`] for speed on a CPU: the same algorithm as [`Tiled`](attention::engine::Tiled), without allocations in its
//! loops, with vector instructions, products of its own, and several threads.
//!
//! [`Flash`] is the engine; hand it to whatever takes one. What was tried, what it gained and what it cost is in `DESIGN.md`. That it computes
//! what the other engines do is tested beside them, in `crates/laboratory/tests`.
//!
//! ```
//! use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
//! use fast::Flash;
//! use rand::{SeedableRng, rngs::ChaCha8Rng};
//!
//! let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
//! let x = example::river().x;
//! let options = ForwardOptions::new().mask(Mask::causal()).engine(Flash::new());
//! let (output, cache) = layer.forward(&x, options)?;
//! let gradients = layer.backward(&cache, &output)?; // by the same engine
//! assert!((output - layer.forward(&x, Mask::causal())?.0).amax() < 1e-14);
//! # assert_eq!(gradients.x.shape(), x.shape());
//! # Ok::<(), attention::Error>(())
//! ```
#![deny(missing_docs, unsafe_code)]

mod backward;
mod engine; // what is compiled once, for f32 and f64
mod few_in_order;
mod few_queries;
mod forward;
mod pages;
mod queue;
mod simd; // vector instructions
mod tile_products;

pub use forward::Flash;
pub use simd::{Float, Instructions, Sizes};
pub use tile_products::{Part, TileProducts};

thread_local! {
    static PAIRS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns how many pairs of a query and a key [`Flash`] has computed on this thread, forward and backward, those that a mask then hides
/// included. What a mask saves is seen in no result, so it is counted where it happens, once a tile.
pub fn pairs_computed() -> usize {
    PAIRS.get()
}

fn count_pairs(pairs: usize) {
    PAIRS.set(PAIRS.get().wrapping_add(pairs));
}
