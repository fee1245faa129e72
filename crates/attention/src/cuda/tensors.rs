//! Queries, keys, values and all that comes of them, on the device.

use super::compile::Variant;
use super::device::{Gpu, time};
use super::error::{Error, Result};
use super::ffi::{DeviceTensor, Loaded, elsewhere};
use super::parameters::{Role, bytes, check_entries};
use super::program::{Kernel, Program};
use super::shape::Shape;
use crate::error::unsupported;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// All that a program reads and writes, on the device, with the program: to be launched often.
///
/// Each is row-major, (heads, n, d); log-sum-exps are (heads, n_q).
///
/// ```no_run
/// use attention::cuda::{Gpu, Kernel, Shape};
///
/// let gpu = Gpu::open()?;
/// let shape = Shape { heads: 8, kv_heads: 8, n_q: 1024, n_k: 1024, d: 64, causal: true };
/// let x = vec![0.5; 8 * 1024 * 64];
/// let mut tensors = gpu.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
/// tensors.launch()?;
/// assert!(tensors.output()?.iter().all(|y| (y - 0.5).abs() < 1e-6)); // equal values have that mean
/// println!("{:?}", tensors.time(3, 20)?);
/// # Ok::<(), attention::cuda::Error>(())
/// ```
pub struct Tensors {
    shape: Shape,
    variant: Variant,
    loaded: Arc<Loaded>,
    all: Vec<DeviceTensor>, // one for each role that the program has
}

impl Gpu {
    /// Copies queries, keys and values to the device, rounded to what the kernel reads, and makes room for what it
    /// writes.
    ///
    /// Shapes: `q` (heads, n_q, d), `k` and `v` (kv_heads, n_k, d), row-major.
    ///
    /// # Errors
    /// A size is 0 or too large, the kernel has no such head dimension, a slice has another length, the device is too
    /// old for the kernel or has too little memory, the kernel does not compile, or a call of the driver fails.
    ///
    /// ```no_run
    /// use attention::cuda::{Gpu, Kernel, Shape};
    ///
    /// let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 3, d: 32, causal: false };
    /// let (q, k, v) = ([0.1; 2 * 32], [0.2; 3 * 32], [0.3; 3 * 32]);
    /// let tensors = Gpu::open()?.tensors(Kernel::Naive, shape, &q, &k, &v)?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn tensors(
        &self,
        kernel: Kernel,
        shape: Shape,
        q: &[f32],
        k: &[f32],
        v: &[f32],
    ) -> Result<Tensors> {
        let inputs = [(Role::Q, q), (Role::K, k), (Role::V, v)];
        let variant = Variant { causal: shape.causal, group: shape.group(), rule: None };
        self.place(Program::Forward(kernel), shape, variant, vec![], &inputs)
    }

    /// Makes a backward pass of a forward pass that was launched. Its tensors stay where they are, and so they are no
    /// longer those of the forward pass, which the compiler holds to:
    ///
    /// ```compile_fail,E0382
    /// use attention::cuda::{Gpu, Kernel, Shape};
    ///
    /// let gpu = Gpu::open()?;
    /// let shape = Shape { heads: 1, kv_heads: 1, n_q: 3, n_k: 3, d: 32, causal: true };
    /// let x = [0.1; 3 * 32];
    /// let mut forward = gpu.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// let mut backward = gpu.backward_tensors(forward, &x)?;
    /// forward.launch()?; // would write to the output that the backward pass reads
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    ///
    /// Shapes: `d_output`, the gradient of the output, (heads, n_q, d), row-major.
    ///
    /// # Errors
    /// The forward pass was not one in `f32`, `d_output` has another length, the device has too little memory, or as
    /// [`Gpu::tensors`].
    ///
    /// ```no_run
    /// use attention::cuda::{Gpu, Kernel, Shape};
    ///
    /// let gpu = Gpu::open()?;
    /// let shape = Shape { heads: 1, kv_heads: 1, n_q: 3, n_k: 3, d: 32, causal: true };
    /// let x = [0.1; 3 * 32];
    /// let mut forward = gpu.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// forward.launch()?;
    /// let mut backward = gpu.backward_tensors(forward, &x)?;
    /// backward.launch()?;
    /// let [d_q, d_k, d_v] = backward.gradients()?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn backward_tensors(
        &self,
        forward: Tensors,
        d_output: &[f32],
    ) -> Result<Tensors> {
        let program = Program::Backward;
        let (before, wanted) = (forward.program(), program.source().precision);
        if before.source().precision != wanted {
            let given = format!("of {before} in {}", before.source().precision);
            let expected = format!("the backward pass wants {wanted}");
            return Err(unsupported("forward", given, expected).into());
        }
        if forward.loaded.stream() != self.stream() {
            return Err(elsewhere("forward", forward.loaded.stream(), self.stream()));
        }
        let Tensors { shape, variant, all, .. } = forward;
        self.place(program, shape, variant, all, &[(Role::GradOutput, d_output)])
    }

    /// The tensors of a program: those of `all`, which are on the device, copies of the inputs, and zeros for all others.
    pub(super) fn place(
        &self,
        program: Program,
        shape: Shape,
        variant: Variant,
        mut all: Vec<DeviceTensor>,
        inputs: &[(Role, &[f32])],
    ) -> Result<Tensors> {
        shape.check(program)?;
        for &(role, values) in inputs {
            check_entries(role, values.len(), shape)?;
        }
        let loaded = self.load(program, shape.d, &variant)?;
        let mut missing = loaded.tensors();
        // Tensors that the program does not take give its memory back.
        all.retain(|tensor| missing.iter().any(|&(role, ..)| role == tensor.role()));
        missing.retain(|&(role, ..)| all.iter().all(|tensor| tensor.role() != role));
        let needed = bytes(&missing, shape);
        let free = self.free_memory()?;
        if needed > free {
            return Err(Error::Memory { needed, free });
        }
        for (role, format, _) in missing {
            let values = inputs.iter().find(|input| input.0 == role).map(|input| input.1);
            all.push(DeviceTensor::new(self.stream(), (role, format), values, shape)?);
        }
        Ok(Tensors { shape, variant, loaded, all })
    }
}

impl Tensors {
    /// Returns the sizes.
    ///
    /// ```no_run
    /// use attention::cuda::{Gpu, Kernel, Shape};
    ///
    /// let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// let x = [0.1; 2 * 32];
    /// assert_eq!(Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?.shape(), shape);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the program that is launched.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// assert_eq!(tensors.program(), Program::Forward(Kernel::Tiled));
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn program(&self) -> Program {
        self.loaded.program()
    }

    /// Launches the program, and does not wait for it. What it reads is left as it was.
    ///
    /// # Errors
    /// The driver refuses. A kernel that fails while it runs is an error of the next call that waits.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let gpu = Gpu::open()?;
    /// let mut tensors = gpu.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.launch()?;
    /// gpu.synchronize()?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn launch(&mut self) -> Result<()> {
        self.loaded.launch(self.shape, &mut self.all)
    }

    /// Returns the seconds that the program takes on the device: so many launches, each between two looks at the device's clock, after
    /// `warm_up` that do not count. All are launched before the first one is waited for, so that the device is not kept
    /// waiting; of a program of a few microseconds, the time between two launches is a part all the same.
    ///
    /// # Errors
    /// A launch, or a kernel while it runs, fails.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// let mut times = tensors.time(3, 21)?;
    /// times.sort_unstable();
    /// println!("{:?}", times[10]); // the median
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn time(&mut self, warm_up: usize, repeats: usize) -> Result<Vec<Duration>> {
        let stream = self.loaded.stream().clone();
        time(&stream, warm_up, repeats, || self.launch())
    }

    /// Fills all that the program writes with NaN, so that what it forgets to write is seen.
    ///
    /// # Errors
    /// A failed call of the driver.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.poison()?;
    /// assert!(tensors.output()?[0].is_nan());
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn poison(&mut self) -> Result<()> {
        let written =
            self.loaded.tensors().into_iter().filter(|&(_, _, written)| written);
        let written: Vec<Role> = written.map(|(role, _, _)| role).collect();
        let tensors = self.all.iter_mut();
        tensors
            .filter(|tensor| written.contains(&tensor.role()))
            .try_for_each(DeviceTensor::fill_with_nan)
    }

    /// Waits, and copies the output from the device: (heads, n_q, d), row-major.
    ///
    /// # Errors
    /// A kernel that was launched has failed, or the copy does.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.launch()?;
    /// assert_eq!(tensors.output()?.len(), 2 * 32);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn output(&self) -> Result<Vec<f32>> {
        self.read(Role::Output)
    }

    /// Waits, and copies the log-sum-exp of each query's scores from the device: (heads, n_q); −∞ where no key is seen.
    ///
    /// # Errors
    /// As [`Tensors::output`].
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.launch()?;
    /// assert_eq!(tensors.lse()?.len(), 2);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn lse(&self) -> Result<Vec<f32>> {
        self.read(Role::Lse)
    }

    /// Waits, and copies the gradients of queries, keys and values from the device: (heads, n, d) each, row-major.
    ///
    /// # Errors
    /// These are the tensors of a forward pass, or as [`Tensors::output`].
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Shape};
    /// # let shape = Shape { heads: 1, kv_heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let forward = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// let error = forward.gradients().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`tensors` is of kernel `tiled` but only the backward pass makes gradients"
    /// );
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn gradients(&self) -> Result<[Vec<f32>; 3]> {
        if self.program() != Program::Backward {
            let given = format!("of {}", self.program());
            let expected = "only the backward pass makes gradients";
            return Err(unsupported("tensors", given, expected).into());
        }
        let [d_q, d_k, d_v] = [Role::GradQ, Role::GradK, Role::GradV];
        Ok([self.read(d_q)?, self.read(d_k)?, self.read(d_v)?])
    }

    fn read(&self, role: Role) -> Result<Vec<f32>> {
        let tensor = self.all.iter().find(|tensor| tensor.role() == role);
        tensor.ok_or_else(|| missing(role))?.read()
    }
}

/// A tensor that the program has none of.
pub fn missing(role: Role) -> Error {
    let given = "not on the device".to_owned();
    crate::Error::Empty { argument: role.name(), given }.into()
}

impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Tensors");
        f.field("program", &self.program())
            .field("shape", &self.shape())
            .finish_non_exhaustive()
    }
}
