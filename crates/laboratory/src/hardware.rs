//! The GPUs that the book speaks of, by what NVIDIA states. All rates are without sparsity.

/// A GPU's rates and memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// Its name, with the kind of its card.
    pub name: &'static str,
    /// FLOP/s in `f32`, without tensor cores.
    pub f32: f64,
    /// FLOP/s of the tensor cores in TF32.
    pub tf32: f64,
    /// FLOP/s of the tensor cores in bf16.
    pub bf16: f64,
    /// Bytes per second to and from its main memory.
    pub bandwidth: f64,
    /// GB of that memory.
    pub memory: usize,
}

impl Gpu {
    /// Returns the FLOP/byte from which on arithmetic in `f32` is the limit, not memory.
    ///
    /// ```
    /// assert!((laboratory::hardware::A100.ridge_f32() - 9.56).abs() < 0.005);
    /// ```
    pub fn ridge_f32(&self) -> f64 {
        self.f32 / self.bandwidth
    }

    /// Returns the same of the tensor cores in bf16.
    ///
    /// ```
    /// assert!((laboratory::hardware::H100.ridge_bf16() - 295.3).abs() < 0.05);
    /// ```
    pub fn ridge_bf16(&self) -> f64 {
        self.bf16 / self.bandwidth
    }
}

/// Source: *A100 Tensor Core GPU Datasheet* (2021), the SXM card with 80 GB.
pub const A100: Gpu = Gpu {
    name: "A100 SXM",
    f32: 19.5e12,
    tf32: 156e12,
    bf16: 312e12,
    bandwidth: 2.039e12,
    memory: 80,
};

/// Sources: *H100 Tensor Core GPU Architecture* (2022) for the rates, which the data sheet rounds, and *H100 Tensor Core GPU
/// Datasheet* for the memory; the SXM card.
pub const H100: Gpu = Gpu {
    name: "H100 SXM",
    f32: 66.9e12,
    tf32: 494.7e12,
    bf16: 989.4e12,
    bandwidth: 3.35e12,
    memory: 80,
};

// The chip of the H100. Source: *H100 Tensor Core GPU Architecture* (2022).

/// Multiprocessors in use.
pub const MULTIPROCESSORS: usize = 132;
/// Bytes of the second-level cache.
pub const L2: usize = 50 << 20;
/// Registers of a multiprocessor, of four bytes each.
pub const REGISTERS: usize = 64 << 10;
/// Bytes of a multiprocessor's shared memory.
pub const SHARED: usize = 228 << 10;
/// Multiply-adds in bf16 that the tensor cores of a multiprocessor do in a clock.
pub const TENSOR: usize = 2048;

// What a multiprocessor does in a clock, and what it holds. Source: *CUDA C++ Programming Guide*, compute capability 9.0.

/// Additions, multiplications or both at once in `f32`, in a clock.
pub const LANES: usize = 128;
/// Comparisons, minima, maxima and conversions from `f32`, in a clock.
pub const COMPARISONS: usize = 64;
/// Exponentials in a clock.
pub const EXPONENTIALS: usize = 16;
/// Banks of shared memory, each of which delivers a word of four bytes in a clock.
pub const BANKS: usize = 32;
/// Threads that run in step.
pub const WARP: usize = 32;
/// Threads that a multiprocessor holds at most.
pub const MOST_THREADS: usize = 2048;
/// Blocks that a multiprocessor holds at most.
pub const MOST_BLOCKS: usize = 32;
/// Bytes of shared memory that a block can have at most.
pub const MOST_SHARED: usize = 227 << 10;

/// What connects GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: &'static str,
    /// Bytes per second of one GPU to others, while it receives as many.
    pub bandwidth: f64,
}

/// Sources: *H100 Tensor Core GPU Datasheet* for NVLink (900 GB/s, both directions together); *NVIDIA ConnectX-7 Datasheet* for 400 Gb/s; IEEE
/// 802.3 for 100 Gb/s.
pub const LINKS: [Link; 3] = [
    Link { name: "NVLink 4, within a machine", bandwidth: 450e9 },
    Link { name: "InfiniBand NDR, 400 Gb/s", bandwidth: 50e9 },
    Link { name: "Ethernet, 100 Gb/s", bandwidth: 12.5e9 },
];
