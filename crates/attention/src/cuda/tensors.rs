//! Queries, keys, values and all that comes of them, on the device, and programs that were loaded there.

use super::compile::{Variant, compile};
use super::device::{Device, Gpu};
use super::error::{Error, Result};
use super::program::{Function, Parameter, Precision, Program};
use super::shape::{Shape, Tensor};
use crate::error::unsupported;
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC_SHARED_BYTES;
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

/// All that a program reads and writes, on the device, with the program: to be launched often.
///
/// ```no_run
/// use attention::cuda::{Gpu, Shape, TILED, Tensor};
///
/// let gpu = Gpu::open()?;
/// let shape = Shape { heads: 8, kv_heads: 8, n_q: 1024, n_k: 1024, d: 64, causal: true };
/// let x = vec![0.5; 8 * 1024 * 64];
/// let inputs = [Tensor::Q, Tensor::K, Tensor::V].map(|tensor| (tensor, &x[..]));
/// let mut tensors = gpu.tensors(TILED, shape, &inputs)?;
/// tensors.launch()?;
/// let output = tensors.read(Tensor::OUTPUT)?;
/// assert!(output.iter().all(|y| (y - 0.5).abs() < 1e-6)); // equal values have that mean
/// # Ok::<(), attention::cuda::Error>(())
/// ```
#[derive(Debug)]
pub struct Tensors {
    pub(super) shape: Shape,
    pub(super) loaded: Arc<Loaded>,
    pub(super) stream: Arc<CudaStream>,
    pub(super) all: Vec<OnDevice>, // one for each tensor of the program
}

/// A tensor in the device's memory, which it owns: as long as the shape of all says.
#[derive(Debug)]
pub(super) struct OnDevice {
    pub tensor: Tensor,
    pub precision: Precision,
    pub bytes: CudaSlice<u8>,
}

/// A program on the device, compiled for one head dimension and one variant.
#[derive(Debug)]
pub(super) struct Loaded {
    pub program: Program,
    pub functions: Vec<Loadable>, // in the order in which they are launched
}

/// A function on the device, with the launch that its source asks for.
#[derive(Debug)]
pub(super) struct Loadable {
    pub function: Function,
    pub handle: CudaFunction,
    pub threads: u32,
    pub rows: u32, // that a block takes
    pub shared_bytes: u32,
}

impl Gpu {
    /// Copies the inputs of a program to the device, rounded to what it reads, and makes room for what it writes.
    ///
    /// Tensors that are not among the inputs hold zeros.
    ///
    /// # Errors
    /// A size is 0 or too large, the program has no such head dimension, no shared keys or no such tensor, an input has another
    /// length, the device is too old for it or has too little memory, it does not compile, or a call of the driver fails.
    pub fn tensors(
        &self,
        program: Program,
        shape: Shape,
        inputs: &[(Tensor, &[f32])],
    ) -> Result<Tensors> {
        self.place(program, shape, None, inputs)
    }

    /// The same with a rule for scores in CUDA C++, if there is one.
    pub(super) fn place(
        &self,
        program: Program,
        shape: Shape,
        rule: Option<String>,
        inputs: &[(Tensor, &[f32])],
    ) -> Result<Tensors> {
        shape.check(program)?;
        let all = program.tensors();
        for &(tensor, values) in inputs {
            let known = all.iter().find(|known| known.0 == tensor);
            known.ok_or_else(|| missing(program, tensor))?;
            tensor.check_entries(values.len(), shape)?;
        }
        let variant = Variant { causal: shape.causal, group: shape.group(), rule };
        let loaded = self.load(program, shape.d, variant)?;
        let place = |(tensor, _): (Tensor, bool)| {
            let precision = program.source().precision_of(tensor);
            let bytes = match inputs.iter().find(|input| input.0 == tensor) {
                Some((_, values)) => {
                    let bytes = self.stream().clone_htod(&precision.encode(values));
                    bytes.map_err(Error::driver("copy to the device"))
                }
                None => {
                    let bytes = tensor.entries(shape).saturating_mul(precision.bytes());
                    let bytes = self.stream().alloc_zeros(bytes);
                    bytes.map_err(Error::driver("allocate device memory"))
                }
            };
            Ok(OnDevice { tensor, precision, bytes: bytes? })
        };
        let all = all.into_iter().map(place).collect::<Result<_>>()?;
        Ok(Tensors { shape, loaded, stream: self.stream().clone(), all })
    }
}

impl Tensors {
    /// Returns the sizes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the program that is launched.
    pub fn program(&self) -> Program {
        self.loaded.program
    }

    /// Waits, and copies a tensor from the device. It waits first so that a kernel's failure is reported as such, and not as a
    /// failure of the copy.
    ///
    /// # Errors
    /// The program has no such tensor, a kernel that was launched has failed, or the copy does.
    pub fn read(&self, tensor: Tensor) -> Result<Vec<f32>> {
        let found = self.all.iter().find(|one| one.tensor == tensor);
        let found = found.ok_or_else(|| missing(self.loaded.program, tensor))?;
        self.stream.synchronize().map_err(Error::driver("wait for the device"))?;
        let bytes = self.stream.clone_dtoh(&found.bytes);
        let bytes = bytes.map_err(Error::driver("copy from the device"))?;
        Ok(found.precision.decode(&bytes))
    }

    /// Copies other numbers into a tensor, such as NaN, so that what a program forgets to write is seen.
    ///
    /// # Errors
    /// The program has no such tensor, it has another length, or the copy fails.
    pub fn write(&mut self, tensor: Tensor, values: &[f32]) -> Result<()> {
        let found = self.all.iter_mut().find(|one| one.tensor == tensor);
        let found = found.ok_or_else(|| missing(self.loaded.program, tensor))?;
        tensor.check_entries(values.len(), self.shape)?;
        let copied =
            self.stream.memcpy_htod(&found.precision.encode(values), &mut found.bytes);
        copied.map_err(Error::driver("copy to the device"))
    }
}

/// A tensor that the program has none of.
fn missing(program: Program, tensor: Tensor) -> Error {
    let expected = format!("{program} takes no such tensor");
    unsupported("tensor", format!("`{}`", tensor.name), expected).into()
}

impl Loaded {
    /// Compiles a program and puts it on the device.
    pub fn new(
        stream: &Arc<CudaStream>,
        device: &Device,
        program: Program,
        d: usize,
        variant: Variant,
    ) -> Result<Self> {
        let architecture = program.architecture_for(device.capability)?;
        let compiled = compile(program, architecture, d, variant)?;
        let module = stream.context().load_module(Ptx::from_binary(compiled.cubin));
        let module = module.map_err(Error::driver(format!("load {program}")))?;
        let mut functions = vec![];
        for &function in program.source().functions {
            let name = function.0;
            let handle = module.load_function(name);
            let handle = handle.map_err(Error::driver(format!("find `{name}`")))?;
            let read = || {
                let launch = module.get_global(&format!("{name}_launch"), stream)?;
                stream.clone_dtoh(&launch)
            };
            let launch =
                read().map_err(Error::driver(format!("read `{name}_launch`")))?;
            let launch = launch.as_chunks().0.iter().map(|&x| u32::from_le_bytes(x));
            let [threads @ 1..=1024, rows @ 1..=1024, shared_bytes] =
                launch.collect::<Vec<_>>()[..]
            else {
                let log = format!("`{name}_launch` is not threads, rows and bytes");
                return Err(Error::Compile { program, architecture, log });
            };
            allow_shared_memory(&handle, name, shared_bytes, device.shared_bytes)?;
            functions.push(Loadable { function, handle, threads, rows, shared_bytes });
        }
        Ok(Loaded { program, functions })
    }
}

impl Loadable {
    /// As many blocks as it takes for all rows of all heads that the function writes.
    pub fn blocks(&self, shape: Shape) -> (u32, u32) {
        let written = self.function.1.iter().filter_map(|parameter| match parameter {
            Parameter::Writes(tensor) => Some(tensor.sizes(shape)),
            _ => None,
        });
        let [heads, rows, _] = written.max_by_key(|sizes| sizes[1]).unwrap_or([1; 3]);
        ((rows as u32).div_ceil(self.rows), heads as u32)
    }
}

/// A block gets more than 48 KiB only if that was asked for.
fn allow_shared_memory(
    handle: &CudaFunction,
    function: &str,
    needed: u32,
    has: u32,
) -> Result<()> {
    if needed > has {
        return Err(Error::Device(format!(
            "`{function}` needs {needed} bytes of shared memory a block, but the device has {has}: choose another kernel or \
             a smaller head dimension"
        )));
    }
    if needed <= 48 << 10 {
        return Ok(());
    }
    let raised = handle.set_attribute(DYNAMIC_SHARED_BYTES, needed as i32);
    raised.map_err(Error::driver(format!(
        "give `{function}` {needed} bytes of shared memory"
    )))
}
