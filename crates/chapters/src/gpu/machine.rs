//! The machine, as NVIDIA describes it, and what follows from that.

use crate::output::Page;
use anyhow::{Result, ensure};
use attention::AttentionShape;
use figures::format::{fixed, integer, significant, table};
use figures::{
    BLUE, Block, GREEN, MUTED, RGBColor, TEXT, VERMILION, arrow, label, svg, text,
};

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
pub const LANES: usize = 128; // additions, multiplications or both at once in f32, in a clock
pub const TENSOR: usize = 2048; // the same of the tensor cores, in bf16
pub const COMPARISONS: usize = 64; // and minima, maxima and conversions from f32, in a clock
pub const EXPONENTIALS: usize = 16; // in a clock
pub const BANKS: usize = 32; // of shared memory, each a word of four bytes in a clock
pub const MOST_THREADS: usize = 2048;
pub const MOST_BLOCKS: usize = 32;
pub const MOST_SHARED: usize = 227 << 10; // of one block
pub const WARP: usize = 32;

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

pub fn generate(page: &mut Page) -> Result<()> {
    let lanes = MULTIPROCESSORS * LANES;
    page.value("units", integer(lanes));
    page.value("multiprocessors", integer(MULTIPROCESSORS));
    page.value("lanes", integer(LANES));
    page.value("comparisons", integer(COMPARISONS));
    page.value("threads-at-once", integer(MULTIPROCESSORS * MOST_THREADS));
    page.value("most-threads", integer(MOST_THREADS));
    page.value("most-warps", integer(MOST_THREADS / WARP));
    page.value("f32-tflops", fixed(F32 / 1e12, 0));
    page.value("bf16-tflops", fixed(BF16 / 1e12, 0));
    page.value("bandwidth", fixed(H100.bandwidth / 1e12, 2));
    page.value("clock-f32", fixed(clock_f32() / 1e9, 2));
    page.value("tensor-over-f32", significant(BF16 / F32, 2));
    page.value("clock-tensor", fixed(clock_tensor() / 1e9, 2));
    // The guide's multiply-adds per clock and the data sheet's rates meet at the clocks that NVIDIA states.
    for (clock, stated) in [(clock_f32(), 1.98e9), (clock_tensor(), 1.83e9)] {
        ensure!((clock / stated - 1.0).abs() < 1e-3, "{clock} is not {stated}");
    }
    page.value("tensor-a-clock", integer(TENSOR));
    page.value("exponentials-tflops", fixed(exponentials() / 1e12, 1));
    page.value("exponential-per-multiply-adds", integer(TENSOR / EXPONENTIALS));

    ridges(page)?;
    memories(page)
}

/// Of the whole machine, in a second.
fn exponentials() -> f64 {
    (MULTIPROCESSORS * EXPONENTIALS) as f64 * clock_tensor()
}

fn ridges(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    for machine in [&H100, &H200] {
        rows.push(vec![
            format!("{}, {}\u{202f}GB", machine.name, machine.memory),
            fixed(machine.bandwidth / 1e12, 2),
            fixed(ridge(F32, machine), 0),
            fixed(ridge(BF16, machine), 0),
        ]);
    }
    let header =
        ["machine", "TB/s", "ridge in f32, FLOP/byte", "ridge of the tensor cores, bf16"];
    page.file("ridges.md", table(&header, &rows));
    // What attention has to offer: with the matrix moved once, and without it.
    let (n, d) = (16_384, 128);
    let shape = AttentionShape::self_attention(1, n, 1, d, 1);
    let core = shape.flops().map(|flops| flops.core())?;
    ensure!(core as usize == 4 * n * n * d + 5 * n * n, "the chapter states the formula");
    let tiled = |bytes: usize| {
        shape.flops().map(|flops| flops.core() as f64 / (4 * n * d * bytes) as f64)
    };
    page.value("intensity-n", integer(n));
    page.value("intensity-matrix-f32", fixed(shape.intensity(4)?, 0));
    page.value("intensity-matrix-bf16", fixed(shape.intensity(2)?, 0));
    page.value("intensity-tiled-f32", integer(tiled(4)?.round() as usize));
    page.value("intensity-tiled-bf16", integer(tiled(2)?.round() as usize));
    ensure!(shape.intensity(4)? > ridge(F32, &H100), "right of the ridge in f32");
    ensure!(shape.intensity(2)? < ridge(BF16, &H100), "left of the tensor cores' ridge");
    ensure!(shape.intensity(2)? > ridge(BF16, &H200), "but right of it on an H200");
    ensure!(tiled(4)? > 50.0 * ridge(F32, &H100), "far to the right without the matrix");
    ensure!(tiled(2)? > 10.0 * ridge(BF16, &H100));
    Ok(())
}

/// Size and bandwidth of a memory, if NVIDIA states it.
struct Memory {
    name: &'static str,
    whose: &'static str,
    bytes: f64,
    bandwidth: Option<f64>,
    colour: RGBColor,
}

/// All that there is of each memory, from the nearest to the farthest.
fn all_memories() -> [Memory; 4] {
    let per_clock = MULTIPROCESSORS as f64 * clock_f32();
    [
        Memory {
            name: "registers",
            whose: "a thread's own",
            bytes: (MULTIPROCESSORS * REGISTERS * 4) as f64,
            // A multiply-add reads three numbers and writes one.
            bandwidth: Some((LANES * 4 * 4) as f64 * per_clock),
            colour: BLUE,
        },
        Memory {
            name: "shared memory",
            whose: "a block's own",
            bytes: (MULTIPROCESSORS * SHARED) as f64,
            bandwidth: Some((BANKS * 4) as f64 * per_clock),
            colour: GREEN,
        },
        Memory {
            name: "L2 cache",
            whose: "for all",
            bytes: L2 as f64,
            bandwidth: None,
            colour: MUTED,
        },
        Memory {
            name: "HBM",
            whose: "for all",
            bytes: H100.memory as f64 * 1e9,
            bandwidth: Some(H100.bandwidth),
            colour: VERMILION,
        },
    ]
}

fn memories(page: &mut Page) -> Result<()> {
    let [registers, shared, l2, _] = all_memories();
    let (registers_speed, shared_speed) =
        (registers.bandwidth.unwrap_or(0.0), shared.bandwidth.unwrap_or(0.0));
    page.value("registers-kib", integer((REGISTERS * 4) >> 10));
    page.value("shared-kib", integer(SHARED >> 10));
    page.value("shared-block-kib", integer(MOST_SHARED >> 10));
    page.value("l2-mb", integer(L2 >> 20));
    page.value(
        "registers-over-shared",
        integer((registers_speed / shared_speed).round() as usize),
    );
    page.value(
        "shared-over-hbm",
        integer((shared_speed / H100.bandwidth).round() as usize),
    );
    page.value("registers-mib", integer(registers.bytes as usize >> 20));
    page.value("shared-mib", integer(shared.bytes as usize >> 20));
    ensure!(registers.bytes > shared.bytes && registers.bytes + shared.bytes > l2.bytes);
    // As the chapter multiplies: four words for each unit, one for each bank.
    let words_a_clock = MULTIPROCESSORS as f64 * clock_f32() * 4.0;
    ensure!(registers_speed == words_a_clock * (4 * LANES) as f64);
    ensure!(shared_speed == words_a_clock * BANKS as f64);
    page.value("registers-tb", significant(registers_speed / 1e12, 3));
    page.value("shared-tb", significant(shared_speed / 1e12, 3));

    let words = |bytes: f64| match bytes {
        b if b >= 1e9 => format!("{} GB", fixed(b / 1e9, 0)),
        b => format!("{} MiB", fixed(b / f64::from(1 << 20), 0)),
    };
    let drawn = svg(
        "gpu-memories",
        "The memories of an H100",
        "Four boxes, one below the other: registers, shared memory, the L2 cache and HBM, with \
         their sizes and bandwidths. An arrow leads from each to the one above it.",
        (520, 278),
        |area| {
            for (i, memory) in (0..).zip(all_memories()) {
                let top = 6 + 72 * i;
                let width = 190 + 60 * i;
                Block::new((20, top), (width, 44), "", memory.colour).draw(area)?;
                label(area, (20 + width / 2, top + 14), memory.name, TEXT)?;
                let size = format!("{}, {}", memory.whose, words(memory.bytes));
                label(area, (20 + width / 2, top + 32), &size, MUTED)?;
                let speed = memory.bandwidth.map_or_else(
                    || "not stated".to_owned(),
                    |speed| format!("{} TB/s", significant(speed / 1e12, 3)),
                );
                text(area, (20 + width + 12, top + 22), &speed)?;
                if i > 0 {
                    arrow(area, &[(90, top - 3), (90, top - 25)], memory.colour)?;
                }
            }
            Ok(())
        },
    )?;
    page.file("memories.svg", drawn);
    Ok(())
}
