//! The machine, as NVIDIA describes it, and what follows from that.

pub use laboratory::hardware::*;

/// Clocks per second that the rate in f32 takes for granted.
pub fn clock_f32() -> f64 {
    H100.f32 / (2 * MULTIPROCESSORS * LANES) as f64
}

/// Returns the same for the tensor cores' rate.
pub fn clock_tensor() -> f64 {
    H100.bf16 / (2 * MULTIPROCESSORS * TENSOR) as f64
}

/// The tokens of the head whose keys and values are held against L2.
pub const N: usize = 16_384;

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
