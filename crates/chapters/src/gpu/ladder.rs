//! What each kernel asks of a multiprocessor, counted, and the speed that follows if everything overlaps and if nothing does.
//!
//! All is counted for one score, one query against one key, in clocks of one multiprocessor, for long sequences without a mask.

use super::banks::{self, D, clocks};
use super::machine::{
    BANKS, BF16, COMPARISONS, EXPONENTIALS, F32, H100, L2, LANES, MULTIPROCESSORS,
    TENSOR, WARP, clock_f32,
};
use super::source::{constant, has};
use crate::output::Page;
use anyhow::{Result, ensure};
use figures::format::{fixed, integer, percent, significant, table};
use std::collections::BTreeSet;

/// What somebody may have to wait for.
#[derive(Debug, Clone, Copy, Default)]
struct Demands {
    /// Of the tensor cores. In f32 the products are instructions like all others.
    tensor: f64,
    instructions: f64,
    /// Of shared memory or of the first-level cache, which are one unit: reads, and the writes of arriving tiles.
    loads: f64,
    exponentials: f64,
    slow: f64,
}

impl Demands {
    fn all(self) -> [f64; 5] {
        [self.tensor, self.instructions, self.loads, self.exponentials, self.slow]
    }

    fn together(self) -> f64 {
        self.all().into_iter().fold(0.0, f64::max)
    }

    fn in_turns(self) -> f64 {
        self.all().into_iter().sum()
    }
}

/// A kernel and what it asks for.
pub struct Step {
    pub number: usize,
    /// Of its source file.
    pub name: &'static str,
    pub bf16: bool,
    /// Multiply-adds of a score by the convention.
    credited: f64,
    /// One function after the other.
    functions: Vec<Demands>,
    /// Bytes a score that come from beyond the multiprocessor.
    beyond: f64,
}

impl Step {
    /// FLOP/s of the machine.
    pub fn roof(&self) -> f64 {
        if self.bf16 { BF16 } else { F32 }
    }

    /// Clocks of the products at the roof.
    fn products(&self) -> f64 {
        self.credited / if self.bf16 { TENSOR } else { LANES } as f64
    }

    /// The share of the roof if nothing overlaps, and if everything does.
    pub fn foretold(&self) -> (f64, f64) {
        let least: f64 = self.functions.iter().map(|f| f.in_turns()).sum();
        let most: f64 = self.functions.iter().map(|f| f.together()).sum();
        (self.products() / least, self.products() / most)
    }

    /// "12 to 17 %"
    pub fn foretold_in_words(&self) -> String {
        let (least, most) = self.foretold();
        let decimals = if most < 0.1 { 1 } else { 0 };
        format!("{} to {}", fixed(100.0 * least, decimals), percent(most, decimals))
    }

    /// All functions together, in units of the products' time.
    fn relative(&self) -> Demands {
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

    /// Bytes a second from beyond the multiprocessors, if everything overlaps.
    fn asked_of_l2(&self) -> f64 {
        let scores = self.foretold().1 * self.roof() / (2.0 * self.credited);
        scores * self.beyond
    }
}

/// Clocks in which so many bytes cross to one multiprocessor, if all have their share.
fn slow(bytes: f64, clock: f64) -> f64 {
    bytes * MULTIPROCESSORS as f64 * clock / H100.bandwidth
}

/// Instructions of the softmax for each score: maximum, difference, exponential and sum; and for each score its share of the
/// corrections of a row of the output.
fn softmax(keys: usize) -> f64 {
    4.0 + D as f64 / keys as f64
}

fn instructions(of_lanes: f64) -> f64 {
    of_lanes / LANES as f64
}

/// Clocks of shared memory, or of the first-level cache, in which so many bytes are read or written.
fn crossed(bytes: f64) -> f64 {
    bytes / (BANKS * 4) as f64
}

const EXPONENTIAL: f64 = 1.0 / EXPONENTIALS as f64;
const FORWARD: f64 = (2 * D) as f64;

/// Clocks of the first-level cache for one load of a warp from slow memory. That it hands over four sectors of 32 bytes in
/// each clock, its whole 128 bytes, wherever they lie, is assumed: NVIDIA's guide states no rate for scattered loads.
fn sectors(addresses: impl Fn(usize) -> usize) -> f64 {
    let sectors: BTreeSet<_> = (0..WARP).map(|lane| addresses(lane) / 8).collect();
    (sectors.len() as f64 / 4.0).max(1.0)
}

/// The matrix goes through slow memory: written by the first, read three times and written twice by the second, read by the third.
fn naive() -> Result<Step> {
    has("naive.cu", &["dot += q_i[c] * k_j[c];", "sum += a_i[j] * v_c[size_t(j) * D];"])?;
    let (d, clock, number) = (D as f64, clock_f32(), 4.0);
    let query = sectors(|_| 0);
    let key = sectors(|lane| lane * D);
    let value = sectors(|lane| lane);
    let function =
        |fma: f64, loads: f64, exponentials: f64, others: f64, crossings: f64| Demands {
            instructions: instructions(3.0 * fma + others),
            loads: fma / WARP as f64 * loads,
            exponentials: exponentials * EXPONENTIAL,
            slow: slow(crossings * number, clock),
            ..Demands::default()
        };
    Ok(Step {
        number: 0,
        name: "naive",
        bf16: false,
        credited: FORWARD,
        functions: vec![
            function(d, query + key, 0.0, 2.0, 1.0),
            function(0.0, 0.0, 1.0, 12.0, 5.0),
            function(d, query + value, 0.0, 1.0, 1.0),
        ],
        beyond: 2.0 * d * number + 7.0 * number,
    })
}

/// Two loads for each multiply-add of a score; one in the second product, where the weights stay in registers.
fn tiled() -> Result<Step> {
    let queries = constant("tiled.cu", "QUERIES")?;
    let keys = constant("tiled.cu", "KEYS")?;
    let [query, key] = banks::tiled_loads(D + 1).map(|load| clocks(&load) as f64);
    let d = D as f64;
    let words = 3.0 * d + 1.0;
    let arriving = 2.0 * d * 4.0 / queries as f64; // bytes
    Ok(Step {
        number: 1,
        name: "tiled",
        bf16: false,
        credited: FORWARD,
        functions: vec![Demands {
            instructions: instructions(FORWARD + words + softmax(keys)),
            // What arrives is loaded through the first-level cache into registers and stored from there.
            loads: (d * (query + key) + d + 1.0) / WARP as f64 + 2.0 * crossed(arriving),
            exponentials: EXPONENTIAL,
            ..Demands::default()
        }],
        beyond: arriving,
    })
}

/// Eight rows by eight columns a thread: sixteen loads of four words for 256 multiply-adds.
fn registers() -> Result<Step> {
    let queries = constant("registers.cu", "QUERIES")?;
    let keys = constant("registers.cu", "KEYS")?;
    ensure!(
        constant("registers.cu", "ROWS")? == 8
            && constant("registers.cu", "COLUMNS")? == 8
    );
    let of_each: Vec<_> =
        banks::register_loads(4, true).iter().map(|load| clocks(load) as f64).collect();
    let per_load: f64 = of_each.iter().sum::<f64>() / 4.0;
    let loads = FORWARD * 16.0 / 256.0 + 0.25; // and a store of four weights
    let arriving = 2.0 * D as f64 * 4.0 / queries as f64; // bytes, copied without a detour through registers
    Ok(Step {
        number: 2,
        name: "registers",
        bf16: false,
        credited: FORWARD,
        functions: vec![Demands {
            instructions: instructions(FORWARD + loads + softmax(keys)),
            loads: loads / WARP as f64 * per_load + crossed(arriving),
            exponentials: EXPONENTIAL,
            ..Demands::default()
        }],
        beyond: arriving,
    })
}

/// What `mma.sync` reaches of the tensor cores' rate on an H100, by the authors of FlashAttention-3.
const OF_THE_OLD_INSTRUCTION: f64 = 2.0 / 3.0;

fn tensor_cores() -> Result<Step> {
    let file = "tensor_cores.cu";
    let (row_tiles, keys, warps) =
        (constant(file, "ROW_TILES")?, constant(file, "KEYS")?, constant(file, "WARPS")?);
    let rows = 16 * row_tiles;
    // For the scores: of 16 columns, the tiles of queries, and the keys by 16. For the output: of 16 keys, the columns by 16.
    let matrix_loads = D / 16 * (row_tiles + keys / 16) + keys / 16 * (D / 16);
    let products = 2 * row_tiles * (keys / 8) * (D / 16);
    let scores = (rows * keys) as f64;
    let of_warp = |count: usize| count as f64 * WARP as f64 / scores; // instructions of a lane, for each score
    let tensor = FORWARD / TENSOR as f64 / OF_THE_OLD_INSTRUCTION;
    let arriving = 2.0 * D as f64 * 2.0 / (rows * warps) as f64; // bytes
    Ok(Step {
        number: 3,
        name: "tensor_cores",
        bf16: true,
        credited: FORWARD,
        functions: vec![Demands {
            tensor,
            instructions: instructions(
                softmax(keys) + 0.5 + of_warp(matrix_loads + products),
            ),
            loads: matrix_loads as f64 * clocks(&banks::matrix_loads(true)) as f64
                / scores
                + crossed(arriving),
            exponentials: EXPONENTIAL,
            ..Demands::default()
        }],
        beyond: arriving,
    })
}

/// The tensor cores read both factors of the scores from shared memory, and the right one of the output. Its left one, the
/// weights, they read from registers.
fn hopper() -> Result<Step> {
    let keys = constant("hopper.cu", "KEYS")?;
    has(
        "hopper.cu",
        &[
            "constexpr int CONSUMERS = D == 128 ? 2 : 3;",
            "constexpr int QUERIES = 64 * CONSUMERS;",
        ],
    )?;
    let scores = (64 * keys) as f64;
    let bytes = |rows: usize| (rows * 16 * 2) as f64; // of a factor, 16 deep
    let read =
        (D / 16) as f64 * (bytes(64) + bytes(keys)) + (keys / 16) as f64 * bytes(D);
    let arriving = 2.0 * D as f64 * 2.0 / 128.0; // bytes, one tile for both consumers
    Ok(Step {
        number: 4,
        name: "hopper",
        bf16: true,
        credited: FORWARD,
        functions: vec![Demands {
            tensor: FORWARD / TENSOR as f64,
            instructions: instructions(softmax(keys) + 0.5),
            loads: crossed(read / scores) + crossed(arriving),
            exponentials: EXPONENTIAL,
            ..Demands::default()
        }],
        beyond: arriving,
    })
}

/// Seven products, of which the convention credits five; both functions recompute the weights.
fn backward() -> Result<Step> {
    let file = "backward.cu";
    has(
        file,
        &[
            "constexpr int STAYING = 4096 / D;",
            "constexpr int COLUMNS = STAYING / COLUMN_THREADS;",
        ],
    )?;
    let staying = 4096 / D;
    let shares = if D > 64 { D / 64 } else { 1 };
    let columns = staying / (16 / shares);
    let d = D as f64;
    // Loads of four words for each multiply-add.
    let multiply = (4 + columns) as f64 / (16 * columns) as f64;
    let (keys, queries) = ((2.0 + 2.0) / 64.0, (2.0 + 1.0) / 32.0);
    let arriving = 2.0 * d * 4.0 / staying as f64; // bytes, of each function
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
    Ok(Step {
        number: 5,
        name: "backward",
        bf16: false,
        credited: 5.0 * d,
        functions: vec![function(4.0, 2.0, keys), function(3.0, 1.0, queries)],
        beyond: 2.0 * arriving,
    })
}

pub fn steps() -> Result<Vec<Step>> {
    [naive, tiled, registers, tensor_cores, hopper, backward]
        .into_iter()
        .map(|step| step())
        .collect()
}

pub fn generate(page: &mut Page) -> Result<()> {
    let steps = steps()?;
    page.value("d", integer(D));
    let mut rows = vec![];
    let mut asked = vec![];
    for step in &steps {
        let relative = step.relative();
        let cell = |x: f64| if x < 0.005 { "–".to_owned() } else { significant(x, 2) };
        let (least, most) = step.foretold();
        ensure!(
            0.0 < least && least < most && most <= 1.0,
            "{}: {least} to {most}",
            step.name
        );
        rows.push(vec![
            format!("{} **{}**", step.number, step.name.replace('_', " ")),
            if step.bf16 { cell(relative.tensor) } else { "–".to_owned() },
            cell(relative.instructions),
            cell(relative.loads),
            cell(relative.exponentials),
            cell(relative.slow),
            step.foretold_in_words(),
            format!("{} to {}", tflops(least, step), tflops(most, step)),
        ]);
        asked.push(vec![
            format!("{} {}", step.number, step.name.replace('_', " ")),
            significant(step.beyond, 2),
            fixed(step.asked_of_l2() / 1e12, 1),
            significant(step.asked_of_l2() / H100.bandwidth, 2),
        ]);
        page.value(
            format!("foretold-{}", step.name.replace('_', "-")),
            step.foretold_in_words(),
        );
    }
    let header = [
        "kernel",
        "tensor cores",
        "instructions",
        "loads",
        "exponentials",
        "slow memory",
        "foretold, of the roof",
        "in TFLOP/s",
    ];
    page.file("foretold.md", table(&header, &rows));
    let header = [
        "kernel",
        "bytes a score",
        "TB/s at the upper end",
        "times the bandwidth of HBM",
    ];
    page.file("asked.md", table(&header, &asked));

    // What the chapter says in words.
    let of = |name: &str| {
        steps
            .iter()
            .find(|step| step.name == name)
            .map(|step| step.relative())
            .unwrap_or_default()
    };
    let (naive, tiled, registers, tensor, hopper) =
        (of("naive"), of("tiled"), of("registers"), of("tensor_cores"), of("hopper"));
    ensure!(
        naive.loads > 10.0 && naive.loads > naive.slow && naive.slow > 0.9,
        "{naive:?}"
    );
    ensure!(
        tiled.loads > 2.0 * tiled.instructions && tiled.loads < naive.loads / 2.0,
        "{tiled:?}"
    );
    ensure!(
        registers.loads < 0.6
            && registers.instructions < 1.2
            && registers.instructions > registers.loads
    );
    ensure!(
        tensor.tensor > tensor.loads - 1e-9
            && tensor.loads > 1.0
            && tensor.exponentials == hopper.exponentials
    );
    ensure!(
        hopper.tensor == 1.0 && hopper.loads < tensor.loads && hopper.exponentials > 0.4
    );
    // Comparisons and conversions run at a lower rate, but there are too few of them to set the pace: a maximum and half a
    // conversion for each score.
    let slower = 1.5 / COMPARISONS as f64;
    for step in &steps {
        let instructions: f64 = step.functions.iter().map(|f| f.instructions).sum();
        ensure!(slower < instructions, "{}: comparisons set the pace", step.name);
    }
    page.value("loads-naive", fixed(naive.loads, 0));
    page.value("slow-naive", significant(naive.slow, 2));
    page.value("loads-tiled", significant(tiled.loads, 2));
    page.value("loads-registers", significant(registers.loads, 1));
    page.value("loads-tensor-cores", significant(tensor.loads, 2));
    page.value("exponentials-hopper", significant(hopper.exponentials, 2));
    // The row that the chapter works out: two loads, then one, of one clock each, for 32 multiply-adds.
    let per_multiply_adds = |loads: f64| loads * (LANES / WARP) as f64;
    let (first, second) = (per_multiply_adds(2.0), per_multiply_adds(1.0));
    ensure!(
        banks::tiled_loads(D + 1).iter().all(|load| clocks(load) == 1)
            && (tiled.loads - f64::midpoint(first, second) - 0.25).abs() < 0.05,
        "{tiled:?}"
    );
    page.value("example-mean", fixed(f64::midpoint(first, second), 0));
    page.value("example-first", fixed(first, 0));
    page.value("example-second", fixed(second, 0));
    // Kernel 0, by its functions: they cannot overlap.
    let naive_step = self::naive()?;
    ensure!(
        naive_step.foretold().1 < 1.0 / naive.loads,
        "a bit less than if all three overlapped"
    );
    let bytes_of_d = D * 4;
    ensure!(naive_step.beyond == (2 * bytes_of_d + 7 * 4) as f64);
    page.value("naive-bytes", integer(naive_step.beyond as usize));
    page.value("naive-row-bytes", integer(bytes_of_d));
    // Who asks for more than HBM delivers.
    let greedy: Vec<_> = steps
        .iter()
        .filter(|step| step.asked_of_l2() > H100.bandwidth)
        .map(|step| step.number)
        .collect();
    ensure!(greedy == [0, 3, 4], "the chapter names them: {greedy:?}");
    // With tensor cores twice as fast, and nothing else.
    let [loads, exponentials] = [2.0 * hopper.loads, 2.0 * hopper.exponentials];
    ensure!(loads > exponentials && exponentials >= 1.0 && loads > 1.0);
    page.value("once-loads", fixed(hopper.loads, 3));
    page.value("twice-loads", significant(loads, 3));
    page.value("twice-exponentials", fixed(exponentials, 1));
    page.value("twice-roof", percent(1.0 / loads, 0));
    // With the loads twice as fast, too, the exponentials take as long as the products.
    ensure!(exponentials == 1.0 && hopper.loads < 1.0 && 2.0 * hopper.instructions < 1.0);
    // What L2 has to hold of one head.
    let head = |bytes: usize| 2 * 16_384 * D * bytes;
    ensure!(3 * head(4) < L2, "keys and values of a head fit L2 three times");
    page.value("head-f32-mib", integer(head(4) >> 20));
    page.value("head-bf16-mib", integer(head(2) >> 20));
    page.value("key-sectors", integer(sectors(|lane| lane * D) as usize * 4));
    page.value("key-clocks", integer(sectors(|lane| lane * D) as usize));
    let width_64 = TENSOR as f64 / (2.0 * 64.0 * EXPONENTIALS as f64);
    ensure!(
        (width_64 - 1.0).abs() < 1e-9,
        "at d = 64 the exponentials take as long as the products"
    );
    Ok(())
}

fn tflops(share: f64, step: &Step) -> String {
    significant(share * step.roof() / 1e12, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_together_and_in_turns() {
        let demands = Demands { instructions: 2.0, loads: 3.0, ..Demands::default() };
        assert_eq!((demands.together(), demands.in_turns()), (3.0, 5.0));
        let step = Step {
            number: 9,
            name: "made up",
            bf16: false,
            credited: 256.0,
            functions: vec![demands, demands],
            beyond: 0.0,
        };
        assert_eq!(step.products(), 2.0);
        assert_eq!(step.foretold(), (0.2, 1.0 / 3.0));
        assert_eq!(step.foretold_in_words(), "20 to 33\u{202f}%");
    }

    #[test]
    fn neighbours_share_sectors() {
        assert_eq!(sectors(|lane| lane), 1.0); // 128 bytes
        assert_eq!(sectors(|_| 5), 1.0);
        assert_eq!(sectors(|lane| lane * 8), 8.0);
        assert_eq!(sectors(|lane| lane * 1000), 8.0);
    }
}
