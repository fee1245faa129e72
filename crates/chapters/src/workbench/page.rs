//! The picture for those who run no scripts.

use crate::output::Page;
use anyhow::Result;
use attention::{Mask, MultiHeadAttention, example};
use figures::HeatMap;
use rand::{SeedableRng, rngs::ChaCha8Rng};

pub fn generate(page: &mut Page) -> Result<()> {
    let river = example::river();
    // As the workbench begins, and the program on its page.
    let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(1))?;
    let (_, cache) = layer.forward(&river.x, Mask::none())?;
    let weights = &cache.heads()[0].weights;
    page.heat_map(
        "weights",
        (
            "The workbench",
            "A six by six grid: the weights of the first of two heads with random parameters, for “the boat left the river bank”.",
        ),
        &HeatMap::of_tokens(weights, &river.tokens, 0.75),
    )
}
