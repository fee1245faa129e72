//! The machine, as NVIDIA describes it.

use crate::figures::format::{fixed, integer, significant};
use crate::figures::{
    Area, BLUE, GREEN, MUTED, TEXT, VERMILION, arrow, label, text, text_box,
};
use crate::gpu::machine::*;
use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("units", integer(MULTIPROCESSORS * LANES));
    page.value("multiprocessors", integer(MULTIPROCESSORS));
    page.value("lanes", integer(LANES));
    page.value("comparisons", integer(COMPARISONS));
    page.value("threads-at-once", integer(MULTIPROCESSORS * MOST_THREADS));
    page.value("most-threads", integer(MOST_THREADS));
    page.value("most-warps", integer(MOST_THREADS / WARP));
    page.value("f32-tflops", fixed(H100.f32 / 1e12, 0));
    // PyTorch's *efficient* makes a product in `f32` of three in TF32.
    page.value("efficient-roof", fixed(H100.tf32 / 3e12, 0));
    page.value("bf16-tflops", fixed(H100.bf16 / 1e12, 0));
    page.value("clock-f32", fixed(clock_f32() / 1e9, 2));
    page.value("tensor-over-f32", significant(H100.bf16 / H100.f32, 2));
    page.value("clock-tensor", fixed(clock_tensor() / 1e9, 2));
    page.value("tensor-a-clock", integer(TENSOR));
    page.value("exponential-per-multiply-adds", integer(TENSOR / EXPONENTIALS));
    memories_in_numbers(page);
    page.figure(
        "memories",
        (
            "The memories of an H100",
            "Four boxes, one below the other: registers, shared memory, the L2 cache and HBM, with \
             their sizes and bandwidths. An arrow leads from each to the one above it.",
        ),
        (520, 278),
        draw_memories,
    )
}

fn memories_in_numbers(page: &mut Page) {
    let (of_registers, of_shared) = (registers_bandwidth(), shared_bandwidth());
    let rounded = |ratio: f64| integer(ratio.round() as usize);
    page.value("registers-kib", integer((REGISTERS * 4) >> 10));
    page.value("shared-block-kib", integer(MOST_SHARED >> 10));
    page.value("l2-mb", integer(L2 >> 20));
    page.value("registers-over-shared", rounded(of_registers / of_shared));
    page.value("shared-over-hbm", rounded(of_shared / H100.bandwidth));
    page.value("registers-tb", significant(of_registers / 1e12, 3));
    page.value("shared-tb", significant(of_shared / 1e12, 3));
}

fn draw_memories(area: &Area) -> Result<()> {
    let words = |bytes: f64| match bytes {
        b if b >= 1e9 => format!("{} GB", fixed(b / 1e9, 0)),
        b => format!("{} MiB", fixed(b / f64::from(1 << 20), 0)),
    };
    let colours = [BLUE, GREEN, MUTED, VERMILION];
    for (i, (memory, colour)) in (0..).zip(memories().into_iter().zip(colours)) {
        let top = 6 + 72 * i;
        let width = 190 + 60 * i;
        text_box(area, (20, top), (width, 44), "", colour)?;
        label(area, (20 + width / 2, top + 14), memory.name, TEXT)?;
        let size = format!("{}, {}", memory.whose, words(memory.bytes));
        label(area, (20 + width / 2, top + 32), &size, MUTED)?;
        let speed = memory.bandwidth.map_or_else(
            || "not stated".to_owned(),
            |speed| format!("{} TB/s", significant(speed / 1e12, 3)),
        );
        text(area, (20 + width + 12, top + 22), &speed)?;
        if i > 0 {
            arrow(area, &[(90, top - 3), (90, top - 25)], colour)?;
        }
    }
    Ok(())
}
