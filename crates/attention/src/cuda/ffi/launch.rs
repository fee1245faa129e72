//! Functions on a device, and their launches.

use super::failed;
use super::memory::DeviceTensor;
use crate::cuda::compile::{Launch, Variant, compile};
use crate::cuda::device::Device;
use crate::cuda::error::{Error, Result};
use crate::cuda::parameters::{Format, Parameter, Role, tensors};
use crate::cuda::program::Program;
use crate::cuda::shape::Shape;
use crate::cuda::tensors::missing;
use crate::dot_product::scale;
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC_SHARED_BYTES;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

/// A program on the device, compiled for one head dimension and one variant.
pub struct Loaded {
    program: Program,
    d: usize,
    variant: Variant,
    functions: Vec<Function>, // in the order in which they are launched
    stream: Arc<CudaStream>,
}

/// A function on the device, with what its source says of it.
struct Function {
    launch: Launch,
    parameters: Vec<Parameter>,
    handle: CudaFunction,
}

impl Loaded {
    /// Compiles a program and puts it on the device. Since code, parameters and sizes of blocks come from one source,
    /// they belong together.
    pub fn new(
        stream: &Arc<CudaStream>,
        device: &Device,
        program: Program,
        d: usize,
        variant: Variant,
    ) -> Result<Self> {
        let architecture = program.architecture_for(device.capability)?;
        let compiled = compile(program, architecture, d, variant.clone())?;
        let module = stream.context().load_module(Ptx::from_binary(compiled.cubin));
        let module = module.map_err(failed(format!("load {program}")))?;
        let function = |launch: Launch| {
            let name = launch.function;
            let parameters = Parameter::of(program.source().text, name, compiled.boxes);
            let Some(parameters) = parameters else {
                let log = format!("`{name}` has parameters that no launch knows");
                return Err(Error::Compile { program, architecture, log });
            };
            let handle =
                module.load_function(name).map_err(failed(format!("find `{name}`")))?;
            allow_shared_memory(&handle, launch, device)?;
            Ok(Function { launch, parameters, handle })
        };
        let functions =
            compiled.launches.into_iter().map(function).collect::<Result<_>>()?;
        Ok(Loaded { program, d, variant, functions, stream: stream.clone() })
    }

    pub fn program(&self) -> Program {
        self.program
    }

    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The tensors that the functions take, each once, with whether any of them writes to it.
    pub fn tensors(&self) -> Vec<(Role, Format, bool)> {
        let functions = self.functions.iter();
        tensors(functions.flat_map(|function| function.parameters.iter().copied()))
    }

    /// Launches the functions of the program, in order.
    ///
    /// # Errors
    /// The program cannot have these sizes, a tensor is missing or does not fit its parameter, or the driver refuses.
    pub fn launch(&self, shape: Shape, tensors: &mut [DeviceTensor]) -> Result<()> {
        // These it was compiled for.
        let Variant { causal, group, .. } = self.variant;
        let kv_heads = shape.heads / group;
        let shape = Shape { d: self.d, causal, kv_heads, ..shape };
        shape.check(self.program)?;
        let mut functions = self.functions.iter();
        functions.try_for_each(|function| function.launch(&self.stream, shape, tensors))
    }
}

impl Function {
    // ANCHOR: launch
    /// Launches the function with the arguments that its declaration in the source asks for.
    fn launch(
        &self,
        stream: &CudaStream,
        shape: Shape,
        tensors: &mut [DeviceTensor],
    ) -> Result<()> {
        let Shape { n_q, n_k, d, .. } = shape;
        let (n_q, n_k, scale) = (n_q as i32, n_k as i32, scale::<f32>(d));
        let mut unused: Vec<&mut DeviceTensor> = tensors.iter_mut().collect();
        let mut launch = stream.launch_builder(&self.handle);
        for &parameter in &self.parameters {
            match parameter {
                Parameter::Queries => _ = launch.arg(&n_q),
                Parameter::Keys => _ = launch.arg(&n_k),
                Parameter::Scale => _ = launch.arg(&scale),
                Parameter::Tensor { role, format, is_written } => {
                    let at = unused.iter().position(|tensor| tensor.role() == role);
                    let tensor = unused.swap_remove(at.ok_or_else(|| missing(role))?);
                    tensor.push(&mut launch, (format, is_written), shape, stream)?;
                }
            }
        }
        // SAFETY: Each argument has the type of its parameter. Each tensor is alive, on
        // this device, of the length that this shape says, and borrowed alone if it is
        // written. The kernels stay inside of these: the tests hold them to it.
        let launched = unsafe { launch.launch(self.grid(shape)) };
        launched.map(drop).map_err(failed(format!("launch `{}`", self.launch.function)))
    }
    // ANCHOR_END: launch

    /// As many blocks as it takes for all rows of all heads that the function writes.
    fn grid(&self, shape: Shape) -> LaunchConfig {
        let Launch { threads, rows, shared_bytes, .. } = self.launch;
        let [heads, of_head] = self.heads_and_rows(shape).map(|number| number as u32);
        LaunchConfig {
            grid_dim: (of_head.div_ceil(rows), heads, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: shared_bytes,
        }
    }

    /// The heads of what the function writes, and the rows of each, which its blocks share.
    fn heads_and_rows(&self, shape: Shape) -> [usize; 2] {
        let written = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Tensor { role, is_written: true, .. } => {
                let [heads, rows, _] = role.sizes(shape);
                Some([heads, rows])
            }
            _ => None,
        });
        written.max_by_key(|&[_, rows]| rows).unwrap_or([1, 1])
    }
}

/// A block gets more than 48 KiB only if that was asked for.
fn allow_shared_memory(
    handle: &CudaFunction,
    launch: Launch,
    device: &Device,
) -> Result<()> {
    const GRANTED: u32 = 48 << 10;
    let Launch { function, shared_bytes: needed, .. } = launch;
    let has = device.shared_bytes;
    if needed > has {
        return Err(Error::SharedMemory { function, needed, has });
    }
    if needed > GRANTED {
        let raised = handle.set_attribute(DYNAMIC_SHARED_BYTES, needed as i32);
        raised.map_err(failed(format!(
            "give `{function}` {needed} bytes of shared memory"
        )))?;
    }
    Ok(())
}
