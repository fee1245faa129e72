// The folder compiles without its README.
#![cfg_attr(any(doc, doctest), doc = include_str!("../README.md"))]
#![cfg_attr(not(any(doc, doctest)), doc = "Self-attention: see README.md.")]
#![deny(missing_docs, unsafe_code)]

// In the order in which the book meets them. Lines with the word ANCHOR mark what its pages show.

mod blocks;
mod error;
pub mod example;
#[allow(missing_docs)] // a comment beside each field says its shape
pub mod plain; // the program that the book builds
pub mod softmax;
mod sums;

mod dot_product; // scores, weights, output
pub mod engine; // what computes attention for a layer
pub mod mask;
pub mod score_rule; // positions as a bias, soft caps

mod linear;
pub mod named_parameters; // of whatever learns
mod parameters; // of a layer

mod adam;

mod dropout;
mod forward_options; // mask, context, dropout, engine
mod key_value_cache; // for a model that writes
mod multi_head;
mod paged; // keys and values in pages
pub mod positions; // as waves, as angles
mod single_head; // projections, and the layer with one head

mod batch; // many sequences

#[cfg(feature = "serde")]
mod saved; // matrices in files

pub mod gradient_check;

pub mod inspect;

pub mod flash; // the same attention, without its matrix of weights

#[cfg(feature = "cuda")]
pub mod cuda; // and on a GPU

pub use adam::Adam;
pub use batch::BatchGradients;
pub use dot_product::{
    AttentionCache, AttentionGradients, attention, attention_backward, attention_weights,
    scaled_scores,
};
pub use error::{Error, Result};
pub use forward_options::{BatchOptions, ForwardOptions};
pub use gradient_check::{
    gradient_check, gradient_check_parameters, gradient_check_sample,
};
pub use key_value_cache::KeyValueCache;
pub use linear::{linear, linear_backward};
pub use mask::Mask;
pub use multi_head::{MultiHeadAttention, MultiHeadCache};
pub use named_parameters::NamedParameters;
pub use parameters::{LayerGradients, LayerParameters, Parameters};
pub use positions::Rotary;
pub use score_rule::ScoreRule;
pub use single_head::{SingleHeadAttention, SingleHeadCache};
pub use softmax::{log_sum_exp, softmax, softmax_rows};

/// A real number: `f64` where gradients are checked, `f32` where memory or time counts, or any other that nalgebra computes with.
pub trait Float: nalgebra::RealField + Copy {}

impl<T: nalgebra::RealField + Copy> Float for T {}
