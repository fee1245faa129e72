//! One GPU, the programs that were loaded onto it, and the same calls as on a CPU: matrices in, matrices out.

use super::compile::Variant;
use super::error::{Error, Result};
use super::ffi;
use super::program::Program;
use super::shape::{Shape, Tensor};
use super::tensors::{Loaded, Tensors};
use crate::dot_product::AttentionGradients;
use crate::engine::Engine;
use crate::error::unsupported;
use crate::flash::{FlashOutput, Inputs};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::sys::CUresult::CUDA_ERROR_NO_DEVICE;
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use nalgebra::{DMatrix, DMatrixView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The description of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (u32, u32),
    /// Bytes of shared memory that a block can have.
    pub shared_bytes: u32,
    /// The version of CUDA that the driver knows: major, minor.
    pub driver: (u32, u32),
}

/// A handle on one GPU. Whatever is launched through it runs in order.
///
/// Programs are compiled when they are first needed, and kept. A handle can be shared between threads.
///
/// ```no_run
/// use attention::cuda::Gpu;
///
/// match Gpu::open() {
///     Ok(gpu) => println!("{}", gpu.device().name),
///     Err(error) => println!("{error}"), // what is missing, and what helps
/// }
/// ```
#[derive(Debug)]
pub struct Gpu {
    device: Device,
    // The context's own stream: all handles on a device share it, so their work is in order too.
    stream: Arc<CudaStream>,
    programs: Mutex<HashMap<(Program, usize, Variant), Arc<Loaded>>>,
}

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

    /// Waits until all that was launched is done.
    ///
    /// # Errors
    /// A kernel that was launched before has failed.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(Error::driver("wait for the device"))
    }

    /// Returns the stream on which everything is launched, for events and copies by the crate `cudarc`.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The program on the device; compiled now, if it was not before.
    pub(super) fn load(
        &self,
        program: Program,
        d: usize,
        variant: Variant,
    ) -> Result<Arc<Loaded>> {
        let key = (program, d, variant);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = programs.get(&key) {
            return Ok(loaded.clone());
        }
        let variant = key.2.clone();
        let loaded = Loaded::new(&self.stream, &self.device, program, d, variant)?;
        let loaded = Arc::new(loaded);
        programs.insert(key, loaded.clone());
        Ok(loaded)
    }

    /// The output, and the log-sum-exps, as an [`Engine`] finds them, up to
    /// rounding. A kernel in bf16 rounds its inputs and its output.
    ///
    /// Everything is copied to the device and back: to time a kernel, use [`Gpu::tensors`].
    ///
    /// # Errors
    /// The mask is neither none nor causal, values are not as wide as keys, weights are dropped, its rule for scores is a
    /// function of one's own, the kernel takes no rules and no shared keys, or as [`Gpu::tensors`].
    pub fn forward(
        &self,
        program: Program,
        inputs: &Inputs<f32>,
    ) -> Result<FlashOutput<f32>> {
        program.check_writes(Tensor::OUTPUT)?;
        let tensors = self.run(program, inputs, &[])?;
        let Shape { heads, n_q, .. } = tensors.shape();
        Ok(FlashOutput {
            output: side_by_side(&tensors.read(Tensor::OUTPUT)?, heads, n_q),
            // (heads, n_q) by rows is (n_q, heads) by columns
            log_sum_exp: DMatrix::from_vec(n_q, heads, tensors.read(Tensor::LSE)?),
            log_sum_exp_low: DMatrix::zeros(n_q, heads), // the kernels keep one number a row
            weights: vec![],
        })
    }

    /// The gradients of queries, keys and values, as an [`Engine`] finds them, up
    /// to rounding, by a program that reads [`Tensor::OUTPUT`], [`Tensor::LSE`] and [`Tensor::D_OUTPUT`]. `forward` may come from
    /// there, or from [`Gpu::forward`].
    ///
    /// Shapes: `grad_output` as the output (n_q, n_heads · d).
    /// The kernels keep one number a row, the log-sum-exp L rounded to `f32`, and compute weights as e^(score − L). Each
    /// weight is off by a factor of up to e^(|L| · 6·10⁻⁸): half a percent at scores of 10⁵, and at scores beyond 10⁷ the
    /// weights of a row no longer sum to 1. Other engines have no such limit.
    ///
    /// # Errors
    /// `forward` or `grad_output` doesn't have the shape of these inputs' output, the rule for scores has a table, whose gradient the
    /// device doesn't compute, the program makes no gradients, or as [`Gpu::forward`].
    pub fn backward<'g>(
        &self,
        program: Program,
        inputs: &Inputs<f32>,
        forward: &FlashOutput<f32>,
        grad_output: impl Into<DMatrixView<'g, f32>>,
    ) -> Result<AttentionGradients<f32>> {
        let grad_output = grad_output.into();
        if !inputs.mask.scores().zero_tables::<f32>().is_empty() {
            let expected = "the GPU doesn't compute the gradient of a table";
            return Err(unsupported("mask", "with a table of biases", expected).into());
        }
        program.check_writes(Tensor::D_Q)?;
        inputs.check_output(forward)?;
        inputs.check_grad_output(grad_output)?;
        let heads = inputs.n_heads();
        let (output, d_output) =
            (by_heads(&forward.output, heads), by_heads(grad_output, heads));
        let others = [
            (Tensor::OUTPUT, &output[..]),
            (Tensor::LSE, forward.log_sum_exp.as_slice()),
            (Tensor::D_OUTPUT, &d_output),
        ];
        let tensors = self.run(program, inputs, &others)?;
        let Shape { kv_heads, n_q, n_k, .. } = tensors.shape();
        Ok(AttentionGradients {
            q: side_by_side(&tensors.read(Tensor::D_Q)?, heads, n_q),
            k: side_by_side(&tensors.read(Tensor::D_K)?, kv_heads, n_k),
            v: side_by_side(&tensors.read(Tensor::D_V)?, kv_heads, n_k),
            tables: vec![],
        })
    }

    /// The tensors of a program that was launched on these inputs, and on others beside them.
    fn run(
        &self,
        program: Program,
        inputs: &Inputs<f32>,
        others: &[(Tensor, &[f32])],
    ) -> Result<Tensors> {
        if inputs.dropout.is_some() {
            let expected = "the kernels on the GPU drop no weights";
            return Err(unsupported("dropout", "given", expected).into());
        }
        let (shape, rule) = (Shape::of(inputs)?, Variant::of(inputs)?.rule);
        let [q, k, v] = [
            (inputs.q, shape.heads),
            (inputs.k, shape.kv_heads),
            (inputs.v, shape.kv_heads),
        ]
        .map(|(matrix, heads)| by_heads(matrix, heads));
        let own = [(Tensor::Q, &q[..]), (Tensor::K, &k), (Tensor::V, &v)];
        let mut tensors = self.place(program, shape, rule, &[&own, others].concat())?;
        tensors.launch()?;
        Ok(tensors)
    }
}

/// A GPU as an engine, with the kernel that it runs forward, and one for the backward pass if it is given: those of this crate have
/// none. Projections of layers stay on the processor.
#[derive(Debug, Clone)]
pub struct OnGpu {
    gpu: Arc<Gpu>,
    forward: Program,
    backward: Option<Program>,
}

impl OnGpu {
    /// Returns the engine that runs this kernel on this GPU.
    pub fn new(gpu: Arc<Gpu>, forward: Program) -> Self {
        OnGpu { gpu, forward, backward: None }
    }

    /// Returns the engine with a kernel for the backward pass.
    pub fn with_backward(self, backward: Program) -> Self {
        OnGpu { backward: Some(backward), ..self }
    }
}

impl Engine<f32> for OnGpu {
    fn forward(&self, inputs: &Inputs<f32>) -> crate::Result<FlashOutput<f32>> {
        self.gpu.forward(self.forward, inputs).map_err(as_engine)
    }

    fn backward(
        &self,
        inputs: &Inputs<f32>,
        forward: &FlashOutput<f32>,
        grad_output: DMatrixView<f32>,
    ) -> crate::Result<AttentionGradients<f32>> {
        let Some(backward) = self.backward else {
            let expected = "OnGpu::with_backward was given no kernel for it";
            return Err(unsupported("backward", "asked for", expected));
        };
        self.gpu.backward(backward, inputs, forward, grad_output).map_err(as_engine)
    }
}

/// What went wrong on the device, as an error of the layer that asked.
fn as_engine(error: Error) -> crate::Error {
    match error {
        Error::Input(error) => error,
        error => unsupported("engine", "a GPU", error.to_string()),
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
            driver,
        })
    }
}

/// From (n, heads · d), by columns as nalgebra stores it, to (heads, n, d), by rows.
fn by_heads<'a>(matrix: impl Into<DMatrixView<'a, f32>>, heads: usize) -> Vec<f32> {
    let matrix = matrix.into();
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
        let tensor = by_heads(&matrix, 2);
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
