//! What can go wrong between a program and a GPU.

use super::Program;

/// The result of everything in this module that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why something could not be done on a GPU, and what helps.
///
/// ```
/// use attention::cuda::{Architecture, Error, Kernel, Program, compile};
///
/// let program = Program::Forward(Kernel::Naive);
/// let error: Error = compile(program, Architecture::SM_80, 48, false).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "kernel `naive` is written for head dimensions 32, 64, 128, not for d = 48: choose one of them, or another kernel"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
        /// How many there are.
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
        /// What it needs, such as `8.0 or newer`.
        needs: String,
        /// What there is: major, minor.
        has: (u32, u32),
    },
    /// Not enough memory on the device.
    #[error(
        "{needed} bytes of device memory are needed, but {free} are free: fewer heads or tokens, or a kernel without \
         the matrix of scores, need less"
    )]
    Memory {
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that are free.
        free: u64,
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
    /// A name that no kernel has.
    #[error("no kernel is called `{given}`: the kernels are {}", list(&super::Kernel::ALL.map(super::Kernel::name)))]
    Name {
        /// The name.
        given: String,
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
        /// What it was compiled for.
        architecture: super::Architecture,
        /// The compiler's words.
        log: String,
    },
    /// A call of the driver, or one of NVRTC's other than compiling, failed.
    #[error(
        "could not {tried}: {says}; after a fault in a kernel the process must be started anew"
    )]
    Driver {
        /// What was tried, such as `load kernel \`tiled\``.
        tried: String,
        /// The library's words.
        says: String,
    },
}

fn version((major, minor): &(u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
