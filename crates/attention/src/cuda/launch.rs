//! Kernels are launched with nothing but their arguments' addresses: here they meet the functions' declarations.
#![allow(unsafe_code)]

use super::device::Function;
use super::error::Result;
use super::ffi::{TensorMap, failed};
use super::tensors::{Besides, Shape, Tensors};
use crate::dot_product::scale;
use cudarc::driver::{CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

/// What a function on the device is given.
#[derive(Clone, Copy)]
pub enum Argument<'a> {
    /// `float*` or `const float*`
    F32(&'a CudaSlice<f32>),
    /// `Bf16*` or `const Bf16*`
    Bf16(&'a CudaSlice<u16>),
    /// `const __grid_constant__ TensorMap`
    Map(&'a TensorMap),
    /// `int`
    Int(i32),
    /// `float`
    Float(f32),
}

/// A function on the device, with one block for so many of these rows of each head.
struct Call<'a> {
    function: &'a Function,
    rows: usize,
    heads: usize,
    arguments: Vec<Argument<'a>>, // in the order of the function's parameters
}

impl Tensors {
    /// Launches the program, and does not wait for it. What it reads is left as it was.
    ///
    /// # Errors
    /// The driver refuses. A kernel that fails while it runs is an error of the next call that waits.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let gpu = Gpu::open()?;
    /// let mut tensors = gpu.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.launch()?;
    /// gpu.synchronize()?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    // ANCHOR: launch
    pub fn launch(&mut self) -> Result<()> {
        for call in self.calls() {
            // SAFETY: `calls` gives each function the arguments that it declares, of the
            // sizes that it is told, and the kernels stay inside of those: the tests hold
            // them to it.
            unsafe { call.launch(&self.stream) }?;
        }
        Ok(())
    }

    /// The functions of the program, in order, with the arguments that each declares.
    fn calls(&self) -> Vec<Call<'_>> {
        use Argument::{F32, Float, Int, Map};
        let Shape { heads, n_q, n_k, d, .. } = self.shape;
        let [q, k, v, output] =
            [&self.q, &self.k, &self.v, &self.output].map(|x| x.argument());
        let (lse, rows, keys, scale) =
            (F32(&self.lse), Int(n_q as i32), Int(n_k as i32), Float(scale(d)));
        let calls = match &self.besides {
            Besides::Nothing => {
                vec![(n_q, vec![q, k, v, output, lse, rows, keys, scale])]
            }
            Besides::Maps(maps) => {
                let [q, k, v] = maps.each_ref().map(Map);
                vec![(n_q, vec![q, k, v, output, lse, rows, keys, scale])]
            }
            Besides::Scores(s) => vec![
                (n_q, vec![q, k, F32(s), rows, keys, scale]),
                (n_q, vec![F32(s), lse, rows, keys]),
                (n_q, vec![F32(s), v, output, rows, keys]),
            ],
            Besides::Gradients { d_output, delta, d_q, d_k, d_v } => {
                let [d_output, delta, d_q, d_k, d_v] =
                    [d_output, delta, d_q, d_k, d_v].map(F32);
                let inputs = [q, k, v, d_output, lse, delta];
                vec![
                    (n_q, vec![output, d_output, delta, rows]),
                    (n_k, [&inputs[..], &[d_k, d_v, rows, keys, scale]].concat()),
                    (n_q, [&inputs[..], &[d_q, rows, keys, scale]].concat()),
                ]
            }
        };
        let functions = self.loaded.functions.iter();
        let call =
            |(function, (rows, arguments))| Call { function, rows, heads, arguments };
        functions.zip(calls).map(call).collect()
    }
    // ANCHOR_END: launch
}

impl Call<'_> {
    /// # Safety
    /// The arguments are those of the function's declaration, and the function stays inside of them.
    unsafe fn launch(&self, stream: &CudaStream) -> Result<()> {
        let sizes = self.function.launch;
        let mut launch = stream.launch_builder(&self.function.handle);
        for argument in &self.arguments {
            match argument {
                Argument::F32(slice) => launch.arg(*slice),
                Argument::Bf16(slice) => launch.arg(*slice),
                Argument::Map(map) => launch.arg(*map),
                Argument::Int(value) => launch.arg(value),
                Argument::Float(value) => launch.arg(value),
            };
        }
        let blocks = (self.rows as u32).div_ceil(sizes.rows);
        // SAFETY: The caller's promise.
        let launched = unsafe {
            launch.launch(LaunchConfig {
                grid_dim: (blocks, self.heads as u32, 1),
                block_dim: (sizes.threads, 1, 1),
                shared_mem_bytes: sizes.shared_bytes,
            })
        };
        launched.map(drop).map_err(failed(format!("launch `{}`", sizes.function)))
    }
}
