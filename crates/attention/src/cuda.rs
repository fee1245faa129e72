//! Attention on an NVIDIA GPU, by kernels that are compiled while the program runs.
//!
//! Behind the feature `cuda`. To build it takes nothing of CUDA. To run it takes a GPU with its driver (580 or newer,
//! which knows CUDA 13.0), and NVRTC: `pip install nvidia-cuda-nvrtc==13.0.*`, with the folder `nvidia/cu13/lib` of its
//! `site-packages` on LD_LIBRARY_PATH. Whatever is missing, [`Gpu::open`] says so.
//!
//! ```no_run
//! use attention::cuda::{Gpu, Kernel};
//! use attention::{Mask, flash::{Flash, Inputs}};
//! use nalgebra::DMatrix;
//!
//! let x = DMatrix::from_fn(300, 2 * 64, |i, j| ((i + 2 * j) as f32).sin());
//! let mask = Mask::causal();
//! let inputs = Inputs::new(&x, &x, &x, &mask)?.with_heads(2)?;
//!
//! let gpu = Gpu::open()?;
//! let forward = gpu.forward(Kernel::Tiled, &inputs)?; // as from Flash, up to rounding
//! let gradients = gpu.backward(&inputs, &forward, &forward.output)?; // of the loss ½ Σ output²
//!
//! assert!((forward.output - Flash::new().forward(&inputs).output).amax() < 1e-5);
//! assert_eq!(gradients.q.shape(), x.shape());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The kernels are the files of the folder `cuda`, in CUDA C++. [`Kernel`] lists the forward ones, from the slowest to
//! the fastest; [`compile`] makes machine code of one, which takes no GPU; [`Tensors`] stay on the device, so that a
//! kernel can be timed by itself.
//!
//! They know full and causal attention, and values as wide as keys. `naive`, `tiled` and the backward pass know shared keys and rules
//! for scores, too: a rule becomes a function in CUDA C++, with which the kernel is compiled. A query that sees no key gets an output of zero and
//! a log-sum-exp of −∞, and each run gives the same bits, as in the rest of the crate. But they ask for finite inputs:
//! in a tile that is partly hidden, what is hidden is multiplied by 0.

mod bf16;
mod compile;
mod device;
mod error;
mod ffi; // what is unsafe
mod matrices; // from matrices to tensors and back
mod parameters; // what the functions on the device take
mod program;
mod score_rule; // rules for scores in CUDA C++
mod shape;
mod tensors;

pub use bf16::Bf16;
pub use compile::{Compiled, Launch, Resources, Variant, compile};
pub use device::{Device, Gpu};
pub use error::{Error, Result};
pub use ffi::compiler_version;
pub use program::{Architecture, Kernel, Precision, Program, Source};
pub use shape::Shape;
pub use tensors::Tensors;
