//! The ladder of kernels for a GPU beyond the tiled one, which is in `attention::cuda`, and a machine that runs them all on a CPU.
//!
//! ```no_run
//! use attention::cuda::{Gpu, TILED};
//! use attention::{Mask, flash::Inputs};
//! use nalgebra::DMatrix;
//!
//! let x = DMatrix::from_fn(300, 2 * 64, |i, j| ((i + 2 * j) as f32).sin());
//! let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(2)?;
//! let gpu = Gpu::open()?;
//! let forward = gpu.forward(gpu::REGISTERS, &inputs)?;
//! let gradients = gpu::backward(&gpu, gpu::BACKWARD, &inputs, &forward, &forward.output)?; // of the loss ½ Σ output²
//! assert_eq!(gradients.q.shape(), x.shape());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod tiles;

#[cfg(feature = "cuda")]
mod backward;
#[cfg(feature = "cuda")]
pub mod clock;
#[cfg(feature = "cuda")]
pub mod on_cpu;
#[cfg(feature = "cuda")]
mod pages;
#[cfg(feature = "cuda")]
mod precision;
#[cfg(feature = "cuda")]
mod programs;
#[cfg(feature = "cuda")]
pub mod report;

#[cfg(feature = "cuda")]
pub use backward::{OnGpuWithBackward, backward};
#[cfg(feature = "cuda")]
pub use pages::Paged;
#[cfg(feature = "cuda")]
pub use precision::Precision;
#[cfg(feature = "cuda")]
pub use programs::{
    ALL, BACKWARD, BACKWARD_HOPPER, D_K, D_OUTPUT, D_Q, D_V, DECODE, HOPPER,
    HOPPER_BOXES, HOPPER_PERSISTENT, K_PAGES, LENGTHS, PAGE_TABLE, REGISTERS, SM_80,
    SM_90, SM_90A, TENSOR_CORES, V_PAGES, architectures, declarations, is_backward,
    program,
};
