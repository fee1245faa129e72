//! The calls of CUDA's libraries that Rust cannot check, but for launches.
//!
//! All else goes through the safe part of `cudarc`. Its calls panic without the libraries, so nothing here or elsewhere
//! in `cuda` is called before [`driver_version`] or [`check_compiler`] has found them.
#![allow(unsafe_code)]

use super::error::{Error, Result};
use crate::error::check_count;
use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DriverError, result, sys,
};
use cudarc::nvrtc::sys as nvrtc;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, OnceLock};

/// An error of a call that `tried` describes, such as `launch \`scores\``.
pub fn failed(tried: impl Into<String>) -> impl FnOnce(DriverError) -> Error {
    let tried = tried.into();
    move |error| {
        let words =
            error.error_string().map(|words| words.to_string_lossy().into_owned());
        let says = words.unwrap_or_else(|_| "an error without a description".to_owned());
        Error::Driver { tried, says: format!("{says} ({:?})", error.0) }
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
        let tried = format!("{tried} in NVRTC");
        Error::Driver { tried, says: format!("{:?}", error.0) }
    })
}

/// NVRTC's version: major, minor.
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
        // SAFETY: The program is alive, and nobody else has its handle.
        let _ = unsafe { nvrtc::nvrtcDestroyProgram(&mut self.0) }; // a failure leaks it, no more
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Driver {
        tried: "hand a text to NVRTC".to_owned(),
        says: "it has a zero byte".to_owned(),
    })
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| CStr::as_ptr(text)).collect()
}

// ---------------------------------------------------------------------------------------------------- memory

/// Fills with bytes 0xff, which are NaN both as `f32` and as bf16.
pub fn fill_with_nan<T>(
    stream: &Arc<CudaStream>,
    slice: &mut CudaSlice<T>,
) -> Result<()> {
    let bytes = slice.num_bytes();
    let failed = failed("fill device memory with NaN");
    if let Err(error) = stream.context().bind_to_thread() {
        return Err(failed(error));
    }
    let (pointer, _written) = slice.device_ptr_mut(stream);
    // SAFETY: The slice is alive and has this many bytes; numbers and bits of numbers may be anything.
    unsafe { result::memset_d8_async(pointer, 0xff, bytes, stream.cu_stream()) }
        .map_err(failed)
}

/// How the copy engine of Hopper finds boxes of a tensor (heads, n, d) of bf16.
#[repr(transparent)]
pub struct TensorMap(sys::CUtensorMap);

// SAFETY: 128 bytes without a pointer of the host's, which is what a kernel takes by value.
unsafe impl DeviceRepr for TensorMap {}

impl TensorMap {
    /// Boxes of 64 columns and `rows` rows of one head, in shared memory swizzled over 128 bytes; rows and columns past
    /// the end are zeros.
    ///
    /// `tensor` must outlive the launches that take the map.
    pub fn new(
        stream: &Arc<CudaStream>,
        tensor: &CudaSlice<u16>,
        [heads, n, d]: [usize; 3],
        rows: u32,
    ) -> Result<Self> {
        let because = || format!("heads · n · d = {}", heads * n * d);
        check_count("tensor", "entry", tensor.len(), heads * n * d, because)?;
        let bytes = size_of::<u16>() as u64;
        let sizes = [d as u64, n as u64, heads as u64]; // the fastest first
        let strides = [d as u64 * bytes, (n * d) as u64 * bytes]; // of rows, of heads
        let (box_sizes, steps) = ([64, rows, 1], [1, 1, 1]);
        let (pointer, _read) = tensor.device_ptr(stream);
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: The arrays have as many entries as three dimensions need, and the tensor has the sizes that are told.
        let status = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3,
                pointer as *mut _,
                sizes.as_ptr(),
                strides.as_ptr(),
                box_sizes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        status.result().map_err(failed("describe a tensor to the copy engine"))?;
        Ok(TensorMap(map))
    }
}
