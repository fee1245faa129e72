//! The machine, as NVIDIA describes it, and what follows from that.

use super::banks::D;
use anyhow::Result;
use attention::AttentionShape;
pub use laboratory::gpu::{BANKS, COMPARISONS, EXPONENTIALS, LANES, TENSOR, WARP};

/// A GPU by its data sheet and by the tables of NVIDIA's programming guide.
pub struct Machine {
    pub name: &'static str,
    /// Bytes a second to and from the memory of the device, and its size in GB.
    pub bandwidth: f64,
    pub memory: usize,
}

/// NVIDIA, *H100 Tensor Core GPU datasheet* (SXM) and *H200 Tensor Core GPU datasheet*.
pub const H100: Machine = Machine { name: "H100 SXM", bandwidth: 3.35e12, memory: 80 };
pub const H200: Machine = Machine { name: "H200 SXM", bandwidth: 4.8e12, memory: 141 };

// What both share. The rates are of the data sheets, the tensor cores' without sparsity.
// Each takes another clock for granted: 1.98 GHz, and 1.83 GHz while the tensor cores work.
pub const F32: f64 = 66.9e12;
pub const BF16: f64 = 989.4e12;
/// NVIDIA, *H100 Tensor Core GPU Architecture* (2022).
pub const MULTIPROCESSORS: usize = 132;
pub const L2: usize = 50 << 20;
pub const REGISTERS: usize = 64 << 10;
pub const SHARED: usize = 228 << 10;
/// NVIDIA, *CUDA C++ Programming Guide*, compute capability 9.0: of a multiprocessor.
pub const MOST_THREADS: usize = 2048;
pub const MOST_BLOCKS: usize = 32;
pub const MOST_SHARED: usize = 227 << 10; // of one block

/// Clocks a second that the rate in f32 takes for granted.
pub fn clock_f32() -> f64 {
    F32 / (2 * MULTIPROCESSORS * LANES) as f64
}

/// The same of the tensor cores' rate.
pub fn clock_tensor() -> f64 {
    BF16 / (2 * MULTIPROCESSORS * TENSOR) as f64
}

pub fn ridge(rate: f64, machine: &Machine) -> f64 {
    rate / machine.bandwidth
}

/// One sequence and head, of which the intensities are told.
pub const N: usize = 16_384;

fn shape() -> AttentionShape {
    AttentionShape::self_attention(1, N, 1, D, 1)
}

/// FLOPs of scores, softmax and output.
pub fn core_flops() -> Result<u128> {
    Ok(shape().flops()?.core())
}

/// FLOPs a byte that attention has to offer if the matrix is moved once, of numbers with so many bytes.
pub fn intensity_with_matrix(bytes: usize) -> Result<f64> {
    Ok(shape().intensity(bytes)?)
}

/// The same if the matrix is not moved at all.
pub fn intensity_without_matrix(bytes: usize) -> Result<f64> {
    Ok(core_flops()? as f64 / (4 * N * D * bytes) as f64)
}

/// Size and bandwidth of a memory, if NVIDIA states it.
pub struct Memory {
    pub name: &'static str,
    pub whose: &'static str,
    pub bytes: f64,
    pub bandwidth: Option<f64>,
}

/// Bytes a second of all registers: a multiply-add reads three numbers and writes one.
pub fn registers_bandwidth() -> f64 {
    (LANES * 4 * 4) as f64 * MULTIPROCESSORS as f64 * clock_f32()
}

/// Bytes a second of all shared memory.
pub fn shared_bandwidth() -> f64 {
    (BANKS * 4) as f64 * MULTIPROCESSORS as f64 * clock_f32()
}

/// All that there is of each memory, from the nearest to the farthest.
pub fn memories() -> [Memory; 4] {
    [
        Memory {
            name: "registers",
            whose: "a thread's own",
            bytes: (MULTIPROCESSORS * REGISTERS * 4) as f64,
            bandwidth: Some(registers_bandwidth()),
        },
        Memory {
            name: "shared memory",
            whose: "a block's own",
            bytes: (MULTIPROCESSORS * SHARED) as f64,
            bandwidth: Some(shared_bandwidth()),
        },
        Memory { name: "L2 cache", whose: "for all", bytes: L2 as f64, bandwidth: None },
        Memory {
            name: "HBM",
            whose: "for all",
            bytes: H100.memory as f64 * 1e9,
            bandwidth: Some(H100.bandwidth),
        },
    ]
}
