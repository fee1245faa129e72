#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_code)]

// In the order in which the book meets them. Lines with the word ANCHOR mark what its pages show.

mod blocks;
mod error;
pub mod example;
mod simd; // vector instructions
mod softmax;

mod dot_product; // scores, weights, output
mod mask;
mod static_shapes;

mod linear;
mod parameters; // what a layer learns

mod batch; // several sequences through one layer
mod layer; // projections, and the layer with one head
mod multi_head;

mod attention_layer; // what both can do

#[cfg(feature = "serde")]
mod saved; // matrices in files

mod gradient_check;

mod cost;
mod inspect;

pub mod flash; // the same attention, without its matrix of weights

#[cfg(feature = "cuda")]
pub mod cuda; // and on a GPU

pub mod building_blocks; // for programs that put attention together in another way

pub use attention_layer::AttentionLayer;
pub use batch::BatchOutput;
pub use cost::{AttentionShape, Bytes, Flops};
pub use dot_product::{
    AttentionCache, AttentionGradients, attention, attention_backward, attention_weights,
    scaled_scores,
};
pub use error::{Error, Result};
pub use gradient_check::{
    GradientCheck, gradient_check, numerical_gradient, relative_error,
};
pub use inspect::{ParameterNorms, heat_map, parameter_norms, row_entropy};
pub use layer::{SingleHeadAttention, SingleHeadCache};
pub use linear::{checked::linear_backward, linear};
pub use mask::{Mask, SizedMask, Visibility};
pub use multi_head::{MultiHeadAttention, MultiHeadCache};
pub use parameters::{LayerGradients, Parameters};
pub use softmax::{
    log_sum_exp, log_sum_exp_rows, softmax, softmax_backward, softmax_jacobian,
    softmax_rows, softmax_rows_backward,
};
pub use static_shapes::attention_static;
