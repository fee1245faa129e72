//! The errors between a program and a GPU.

use crate::error::wrong_value;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult as Reason;

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
