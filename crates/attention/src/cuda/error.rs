//! The errors between a program and a GPU.

use super::Program;

/// The result of everything in this module that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why something could not be done on a GPU, and what helps.
///
/// A program that shows the error to a person prints it. A program that reacts to it matches on the variant:
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
///
/// let padded = match error {
///     Error::Width { given, has, .. } => has.iter().find(|&&d| d > given).copied(),
///     Error::Memory { .. } | Error::OutOfMemory { .. } => None, // fewer heads at a time would fit
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
    #[error("no kernel is called `{given}`: the kernels are {}", names())]
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
        /// The architecture that it was compiled for.
        architecture: super::Architecture,
        /// The compiler's words.
        log: String,
    },
    /// The driver found no room in the device's memory, although enough was free when that was asked.
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
    /// Another call of the driver failed.
    #[error("could not {tried}: {says}")]
    Driver {
        /// The action that was tried, such as `load kernel \`tiled\``.
        tried: String,
        /// The driver's number for the reason: 201 is an invalid context.
        code: u32,
        /// The driver's words.
        says: String,
    },
    /// A call of NVRTC, other than compiling, failed.
    #[error("could not {tried} in NVRTC: {says}")]
    Nvrtc {
        /// The action that was tried, such as `take the source`.
        tried: String,
        /// NVRTC's number for the reason: 3 is an invalid input.
        code: u32,
        /// NVRTC's words.
        says: String,
    },
}

fn version((major, minor): &(u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn names() -> String {
    let names: Vec<_> = Program::all().map(|program| program.source().name).collect();
    list(&names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{Architecture, Kernel};

    const TILED: Program = Program::Forward(Kernel::Tiled);

    /// Each says what is wrong, and what helps.
    #[test]
    fn every_error_has_this_text() {
        let (tried, says) = ("launch `weigh`".to_owned(), "invalid".to_owned());
        let log = "tiled.cu(3): error: expected a \";\"".to_owned();
        for (error, text) in [
            (
                Error::NoDriver,
                "no CUDA driver: `libcuda.so` (`nvcuda.dll`) was not found; it is part of the driver of an NVIDIA GPU, \
                 so install that, or run on a machine that has one",
            ),
            (
                Error::OldDriver { has: (12, 4) },
                "the driver knows CUDA 12.4, but CUDA 13.0 is needed: update the driver to version 580 or newer",
            ),
            (
                Error::NoCompiler,
                "no NVRTC, which compiles the kernels: run `pip install nvidia-cuda-nvrtc==13.0.*` and put the folder \
                 `nvidia/cu13/lib` of its `site-packages` on LD_LIBRARY_PATH",
            ),
            (
                Error::NoDevice { ordinal: 1, count: 1 },
                "no CUDA device 1: the driver sees 1 of them, counted from 0; `nvidia-smi` and CUDA_VISIBLE_DEVICES \
                 say which",
            ),
            (
                TILED.architecture_for((7, 0)).unwrap_err(),
                "kernel `tiled` needs compute capability 7.5 or newer, not 7.0: choose another kernel or another device",
            ),
            (
                Error::Memory { needed: 2, free: 1 },
                "2 bytes of device memory are needed, but 1 are free: fewer heads or tokens, or a kernel without the \
                 matrix of scores, need less",
            ),
            (
                Error::SharedMemory { function: "weigh", needed: 2, has: 1 },
                "`weigh` needs 2 bytes of shared memory a block, but the device has 1: choose another kernel or a \
                 smaller head dimension",
            ),
            (
                TILED.check_width(4).unwrap_err(),
                "kernel `tiled` is written for head dimensions 32, 64, 128, not for d = 4: choose one of them, or \
                 another kernel",
            ),
            (
                crate::Error::Empty { argument: "q", given: "0 x 4".to_owned() }.into(),
                "`q` is empty (0 x 4) but at least one entry is needed",
            ),
            (
                Error::Compile { program: TILED, architecture: Architecture::SM_80, log },
                "kernel `tiled` for sm_80 does not compile: mend the source, or install another NVRTC; it said\n\
                 tiled.cu(3): error: expected a \";\"",
            ),
            (
                Error::OutOfMemory { tried: tried.clone() },
                "could not launch `weigh`: the device is out of memory; fewer heads or tokens, or a kernel without \
                 the matrix of scores, need less, and so do fewer programs at a time",
            ),
            (
                Error::Fault { tried: tried.clone(), code: 700, says: says.clone() },
                "could not launch `weigh`, since a kernel failed: invalid; the process must be restarted",
            ),
            (
                Error::Driver { tried: tried.clone(), code: 201, says: says.clone() },
                "could not launch `weigh`: invalid",
            ),
            (
                Error::Nvrtc { tried, code: 3, says },
                "could not launch `weigh` in NVRTC: invalid",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_kernel_goes_by_its_name_alone() {
        for program in Program::all() {
            assert_eq!(program.source().name.parse(), Ok(program));
        }
        let words = "Tiled".parse::<Program>().unwrap_err().to_string();
        assert!(
            words
                .starts_with("no kernel is called `Tiled`: the kernels are naive, tiled"),
            "{words}"
        );
    }
}
