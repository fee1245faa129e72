#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_code)]

// In the order in which the book meets them. Lines with the word ANCHOR mark what its pages show.

mod blocks;
mod error;
pub mod example;
mod simd; // vector instructions
mod softmax;

mod dropout; // which weights

mod dot_product; // scores, weights, output
mod mask;
mod static_shapes;

mod linear;
mod parameters; // what a layer learns

mod forward_options; // context, mask, dropout, flash
mod multi_head;
mod parallel;
mod single_head; // projections, and the layer with one head

mod attention_layer; // what all layers can do

#[cfg(feature = "serde")]
mod saved; // matrices in files

mod gradient_check;

mod cost;
mod inspect;

pub mod flash; // the same attention, without its matrix of weights

#[cfg(feature = "cuda")]
pub mod cuda; // and on a GPU

pub mod building_blocks; // for programs that put attention together in another way

pub use attention_layer::{AttentionLayer, BatchGradients};
pub use cost::{AttentionShape, Bytes, Flops};
pub use dot_product::{
    AttentionCache, AttentionGradients, attention, attention_backward, attention_weights,
    scaled_scores,
};
pub use error::{Error, Result};
pub use forward_options::ForwardOptions;
pub use gradient_check::{
    GradientCheck, gradient_check, gradient_check_parameters, numerical_gradient,
    relative_error,
};
pub use inspect::{heat_map, row_entropy};
pub use linear::{linear, linear_backward};
pub use mask::{Mask, SizedMask, Visibility};
pub use multi_head::{HeadsCache, MultiHeadAttention, MultiHeadCache};
pub use parameters::{LayerGradients, Parameters};
pub use simd::Float;
pub use single_head::{SingleHeadAttention, SingleHeadCache};
pub use softmax::{
    log_sum_exp, log_sum_exp_rows, softmax, softmax_backward, softmax_jacobian,
    softmax_rows, softmax_rows_backward,
};
pub use static_shapes::attention_static;

// The versions that this crate was built with, so that those of a project can be the same.
pub use {nalgebra, rand};
