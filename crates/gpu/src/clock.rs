//! The time that programs take on a device, and its memory.

use attention::cuda::{Error, Gpu, Program, Result, Shape, Tensor, Tensors};
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;
use std::time::Duration;

/// Returns the times that `work` takes on the device: so many launches, each between two looks at the device's clock, after
/// `warm_up` that do not count. All are launched before the first one is waited for, so that the device is not kept
/// waiting; of a program of a few microseconds, the time between two launches is a part all the same.
///
/// # Errors
/// `work`, or a kernel while it runs, fails.
///
/// ```no_run
/// use attention::cuda::{Gpu, Shape, TILED};
///
/// let gpu = Gpu::open()?;
/// let shape = Shape { heads: 8, kv_heads: 8, n_q: 512, n_k: 512, d: 64, causal: true };
/// let mut tensors = gpu.tensors(TILED, shape, &[])?; // zeros
/// let mut times = gpu::clock::time(&gpu, 3, 21, || tensors.launch())?;
/// times.sort_unstable();
/// println!("{:?}", times[10]); // the median
/// # Ok::<(), attention::cuda::Error>(())
/// ```
pub fn time(
    gpu: &Gpu,
    warm_up: usize,
    repeats: usize,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Vec<Duration>> {
    let clock = || -> Result<CudaEvent> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT); // the others do not keep the time
        let event = gpu.stream().record_event(flags);
        event.map_err(Error::driver("read the device's clock"))
    };
    for _ in 0..warm_up {
        work()?;
    }
    let mut clocks = vec![];
    for _ in 0..repeats {
        let start = clock()?;
        work()?;
        clocks.push((start, clock()?));
    }
    wait(gpu)?;
    let elapsed = |(start, end): (CudaEvent, CudaEvent)| {
        let milliseconds = start.elapsed_ms(&end);
        let milliseconds =
            milliseconds.map_err(Error::driver("read the device's clock"))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    };
    clocks.into_iter().map(elapsed).collect()
}

/// Waits until all that was launched is done, or a kernel has failed.
fn wait(gpu: &Gpu) -> Result<()> {
    gpu.stream().synchronize().map_err(Error::driver("wait for the device"))
}

/// Returns the best throughput of the device's memory, in bytes a second: the median of copies from one part of it to another,
/// with the bytes that are read and those that are written.
///
/// # Errors
/// Less than 8 MiB are free, or a failed call of the driver.
pub fn copy_bandwidth(gpu: &Gpu) -> Result<f64> {
    const LEAST: u64 = 1 << 22;
    const MOST: u64 = 1 << 30; // many times what a cache holds
    let bytes = (free_memory(gpu)? / 4).clamp(LEAST, MOST);
    let allocate = || {
        let room = gpu.stream().alloc_zeros::<u8>(bytes as usize);
        room.map_err(Error::driver("allocate memory for a copy"))
    };
    let (from, mut to) = (allocate()?, allocate()?);
    let mut times = time(gpu, 3, 21, || {
        let copied = gpu.stream().memcpy_dtod(&from, &mut to);
        copied.map_err(Error::driver("copy on the device"))
    })?;
    times.sort_unstable();
    Ok(2.0 * bytes as f64 / times[times.len() / 2].as_secs_f64())
}

/// Returns the bytes of the device's memory that are free.
///
/// # Errors
/// A failed call of the driver, also if a kernel that was launched before has failed.
pub fn free_memory(gpu: &Gpu) -> Result<u64> {
    wait(gpu)?; // what was dropped is given back when the work before it is done
    let free = gpu.stream().context().mem_get_info();
    Ok(free.map_err(Error::driver("ask for free memory"))?.0 as u64)
}

/// Returns the bytes of device memory that the tensors of a program take.
///
/// ```
/// use attention::cuda::{NAIVE, Shape, TILED};
/// use gpu::clock::bytes;
///
/// let shape = Shape { heads: 8, kv_heads: 8, n_q: 1000, n_k: 1000, d: 64, causal: true };
/// assert_eq!(bytes(TILED, shape), 8 * 1000 * (4 * 64 + 1) * 4); // q, k, v, output; log-sum-exps
/// assert_eq!(bytes(NAIVE, shape) - bytes(TILED, shape), 8 * 1000 * 1000 * 4); // the scores
/// ```
pub fn bytes(program: Program, shape: Shape) -> u64 {
    let source = program.source();
    let of = |(tensor, _): (Tensor, bool)| {
        let bytes = source.numbers_of(tensor).bytes;
        tensor.entries(shape).saturating_mul(bytes) as u64
    };
    program.tensors().into_iter().map(of).fold(0, u64::saturating_add)
}

/// Returns the tensors of a program as [`Gpu::tensors`] does, with NaN in all that it writes, so that what it forgets to write is seen.
///
/// # Errors
/// As [`Gpu::tensors`].
pub fn poisoned(
    gpu: &Gpu,
    program: Program,
    shape: Shape,
    inputs: &[(Tensor, &[f32])],
) -> Result<Tensors> {
    let written = program.tensors().into_iter().filter(|&(_, is_written)| is_written);
    let poison: Vec<_> = written
        .map(|(tensor, _)| (tensor, vec![f32::NAN; tensor.entries(shape)]))
        .collect();
    let poison = poison.iter().map(|(tensor, numbers)| (*tensor, &numbers[..]));
    let all: Vec<_> = inputs.iter().copied().chain(poison).collect();
    gpu.tensors(program, shape, &all)
}
