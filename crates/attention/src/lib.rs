#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_code)]

mod batch;
mod cost;
mod dot_product;
mod error;
pub mod example;
mod gradient_check;
mod inspect;
mod layer;
mod mask;
mod multi_head;
mod softmax;
mod static_shapes;

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
pub use layer::{LayerCache, LayerGradients, Parameters, SingleHeadAttention};
pub use mask::{Mask, SizedMask, Visibility};
pub use multi_head::{MultiHeadAttention, MultiHeadCache};
pub use softmax::{
    log_sum_exp, log_sum_exp_rows, softmax, softmax_backward, softmax_jacobian,
    softmax_rows, softmax_rows_backward,
};
pub use static_shapes::attention_static;
