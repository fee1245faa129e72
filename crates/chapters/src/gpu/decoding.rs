//! A step of decoding on a GPU, counted: what kernel 7 asks of a multiprocessor, and how a text fills the machine.

use super::banks::{self, D};
use super::ladder::{
    Demands, EXPONENTIAL, OF_THE_OLD_INSTRUCTION, SOFTMAX, crossed, instructions,
};
use super::machine::{MULTIPROCESSORS, TENSOR, WARP, clock_f32};
use gpu::tiles::decode::{PAGE, ROWS, SLOTS, SPLIT, WARPS};
use laboratory::gpu::clocks;

/// Heads of queries and of keys, as in Llama 3 with 8 billion weights.
pub const HEADS: usize = 32;
pub const KV_HEADS: usize = 8;
pub const LAYERS: usize = 32;
pub const WEIGHTS: u64 = 8_000_000_000;
/// Bytes of a number.
const BYTES: usize = 2;
/// Lengths of a text that the page tells of.
pub const LENGTHS: [usize; 4] = [1024, 8192, 32_768, 131_072];

/// The demands of a key and its value, for all heads that read them, in clocks of one multiprocessor; slow memory has the rate of `copy`,
/// in bytes a second.
pub fn demands(copy: f64) -> Demands {
    let bytes = bytes_of_key() as f64;
    // For 16 columns, of the keys once; for 16 keys, of the columns by 16.
    let matrix_loads = 2 * (D / 16);
    let products = 2 * matrix_loads;
    // Per key: each lane of a warp issues what the warp needs for a page.
    let of_page = |count: usize| (count * WARP) as f64 / PAGE as f64;
    let copies = bytes / 16.0;
    let rows = ROWS as f64;
    let corrections = rows * D as f64 / PAGE as f64;
    Demands {
        tensor: rows * (2 * D) as f64 / TENSOR as f64 / OF_THE_OLD_INSTRUCTION,
        instructions: instructions(
            rows * SOFTMAX + corrections + of_page(matrix_loads + products) + copies,
        ),
        loads: matrix_loads as f64 * clocks(&banks::matrix_loads(true)) as f64
            / PAGE as f64
            + crossed(bytes), // what arrives
        exponentials: rows * EXPONENTIAL,
        slow: bytes * MULTIPROCESSORS as f64 * clock_f32() / copy,
    }
}

/// Bytes of a key and its value.
pub fn bytes_of_key() -> usize {
    2 * D * BYTES
}

/// The share of the copy's speed if nothing overlaps.
pub fn least_share(copy: f64) -> f64 {
    let demands = demands(copy);
    demands.slow / demands.in_turns()
}

/// Bytes of all keys and values of a text, in one layer.
pub fn bytes_of_text(keys: usize) -> usize {
    KV_HEADS * keys * bytes_of_key()
}

/// Thread blocks of a text: one for each head of keys and split.
pub fn blocks(keys: usize) -> usize {
    KV_HEADS * keys.div_ceil(SPLIT)
}

/// Multiprocessors that get a thread block of a text.
pub fn at_work(keys: usize) -> usize {
    blocks(keys).min(MULTIPROCESSORS)
}

/// The splits of the shortest text of which each multiprocessor gets so many thread blocks.
pub fn splits_for_all(at_once: usize) -> usize {
    (at_once * MULTIPROCESSORS).div_ceil(KV_HEADS)
}

/// Bytes that a thread block reads of keys and values.
pub fn bytes_of_block() -> usize {
    SPLIT * bytes_of_key()
}

/// Bytes that a thread block leaves for the merge, which are written and read: of each head that shares its keys an output and a log-sum-exp, in `f32`.
pub fn bytes_of_parts() -> usize {
    2 * (HEADS / KV_HEADS) * (D + 1) * 4
}

/// Bytes of pages that are on their way to a multiprocessor with so many thread blocks.
pub fn bytes_on_the_way(blocks: usize) -> usize {
    blocks * WARPS * (SLOTS - 1) * PAGE * bytes_of_key()
}

/// Operations for each byte of keys and values.
pub fn intensity() -> f64 {
    let group = HEADS / KV_HEADS;
    (4 * D * group) as f64 / bytes_of_key() as f64
}
