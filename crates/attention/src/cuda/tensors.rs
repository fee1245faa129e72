//! Queries, keys, values and all that comes of them, on the device.

use super::bf16::Bf16;
use super::device::{Gpu, Loaded, time};
use super::error::{Error, Result};
use super::ffi::{TensorMap, failed, fill_with_nan};
use super::launch::Argument;
use super::program::{Kernel, Precision, Program};
use crate::error::{check_count, check_positive};
use crate::flash::Inputs;
use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The sizes of attention on a GPU. Keys and values have the same width, `d`.
///
/// ```
/// use attention::cuda::Shape;
///
/// let shape = Shape { heads: 8, n_q: 1000, n_k: 1000, d: 64, causal: true };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Heads; those of a whole batch count as so many heads.
    pub heads: usize,
    /// Queries of a head.
    pub n_q: usize,
    /// Keys of a head.
    pub n_k: usize,
    /// The width of a query, a key and a value.
    pub d: usize,
    /// Whether query `i` sees key `j` only when `j ≤ i + n_k − n_q`.
    pub causal: bool,
}

/// The most queries or keys of a head: indices are 32 bits wide, and a tile reaches past the last one.
const MOST_ROWS: usize = 1 << 30;
/// The most heads: the size of a grid in its second dimension.
const MOST_HEADS: usize = 65_535;

impl Shape {
    /// The sizes of these inputs.
    ///
    /// # Errors
    /// The mask is neither none nor causal, or values are not as wide as keys.
    ///
    /// ```
    /// use attention::{Mask, cuda::Shape, flash::Inputs};
    ///
    /// let x = nalgebra::DMatrix::<f32>::zeros(5, 4);
    /// let shape = |mask: &Mask| Shape::of(&Inputs::new(&x, &x, &x, mask)?.with_heads(2)?);
    /// assert_eq!(shape(&Mask::causal())?, Shape { heads: 2, n_q: 5, n_k: 5, d: 2, causal: true });
    ///
    /// let error = shape(&Mask::window(3)?).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`mask` is another than none and causal but the kernels on the GPU know these two"
    /// );
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn of(inputs: &Inputs<f32>) -> Result<Self> {
        let ((n_q, n_k), (d_k, _)) = (inputs.lengths(), inputs.widths());
        let Some(causal) = inputs.mask.is_causal() else {
            let given = "another than none and causal".to_owned();
            let expected = "the kernels on the GPU know these two".to_owned();
            return Err(
                crate::Error::Unsupported { argument: "mask", given, expected }.into()
            );
        };
        let width = inputs.q.ncols();
        let because = || format!("the kernels on the GPU want the {width} of `q`");
        check_count("v", "column", inputs.v.ncols(), width, because)?;
        Ok(Shape { heads: inputs.n_heads(), n_q, n_k, d: d_k, causal })
    }

    /// Bytes of device memory that the tensors of a program take.
    ///
    /// ```
    /// use attention::cuda::{Kernel, Program, Shape};
    ///
    /// let shape = Shape { heads: 8, n_q: 1000, n_k: 1000, d: 64, causal: true };
    /// let bytes = |kernel| shape.bytes(Program::Forward(kernel));
    /// assert_eq!(bytes(Kernel::Tiled), 8 * 1000 * (4 * 64 + 1) * 4); // q, k, v, output; log-sum-exps
    /// assert_eq!(bytes(Kernel::Naive) - bytes(Kernel::Tiled), 8 * 1000 * 1000 * 4); // the scores
    /// ```
    pub fn bytes(&self, program: Program) -> u64 {
        let [heads, n_q, n_k, d] = self.sizes();
        let elements = 2 * heads * (n_q + n_k) * d; // q, output, k, v
        let bytes = elements * program.precision().bytes() as u128 + 4 * heads * n_q;
        u64::try_from(bytes)
            .unwrap_or(u64::MAX)
            .saturating_add(self.bytes_besides(program))
    }

    /// What it takes besides queries, keys, values, output and log-sum-exps.
    fn bytes_besides(&self, program: Program) -> u64 {
        let [heads, n_q, n_k, d] = self.sizes();
        let elements = match program {
            Program::Forward(Kernel::Naive) => heads * n_q * n_k, // scores
            Program::Forward(_) => 0,
            Program::Backward => 2 * heads * (n_q + n_k) * d + heads * n_q, // d_output, d_q, d_k, d_v; delta
        };
        u64::try_from(4 * elements).unwrap_or(u64::MAX)
    }

    fn sizes(&self) -> [u128; 4] {
        [self.heads, self.n_q, self.n_k, self.d].map(|size| size as u128)
    }

    /// That a program can have it.
    fn check(&self, program: Program) -> Result<()> {
        for (argument, given, most) in [
            ("heads", self.heads, MOST_HEADS),
            ("n_q", self.n_q, MOST_ROWS),
            ("n_k", self.n_k, MOST_ROWS),
        ] {
            check_positive(argument, given)?;
            if given > most {
                let because = format!("a grid holds {most} at most");
                let most = Some(most);
                return Err(
                    crate::Error::TooMany { argument, given, most, because }.into()
                );
            }
        }
        program.check_width(self.d)
    }

    fn queries(&self) -> usize {
        self.heads * self.n_q * self.d
    }

    fn keys(&self) -> usize {
        self.heads * self.n_k * self.d
    }

    fn check_queries(&self, argument: &'static str, values: &[f32]) -> Result<()> {
        let because = || format!("heads · n_q · d = {}", self.queries());
        Ok(check_count(argument, "entry", values.len(), self.queries(), because)?)
    }

    fn check_keys(&self, argument: &'static str, values: &[f32]) -> Result<()> {
        let because = || format!("heads · n_k · d = {}", self.keys());
        Ok(check_count(argument, "entry", values.len(), self.keys(), because)?)
    }
}

/// All that a program reads and writes, on the device, with the program: to be launched often.
///
/// Each is row-major, (heads, n, d); log-sum-exps are (heads, n_q).
///
/// ```no_run
/// use attention::cuda::{Gpu, Kernel, Shape};
///
/// let gpu = Gpu::open()?;
/// let shape = Shape { heads: 8, n_q: 1024, n_k: 1024, d: 64, causal: true };
/// let x = vec![0.5; 8 * 1024 * 64];
/// let mut tensors = gpu.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
/// tensors.launch()?;
/// assert!(tensors.output()?.iter().all(|y| (y - 0.5).abs() < 1e-6)); // equal values have that mean
/// println!("{:?}", tensors.time(3, 20)?);
/// # Ok::<(), attention::cuda::Error>(())
/// ```
pub struct Tensors {
    program: Program,
    pub(super) shape: Shape,
    pub(super) loaded: Arc<Loaded>,
    pub(super) stream: Arc<CudaStream>,
    pub(super) q: Buffer,
    pub(super) k: Buffer,
    pub(super) v: Buffer,
    pub(super) output: Buffer,
    pub(super) lse: CudaSlice<f32>, // (heads, n_q)
    pub(super) besides: Besides,
}

/// What some programs have besides.
pub enum Besides {
    Nothing,
    /// The kernel that writes them down has scores, then weights, (heads, n_q, n_k).
    Scores(CudaSlice<f32>),
    /// The kernel that copies by them has maps of q, k and v.
    Maps([TensorMap; 3]),
    /// The backward pass.
    Gradients {
        d_output: CudaSlice<f32>,
        delta: CudaSlice<f32>, // (heads, n_q): rowsum(dO ⊙ O)
        d_q: CudaSlice<f32>,
        d_k: CudaSlice<f32>,
        d_v: CudaSlice<f32>,
    },
}

/// Numbers on the device.
pub enum Buffer {
    F32(CudaSlice<f32>),
    Bf16(CudaSlice<u16>),
}

impl Gpu {
    /// Copies queries, keys and values to the device, rounded to what the kernel reads, and makes room for what it
    /// writes.
    ///
    /// Shapes: `q` (heads, n_q, d), `k` and `v` (heads, n_k, d), row-major.
    ///
    /// # Errors
    /// A size is 0 or too large, the kernel has no such head dimension, a slice has another length, the device is too
    /// old for the kernel or has too little memory, the kernel does not compile, or a call of the driver fails.
    ///
    /// ```no_run
    /// use attention::cuda::{Gpu, Kernel, Shape};
    ///
    /// let shape = Shape { heads: 1, n_q: 2, n_k: 3, d: 32, causal: false };
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
        self.place(Program::Forward(kernel), shape, [q, k, v])
    }

    /// Makes a backward pass of a forward pass that was launched. Its tensors stay where they are.
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
    /// let shape = Shape { heads: 1, n_q: 3, n_k: 3, d: 32, causal: true };
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
        let (program, shape, stream) = (Program::Backward, forward.shape, self.stream());
        if forward.program.precision() != program.precision() {
            let given =
                format!("of {} in {}", forward.program, forward.program.precision());
            let expected = format!("the backward pass wants {}", program.precision());
            return Err(crate::Error::Unsupported {
                argument: "forward",
                given,
                expected,
            }
            .into());
        }
        if forward.stream != *stream {
            let given = format!("on device {}", forward.stream.context().ordinal());
            let expected =
                format!("the backward pass is on device {}", stream.context().ordinal());
            return Err(
                crate::Error::Elsewhere { argument: "forward", given, expected }.into()
            );
        }
        shape.check(program)?;
        shape.check_queries("d_output", d_output)?;
        let loaded = self.load(program, shape.d, shape.causal)?;
        let forward = Tensors { besides: Besides::Nothing, ..forward }; // gives memory back
        self.check_memory(shape.bytes_besides(program))?;
        let besides = Besides::Gradients {
            d_output: copy(stream, d_output)?,
            delta: zeros(stream, shape.heads * shape.n_q)?,
            d_q: zeros(stream, shape.queries())?,
            d_k: zeros(stream, shape.keys())?,
            d_v: zeros(stream, shape.keys())?,
        };
        Ok(Tensors { program, loaded, besides, ..forward })
    }

    /// The backward pass of a forward pass that was made elsewhere.
    pub(super) fn place_backward(
        &self,
        shape: Shape,
        inputs: [&[f32]; 3],
        (output, lse): (&[f32], &[f32]),
        d_output: &[f32],
    ) -> Result<Tensors> {
        let mut tensors = self.place(Program::Backward, shape, inputs)?;
        shape.check_queries("output", output)?;
        let because = || format!("heads · n_q = {}", shape.heads * shape.n_q);
        check_count("lse", "entry", lse.len(), shape.heads * shape.n_q, because)?;
        tensors.output = Buffer::copy(self.stream(), Precision::F32, output)?;
        tensors.lse = copy(self.stream(), lse)?;
        self.backward_tensors(tensors, d_output)
    }

    fn place(
        &self,
        program: Program,
        shape: Shape,
        inputs: [&[f32]; 3],
    ) -> Result<Tensors> {
        shape.check(program)?;
        let [q, k, v] = inputs;
        shape.check_queries("q", q)?;
        shape.check_keys("k", k)?;
        shape.check_keys("v", v)?;
        let loaded = self.load(program, shape.d, shape.causal)?;
        self.check_memory(shape.bytes(program))?;

        let (stream, precision) = (self.stream(), program.precision());
        let q = Buffer::copy(stream, precision, q)?;
        let k = Buffer::copy(stream, precision, k)?;
        let v = Buffer::copy(stream, precision, v)?;
        let besides = match (program, loaded.boxes) {
            (Program::Forward(Kernel::Naive), _) => {
                Besides::Scores(zeros(stream, shape.heads * shape.n_q * shape.n_k)?)
            }
            (_, Some(boxes)) => {
                Besides::Maps(tensor_maps(stream, shape, boxes, [&q, &k, &v])?)
            }
            (_, None) => Besides::Nothing,
        };
        let output = Buffer::zeros(stream, precision, shape.queries())?;
        let lse = zeros(stream, shape.heads * shape.n_q)?;
        let stream = stream.clone();
        Ok(Tensors { program, shape, loaded, stream, q, k, v, output, lse, besides })
    }

    /// That so many bytes are free.
    fn check_memory(&self, needed: u64) -> Result<()> {
        let free = self.free_memory()?;
        if needed > free { Err(Error::Memory { needed, free }) } else { Ok(()) }
    }
}

impl Tensors {
    /// The sizes.
    ///
    /// ```no_run
    /// use attention::cuda::{Gpu, Kernel, Shape};
    ///
    /// let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// let x = [0.1; 2 * 32];
    /// assert_eq!(Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?.shape(), shape);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What is launched.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// assert_eq!(tensors.program(), Program::Forward(Kernel::Tiled));
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn program(&self) -> Program {
        self.program
    }

    /// How long the program takes on the device: so many launches, each between two looks at the device's clock, after
    /// `warm_up` that do not count. All are launched before the first one is waited for, so that the device is not kept
    /// waiting; of a program of a few microseconds, the time between two launches is a part all the same.
    ///
    /// # Errors
    /// A launch, or a kernel while it runs, fails.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// let mut times = tensors.time(3, 21)?;
    /// times.sort_unstable();
    /// println!("{:?}", times[10]); // the median
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn time(&mut self, warm_up: usize, repeats: usize) -> Result<Vec<Duration>> {
        let stream = self.stream.clone();
        time(&stream, warm_up, repeats, || self.launch())
    }

    /// Fills all that the program writes with NaN, so that what it forgets to write is seen.
    ///
    /// # Errors
    /// A failed call of the driver.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.poison()?;
    /// assert!(tensors.output()?[0].is_nan());
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn poison(&mut self) -> Result<()> {
        let stream = &self.stream;
        if let Besides::Gradients { delta, d_q, d_k, d_v, .. } = &mut self.besides {
            for slice in [delta, d_q, d_k, d_v] {
                fill_with_nan(stream, slice)?;
            }
            return Ok(()); // output and log-sum-exps are what it reads
        }
        if let Besides::Scores(scores) = &mut self.besides {
            fill_with_nan(stream, scores)?;
        }
        match &mut self.output {
            Buffer::F32(slice) => fill_with_nan(stream, slice)?,
            Buffer::Bf16(slice) => fill_with_nan(stream, slice)?,
        }
        fill_with_nan(stream, &mut self.lse)
    }

    /// Waits, and copies the output from the device: (heads, n_q, d), row-major.
    ///
    /// # Errors
    /// A kernel that was launched has failed, or the copy does.
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.launch()?;
    /// assert_eq!(tensors.output()?.len(), 2 * 32);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn output(&self) -> Result<Vec<f32>> {
        match &self.output {
            Buffer::F32(slice) => read(slice),
            Buffer::Bf16(slice) => {
                Ok(read(slice)?.into_iter().map(|bits| Bf16(bits).to_f32()).collect())
            }
        }
    }

    /// Waits, and copies the log-sum-exp of each query's scores from the device: (heads, n_q); −∞ where no key is seen.
    ///
    /// # Errors
    /// As [`Tensors::output`].
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Program, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
    /// # let x = [0.1; 2 * 32];
    /// let mut tensors = Gpu::open()?.tensors(Kernel::Tiled, shape, &x, &x, &x)?;
    /// tensors.launch()?;
    /// assert_eq!(tensors.lse()?.len(), 2);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn lse(&self) -> Result<Vec<f32>> {
        read(&self.lse)
    }

    /// Waits, and copies the gradients of queries, keys and values from the device: (heads, n, d) each, row-major.
    ///
    /// # Errors
    /// These are the tensors of a forward pass, or as [`Tensors::output`].
    ///
    /// ```no_run
    /// # use attention::cuda::{Gpu, Kernel, Shape};
    /// # let shape = Shape { heads: 1, n_q: 2, n_k: 2, d: 32, causal: false };
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
        let Besides::Gradients { d_q, d_k, d_v, .. } = &self.besides else {
            let given = format!("of {}", self.program);
            let expected = "only the backward pass makes gradients".to_owned();
            return Err(crate::Error::Unsupported {
                argument: "tensors",
                given,
                expected,
            }
            .into());
        };
        Ok([read(d_q)?, read(d_k)?, read(d_v)?])
    }
}

impl fmt::Debug for Tensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Tensors");
        f.field("program", &self.program)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

// ---------------------------------------------------------------------------------------------------- buffers

impl Buffer {
    /// A copy on the device, rounded if need be.
    fn copy(
        stream: &Arc<CudaStream>,
        precision: Precision,
        values: &[f32],
    ) -> Result<Self> {
        Ok(match precision {
            Precision::F32 => Buffer::F32(copy(stream, values)?),
            Precision::Bf16 => {
                let bits: Vec<u16> =
                    values.iter().map(|&x| Bf16::from_f32(x).0).collect();
                Buffer::Bf16(copy(stream, &bits)?)
            }
        })
    }

    fn zeros(
        stream: &Arc<CudaStream>,
        precision: Precision,
        length: usize,
    ) -> Result<Self> {
        Ok(match precision {
            Precision::F32 => Buffer::F32(zeros(stream, length)?),
            Precision::Bf16 => Buffer::Bf16(zeros(stream, length)?),
        })
    }

    pub fn argument(&self) -> Argument<'_> {
        match self {
            Buffer::F32(slice) => Argument::F32(slice),
            Buffer::Bf16(slice) => Argument::Bf16(slice),
        }
    }
}

fn copy<T: DeviceRepr>(stream: &Arc<CudaStream>, values: &[T]) -> Result<CudaSlice<T>> {
    stream.clone_htod(values).map_err(failed("copy to the device"))
}

fn zeros<T: DeviceRepr + ValidAsZeroBits>(
    stream: &Arc<CudaStream>,
    length: usize,
) -> Result<CudaSlice<T>> {
    stream.alloc_zeros(length).map_err(failed("allocate device memory"))
}

/// Waits first: a kernel's failure is to be told as such, and not as one of the copy.
fn read<T: DeviceRepr>(slice: &CudaSlice<T>) -> Result<Vec<T>> {
    slice.stream().synchronize().map_err(failed("wait for the device"))?;
    slice.stream().clone_dtoh(slice).map_err(failed("copy from the device"))
}

/// Of queries, keys and values; `boxes` are the rows that are copied at once of queries, and of the other two.
fn tensor_maps(
    stream: &Arc<CudaStream>,
    shape: Shape,
    [q_rows, k_rows]: [u32; 2],
    tensors: [&Buffer; 3],
) -> Result<[TensorMap; 3]> {
    let map = |tensor: &Buffer, n, rows| match tensor {
        Buffer::Bf16(slice) => {
            TensorMap::new(stream, slice, [shape.heads, n, shape.d], rows)
        }
        Buffer::F32(_) => Err(Error::Driver {
            tried: "describe a tensor to the copy engine".to_owned(),
            says: "only tensors of bf16 are known to it here".to_owned(),
        }),
    };
    let [q, k, v] = tensors;
    Ok([
        map(q, shape.n_q, q_rows)?,
        map(k, shape.n_k, k_rows)?,
        map(v, shape.n_k, k_rows)?,
    ])
}
