//! Tensors in the memory of a device, each with the numbers that it holds and with its size.

use super::failed;
use crate::cuda::bf16::Bf16;
use crate::cuda::error::{Error, Result};
use crate::cuda::parameters::{Format, Role, check_entries, check_format};
use crate::cuda::program::Precision;
use crate::cuda::shape::Sizes;
use crate::error::check_count;
use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, LaunchArgs,
    PushKernelArg, ValidAsZeroBits, result, sys,
};
use std::sync::Arc;

/// A tensor on the device, row-major. It owns its memory.
pub struct DeviceTensor {
    role: Role,
    numbers: Numbers,
}

enum Numbers {
    F32(CudaSlice<f32>),
    Bf16(CudaSlice<u16>),
    Mapped(Mapped),
}

/// A tensor in bf16, and how Hopper's copy engine finds boxes of it. The map holds the address of the tensor, and so
/// the two are never apart.
struct Mapped {
    map: TensorMap,
    rows: u32, // of a box
    bits: CudaSlice<u16>,
}

#[repr(transparent)]
struct TensorMap(sys::CUtensorMap);

// SAFETY: 128 bytes without an address on the host's side, which is what a kernel takes by value.
unsafe impl DeviceRepr for TensorMap {}

impl DeviceTensor {
    /// A copy of `values`, rounded to what `format` holds; zeros if there are none.
    ///
    /// # Errors
    /// `values` has another length than the role asks for, or the driver refuses.
    pub fn new(
        stream: &Arc<CudaStream>,
        (role, format): (Role, Format),
        values: Option<&[f32]>,
        sizes: Sizes,
    ) -> Result<Self> {
        if let Some(values) = values {
            check_entries(role, values.len(), sizes)?;
        }
        let bits = || {
            let round = |values: &[f32]| -> Vec<u16> {
                values.iter().map(|&x| Bf16::from_f32(x).0).collect()
            };
            allocate(stream, role, values.map(round).as_deref(), sizes)
        };
        let numbers = match format {
            Format::Address(Precision::F32) => {
                Numbers::F32(allocate(stream, role, values, sizes)?)
            }
            Format::Address(Precision::Bf16) => Numbers::Bf16(bits()?),
            Format::Map { rows } => {
                Numbers::Mapped(Mapped::new(stream, bits()?, role.sizes(sizes), rows)?)
            }
        };
        Ok(DeviceTensor { role, numbers })
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn format(&self) -> Format {
        match &self.numbers {
            Numbers::F32(_) => Format::Address(Precision::F32),
            Numbers::Bf16(_) => Format::Address(Precision::Bf16),
            Numbers::Mapped(mapped) => Format::Map { rows: mapped.rows },
        }
    }

    /// Waits for what was launched, and copies the numbers from the device. It waits first so that a kernel's failure
    /// is reported as such, and not as a failure of the copy.
    pub fn read(&self) -> Result<Vec<f32>> {
        fn read<T: DeviceRepr>(slice: &CudaSlice<T>) -> Result<Vec<T>> {
            slice.stream().synchronize().map_err(failed("wait for the device"))?;
            slice.stream().clone_dtoh(slice).map_err(failed("copy from the device"))
        }
        match &self.numbers {
            Numbers::F32(slice) => read(slice),
            Numbers::Bf16(slice) | Numbers::Mapped(Mapped { bits: slice, .. }) => {
                Ok(read(slice)?.into_iter().map(|bits| Bf16(bits).to_f32()).collect())
            }
        }
    }

    /// Fills the tensor with bytes 0xff, which are NaN both as `f32` and as bf16.
    pub fn fill_with_nan(&mut self) -> Result<()> {
        match &mut self.numbers {
            Numbers::F32(slice) => fill_with_nan(slice),
            Numbers::Bf16(slice) | Numbers::Mapped(Mapped { bits: slice, .. }) => {
                fill_with_nan(slice)
            }
        }
    }

    /// Pushes the tensor as an argument of a function on the device that finds it by `format`.
    ///
    /// # Errors
    /// The tensor has another format, or another length than these sizes say, or is on another stream. Nothing is
    /// pushed then.
    // ANCHOR: push
    pub(super) fn push<'a>(
        &'a mut self,
        launch: &mut LaunchArgs<'a>,
        (format, is_written): (Format, bool),
        sizes: Sizes,
        stream: &CudaStream,
    ) -> Result<()> {
        let (entries, own) = match &self.numbers {
            Numbers::F32(slice) => (slice.len(), slice.stream()),
            Numbers::Bf16(slice) | Numbers::Mapped(Mapped { bits: slice, .. }) => {
                (slice.len(), slice.stream())
            }
        };
        check_format(self.role, self.format(), format)?;
        check_entries(self.role, entries, sizes)?;
        if **own != *stream {
            return Err(elsewhere(self.role.name(), own, stream));
        }
        match &mut self.numbers {
            Numbers::F32(slice) => push(launch, slice, is_written),
            Numbers::Bf16(slice) => push(launch, slice, is_written),
            Numbers::Mapped(mapped) => {
                launch.arg(&mapped.map); // which no function writes to
            }
        }
        Ok(())
    }
    // ANCHOR_END: push
}

fn push<'a, T>(
    launch: &mut LaunchArgs<'a>,
    slice: &'a mut CudaSlice<T>,
    is_written: bool,
) {
    if is_written {
        launch.arg(slice);
    } else {
        launch.arg(&*slice);
    }
}

/// What lies on a device cannot be used by another.
pub fn elsewhere(argument: &'static str, own: &CudaStream, wanted: &CudaStream) -> Error {
    let given = format!("on device {}", own.context().ordinal());
    let expected = format!("the program is on device {}", wanted.context().ordinal());
    crate::Error::Elsewhere { argument, given, expected }.into()
}

fn allocate<T: DeviceRepr + ValidAsZeroBits>(
    stream: &Arc<CudaStream>,
    role: Role,
    values: Option<&[T]>,
    sizes: Sizes,
) -> Result<CudaSlice<T>> {
    match values {
        Some(values) => stream.clone_htod(values).map_err(failed("copy to the device")),
        None => {
            let entries = role.entries(sizes);
            stream.alloc_zeros(entries).map_err(failed("allocate device memory"))
        }
    }
}

/// Numbers of which every pattern of bits is one.
trait AnyBits {}
impl AnyBits for f32 {}
impl AnyBits for u16 {}

fn fill_with_nan<T: AnyBits>(slice: &mut CudaSlice<T>) -> Result<()> {
    let (bytes, stream) = (slice.num_bytes(), slice.stream().clone());
    let failed = failed("fill device memory with NaN");
    if let Err(error) = stream.context().bind_to_thread() {
        return Err(failed(error));
    }
    let (pointer, _written) = slice.device_ptr_mut(&stream);
    // SAFETY: The slice is alive, borrowed alone and has this many bytes, and they may be anything.
    unsafe { result::memset_d8_async(pointer, 0xff, bytes, stream.cu_stream()) }
        .map_err(failed)
}

impl Mapped {
    /// Boxes of 64 columns and `rows` rows of one head, in shared memory swizzled over 128 bytes; rows and columns past
    /// the end are zeros.
    fn new(
        stream: &Arc<CudaStream>,
        bits: CudaSlice<u16>,
        [heads, n, d]: [usize; 3],
        rows: u32,
    ) -> Result<Self> {
        let because = || format!("heads · n · d = {}", heads * n * d);
        check_count("bits", "entry", bits.len(), heads * n * d, because)?;
        let bytes = size_of::<u16>() as u64;
        let sizes = [d as u64, n as u64, heads as u64]; // the fastest first
        let strides = [d as u64 * bytes, (n * d) as u64 * bytes]; // of rows, of heads
        let (box_sizes, steps) = ([64, rows, 1], [1, 1, 1]);
        let (pointer, read) = bits.device_ptr(stream);
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: The arrays have as many entries as three dimensions need, and the tensor has the sizes that are told.
        let status = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3,
                pointer as *mut _,
                sizes.as_ptr(),
                strides.as_ptr(),
                box_sizes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        status.result().map_err(failed("describe a tensor to the copy engine"))?;
        drop(read);
        Ok(Mapped { map: TensorMap(map), rows, bits })
    }
}
