//! The demands of each kernel on a multiprocessor, counted, and the speed that follows if everything overlaps and if nothing does.
//!
//! All is counted for one score, one query against one key, in clocks of one multiprocessor, for long sequences without a mask.

use super::backward::{Loads, Plan};
use super::banks::{self, D};
use super::machine::{
    BANKS, EXPONENTIALS, H100, LANES, MULTIPROCESSORS, N, TENSOR, WARP, clock_f32,
};
use gpu::tiles;
use laboratory::gpu::clocks;
use std::collections::BTreeSet;

/// The time that a function asks of each part of a multiprocessor, in clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Demands {
    /// The time of the tensor cores. In f32 the products are instructions like all others.
    pub tensor: f64,
    pub instructions: f64,
    /// The time of shared memory or of the first-level cache, which are one unit: reads, and the writes of arriving tiles.
    pub loads: f64,
    pub exponentials: f64,
    pub slow: f64,
}

impl Demands {
    fn all(self) -> [f64; 5] {
        [self.tensor, self.instructions, self.loads, self.exponentials, self.slow]
    }

    /// Clocks if everything overlaps.
    pub fn together(self) -> f64 {
        self.all().into_iter().fold(0.0, f64::max)
    }

    /// Clocks if nothing does.
    pub fn in_turns(self) -> f64 {
        self.all().into_iter().sum()
    }
}

/// A kernel and what it asks for.
pub struct Step {
    pub number: usize,
    /// The name of its source file.
    pub name: &'static str,
    /// The type of its products.
    pub dtype: &'static str,
    /// Multiply-adds of a score by the convention.
    credited: f64,
    /// One function after the other.
    pub functions: Vec<Demands>,
    /// Bytes per score that come from beyond the multiprocessor.
    pub beyond: f64,
}

impl Step {
    /// FLOP/s of the machine.
    pub fn roof(&self) -> f64 {
        if self.dtype == "bf16" { H100.bf16 } else { H100.f32 }
    }

    /// Clocks of the products at the roof.
    fn products(&self) -> f64 {
        self.credited / if self.dtype == "bf16" { TENSOR } else { LANES } as f64
    }

    /// The share of the roof if nothing overlaps, and if everything does.
    pub fn predicted(&self) -> (f64, f64) {
        let least: f64 = self.functions.iter().map(|f| f.in_turns()).sum();
        let most: f64 = self.functions.iter().map(|f| f.together()).sum();
        (self.products() / least, self.products() / most)
    }

    /// The same kernel where products reach only this share of their roof: those of the tensor cores, or else all instructions.
    pub fn at_rate(&self, share: f64) -> Self {
        let slower = |f: &Demands| match self.dtype {
            "bf16" => Demands { tensor: f.tensor / share, ..*f },
            _ => Demands { instructions: f.instructions / share, ..*f },
        };
        Step { functions: self.functions.iter().map(slower).collect(), ..*self }
    }

    /// Returns the demands of all functions together, in units of the products' time.
    pub fn relative(&self) -> Demands {
        let sum = |of: fn(&Demands) -> f64| {
            self.functions.iter().map(of).sum::<f64>() / self.products()
        };
        Demands {
            tensor: sum(|f| f.tensor),
            instructions: sum(|f| f.instructions),
            loads: sum(|f| f.loads),
            exponentials: sum(|f| f.exponentials),
            slow: sum(|f| f.slow),
        }
    }

    /// Returns the FLOP per byte that comes from beyond the multiprocessors, by the convention.
    pub fn intensity_beyond(&self) -> f64 {
        2.0 * self.credited / self.beyond
    }

    /// Bytes per second from beyond the multiprocessors, at a share of the roof.
    pub fn asked_of_l2_at(&self, share: f64) -> f64 {
        share * self.roof() / (2.0 * self.credited) * self.beyond
    }
}

/// Clocks in which so many bytes cross to one multiprocessor, if all have their share.
fn slow(bytes: f64, clock: f64) -> f64 {
    bytes * MULTIPROCESSORS as f64 * clock / H100.bandwidth
}

/// Instructions of the softmax for each score: maximum, difference, exponential and sum.
pub const SOFTMAX: f64 = 4.0;

/// The same, and for each score its share of the corrections of a row of the output, which is corrected at every tile.
fn softmax(keys: usize) -> f64 {
    SOFTMAX + D as f64 / keys as f64
}

pub fn instructions(of_lanes: f64) -> f64 {
    of_lanes / LANES as f64
}

/// Clocks of shared memory, or of the first-level cache, in which so many bytes are read or written.
pub fn crossed(bytes: f64) -> f64 {
    bytes / (BANKS * 4) as f64
}

pub const EXPONENTIAL: f64 = 1.0 / EXPONENTIALS as f64;
const FORWARD: f64 = (2 * D) as f64;

/// Pieces of 32 bytes that a load of one word per lane moves. The addresses are counted in words.
pub fn sectors_of_a_load(addresses: impl Fn(usize) -> usize) -> usize {
    let sectors: BTreeSet<_> = (0..WARP).map(|lane| addresses(lane) / 8).collect();
    sectors.len()
}

/// Clocks of the first-level cache for one load of a warp from slow memory. That it hands over four sectors of 32 bytes in
/// each clock, its whole 128 bytes, wherever they lie, is assumed: NVIDIA's guide states no rate for scattered loads.
fn sectors(addresses: impl Fn(usize) -> usize) -> f64 {
    (sectors_of_a_load(addresses) as f64 / 4.0).max(1.0)
}

/// Bytes of a key and of a value that arrive, of so many bytes per number, for each of the queries that share them.
fn arriving(bytes: usize, queries: usize) -> f64 {
    (2 * D * bytes) as f64 / queries as f64
}

/// The demands of a kernel's functions, and the bytes from beyond the multiprocessor.
type Counted = (Vec<Demands>, f64);

fn step(
    number: usize,
    name: &'static str,
    dtype: &'static str,
    credited: f64,
    (functions, beyond): Counted,
) -> Step {
    Step { number, name, dtype, credited, functions, beyond }
}

pub fn steps() -> [Step; 6] {
    [
        step(0, "naive", "f32", FORWARD, naive(clocks_of_naive_keys())),
        step(1, "tiled", "f32", FORWARD, tiled()),
        step(2, "registers", "f32", FORWARD, registers()),
        step(3, "tensor_cores", "bf16", FORWARD, tensor_cores()),
        step(4, "hopper", "bf16", FORWARD, hopper()),
        step(5, "backward", "f32", 5.0 * D as f64, backward_in_f32()),
    ]
}

/// Kernel 6, which no GPU has run yet.
pub fn backward_on_tensor_cores() -> Step {
    step(6, "backward_hopper", "bf16", 5.0 * D as f64, backward_hopper())
}

/// Kernel 0 with another assumption, made after it was measured: the first-level cache hands over one line in a clock.
pub fn naive_with_one_line_a_clock() -> Step {
    step(0, "naive", "f32", FORWARD, naive(clocks_of_lines()))
}

/// Clocks of a load of kernel 0, of a key by each lane, if each line that it touches takes one: 128 bytes, 32 words.
pub fn clocks_of_lines() -> f64 {
    let lines: BTreeSet<_> = (0..WARP).map(|lane| lane * D / 32).collect();
    lines.len() as f64
}

/// The matrix goes through slow memory: written by the first, read three times and written twice by the second, read by the third.
fn naive(key: f64) -> Counted {
    let (d, clock, number) = (D as f64, clock_f32(), 4.0);
    let (query, value) = (sectors(|_| 0), sectors(|lane| lane));
    let function =
        |fma: f64, loads: f64, exponentials: f64, others: f64, crossings: f64| Demands {
            instructions: instructions(3.0 * fma + others),
            loads: fma / WARP as f64 * loads,
            exponentials: exponentials * EXPONENTIAL,
            slow: slow(crossings * number, clock),
            ..Demands::default()
        };
    let functions = vec![
        function(d, query + key, 0.0, 2.0, 1.0),
        function(0.0, 0.0, 1.0, 12.0, 5.0),
        function(d, query + value, 0.0, 1.0, 1.0),
    ];
    (functions, 2.0 * d * number + 7.0 * number)
}

/// Two loads for each multiply-add of a score; one in the second product, where the weights stay in registers.
fn tiled() -> Counted {
    use tiles::tiled::{KEYS, PADDING, QUERIES};
    let [query, key] = banks::tiled_loads(D + PADDING).map(|load| clocks(&load) as f64);
    let d = D as f64;
    let words = 3.0 * d + 1.0;
    let arriving = arriving(4, QUERIES);
    let demands = Demands {
        instructions: instructions(FORWARD + words + softmax(KEYS)),
        // What arrives is loaded through the first-level cache into registers and stored from there.
        loads: (d * (query + key) + d + 1.0) / WARP as f64 + 2.0 * crossed(arriving),
        exponentials: EXPONENTIAL,
        ..Demands::default()
    };
    (vec![demands], arriving)
}

/// Eight rows by eight columns a thread: sixteen loads of four words for 256 multiply-adds.
fn registers() -> Counted {
    use tiles::registers::{COLUMNS, KEYS, PADDING, QUERIES, ROWS};
    const { assert!(ROWS == 8 && COLUMNS == 8) };
    let of_each: Vec<_> = banks::register_loads(PADDING, true)
        .iter()
        .map(|load| clocks(load) as f64)
        .collect();
    let per_load: f64 = of_each.iter().sum::<f64>() / 4.0;
    let loads = FORWARD * 16.0 / 256.0 + 0.25; // and a store of four weights
    let arriving = arriving(4, QUERIES); // copied without a detour through registers
    let demands = Demands {
        instructions: instructions(FORWARD + loads + softmax(KEYS)),
        loads: loads / WARP as f64 * per_load + crossed(arriving),
        exponentials: EXPONENTIAL,
        ..Demands::default()
    };
    (vec![demands], arriving)
}

/// The share of the tensor cores' rate that `mma.sync` reaches on Hopper: 62.9 % on an H800 PCIe by the measurements of W. Luo et al.,
/// *Benchmarking and Dissecting the NVIDIA Hopper GPU Architecture* (2024), rounded up to two thirds.
pub const OF_THE_OLD_INSTRUCTION: f64 = 2.0 / 3.0;

fn tensor_cores() -> Counted {
    use tiles::tensor_cores::{KEYS, ROW_TILES, WARPS};
    let rows = 16 * ROW_TILES;
    // For the scores: of 16 columns, the tiles of queries, and the keys by 16. For the output: of 16 keys, the columns by 16.
    let matrix_loads = D / 16 * (ROW_TILES + KEYS / 16) + KEYS / 16 * (D / 16);
    let products = 2 * ROW_TILES * (KEYS / 8) * (D / 16);
    let scores = (rows * KEYS) as f64;
    let of_warp = |count: usize| count as f64 * WARP as f64 / scores; // instructions of a lane, for each score
    let tensor = FORWARD / TENSOR as f64 / OF_THE_OLD_INSTRUCTION;
    let arriving = arriving(2, rows * WARPS);
    let demands = Demands {
        tensor,
        // Without corrections: the output is left alone until a weight would be too large.
        instructions: instructions(SOFTMAX + 0.5 + of_warp(matrix_loads + products)),
        loads: matrix_loads as f64 * clocks(&banks::matrix_loads(true)) as f64 / scores
            + crossed(arriving),
        exponentials: EXPONENTIAL,
        ..Demands::default()
    };
    (vec![demands], arriving)
}

/// The tensor cores read both factors of the scores from shared memory, and the right one of the output. Its left one, the
/// weights, they read from registers.
fn hopper() -> Counted {
    use tiles::hopper::{KEYS, QUERIES};
    let scores = (64 * KEYS) as f64;
    let bytes = |rows: usize| (rows * 16 * 2) as f64; // of a factor, 16 deep
    let read =
        (D / 16) as f64 * (bytes(64) + bytes(KEYS)) + (KEYS / 16) as f64 * bytes(D);
    let arriving = arriving(2, QUERIES); // one tile for both consumers
    let demands = Demands {
        tensor: FORWARD / TENSOR as f64,
        instructions: instructions(softmax(KEYS) + 0.5),
        loads: crossed(read / scores) + crossed(arriving),
        exponentials: EXPONENTIAL,
        ..Demands::default()
    };
    (vec![demands], arriving)
}

/// Seven products, of which the convention credits five; both functions recompute the weights.
fn backward_in_f32() -> Counted {
    use tiles::backward::{COLUMNS, STAYING};
    let d = D as f64;
    // Loads of four words for each multiply-add.
    let multiply = (4 + COLUMNS) as f64 / (16 * COLUMNS) as f64;
    let (keys, queries) = ((2.0 + 2.0) / 64.0, (2.0 + 1.0) / 32.0);
    let arriving = arriving(4, STAYING); // of each function
    let function = |products: f64, accumulated: f64, load: f64| {
        let quads = 2.0 * d * multiply + accumulated * d * load;
        let words = 6.0; // of a weight and its gradient, read and written, and of the query's two numbers
        Demands {
            instructions: instructions(products * d + quads + words + 6.0),
            // What arrives is loaded through the first-level cache into registers and stored from there.
            loads: (2.0 * quads + words) / WARP as f64 + 2.0 * crossed(arriving),
            exponentials: EXPONENTIAL,
            ..Demands::default()
        }
    };
    (vec![function(4.0, 2.0, keys), function(3.0, 1.0, queries)], 2.0 * arriving)
}

/// The same seven products on tensor cores.
fn backward_hopper() -> Counted {
    use tiles::backward_hopper::{KEYS, QUERIES, STAYING};
    let function = |passing: usize, plan: &Plan, loads: &Loads, others: f64| {
        let scores = (64 * passing) as f64;
        Demands {
            tensor: plan.products() as f64 / scores,
            instructions: instructions(others),
            loads: loads.all() / scores,
            exponentials: EXPONENTIAL,
            ..Demands::default()
        }
    };
    let [keys, queries] = Loads::of_functions();
    let [of_keys, of_queries] = Plan::of_functions();
    // A multiply-add and an exponential, a difference and a product, half a conversion for each sum, and the loads of numbers.
    let functions = vec![
        function(QUERIES, &of_keys, &keys, 4.0 + 2.0 * 0.5 + 0.5),
        function(KEYS, &of_queries, &queries, 4.0 + 0.5),
    ];
    (functions, 2.0 * arriving(2, STAYING))
}

/// Bytes per second that all multiprocessors together would add to the gradients of queries, by atomic additions, if the credited
/// products of the backward kernel ran at the roof: of each query and each tile of keys, one row in `f32`.
pub fn atomic_bytes(backward: &Step) -> f64 {
    let scores = backward.roof() / (2.0 * backward.credited);
    scores * (4 * D) as f64 / tiles::backward::STAYING as f64
}

/// Clocks of a row that the chapter works out: of two loads, or of one, of one clock each, in units of 32 multiply-adds' time.
pub fn row_of_loads(loads: usize) -> usize {
    loads * LANES / WARP
}

/// Clocks of the first-level cache for one load of kernel 0, of a key by each lane.
pub fn clocks_of_naive_keys() -> f64 {
    sectors(|lane| lane * D)
}

/// Bytes of a head's keys and values, with so many bytes per number.
pub fn bytes_of_head(bytes: usize) -> usize {
    2 * N * D * bytes
}

#[cfg(test)]
impl Step {
    pub fn made_up() -> Self {
        let demands = Demands { instructions: 2.0, loads: 3.0, ..Demands::default() };
        Step {
            number: 9,
            name: "made up",
            dtype: "f32",
            credited: 256.0,
            functions: vec![demands, demands],
            beyond: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_together_and_in_turns() {
        let step = Step::made_up();
        let demands = step.functions[0];
        assert_eq!((demands.together(), demands.in_turns()), (3.0, 5.0));
        assert_eq!(step.products(), 2.0);
        assert_eq!(step.predicted(), (0.2, 1.0 / 3.0));
    }

    #[test]
    fn neighbours_share_sectors() {
        assert_eq!(sectors(|lane| lane), 1.0); // 128 bytes
        assert_eq!(sectors(|_| 5), 1.0);
        assert_eq!(sectors(|lane| lane * 8), 8.0);
        assert_eq!(sectors(|lane| lane * 1000), 8.0);
    }
}
