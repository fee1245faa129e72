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
        // After these, the driver's manual says, a process must be started anew.
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

fn check(tried: &str, status: nvrtc::nvrtcResult) -> Result<()> {
    status.result().map_err(|error| {
        let (tried, says) = (tried.to_owned(), format!("{:?}", error.0));
        Error::Nvrtc { tried, code: error.0 as u32, says }
    })
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
    check("ask for the version", unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) })?;
    Ok((major.unsigned_abs(), minor.unsigned_abs()))
}

/// A source that NVRTC holds, given back when it is dropped.
pub struct Source(nvrtc::nvrtcProgram);

impl Source {
    /// `text` is called `name` in the log; `headers` are names and texts.
    pub fn new(name: &str, text: &str, headers: &[(&str, &str)]) -> Result<Self> {
        check_compiler()?;
        let (text, name) = (c_string(text)?, c_string(name)?);
        let names: Vec<_> =
            headers.iter().map(|(name, _)| c_string(name)).collect::<Result<_>>()?;
        let texts: Vec<_> =
            headers.iter().map(|(_, text)| c_string(text)).collect::<Result<_>>()?;
        let (names, texts) = (pointers(&names), pointers(&texts));
        let mut program = std::ptr::null_mut();
        // SAFETY: NVRTC copies the strings, which end in 0 and outlive the call, and there are as many as it is told.
        check("take the source", unsafe {
            nvrtc::nvrtcCreateProgram(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        })?;
        Ok(Source(program))
    }

    /// The machine code, or none if it does not compile; and the log, either way.
    pub fn compile(&self, options: &[String]) -> Result<(Option<Vec<u8>>, String)> {
        let options: Vec<_> =
            options.iter().map(|option| c_string(option)).collect::<Result<_>>()?;
        let pointers = pointers(&options);
        // SAFETY: The program is alive, and there are as many strings as NVRTC is told, which outlive the call.
        let status = unsafe {
            nvrtc::nvrtcCompileProgram(self.0, pointers.len() as c_int, pointers.as_ptr())
        };
        // SAFETY: Each function of a pair writes the size that the other one fills.
        let log = unsafe {
            self.read(
                "read the log",
                nvrtc::nvrtcGetProgramLogSize,
                nvrtc::nvrtcGetProgramLog,
            )
        }?;
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        use nvrtc::nvrtcResult::{NVRTC_ERROR_COMPILATION, NVRTC_ERROR_INVALID_OPTION};
        if let NVRTC_ERROR_COMPILATION | NVRTC_ERROR_INVALID_OPTION = status {
            return Ok((None, log));
        }
        check("compile", status)?;
        // SAFETY: As above.
        let code = unsafe {
            self.read("read the code", nvrtc::nvrtcGetCUBINSize, nvrtc::nvrtcGetCUBIN)
        }?;
        Ok((Some(code), log))
    }

    /// # Safety
    /// `size` and `fill` are a pair of NVRTC's: `fill` writes as many bytes as `size` says.
    unsafe fn read(
        &self,
        tried: &str,
        size: unsafe fn(nvrtc::nvrtcProgram, *mut usize) -> nvrtc::nvrtcResult,
        fill: unsafe fn(nvrtc::nvrtcProgram, *mut c_char) -> nvrtc::nvrtcResult,
    ) -> Result<Vec<u8>> {
        let mut length = 0;
        // SAFETY: The program is alive, and one number is written.
        check(tried, unsafe { size(self.0, &mut length) })?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: There is room for what is written, as the caller promises.
        check(tried, unsafe { fill(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // SAFETY: The program is alive, and nothing else has its handle.
        let _ = unsafe { nvrtc::nvrtcDestroyProgram(&mut self.0) }; // a failure leaks it, no more
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Nvrtc {
        tried: "take a text".to_owned(),
        code: nvrtc::nvrtcResult::NVRTC_ERROR_INVALID_INPUT as u32,
        says: "it has a zero byte".to_owned(),
    })
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
