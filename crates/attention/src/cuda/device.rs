//! One GPU, and the programs that were loaded onto it.

use super::compile::Variant;
use super::error::{Error, Result};
use super::ffi::{self, Loaded, failed};
use super::program::Program;
use cudarc::driver::sys::CUresult::CUDA_ERROR_NO_DEVICE;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUevent_flags};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The description of a device.
///
/// ```no_run
/// let gpu = attention::cuda::Gpu::open()?;
/// println!("{}, {} multiprocessors", gpu.device().name, gpu.device().multiprocessors);
/// # Ok::<(), attention::cuda::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (u32, u32),
    /// The number of multiprocessors, each of which runs blocks of threads.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: u64,
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
    ///
    /// ```no_run
    /// let gpu = attention::cuda::Gpu::open()?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn open() -> Result<Self> {
        Self::open_device(0)
    }

    /// The device of this number, counted from 0.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    ///
    /// ```no_run
    /// let second = attention::cuda::Gpu::open_device(1)?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn open_device(ordinal: usize) -> Result<Self> {
        let has = ffi::driver_version()?; // without a driver, every other call would panic
        if has < (13, 0) {
            return Err(Error::OldDriver { has });
        }
        let count = match CudaContext::device_count() {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(DriverError(CUDA_ERROR_NO_DEVICE)) => 0,
            Err(error) => return Err(failed("start the driver")(error)),
        };
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        ffi::check_compiler()?;
        let context = CudaContext::new(ordinal)
            .map_err(failed(format!("open device {ordinal}")))?;
        let device =
            Device::of(&context, has).map_err(failed("ask what the device is"))?;
        let stream = context.default_stream();
        Ok(Gpu { device, stream, programs: Mutex::default() })
    }

    /// Returns the description of the device.
    ///
    /// ```no_run
    /// let gpu = attention::cuda::Gpu::open()?;
    /// assert!(gpu.device().capability >= (7, 5));
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the bytes of the device's memory that are free.
    ///
    /// # Errors
    /// A failed call of the driver, also if a kernel that was launched before has failed.
    ///
    /// ```no_run
    /// let gpu = attention::cuda::Gpu::open()?;
    /// assert!(gpu.free_memory()? <= gpu.device().memory);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn free_memory(&self) -> Result<u64> {
        self.synchronize()?; // what was dropped is given back when the work before it is done
        let free = self.stream.context().mem_get_info();
        Ok(free.map_err(failed("ask for free memory"))?.0 as u64)
    }

    /// Waits until all that was launched is done.
    ///
    /// # Errors
    /// A kernel that was launched before has failed.
    ///
    /// ```no_run
    /// attention::cuda::Gpu::open()?.synchronize()?;
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(failed("wait for the device"))
    }

    /// Returns the best throughput of the device's memory, in bytes a second: the median of copies from one part of it to another,
    /// with the bytes that are read and those that are written.
    ///
    /// # Errors
    /// Less than 8 MiB are free, or a failed call of the driver.
    ///
    /// ```no_run
    /// let gpu = attention::cuda::Gpu::open()?;
    /// println!("{:.0} GB/s", gpu.copy_bandwidth()? / 1e9);
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn copy_bandwidth(&self) -> Result<f64> {
        const LEAST: u64 = 1 << 22;
        const MOST: u64 = 1 << 30; // many times what a cache holds
        let free = self.free_memory()?;
        let bytes = (free / 4).min(MOST);
        if bytes < LEAST {
            return Err(Error::Memory { needed: 2 * LEAST, free });
        }
        let allocate = || {
            let room = self.stream.alloc_zeros::<u8>(bytes as usize);
            room.map_err(failed("allocate memory for a copy"))
        };
        let (from, mut to) = (allocate()?, allocate()?);
        let mut times = time(&self.stream, 3, 21, || {
            self.stream.memcpy_dtod(&from, &mut to).map_err(failed("copy on the device"))
        })?;
        times.sort_unstable();
        let median = times[times.len() / 2].as_secs_f64();
        Ok(2.0 * bytes as f64 / median)
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The program on the device; compiled now, if it was not before.
    pub(super) fn load(
        &self,
        program: Program,
        d: usize,
        variant: &Variant,
    ) -> Result<Arc<Loaded>> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = programs.get(&(program, d, variant.clone())) {
            return Ok(loaded.clone());
        }
        let loaded =
            Loaded::new(&self.stream, &self.device, program, d, variant.clone())?;
        let loaded = Arc::new(loaded);
        programs.insert((program, d, variant.clone()), loaded.clone());
        Ok(loaded)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Device {
    fn of(context: &Arc<CudaContext>, driver: (u32, u32)) -> Result<Self, DriverError> {
        let attribute = |attribute| context.attribute(attribute).map(i32::unsigned_abs);
        let (major, minor) = context.compute_capability()?;
        Ok(Device {
            name: context.name()?,
            capability: (major.unsigned_abs(), minor.unsigned_abs()),
            multiprocessors: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )?,
            memory: context.total_mem()? as u64,
            shared_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            driver,
        })
    }
}

/// Returns the time that `work` takes on the stream, without the first `warm_up` times.
pub fn time(
    stream: &Arc<CudaStream>,
    warm_up: usize,
    repeats: usize,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Vec<Duration>> {
    let clock = || -> Result<CudaEvent> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT); // the others do not keep the time
        stream.record_event(flags).map_err(failed("read the device's clock"))
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
    stream.synchronize().map_err(failed("wait for what is timed"))?;
    let elapsed = |(start, end): (CudaEvent, CudaEvent)| {
        let milliseconds =
            start.elapsed_ms(&end).map_err(failed("read the device's clock"))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    };
    clocks.into_iter().map(elapsed).collect()
}
