//! The demands of each kernel, and its predicted speed.

use super::measured::in_range;
use super::{kernel, name, predicted, told};
use crate::figures::format::{fixed, integer, significant};
use crate::figures::{BLUE, Color, MUTED, TEXT, VERMILION, filled, label, line, text};
use crate::gpu::ladder::{
    Step, atomic_bytes, backward_on_tensor_cores, bytes_of_head, clocks_of_naive_keys,
    row_of_loads,
};
use crate::gpu::machine::{H100, N};
use crate::output::Page;
use anyhow::Result;

/// The kernels, and the share of its roof that each was measured to reach.
pub fn generate(page: &mut Page, steps: &[Step; 6], measured: [f64; 6]) -> Result<()> {
    let waiting = backward_on_tensor_cores();
    let all: Vec<_> = steps.iter().chain([&waiting]).collect();
    predicted_table(page, &all);
    predicted_figure(page, &all, measured)?;
    for i in [0, 1, 2, 3, 5] {
        demands_of(page, &steps[i], &told(measured[i]));
    }
    demands_side_by_side(page, [(&steps[3], measured[3]), (&steps[4], measured[4])]);
    speeds(page, &steps[..4]);
    page.value("predicted-backward", predicted(&steps[5]));
    page.value("atomic-tb", significant(atomic_bytes(&steps[5]) / 1e12, 1));
    demands(page, steps);
    let row = [1, 2].map(row_of_loads);
    page.value("example-first", integer(row[1]));
    page.value("example-second", integer(row[0]));
    page.value("example-mean", integer((row[0] + row[1]) / 2));
    page.value("head-bf16-mib", integer(bytes_of_head(2) >> 20));
    page.value("head-tokens", integer(N));
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

/// Demands below this are left out.
const NOTHING: f64 = 0.005;

fn in_tflops(step: &Step) -> String {
    let (least, most) = step.predicted();
    let tflops = |share: f64| significant(share * step.roof() / 1e12, 2);
    format!("{} to {}", tflops(least), tflops(most))
}

/// The demands of all kernels, and the speed that follows.
fn predicted_table(page: &mut Page, steps: &[&Step]) {
    let cell = |(_, x): (&str, f64)| {
        if x < NOTHING { "–".to_owned() } else { significant(x, 2) }
    };
    let row = |step: &&Step| {
        let parts = parts(step).map(cell);
        [&[kernel(step)][..], &parts, &[predicted(step), in_tflops(step)]].concat()
    };
    let names = parts(steps[0]).map(|(name, _)| name);
    let header =
        [&["kernel"][..], &names, &["predicted, of the roof", "in TFLOP/s"]].concat();
    let rows: Vec<_> = steps.iter().map(row).collect();
    page.table("predicted", &header, &rows);
}

/// The speeds that are predicted of some kernels, beside their roofs.
fn speeds(page: &mut Page, steps: &[Step]) {
    // From the upper end of the last kernel in f32 to the lower end of the first with tensor cores.
    let [.., before, after] = steps else { return };
    let tflops = |step: &Step, share: f64| fixed(share * step.roof() / 1e12, 0);
    page.value("least-tensor-cores", tflops(after, after.predicted().0));
    page.value("most-registers", tflops(before, before.predicted().1));
}

/// The predicted ranges as bars over a logarithmic axis, with what was measured of the first ones, and the roofs.
fn predicted_figure(page: &mut Page, steps: &[&Step], measured: [f64; 6]) -> Result<()> {
    const LEFT: i32 = 114;
    const WIDTH: i32 = 506;
    const ROW: i32 = 34;
    let base = 30 + steps.len() as i32 * ROW;
    let x = |tflops: f64| LEFT + (f64::from(WIDTH) * tflops.log10() / 3.3).round() as i32;
    let ranges: Vec<_> = steps.iter().map(|step| step.predicted()).collect();
    let says = format!(
        "Seven bars on a logarithmic axis of TFLOP/s, with a line for the roof of the f32 units and one for that of the tensor cores. \
         The bars of kernels 0, 1 and 2 follow one another from left to right below the first line, and so does that of kernel 5. \
         Those of kernels 3, 4 and 6 lie between the two lines, wide and overlapping. A dark stroke, \
         the speed that was measured, stands in or beside each bar but the last: {} lie in theirs.",
        in_range(&measured, &ranges)
    );
    let title =
        "The speeds that are predicted of the kernels, and those that were measured";
    let size = ((LEFT + WIDTH + 20) as u32, (base + 56) as u32);
    page.figure("ladder", (title, &says), size, |area| {
        for (roof, name) in [(H100.f32, "roof, f32"), (H100.bf16, "roof, tensor cores")] {
            line(area, &[(x(roof / 1e12), 26), (x(roof / 1e12), base)], VERMILION)?;
            label(area, (x(roof / 1e12), 12), name, TEXT)?;
        }
        for (i, step) in steps.iter().enumerate() {
            let (least, most) = step.predicted();
            let ends = [least, most].map(|share| x(share * step.roof() / 1e12));
            let top = 34 + ROW * i as i32;
            text(area, (0, top + 10), &format!("{} {}", step.number, name(step)))?;
            filled(
                area,
                [(ends[0], top), (ends[1].max(ends[0] + 3), top + 20)],
                BLUE.mix(0.55),
            )?;
            if let Some(share) = measured.get(i) {
                let at = x(share * step.roof() / 1e12);
                filled(area, [(at - 2, top - 4), (at + 2, top + 24)], TEXT)?;
            }
        }
        line(area, &[(LEFT, base), (LEFT + WIDTH, base)], MUTED)?;
        for tflops in [1.0, 10.0, 100.0, 1000.0] {
            line(area, &[(x(tflops), base), (x(tflops), base + 5)], MUTED)?;
            label(area, (x(tflops), base + 18), &fixed(tflops, 0), TEXT)?;
        }
        label(area, (LEFT + WIDTH / 2, base + 38), "TFLOP/s (logarithmic)", TEXT)
    })
}

/// The same for one kernel, one part per line.
pub fn demands_of(page: &mut Page, step: &Step, measured: &str) {
    let asked = parts(step).into_iter().filter(|(_, x)| *x >= NOTHING);
    let mut rows: Vec<_> =
        asked.map(|(name, x)| vec![name.to_owned(), significant(x, 2)]).collect();
    rows.push(vec!["**predicted**, of the roof".to_owned(), predicted(step)]);
    rows.push(vec!["**measured**".to_owned(), measured.to_owned()]);
    let header = format!("kernel {}: time for", step.number);
    let unit = "in units of the products' time";
    page.table(&format!("kernel-{}", step.number), &[&header, unit], &rows);
}

/// The same for two kernels with the same parts, side by side.
fn demands_side_by_side(page: &mut Page, steps: [(&Step, f64); 2]) {
    let shares = steps.map(|(_, share)| told(share));
    let steps = steps.map(|(step, _)| step);
    let [before, after] = steps.map(parts);
    let asked = before.into_iter().zip(after).filter(|((_, x), _)| *x >= NOTHING);
    let number = |x| significant(x, 2);
    let mut rows: Vec<_> = asked
        .map(|((name, x), (_, y))| vec![name.to_owned(), number(x), number(y)])
        .collect();
    let [before, after] = steps.map(predicted);
    rows.push(vec!["**predicted**, of the roof".to_owned(), before, after]);
    let [before, after] = shares;
    rows.push(vec!["**measured**".to_owned(), before, after]);
    let [before, after] = steps.map(|step| format!("kernel {}", step.number));
    let header = ["time for, in units of the products' time", &before, &after];
    page.table("kernels-3-and-4", &header, &rows);
}

/// Values in units of the products' time.
fn demands(page: &mut Page, steps: &[Step; 6]) {
    let [naive, tiled, registers, tensor_cores, ..] =
        steps.each_ref().map(Step::relative);
    page.value("beyond-intensity", fixed(steps[4].intensity_beyond(), 0));
    page.value("beyond-ridge", fixed(H100.ridge_bf16(), 0));
    page.value(
        "beyond-hopper",
        fixed(steps[4].asked_of_l2_at(steps[4].predicted().1) / 1e12, 1),
    );
    page.value("loads-naive", fixed(naive.loads, 0));
    page.value("loads-tiled", significant(tiled.loads, 2));
    page.value("loads-registers", significant(registers.loads, 1));
    page.value("loads-tensor-cores", significant(tensor_cores.loads, 2));
}
