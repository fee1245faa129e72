//! Attention on an NVIDIA GPU, by kernels that are compiled while the program runs.
//!
//! Behind the feature `cuda`. To build it takes nothing of CUDA. To run it takes a GPU with its driver (580 or newer,
//! which knows CUDA 13.0), and NVRTC: `pip install nvidia-cuda-nvrtc==13.0.*`, with the folder `nvidia/cu13/lib` of its
//! `site-packages` on LD_LIBRARY_PATH. Whatever is missing, [`Gpu::open`] says so.
//!
//! ```no_run
//! use attention::cuda::{Gpu, TILED};
//! use attention::{ForwardOptions, Mask, MultiHeadAttention, cuda::OnGpu, flash::Inputs};
//! use nalgebra::DMatrix;
//!
//! let x = DMatrix::from_fn(300, 2 * 64, |i, j| ((i + 2 * j) as f32).sin());
//! let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(2)?;
//! let gpu = std::sync::Arc::new(Gpu::open()?);
//! let forward = gpu.forward(TILED, &inputs)?; // as from any engine, up to rounding
//!
//! let layer = MultiHeadAttention::<f32>::xavier(128, 2, &mut rand::rng())?;
//! let options = ForwardOptions::new().mask(Mask::causal()).engine(OnGpu::new(gpu, TILED));
//! let (output, _) = layer.forward(&x, options)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A kernel is a [`Program`]: a source in CUDA C++, and what Rust has to know of it. Two are here, [`NAIVE`] and [`TILED`], in
//! the folder `cuda`. The crate `gpu` of the book's repository adds faster ones and a backward pass with [`Program::new`], and runs
//! them by the same calls: [`compile`] makes machine code, which takes no GPU; [`Gpu::forward`] and [`Gpu::run`] take matrices; and
//! [`Tensors`] stay on the device, so that a kernel can be launched often.
//!
//! Kernels know full and causal attention, and values as wide as keys; no dropout. Some know rules for scores and shared keys, too,
//! as both that are here: a rule becomes a function in CUDA C++, with which the kernel is compiled. A query that sees no key gets
//! an output of zero and a log-sum-exp of −∞, and each run gives the same bits, as in the rest of the crate. But kernels ask for
//! finite inputs: in a tile that is partly hidden, what is hidden is multiplied by 0.

mod compile;
mod device;
mod error;
mod ffi; // what is unsafe
mod program;

pub use compile::{Compiled, Variant, compile};
pub use device::{Device, Gpu, OnGpu, Tensors};
pub use error::{Error, Result};
pub use ffi::compiler_version;
pub use program::{
    Architecture, COMMON, Function, NAIVE, Numbers, Parameter, Program, Shape, Size,
    Source, TILED, Tensor,
};
