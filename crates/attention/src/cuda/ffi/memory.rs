//! Tensors in the memory of a device, each with what its bytes mean and with its size.

use super::failed;
use crate::cuda::bf16::Bf16;
use crate::cuda::error::{Error, Result};
use crate::cuda::parameters::{Format, Role, check_entries, check_format};
use crate::cuda::program::Precision;
use crate::cuda::shape::Shape;
use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, LaunchArgs,
    PushKernelArg, result, sys,
};
use std::sync::Arc;

/// A tensor on the device, row-major. It owns its memory.
pub struct DeviceTensor {
    role: Role,
    format: Format,
    bytes: CudaSlice<u8>,
    map: Option<TensorMap>, // if the format is one; it holds the address of the bytes
}

/// The description by which Hopper's copy engine finds boxes of a tensor.
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
        shape: Shape,
    ) -> Result<Self> {
        let bytes = match values {
            Some(values) => {
                check_entries(role, values.len(), shape)?;
                let bytes = bytes_of(values, format.precision());
                stream.clone_htod(&bytes).map_err(failed("copy to the device"))?
            }
            None => {
                let size = format.precision().bytes();
                let bytes = stream.alloc_zeros(role.entries(shape).saturating_mul(size));
                bytes.map_err(failed("allocate device memory"))?
            }
        };
        let map = match format {
            Format::Map { rows } => {
                Some(TensorMap::new(stream, &bytes, role.sizes(shape), rows)?)
            }
            Format::Address(_) => None,
        };
        Ok(DeviceTensor { role, format, bytes, map })
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// Waits for what was launched, and copies the numbers from the device. It waits first so that a kernel's failure
    /// is reported as such, and not as a failure of the copy.
    pub fn read(&self) -> Result<Vec<f32>> {
        let stream = self.bytes.stream();
        stream.synchronize().map_err(failed("wait for the device"))?;
        let bytes = stream.clone_dtoh(&self.bytes);
        let bytes = bytes.map_err(failed("copy from the device"))?;
        Ok(numbers_of(&bytes, self.format.precision()))
    }

    /// Fills the tensor with bytes 0xff, which are NaN both as `f32` and as bf16.
    pub fn fill_with_nan(&mut self) -> Result<()> {
        let (length, stream) = (self.bytes.len(), self.bytes.stream().clone());
        let failed = failed("fill device memory with NaN");
        if let Err(error) = stream.context().bind_to_thread() {
            return Err(failed(error));
        }
        let (pointer, _written) = self.bytes.device_ptr_mut(&stream);
        // SAFETY: The slice is alive, borrowed alone and has this many bytes, and they may be anything.
        unsafe { result::memset_d8_async(pointer, 0xff, length, stream.cu_stream()) }
            .map_err(failed)
    }

    /// Pushes the tensor as an argument of a function on the device that finds it by `format`.
    ///
    /// # Errors
    /// The tensor has another format, or another length than this shape says, or is on another stream. Nothing is
    /// pushed then.
    // ANCHOR: push
    pub(super) fn push<'a>(
        &'a mut self,
        launch: &mut LaunchArgs<'a>,
        (format, is_written): (Format, bool),
        shape: Shape,
        stream: &CudaStream,
    ) -> Result<()> {
        check_format(self.role, self.format, format)?;
        let entries = self.bytes.len() / self.format.precision().bytes();
        check_entries(self.role, entries, shape)?;
        let own = self.bytes.stream();
        if **own != *stream {
            return Err(elsewhere(self.role.name(), own, stream));
        }
        match &self.map {
            Some(map) => launch.arg(map), // which no function writes to
            None if is_written => launch.arg(&mut self.bytes),
            None => launch.arg(&self.bytes),
        };
        Ok(())
    }
    // ANCHOR_END: push
}

/// Checks that a tensor lies on this device: another cannot use it.
pub fn elsewhere(argument: &'static str, own: &CudaStream, wanted: &CudaStream) -> Error {
    let given = format!("on device {}", own.context().ordinal());
    let expected = format!("the program is on device {}", wanted.context().ordinal());
    crate::Error::Elsewhere { argument, given, expected }.into()
}

/// Numbers, rounded to this precision, as they lie on the device.
fn bytes_of(numbers: &[f32], precision: Precision) -> Vec<u8> {
    let numbers = numbers.iter();
    match precision {
        Precision::F32 => numbers.flat_map(|x| x.to_ne_bytes()).collect(),
        Precision::Bf16 => {
            numbers.flat_map(|&x| Bf16::from_f32(x).0.to_ne_bytes()).collect()
        }
    }
}

/// The numbers that these bytes are.
fn numbers_of(bytes: &[u8], precision: Precision) -> Vec<f32> {
    match precision {
        Precision::F32 => {
            let numbers = bytes.as_chunks().0.iter();
            numbers.map(|&bytes| f32::from_ne_bytes(bytes)).collect()
        }
        Precision::Bf16 => {
            let bits = bytes.as_chunks().0.iter().map(|&two| u16::from_ne_bytes(two));
            bits.map(|bits| Bf16(bits).to_f32()).collect()
        }
    }
}

impl TensorMap {
    /// Of a tensor in bf16 with these sizes, (heads, n, d), which has as many bytes. Boxes have 64 columns and `rows`
    /// rows of one head, in shared memory swizzled over 128 bytes; rows and columns past the end are zeros.
    fn new(
        stream: &CudaStream,
        tensor: &CudaSlice<u8>,
        [heads, n, d]: [usize; 3],
        rows: u32,
    ) -> Result<Self> {
        let bytes = Precision::Bf16.bytes() as u64;
        let sizes = [d as u64, n as u64, heads as u64]; // the fastest first
        let strides = [d as u64 * bytes, (n * d) as u64 * bytes]; // of rows, of heads
        let (box_sizes, steps) = ([64, rows, 1], [1, 1, 1]);
        let (pointer, _read) = tensor.device_ptr(stream);
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
        Ok(TensorMap(map))
    }
}
