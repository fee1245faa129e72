//! What each kernel asks for, and what is predicted of it.

use super::{kernel, name, predicted};
use crate::gpu::banks::D;
use crate::gpu::ladder::{Step, bytes_of_head, clocks_of_naive_keys, row_of_loads};
use crate::gpu::machine::H100;
use crate::output::Page;
use anyhow::Result;
use figures::format::{fixed, integer, percent, significant};

pub fn generate(page: &mut Page, steps: &[Step; 6]) -> Result<()> {
    page.value("d", integer(D));
    predicted_table(page, steps);
    for step in steps {
        demands_of(page, step);
    }
    asked_table(page, steps);
    page.value("predicted-registers", predicted(&steps[2]));
    page.value("predicted-tensor-cores", predicted(&steps[3]));
    demands(page, steps);
    let row = [1, 2].map(row_of_loads);
    page.value("example-first", integer(row[1]));
    page.value("example-second", integer(row[0]));
    page.value("example-mean", integer((row[0] + row[1]) / 2));
    page.value("head-bf16-mib", integer(bytes_of_head(2) >> 20));
    let clocks = clocks_of_naive_keys() as usize;
    page.value("key-sectors", integer(clocks * 4));
    page.value("key-clocks", integer(clocks));
    Ok(())
}

/// The parts of a multiprocessor that a kernel may wait for, and its times in units of the products'.
fn parts(step: &Step) -> [(&'static str, f64); 5] {
    let relative = step.relative();
    [
        ("tensor cores", relative.tensor),
        ("instructions", relative.instructions),
        ("loads", relative.loads),
        ("exponentials", relative.exponentials),
        ("slow memory", relative.slow),
    ]
}

/// Less than this is as good as nothing.
const NOTHING: f64 = 0.005;

fn in_tflops(step: &Step) -> String {
    let (least, most) = step.predicted();
    let tflops = |share: f64| significant(share * step.roof() / 1e12, 2);
    format!("{} to {}", tflops(least), tflops(most))
}

/// What all kernels ask for, and the speed that follows.
fn predicted_table(page: &mut Page, steps: &[Step; 6]) {
    let cell = |(_, x): (&str, f64)| {
        if x < NOTHING { "–".to_owned() } else { significant(x, 2) }
    };
    let row = |step: &Step| {
        let parts = parts(step).map(cell);
        [&[kernel(step)][..], &parts, &[predicted(step), in_tflops(step)]].concat()
    };
    let names = parts(&steps[0]).map(|(name, _)| name);
    let header =
        [&["kernel"][..], &names, &["predicted, of the roof", "in TFLOP/s"]].concat();
    page.table("predicted", &header, &steps.each_ref().map(row));
}

/// The same of one kernel, a part a line.
fn demands_of(page: &mut Page, step: &Step) {
    let asked = parts(step).into_iter().filter(|(_, x)| *x >= NOTHING);
    let mut rows: Vec<_> =
        asked.map(|(name, x)| vec![name.to_owned(), significant(x, 2)]).collect();
    rows.push(vec!["**predicted**, of the roof".to_owned(), predicted(step)]);
    let header = format!("kernel {}: time for", step.number);
    let unit = "in units of the products' time";
    page.table(&format!("kernel-{}", step.number), &[&header, unit], &rows);
}

fn asked_table(page: &mut Page, steps: &[Step; 6]) {
    let row = |step: &Step| {
        vec![
            format!("{} {}", step.number, name(step)),
            significant(step.beyond, 2),
            fixed(step.asked_of_l2() / 1e12, 1),
            significant(step.asked_of_l2() / H100.bandwidth, 2),
        ]
    };
    let header = [
        "kernel",
        "bytes a score",
        "TB/s at the upper end",
        "times the bandwidth of HBM",
    ];
    page.table("asked", &header, &steps.each_ref().map(row));
}

/// In units of the products' time.
fn demands(page: &mut Page, steps: &[Step; 6]) {
    let [naive, tiled, registers, tensor_cores, hopper, _] =
        steps.each_ref().map(Step::relative);
    page.value("loads-naive", fixed(naive.loads, 0));
    page.value("loads-tiled", significant(tiled.loads, 2));
    page.value("loads-registers", significant(registers.loads, 1));
    page.value("loads-tensor-cores", significant(tensor_cores.loads, 2));
    page.value("exponentials-hopper", significant(hopper.exponentials, 2));
    let twice = steps[4].relative_to_products_twice_as_fast();
    page.value("once-loads", fixed(hopper.loads, 3));
    page.value("twice-loads", significant(twice.loads, 3));
    page.value("twice-roof", percent(1.0 / twice.loads, 0));
}
