//! Exponentials and products of matrices in vector instructions, on which softmax, attention and layers are built.
//!
//! [`vectors`] gives names to the instructions, and [`instructions`] chooses a set of them at run time. [`exponential`] and
//! [`matrix_product`] are for the modules that are written to be read: one function each for the exponentials of a slice and for
//! the product of two matrices. [`microkernel`] is what the products are made of.

mod exponential;
mod instructions;
mod matrix_product;
mod microkernel;
mod thin_product;
mod vectors;

pub use exponential::Float;
pub(crate) use exponential::exp2;
pub(crate) use instructions::{InstructionSet, Work, mul_add};
pub use instructions::{Instructions, Sizes};
pub(crate) use matrix_product::multiply;
pub(crate) use microkernel::{
    Aligned, pack_across, pack_columns, pack_panels, pack_rows, pieces,
    product_with_rows, products, vectors, vectors_mut,
};
pub(crate) use thin_product::{
    LARGEST_VECTOR, WHOLE_BLOCKS, combinations, dots_in_order, dots_so_far,
};
