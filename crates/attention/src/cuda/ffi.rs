//! The calls of CUDA's libraries that Rust cannot check. The crate has no unsafe code elsewhere.
//!
//! Each call is behind a function that no caller can misuse: a type owns what an address points to, and what a type
//! cannot say is checked before the call. All else goes through the safe part of `cudarc`. Its calls panic without the
//! libraries, so nothing here or elsewhere in `cuda` is called before [`driver_version`] or [`check_compiler`] has found
//! them.
#![allow(unsafe_code)]

mod launch;
mod memory;

pub use launch::Loaded;
pub use memory::{DeviceTensor, elsewhere};

use super::error::{Error, Result};
use cudarc::driver::{DriverError, sys};
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys as nvrtc;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

/// An error of a call that `tried` describes, such as `launch \`scores\``.
pub fn failed(tried: impl Into<String>) -> impl FnOnce(DriverError) -> Error {
    let tried = tried.into();
    move |error| {
        let words =
            error.error_string().map(|words| words.to_string_lossy().into_owned());
        let says = words.unwrap_or_else(|_| "an error without a description".to_owned());
        let says = format!("{says} ({:?})", error.0);
        kind_of_failure(tried, error.0, says)
    }
}

fn kind_of_failure(tried: String, reason: sys::CUresult, says: String) -> Error {
    use sys::CUresult as Reason;
    let code = reason as u32;
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
        _ => Error::Driver { tried, code, says },
    }
}

// ---------------------------------------------------------------------------------------------------- libraries

/// The version of CUDA that the driver knows, or that there is no driver.
pub fn driver_version() -> Result<(u32, u32)> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: Looks for a library by name, and closes it again; the driver's has no code that runs then.
    if !PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(Error::NoDriver);
    }
    let mut version = 0;
    // SAFETY: Writes one integer, and may be called before anything else.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    status.result().map_err(failed("ask for the driver's version"))?;
    let version = version.unsigned_abs(); // such as 13020 for 13.2
    Ok((version / 1000, version % 1000 / 10))
}

/// That NVRTC is there.
pub fn check_compiler() -> Result<()> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: Looks for a library by name, and closes it again; NVRTC has no code that runs then.
    let present = PRESENT.get_or_init(|| unsafe { nvrtc::is_culib_present() });
    if *present { Ok(()) } else { Err(Error::NoCompiler) }
}

// ---------------------------------------------------------------------------------------------------- NVRTC

/// An error of a call that `tried` describes.
fn refused(tried: &'static str) -> impl FnOnce(NvrtcError) -> Error {
    move |NvrtcError(reason)| {
        let (tried, says) = (tried.to_owned(), format!("{reason:?}"));
        Error::Nvrtc { tried, code: reason as u32, says }
    }
}

/// NVRTC's version: major, minor.
///
/// # Errors
/// There is no NVRTC.
///
/// ```no_run
/// assert!(attention::cuda::compiler_version()? >= (13, 0));
/// # Ok::<(), attention::cuda::Error>(())
/// ```
pub fn compiler_version() -> Result<(u32, u32)> {
    check_compiler()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: Writes two integers.
    let status = unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) };
    status.result().map_err(refused("ask for the version"))?;
    Ok((major.unsigned_abs(), minor.unsigned_abs()))
}

/// A source that NVRTC holds, given back when it is dropped.
pub struct Source(nvrtc::nvrtcProgram);

impl Source {
    /// `text` is called `name` in the log; `headers` are names and texts.
    pub fn new(name: &str, text: &str, headers: &[(&str, &str)]) -> Result<Self> {
        check_compiler()?;
        let (text, name) = (c_string(text), c_string(name));
        let names: Vec<_> = headers.iter().map(|(name, _)| c_string(name)).collect();
        let texts: Vec<_> = headers.iter().map(|(_, text)| c_string(text)).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: NVRTC copies the strings, which end in 0 and outlive the call, and there are as many as it is told.
        let status = unsafe {
            nvrtc::nvrtcCreateProgram(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        status.result().map_err(refused("take the source"))?;
        Ok(Source(program))
    }

    /// The machine code, or none if it does not compile; and the log, either way.
    pub fn compile(&self, options: &[String]) -> Result<(Option<Vec<u8>>, String)> {
        use nvrtc::nvrtcResult::{NVRTC_ERROR_COMPILATION, NVRTC_ERROR_INVALID_OPTION};
        // SAFETY: The program is alive.
        let status = unsafe { result::compile_program(self.0, options) };
        // SAFETY: The program is alive.
        let log = unsafe { result::get_program_log(self.0) };
        let log = log.map_err(refused("read the log"))?;
        let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).collect();
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        if let Err(NvrtcError(NVRTC_ERROR_COMPILATION | NVRTC_ERROR_INVALID_OPTION)) =
            status
        {
            return Ok((None, log));
        }
        status.map_err(refused("compile"))?;
        let mut length = 0;
        // SAFETY: The program is alive, and one number is written.
        let status = unsafe { nvrtc::nvrtcGetCUBINSize(self.0, &mut length) };
        status.result().map_err(refused("ask for the size of the code"))?;
        let mut code = vec![0_u8; length];
        // SAFETY: The program is alive, and there is room for as many bytes as it has.
        let status = unsafe { nvrtc::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) };
        status.result().map_err(refused("read the code"))?;
        Ok((Some(code), log))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // SAFETY: The program is alive, and nothing else has its handle.
        let _ = unsafe { result::destroy_program(self.0) }; // a failure leaks it, no more
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("no source has a zero byte")
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| CStr::as_ptr(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_variant_of_its_reason() {
        use sys::CUresult as Reason;
        let of = |reason| kind_of_failure("try".to_owned(), reason, "no".to_owned());
        let (tried, says) = ("try".to_owned(), "no".to_owned());
        assert_eq!(
            of(Reason::CUDA_ERROR_OUT_OF_MEMORY),
            Error::OutOfMemory { tried: tried.clone() }
        );
        assert_eq!(
            of(Reason::CUDA_ERROR_ILLEGAL_ADDRESS),
            Error::Fault { tried: tried.clone(), code: 700, says: says.clone() }
        );
        assert_eq!(
            of(Reason::CUDA_ERROR_INVALID_CONTEXT),
            Error::Driver { tried, code: 201, says }
        );
    }
}
