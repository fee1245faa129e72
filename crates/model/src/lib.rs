#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_code)]

mod cross_entropy;
mod mlp;
mod norm;
mod parallel;
mod transformer;

pub use cross_entropy::cross_entropy;
pub use mlp::{Mlp, MlpCache};
pub use norm::{LayerNorm, NormCache, RmsNorm};
pub use transformer::{Block, Gradients, Sizes, Text, Transformer, TransformerCache};
