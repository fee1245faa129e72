//! One GPU, the programs that were loaded onto it, and the same calls as on a CPU: matrices in, matrices out.

use super::compile::{Variant, compile};
use super::ffi;
use super::program::{Function, Numbers, Parameter, Program, Shape, Tensor};
use super::{Error, Result};
use crate::dot_product::AttentionGradients;
use crate::engine::Engine;
use crate::error::wrong_value;
use crate::flash::{FlashOutput, Inputs};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC_SHARED_BYTES;
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as SHARED_PERCENT;
use cudarc::driver::sys::CUresult::CUDA_ERROR_NO_DEVICE;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;
use nalgebra::{DMatrix, DMatrixView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

// ---------------------------------------------------------------------------------------------------- the device

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (u32, u32),
    /// Bytes of shared memory that a block can have.
    pub shared_bytes: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The version of CUDA that the driver knows: major, minor.
    pub driver: (u32, u32),
}

/// A handle on one GPU. Whatever is launched through it runs in order.
/// Programs are compiled when they are first needed, and kept. A handle can be shared between threads.
#[derive(Debug)]
pub struct Gpu {
    device: Device,
    // The context's own stream: all handles on a device share it, so their work is in order too.
    stream: Arc<CudaStream>,
    programs: Mutex<Programs>,
}

/// The functions of each program, in the order in which they are launched.
type Programs = HashMap<Key, Arc<Vec<Loaded>>>;
/// Program, head dimension, variant.
type Key = (Program, usize, Variant);

impl Gpu {
    /// Returns the first device.
    ///
    /// # Errors
    /// No driver or one that is too old, no NVRTC, no device, or a failed call of the driver.
    pub fn open() -> Result<Self> {
        Self::open_device(0)
    }

    /// The device of this number, counted from 0.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open_device(ordinal: usize) -> Result<Self> {
        let has = ffi::driver_version()?; // without a driver, every other call would panic
        if has < (13, 0) {
            return Err(Error::Missing(format!(
                "the driver knows CUDA {}.{}, but CUDA 13.0 is needed: update the driver to version 580 or newer",
                has.0, has.1
            )));
        }
        let count = match CudaContext::device_count() {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(DriverError(CUDA_ERROR_NO_DEVICE)) => 0,
            Err(error) => return Err(Error::driver("start the driver")(error)),
        };
        if ordinal >= count {
            return Err(Error::Missing(format!(
                "no CUDA device {ordinal}: the driver sees {count} of them, counted from 0; `nvidia-smi` and \
                 CUDA_VISIBLE_DEVICES say which"
            )));
        }
        ffi::check_compiler()?;
        let context = CudaContext::new(ordinal)
            .map_err(Error::driver(format!("open device {ordinal}")))?;
        let device =
            Device::of(&context, has).map_err(Error::driver("ask what the device is"))?;
        let stream = context.default_stream();
        Ok(Gpu { device, stream, programs: Mutex::default() })
    }

    /// Returns the description of the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the stream on which everything is launched, for events and copies by the crate `cudarc`.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

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
        shape.check(program)?;
        self.place(program, shape, Variant::of_shape(shape), inputs)
    }

    /// The same of a variant, which belongs to the shape.
    fn place(
        &self,
        program: Program,
        shape: Shape,
        variant: Variant,
        inputs: &[(Tensor, &[f32])],
    ) -> Result<Tensors> {
        shape.check(program)?;
        let all = program.tensors();
        for &(tensor, values) in inputs {
            let known = all.iter().find(|known| known.0 == tensor);
            known.ok_or_else(|| missing(program, tensor))?;
            tensor.check_values(values, shape)?;
        }
        let functions = self.load((program, shape.d, variant))?;
        let place = |(tensor, _): (Tensor, bool)| {
            let numbers = program.source().numbers_of(tensor);
            let bytes = match inputs.iter().find(|input| input.0 == tensor) {
                Some((_, values)) => {
                    let bytes = self.stream.clone_htod(&(numbers.encode)(values));
                    bytes.map_err(Error::driver("copy to the device"))
                }
                None => {
                    let bytes = tensor.entries(shape).saturating_mul(numbers.bytes);
                    let bytes = self.stream.alloc_zeros(bytes);
                    bytes.map_err(Error::driver("allocate device memory"))
                }
            };
            Ok(OnDevice { tensor, numbers, bytes: bytes? })
        };
        let all = all.into_iter().map(place).collect::<Result<_>>()?;
        let stay = program.source().is_persistent.then_some(self.device.multiprocessors);
        let stream = self.stream.clone();
        Ok(Tensors { program, shape, functions, stay, stream, all })
    }

    /// The functions of a program on the device; compiled now, if they were not before.
    fn load(&self, key: Key) -> Result<Arc<Vec<Loaded>>> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = programs.get(&key) {
            return Ok(loaded.clone());
        }
        let (program, d, variant) = key.clone();
        let architecture = program.architecture_for(self.device.capability)?;
        let compiled = compile(program, architecture, d, variant)?;
        let module = self.stream.context().load_module(Ptx::from_binary(compiled.cubin));
        let module = module.map_err(Error::driver(format!("load {program}")))?;
        let mut functions = vec![];
        for &function in program.source().functions {
            let name = function.0;
            let handle = module.load_function(name);
            let handle = handle.map_err(Error::driver(format!("find `{name}`")))?;
            let read = || {
                let launch =
                    module.get_global(&format!("{name}_launch"), &self.stream)?;
                self.stream.clone_dtoh(&launch)
            };
            let launch =
                read().map_err(Error::driver(format!("read `{name}_launch`")))?;
            let launch = launch.as_chunks().0.iter().map(|&x| u32::from_le_bytes(x));
            let [threads @ 1..=1024, rows @ 1..=1024, shared_bytes] =
                launch.collect::<Vec<_>>()[..]
            else {
                let log = format!("`{name}_launch` is not threads, rows and bytes");
                let what = format!("{program} for {architecture}");
                return Err(Error::Compile { what, log });
            };
            self.allow_memory(&handle, name, shared_bytes)?;
            functions.push(Loaded { function, handle, threads, rows, shared_bytes });
        }
        let loaded = Arc::new(functions);
        programs.insert(key, loaded.clone());
        Ok(loaded)
    }

    /// A block gets more than 48 KiB of shared memory only if that was asked for.
    fn allow_memory(&self, handle: &CudaFunction, name: &str, needed: u32) -> Result<()> {
        let has = self.device.shared_bytes;
        if needed > has {
            return Err(Error::Device(format!(
                "`{name}` needs {needed} bytes of shared memory a block, but the device has {has}: choose another \
                 kernel or a smaller head dimension"
            )));
        }
        if needed <= 48 << 10 {
            return Ok(());
        }
        let raised = handle
            .set_attribute(DYNAMIC_SHARED_BYTES, needed as i32)
            // Of the memory that shared memory and the first-level cache have together, as many blocks as fit get all that can be shared.
            .and_then(|()| handle.set_attribute(SHARED_PERCENT, 100));
        let tried = format!("give `{name}` {needed} bytes of shared memory");
        raised.map_err(Error::driver(tried))
    }
}

impl Device {
    fn of(context: &Arc<CudaContext>, driver: (u32, u32)) -> Result<Self, DriverError> {
        let attribute = |attribute| context.attribute(attribute).map(i32::unsigned_abs);
        let (major, minor) = context.compute_capability()?;
        Ok(Device {
            name: context.name()?,
            capability: (major.unsigned_abs(), minor.unsigned_abs()),
            shared_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            multiprocessors: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )?,
            driver,
        })
    }
}

// ---------------------------------------------------------------------------------------------------- tensors

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
    pub(super) program: Program,
    pub(super) shape: Shape,
    pub(super) functions: Arc<Vec<Loaded>>,
    pub(super) stay: Option<u32>, // so many blocks
    pub(super) stream: Arc<CudaStream>,
    pub(super) all: Vec<OnDevice>, // one for each tensor of the program
}

/// A tensor in the device's memory, which it owns: as long as the shape of all says.
#[derive(Debug)]
pub(super) struct OnDevice {
    pub tensor: Tensor,
    pub numbers: Numbers,
    pub bytes: CudaSlice<u8>,
}

/// A function on the device, with the launch that its source asks for.
#[derive(Debug)]
pub(super) struct Loaded {
    pub function: Function,
    pub handle: CudaFunction,
    pub threads: u32,
    pub rows: u32, // that a block takes
    pub shared_bytes: u32,
}

impl Tensors {
    /// Waits, so that a kernel's failure is reported as such, and copies a tensor from the device.
    ///
    /// # Errors
    /// The program has no such tensor, a kernel that was launched has failed, or the copy does.
    pub fn read(&self, tensor: Tensor) -> Result<Vec<f32>> {
        let found = self.all.iter().find(|one| one.tensor == tensor);
        let found = found.ok_or_else(|| missing(self.program, tensor))?;
        self.stream.synchronize().map_err(Error::driver("wait for the device"))?;
        let bytes = self.stream.clone_dtoh(&found.bytes);
        let bytes = bytes.map_err(Error::driver("copy from the device"))?;
        Ok((found.numbers.decode)(&bytes))
    }

    /// As [`Tensors::read`], with the heads side by side: (n, heads · d).
    ///
    /// # Errors
    /// As there.
    pub fn read_matrix(&self, tensor: Tensor) -> Result<DMatrix<f32>> {
        let [heads, n, _] = tensor.sizes(self.shape);
        Ok(side_by_side(&self.read(tensor)?, heads, n))
    }
}

/// A function that the program has none of.
pub(super) fn no_such_function(program: Program, name: &str) -> Error {
    let names: Vec<_> = program.source().functions.iter().map(|one| one.0).collect();
    let expected = format!("{program} has {}", names.join(", "));
    wrong_value("name", format!("`{name}`"), expected).into()
}

/// A tensor that the program has none of.
fn missing(program: Program, tensor: Tensor) -> Error {
    let expected = format!("{program} takes no such tensor");
    wrong_value("tensor", format!("`{}`", tensor.name), expected).into()
}

impl Loaded {
    /// As many blocks as it takes for all rows of all heads that the function writes; or, if these blocks `stay`, so many, if there
    /// is work for them.
    pub fn blocks(&self, shape: Shape, stay: Option<u32>) -> (u32, u32) {
        let written = self.function.1.iter().filter_map(|parameter| match parameter {
            Parameter::Writes(tensor) => Some(tensor.sizes(shape)),
            _ => None,
        });
        let [heads, rows, _] = written.max_by_key(|sizes| sizes[1]).unwrap_or([1; 3]);
        let (blocks, heads) = ((rows as u32).div_ceil(self.rows), heads as u32);
        match stay {
            Some(stay) => (stay.min(blocks.saturating_mul(heads)), 1),
            None => (blocks, heads),
        }
    }
}

// ---------------------------------------------------------------------------------------------------- matrices

impl Gpu {
    /// Returns what an [`Engine`] does, up to rounding. Everything is copied to the device and back: to time a kernel, use
    /// [`Gpu::tensors`].
    ///
    /// # Errors
    /// The inputs have what the module's description rules out, or as [`Gpu::tensors`].
    pub fn forward(
        &self,
        program: Program,
        inputs: &Inputs<f32>,
    ) -> Result<FlashOutput<f32>> {
        if !program.tensors().contains(&(Tensor::OUTPUT, true)) {
            let expected = "what is asked for is `output`, which it doesn't write";
            return Err(wrong_value("program", program.to_string(), expected).into());
        }
        let tensors = self.run(program, inputs, &[])?;
        Ok(FlashOutput {
            output: tensors.read_matrix(Tensor::OUTPUT)?,
            log_sum_exp: tensors.read_matrix(Tensor::LSE)?,
            ..FlashOutput::zeros(inputs) // the kernels keep one number a row
        })
    }

    /// Returns the tensors of a program that was launched on these inputs, and on other tensors, each with its heads side by side.
    ///
    /// # Errors
    /// As [`Gpu::forward`].
    pub fn run(
        &self,
        program: Program,
        inputs: &Inputs<f32>,
        others: &[(Tensor, DMatrixView<f32>)],
    ) -> Result<Tensors> {
        if inputs.dropout.is_some() {
            let expected = "the kernels on the GPU drop no weights";
            return Err(wrong_value("dropout", "given", expected).into());
        }
        let (shape, variant) = Variant::with_shape(inputs)?;
        let own = [(Tensor::Q, inputs.q), (Tensor::K, inputs.k), (Tensor::V, inputs.v)];
        let by_heads = |&(tensor, matrix): &(Tensor, DMatrixView<f32>)| {
            let [heads, ..] = tensor.sizes(shape);
            (tensor, by_heads(matrix, heads))
        };
        let all: Vec<_> = own.iter().chain(others).map(by_heads).collect();
        let all: Vec<_> = all.iter().map(|(tensor, data)| (*tensor, &data[..])).collect();
        let mut tensors = self.place(program, shape, variant, &all)?;
        tensors.launch()?;
        Ok(tensors)
    }
}

/// A GPU as an engine, with the kernel that it runs. It has no backward pass, and projections of layers stay on the processor.
#[derive(Debug, Clone)]
pub struct OnGpu {
    gpu: Arc<Gpu>,
    forward: Program,
}

impl OnGpu {
    /// Returns the engine that runs this kernel on this GPU.
    pub fn new(gpu: Arc<Gpu>, forward: Program) -> Self {
        OnGpu { gpu, forward }
    }
}

impl Engine<f32> for OnGpu {
    fn forward(&self, inputs: &Inputs<f32>) -> crate::Result<FlashOutput<f32>> {
        Ok(self.gpu.forward(self.forward, inputs)?)
    }

    fn backward(
        &self,
        _inputs: &Inputs<f32>,
        _forward: &FlashOutput<f32>,
        _grad_output: DMatrixView<f32>,
    ) -> crate::Result<AttentionGradients<f32>> {
        Err(wrong_value("backward", "asked for", "OnGpu has no kernel for it"))
    }
}

/// From (n, heads · d), by columns as nalgebra stores it, to (heads, n, d), by rows.
fn by_heads(matrix: DMatrixView<f32>, heads: usize) -> Vec<f32> {
    let d = matrix.ncols() / heads;
    let head = |h| matrix.columns(h * d, d).transpose(); // (d, n) by columns is (n, d) by rows
    (0..heads).flat_map(|h| head(h).as_slice().to_vec()).collect()
}

/// From (heads, n, d), by rows, to (n, heads · d).
fn side_by_side(values: &[f32], heads: usize, n: usize) -> DMatrix<f32> {
    let d = values.len() / (heads * n);
    let mut matrix = DMatrix::zeros(n, heads * d);
    for (h, head) in values.chunks_exact(n * d).enumerate() {
        matrix.columns_mut(h * d, d).copy_from(&DMatrix::from_row_slice(n, d, head));
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{NAIVE, TILED};
    use crate::engine::Tiled;
    use crate::{Mask, ScoreRule};

    #[test]
    fn heads_come_first_and_go_back() {
        let matrix = DMatrix::from_fn(3, 4, |i, j| (10 * i + j) as f32); // two heads of width 2
        let tensor = by_heads(matrix.as_view(), 2);
        assert_eq!(tensor, [0., 1., 10., 11., 20., 21., 2., 3., 12., 13., 22., 23.]);
        assert_eq!(side_by_side(&tensor, 2, 3), matrix);
    }

    /// Without a GPU it says what is missing, and passes; with REQUIRE_GPU=1 it fails with the same words.
    #[test]
    fn both_kernels_agree_with_tiles() {
        let gpu = match Gpu::open() {
            Ok(gpu) => gpu,
            Err(error) if std::env::var("REQUIRE_GPU").is_ok_and(|set| set == "1") => {
                panic!("REQUIRE_GPU=1, but: {error}")
            }
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let matrix = |n, heads: usize, seed: usize| {
            DMatrix::from_fn(n, 32 * heads, |i, j| ((seed + 7 * i + 3 * j) as f32).sin())
        };
        let (q, k, v) = (matrix(70, 4, 0), matrix(90, 2, 1), matrix(90, 2, 2));
        let rule = ScoreRule::alibi(4).unwrap();
        for mask in [Mask::none(), Mask::causal().with_scores(rule)] {
            let inputs = Inputs::grouped(&q, &k, &v, mask, 4, 2).unwrap();
            let expected = Tiled::default().forward(&inputs).unwrap();
            for kernel in [NAIVE, TILED] {
                let found = gpu.forward(kernel, &inputs).unwrap();
                assert!((found.output - &expected.output).amax() < 1e-5, "{kernel}");
                let off = (found.log_sum_exp - &expected.log_sum_exp).amax();
                assert!(off < 1e-5, "{kernel}: {off}");
            }
        }
    }
}
