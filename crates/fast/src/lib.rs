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
mod few_queries;
mod forward;
mod pages;
mod queue;
mod simd; // vector instructions
mod tile_products;

pub use forward::Flash;
pub use simd::{Float, Instructions};
pub use tile_products::{Part, TileProducts};

#[cfg(test)]
mod tests {
    use super::*;
    use attention::engine::Engine as _;
    use attention::flash::Inputs;
    use attention::{Mask, Result};
    use nalgebra::DMatrix;
    use std::cell::Cell;

    thread_local! {
        static PAIRS: Cell<usize> = const { Cell::new(0) };
    }

    // What a program skips is seen in none of its results, so it has to be counted where it happens.

    /// `Flash` is about to compute so many scores.
    pub fn count_pairs(pairs: usize) {
        PAIRS.set(PAIRS.get() + pairs);
    }

    /// `Flash` computes the pairs that are seen, and at the edge of what is seen no more than a panel along the vectors and
    /// a row of numbers across them.
    #[test]
    fn little_is_computed_to_be_hidden() -> Result<()> {
        let n = 600;
        let x = DMatrix::from_fn(n, 3, |i, j| ((7 * i + 3 * j) as f64).sin());
        let keys = 2 * Flash::TILES.keys;
        let first: Vec<bool> = (0..n).map(|j| j < keys).collect();
        let quarters: Vec<usize> = (0..n).map(|i| 4 * i / n).collect();
        for instructions in Instructions::available() {
            let flash = Flash::new().with_threads(1)?.with_instructions(instructions)?;
            let sizes = instructions.sizes::<f64>();
            // Padding is looked at by whole tiles, which end at multiples of a row of numbers or of a panel.
            let tiles = n * (2 * sizes.numbers + sizes.panel);
            for (name, mask, edges) in [
                ("none", Mask::none(), 0),
                ("causal", Mask::causal(), 1),
                ("window", Mask::window(100)?, 2),
                ("documents", Mask::documents(&quarters)?, 2),
                ("padding", Mask::padding(&first)?, 0),
                ("both", Mask::causal().and(Mask::padding(&first)?), 1),
                ("nothing", Mask::padding(&vec![false; n])?, 0),
            ] {
                let inputs = Inputs::new(&x, &x, &x, &mask)?;
                let sized = mask.sized(n, n)?;
                let seen = sized.allowed_matrix().iter().filter(|&&seen| seen).count();
                let most = match name {
                    "none" | "nothing" => seen,
                    _ => seen + tiles + edges * 2 * (sizes.panel + sizes.numbers) * n,
                };
                PAIRS.set(0);
                let forward = flash.forward(&inputs)?;
                let computed = PAIRS.replace(0);
                let says = || format!("{instructions:?}, {name}: {computed} of {seen}");
                assert!((seen..=most).contains(&computed), "{}", says());
                flash.backward(&inputs, &forward, x.as_view())?;
                let computed = PAIRS.get();
                let says = || format!("{instructions:?}, {name}: {computed} of {seen}");
                assert!((seen..=most).contains(&computed), "backward, {}", says());
            }
        }
        Ok(())
    }
}
