#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_code)]

// The model, from the inside to the outside.
mod cross_entropy;
mod eight_bits;
mod mlp;
mod norm;
mod parallel;
mod random;
mod transformer;

mod heads; // what they look at

#[cfg(feature = "open")]
pub mod opened; // models of others
#[cfg(feature = "train")]
mod tasks;
#[cfg(feature = "train")]
mod trained;
#[cfg(feature = "train")]
mod training;

pub use cross_entropy::cross_entropy;
pub use eight_bits::{EightBits, NoModel};
pub use heads::{HeadScores, head_scores, scores_of_weights};
pub use mlp::{Mlp, MlpCache};
pub use norm::{LayerNorm, NormCache, RmsNorm};
#[cfg(feature = "train")]
pub use tasks::{Characters, Repeated, Task};
#[cfg(feature = "train")]
pub use trained::{Run, Trained};
#[cfg(feature = "train")]
pub use training::{Measurement, Plan, Training};
pub use transformer::{
    Block, Gradients, Sizes, Text, Transformer, TransformerCache, draw_next,
};
