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
//! and windows, sinks and documents of a causal mask, as both that are here: a rule or a mask becomes functions in CUDA C++, with
//! which the kernel is compiled, and tiled kernels skip tiles that a mask hides. A query that sees no key gets
//! an output of zero and a log-sum-exp of −∞, and each run gives the same bits, as in the rest of the crate. But kernels ask for
//! finite inputs: in a tile that is partly hidden, what is hidden is multiplied by 0.

use crate::error::wrong_value;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult as Reason;

mod compile;
mod device;
mod ffi; // what is unsafe
mod mask;
mod program;

pub use compile::{Compiled, Variant, compile};
pub use device::{Device, Gpu, OnGpu, Tensors};
pub use ffi::compiler_version;
pub use program::{
    Architecture, COMMON, Function, NAIVE, Numbers, OtherSize, Parameter, Program, Shape,
    Size, Source, TILED, Tensor,
};

/// The result of everything in this module that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why something could not be done on a GPU, and what helps. A variant for each thing that a program can do about it.
///
/// ```
/// use attention::cuda::{Architecture, Error, NAIVE, compile};
///
/// let error: Error = compile(NAIVE, Architecture::SM_75, 48, false).unwrap_err();
/// assert_eq!(error.to_string(), "`d` is 48 but kernel `naive` is written for 32, 64, 128");
/// assert!(matches!(error, Error::Input(_)));
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver, a device or the run-time compiler is missing or too old: which of them, and what helps.
    #[error("{0}")]
    Missing(String),
    /// The device has too little memory for what was asked, or not the instructions.
    #[error("{0}")]
    Device(String),
    /// Bad input: which argument, what was given, what was expected.
    #[error(transparent)]
    Input(#[from] crate::Error),
    /// The compiler refused a kernel, or made something else of it than was expected.
    #[error(
        "{what} does not compile: mend the source, or install another NVRTC; it said\n{log}"
    )]
    Compile {
        /// The program and the architecture that it was compiled for.
        what: String,
        /// The compiler's words.
        log: String,
    },
    /// A call of the driver or of NVRTC failed.
    #[error("could not {tried}: {says}")]
    Call {
        /// The action that was tried, such as `load kernel \`tiled\``.
        tried: String,
        /// The number for the reason: 700 of the driver is an illegal address.
        code: u32,
        /// The reason in words.
        says: String,
    },
}

impl Error {
    /// Returns what makes an error of a failed call of the driver, which `tried` describes, such as `wait for the device`.
    pub fn driver(tried: impl Into<String>) -> impl FnOnce(DriverError) -> Self {
        let tried = tried.into();
        move |error| {
            let words = error.error_string().map(|words| words.to_string_lossy());
            let words = words.unwrap_or_else(|_| "an error without a description".into());
            let (reason, code) = (error.0, error.0 as u32);
            if reason == Reason::CUDA_ERROR_OUT_OF_MEMORY {
                return Error::Device(format!(
                    "could not {tried}: the device is out of memory; fewer heads or tokens, or a kernel without the \
                     matrix of scores, need less, and so do fewer programs at a time"
                ));
            }
            let mut says = format!("{words} ({reason:?})");
            // From an illegal address, 700, to a failed launch, 719: after these, the driver's manual says, a process must be restarted.
            if matches!(code, 700 | 702 | 710 | 714..=719) {
                says += "; a kernel failed, and the process must be restarted";
            }
            Error::Call { tried, code, says }
        }
    }
}

/// As an error of the layer that asked.
impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Input(error) => error,
            error => wrong_value("engine", "a GPU", error.to_string()),
        }
    }
}
