//! The machine, as NVIDIA describes it, and what follows from that.

use super::banks::D;
use anyhow::Result;
use laboratory::cost::AttentionShape;
pub use laboratory::hardware::*;

/// Clocks per second that the rate in f32 takes for granted.
pub fn clock_f32() -> f64 {
    H100.f32 / (2 * MULTIPROCESSORS * LANES) as f64
}

/// Returns the same for the tensor cores' rate.
pub fn clock_tensor() -> f64 {
    H100.bf16 / (2 * MULTIPROCESSORS * TENSOR) as f64
}

/// The length of the sequence whose intensities are shown.
pub const N: usize = 16_384;

fn shape() -> AttentionShape {
    AttentionShape::self_attention(1, N, 1, D, 1)
}

/// FLOPs of scores, softmax and output.
pub fn core_flops() -> Result<u128> {
    Ok(shape().flops()?.core())
}

/// FLOPs per byte that attention has to offer if the matrix is moved once, of numbers with so many bytes.
pub fn intensity_with_matrix(bytes: usize) -> Result<f64> {
    Ok(shape().intensity(bytes)?)
}

/// Returns the same if the matrix isn't moved at all.
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

/// Bytes per second of all registers: a multiply-add reads three numbers and writes one.
pub fn registers_bandwidth() -> f64 {
    (LANES * 4 * 4) as f64 * MULTIPROCESSORS as f64 * clock_f32()
}

/// Bytes per second of all shared memory.
pub fn shared_bandwidth() -> f64 {
    (BANKS * 4) as f64 * MULTIPROCESSORS as f64 * clock_f32()
}

/// Returns the memories, from the nearest to the farthest, each with all of its pieces together.
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
