//! The errors between a program and a GPU.

use super::program::{Architecture, Program};
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// The result of everything in this module that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why something could not be done on a GPU, and what helps.
///
/// A program that shows the error to a person prints it. A program that reacts to it matches on the variant:
///
/// ```
/// use attention::cuda::{Architecture, Error, NAIVE, compile};
///
/// let error: Error = compile(NAIVE, Architecture::SM_80, 48, false).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "kernel `naive` is written for head dimensions 32, 64, 128, not for d = 48: choose one of them, or another kernel"
/// );
/// let padded = match error {
///     Error::Width { given, has, .. } => has.iter().find(|&&d| d > given).copied(),
///     Error::OutOfMemory { .. } => None, // fewer heads at a time would fit
///     Error::Fault { .. } => std::process::exit(1), // no call works any more in this process
///     other => return Err(other), // variants may be added later, so a match needs this line
/// };
/// assert_eq!(padded, Some(64));
/// # Ok::<(), attention::cuda::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library was not found.
    #[error(
        "no CUDA driver: `libcuda.so` (`nvcuda.dll`) was not found; it is part of the driver of an NVIDIA GPU, so \
         install that, or run on a machine that has one"
    )]
    NoDriver,
    /// A driver that does not know the calls of this crate.
    #[error(
        "the driver knows CUDA {}, but CUDA 13.0 is needed: update the driver to version 580 or newer",
        version(.has)
    )]
    OldDriver {
        /// The version of CUDA that it knows: major, minor.
        has: (u32, u32),
    },
    /// The run-time compiler's library was not found.
    #[error(
        "no NVRTC, which compiles the kernels: run `pip install nvidia-cuda-nvrtc==13.0.*` and put the folder \
         `nvidia/cu13/lib` of its `site-packages` on LD_LIBRARY_PATH"
    )]
    NoCompiler,
    /// No such device.
    #[error(
        "no CUDA device {ordinal}: the driver sees {count} of them, counted from 0; \
         `nvidia-smi` and CUDA_VISIBLE_DEVICES say which"
    )]
    NoDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// A kernel with instructions that a device or architecture does not have.
    #[error(
        "{program} needs compute capability {needs}, not {}: choose another kernel or another device",
        version(.has)
    )]
    Capability {
        /// The program.
        program: Program,
        /// The capability that it needs, such as `8.0 or newer`.
        needs: String,
        /// The capability of the device: major, minor.
        has: (u32, u32),
    },
    /// A block that needs more shared memory than a multiprocessor gives it.
    #[error(
        "`{function}` needs {needed} bytes of shared memory a block, but the device has {has}: choose another kernel \
         or a smaller head dimension"
    )]
    SharedMemory {
        /// The function on the device.
        function: &'static str,
        /// Bytes that a block needs.
        needed: u32,
        /// Bytes that a block can have.
        has: u32,
    },
    /// A head dimension that a kernel is not written for.
    #[error(
        "{program} is written for head dimensions {}, not for d = {given}: choose one of them, or another kernel",
        list(.has)
    )]
    Width {
        /// The program.
        program: Program,
        /// The head dimension that was given.
        given: usize,
        /// Those that it has.
        has: &'static [usize],
    },
    /// Bad input: which argument, what was given, what was expected.
    #[error(transparent)]
    Input(#[from] crate::Error),
    /// The compiler refused a kernel, or made something else of it than was expected.
    #[error(
        "{program} for {architecture} does not compile: mend the source, or install another NVRTC; it said\n{log}"
    )]
    Compile {
        /// The program.
        program: Program,
        /// The architecture that it was compiled for.
        architecture: Architecture,
        /// The compiler's words.
        log: String,
    },
    /// Not enough memory on the device.
    #[error(
        "could not {tried}: the device is out of memory; fewer heads or tokens, or a kernel without the matrix of \
         scores, need less, and so do fewer programs at a time"
    )]
    OutOfMemory {
        /// The action that was tried, such as `allocate device memory`.
        tried: String,
    },
    /// A kernel failed while it ran. The driver says so at the next call, and at every call after it.
    #[error(
        "could not {tried}, since a kernel failed: {says}; the process must be restarted"
    )]
    Fault {
        /// The action that was tried when the driver said so, such as `wait for the device`.
        tried: String,
        /// The driver's number for what happened: 700 is an illegal address.
        code: u32,
        /// The driver's words.
        says: String,
    },
    /// Another call of the driver or of NVRTC failed.
    #[error("could not {tried}: {says}")]
    Call {
        /// The action that was tried, such as `load kernel \`tiled\``.
        tried: String,
        /// The number for the reason: 201 of the driver is an invalid context.
        code: u32,
        /// The reason in words.
        says: String,
    },
}

fn version((major, minor): &(u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// Returns what makes an error of a failed call of the driver, which `tried` describes, such as `wait for the device`.
    pub fn driver(tried: impl Into<String>) -> impl FnOnce(DriverError) -> Self {
        use CUresult as Reason;
        let tried = tried.into();
        move |error| {
            let (reason, code) = (error.0, error.0 as u32);
            let words = error.error_string().map(|words| words.to_string_lossy());
            let words = words.unwrap_or_else(|_| "an error without a description".into());
            let says = format!("{words} ({reason:?})");
            match reason {
                Reason::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { tried },
                // After these, the driver's manual says, a process must be restarted.
                Reason::CUDA_ERROR_ILLEGAL_ADDRESS
                | Reason::CUDA_ERROR_LAUNCH_TIMEOUT
                | Reason::CUDA_ERROR_ASSERT
                | Reason::CUDA_ERROR_HARDWARE_STACK_ERROR
                | Reason::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | Reason::CUDA_ERROR_MISALIGNED_ADDRESS
                | Reason::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | Reason::CUDA_ERROR_INVALID_PC
                | Reason::CUDA_ERROR_LAUNCH_FAILED => Error::Fault { tried, code, says },
                _ => Error::Call { tried, code, says },
            }
        }
    }
}
