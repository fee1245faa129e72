//! The calls of CUDA's libraries that Rust cannot check. The crate has no unsafe code elsewhere.
//!
//! Each call is behind a function that no caller can misuse: a type owns what an address points to, and what a type
//! cannot say is checked before the call. All else goes through the safe part of `cudarc`. Its calls panic without the
//! libraries, so nothing here or elsewhere in `cuda` is called before [`driver_version`] or [`check_compiler`] has found
//! them.
#![allow(unsafe_code)]

use super::device::{OnDevice, Tensors, no_such_function};
use super::program::{Function, Parameter, Program, Shape, Source, Tensor};
use super::{Error, Result};
use crate::dot_product::scale;
use cudarc::driver::{
    CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys as nvrtc;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

// ---------------------------------------------------------------------------------------------------- libraries

/// The version of CUDA that the driver knows, or that there is no driver.
pub fn driver_version() -> Result<(u32, u32)> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: Looks for a library by name, and closes it again; the driver's has no code that runs then.
    if !PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        let words = "no CUDA driver: `libcuda.so` (`nvcuda.dll`) was not found; it is part of the driver of an NVIDIA \
                     GPU, so install that, or run on a machine that has one";
        return Err(Error::Missing(words.to_owned()));
    }
    let mut version = 0;
    // SAFETY: Writes one integer, and may be called before anything else.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    status.result().map_err(Error::driver("ask for the driver's version"))?;
    let version = version.unsigned_abs(); // such as 13020 for 13.2
    Ok((version / 1000, version % 1000 / 10))
}

/// That NVRTC is there.
pub fn check_compiler() -> Result<()> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: Looks for a library by name, and closes it again; NVRTC has no code that runs then.
    let present = PRESENT.get_or_init(|| unsafe { nvrtc::is_culib_present() });
    if *present {
        return Ok(());
    }
    let words = "no NVRTC, which compiles the kernels: run `pip install nvidia-cuda-nvrtc==13.0.*` and put the folder \
                 `nvidia/cu13/lib` of its `site-packages` on LD_LIBRARY_PATH";
    Err(Error::Missing(words.to_owned()))
}

/// NVRTC's version: major, minor.
///
/// # Errors
/// There is no NVRTC.
pub fn compiler_version() -> Result<(u32, u32)> {
    check_compiler()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: Writes two integers.
    let status = unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) };
    status.result().map_err(refused("ask for the version"))?;
    Ok((major.unsigned_abs(), minor.unsigned_abs()))
}

// ---------------------------------------------------------------------------------------------------- NVRTC

/// An error of a call that `tried` describes.
fn refused(tried: &'static str) -> impl FnOnce(NvrtcError) -> Error {
    move |NvrtcError(reason)| {
        let (tried, says) = (format!("{tried} in NVRTC"), format!("{reason:?}"));
        Error::Call { tried, code: reason as u32, says }
    }
}

/// A source that NVRTC holds, given back when it is dropped.
pub struct Nvrtc(nvrtc::nvrtcProgram);

impl Nvrtc {
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
        Ok(Nvrtc(program))
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

impl Drop for Nvrtc {
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

// ---------------------------------------------------------------------------------------------------- kernels

impl Program {
    /// Returns a program of a source that a crate adds.
    ///
    /// # Safety
    /// A function on the device is given addresses, and believes them. The functions of the source must have the parameters of their
    /// lists, and read and write nothing but the tensors that are named there, of the sizes that these say, and write only where the
    /// list says so; at each head dimension and with each number of heads, queries and keys. Numbers must have as many bytes as
    /// the source says.
    pub const unsafe fn new(source: &'static Source) -> Self {
        Program(source)
    }
}

impl Tensors {
    /// Launches the functions of the program, in order, each with the arguments that
    /// its list asks for, and does not wait. What it only reads is left as it was.
    ///
    /// # Errors
    /// The driver refuses. A kernel that fails while it runs is an error of the next
    /// call that waits.
    pub fn launch(&mut self) -> Result<()> {
        let functions = self.program.source().functions;
        functions.iter().try_for_each(|function| self.launch_function(function.0))
    }

    /// Launches one function of the program alone, as to time it. What those before it
    /// should have written is as it was.
    ///
    /// # Errors
    /// The program has no such function, or as [`Tensors::launch`].
    pub fn launch_function(&mut self, name: &str) -> Result<()> {
        let Tensors { program, shape, functions, stay, stream, all } = self;
        let [n_q, n_k, heads] = [shape.n_q, shape.n_k, shape.heads].map(|n| n as i32);
        let scale = scale::<f32>(shape.d);
        let kernel = functions.iter().find(|kernel| kernel.function.0 == name);
        let kernel = kernel.ok_or_else(|| no_such_function(*program, name))?;
        let Function(name, parameters) = kernel.function;
        let maps = Map::all(parameters, all, stream, *shape)?;
        let mut maps = maps.iter();
        let mut unused: Vec<_> = all.iter_mut().collect();
        let mut take = |tensor: Tensor| {
            let place = unused.iter().position(|data| data.tensor == tensor);
            &mut unused.swap_remove(place.expect("a list has it once")).bytes
        };
        let mut launch = stream.launch_builder(&kernel.handle);
        for &parameter in parameters {
            match parameter {
                Parameter::Reads(tensor) => launch.arg(&*take(tensor)),
                Parameter::Writes(tensor) => launch.arg(take(tensor)),
                Parameter::Map(..) => launch.arg(maps.next().expect("one each")),
                Parameter::QueryCount => launch.arg(&n_q),
                Parameter::KeyCount => launch.arg(&n_k),
                Parameter::HeadCount => launch.arg(&heads),
                Parameter::Scale => launch.arg(&scale),
            };
        }
        // ANCHOR: launch
        let (blocks, of_heads) = kernel.blocks(*shape, *stay);
        let config = LaunchConfig {
            grid_dim: (blocks, of_heads, 1),
            block_dim: (kernel.threads, 1, 1),
            shared_mem_bytes: kernel.shared_bytes,
        };
        // SAFETY: Each tensor is alive, on this device, of the length that the shape
        // says, and borrowed alone if it is written. The program has the parameters
        // of its list and stays inside of these, as its author has promised.
        let launched = unsafe { launch.launch(config) };
        // ANCHOR_END: launch
        launched.map_err(Error::driver(format!("launch `{name}`")))?;
        Ok(())
    }
}

/// The bytes of a [`Parameter::Map`].
#[repr(transparent)]
struct Map([u64; 16]);

// SAFETY: Numbers, which a kernel takes by value.
unsafe impl DeviceRepr for Map {}

impl Map {
    /// Those that a list of parameters asks for, in its order.
    fn all(
        parameters: &[Parameter],
        tensors: &[OnDevice],
        stream: &CudaStream,
        shape: Shape,
    ) -> Result<Vec<Self>> {
        let of = |parameter: &Parameter| {
            let Parameter::Map(tensor, map) = *parameter else { return None };
            let data = tensors.iter().find(|data| data.tensor == tensor)?;
            let (address, _read) = data.bytes.device_ptr(stream);
            Some(map(address, tensor.sizes(shape)).map(Map))
        };
        parameters.iter().filter_map(of).collect()
    }
}
