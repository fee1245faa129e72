//! Measurements on a GPU beside the predictions.

use super::{kernel, predicted, told};
use crate::gpu::banks::D;
use crate::gpu::ladder::{Step, clocks_of_lines, naive_with_one_line_a_clock};
use crate::gpu::machine::H100;
use crate::gpu::measured::{
    BACKENDS, WIDTH, find, is_of_the_chapter, lengths, longest, pass, size, speed,
    speed_of_product, tokens,
};
use crate::output::Page;
use crate::records::provenance;
use anyhow::{Context, Result, ensure};
use figures::format::{fixed, integer, significant, table};
use record::{Record, Unit};

/// Writes the section's tables, and what other sections say of the measurements.
pub fn generate(page: &mut Page, record: &Record, steps: &[Step; 6]) -> Result<()> {
    page.file("measured.md", in_words(record, steps)?);
    roofs(page, record)?;
    let shares = shares(record, steps)?;
    for i in [0, 2, 5] {
        let (step, share) = (&steps[i], shares[i]);
        page.value(format!("measured-{}", step.name), told(share));
    }
    let of_one_line = naive_with_one_line_a_clock();
    page.value("one-line-clocks", integer(clocks_of_lines() as usize + 1));
    page.value("one-line-predicted", super::predicted(&of_one_line));
    let l2 = steps[4].asked_of_l2_at(shares[4]) / 1e12;
    page.value("beyond-hopper-measured", fixed(l2, 1));
    let copies = record.all("roof/copy", "f32").next().context("no copy")?;
    page.value("measured-copy", fixed(copies.median / 1e12, 1));
    // Times of a backend of PyTorch over those of a kernel, which the text tells.
    let mut ratio = |key: &str, (other, own): (&str, &str), dtype: &str, place| {
        let what = format!("forward/{other} / {own}");
        let ratio = find(record, &what, dtype, place, Unit::Ratio).context(what)?;
        page.value(key, fixed(ratio.median, 2));
        anyhow::Ok(())
    };
    let (cudnn, efficient) =
        (("torch-cudnn", "hopper"), ("torch-efficient", "registers"));
    ratio("cudnn-over-hopper-short", cudnn, "bf16", (1024, 64, "causal"))?;
    ratio("efficient-over-registers", efficient, "f32", (16_384, 128, "full"))?;
    ratio("efficient-over-registers-64", efficient, "f32", (16_384, 64, "full"))?;
    Ok(())
}

/// The share of its roof that each kernel reaches where the predictions are made: wide heads, the longest sequence, no mask.
pub fn shares(record: &Record, steps: &[Step; 6]) -> Result<[f64; 6]> {
    let place = (longest(record)?, D as u64, "full");
    let mut shares = [0.0; 6];
    for (share, step) in shares.iter_mut().zip(steps) {
        let what = format!("{}/{}", pass(step), step.name);
        let m = find(record, &what, step.dtype, place, Unit::Seconds);
        *share = speed(m.context(what)?, pass(step))? / step.roof();
    }
    Ok(shares)
}

/// Returns the text of the section: all measurements, the longer tables folded.
fn in_words(record: &Record, steps: &[Step]) -> Result<String> {
    ensure!(
        record.machine.accelerator.is_some(),
        "the record `gpu` does not say which GPU"
    );
    let n = longest(record)?;
    let gpu = record.machine.accelerator.as_deref().unwrap_or_default();
    let mut text = format!(
        "On an {gpu}, for $d = {D}$ and $n = {}$ without a mask. The last columns divide the time of a backend of PyTorch by ours: above 1, our \
         kernel is faster. Kernels 3 and 4 are beside backends in bf16, the others beside those in f32.\n\n{}",
        integer(n as usize),
        predicted_table(record, steps, n)?
    );
    text.push_str(&format!(
        "\n<details><summary>How it was measured, and all speeds</summary>\n\n\
         Measured {}.\n\nEach time is the median of five rounds, in which all programs take turns, or of three if a launch takes more than a quarter of a second. Each ratio is the median of the ratios of its rounds, so it may differ from that of the speeds. A dash: not run, for want of memory or of such a kernel. A speed is $4 h n^2 d$ FLOPs over the time, with the heads of all sequences, half of that with a causal mask, and \
         $2.5$ times as many backward. A batch has {} tokens at any length, and a model width of {}.\n\n",
        provenance(record),
        integer(tokens(record)? as usize),
        integer(WIDTH as usize),
    ));
    text.push_str(&other_machine(record));
    for (pass, heading) in [("forward", "Forward"), ("backward", "Backward")] {
        let table = lengths_table(record, steps, pass)?;
        text.push_str(&format!("\n\n{heading}, TFLOP/s over the length:\n\n{table}"));
    }
    text.push_str("\n</details>\n");
    Ok(text)
}

fn tflops(speed: f64) -> String {
    significant(speed / 1e12, 3)
}

/// What the machine reaches at most: products of matrices and copies, beside what NVIDIA states.
fn roofs(page: &mut Page, record: &Record) -> Result<()> {
    let mut rows = vec![];
    for (dtype, stated) in [("f32", H100.f32), ("bf16", H100.bf16)] {
        for m in record.all("roof/product", dtype) {
            let side = size(m, "n")?;
            let speed = speed_of_product(side, m.median);
            let side = integer(side as usize);
            let what = format!("product of {side} × {side} matrices in {dtype}");
            rows.push(vec![
                what,
                format!("{} TFLOP/s", tflops(speed)),
                told(speed / stated),
            ]);
        }
    }
    for m in record.all("roof/copy", "f32") {
        let speed = format!("{} TB/s", tflops(m.median));
        rows.push(vec![
            "copy through HBM".to_owned(),
            speed,
            told(m.median / H100.bandwidth),
        ]);
    }
    page.table("roofs", &["on the same machine", "measured", "of what is stated"], &rows);
    Ok(())
}

/// Returns a warning if the GPU isn't the chip of the predictions and of every roof.
fn other_machine(record: &Record) -> String {
    match record.machine.accelerator.as_deref() {
        Some(name) if !is_of_the_chapter(record) => {
            format!(
                " **This is not the machine of this chapter**: roofs and all that is predicted are those of an {}, and a share of \
                 its roof says little of {name}.",
                H100.name
            )
        }
        _ => String::new(),
    }
}

/// A dash for what was not measured.
fn dash() -> String {
    "–".to_owned()
}

/// The kernels without a mask, and how many times as long each backend takes.
fn predicted_table(record: &Record, steps: &[Step], n: u64) -> Result<String> {
    let place = (n, D as u64, "full");
    let mut rows = vec![];
    for step in steps {
        let pass = pass(step);
        let what = format!("{pass}/{}", step.name);
        let Some(m) = find(record, &what, step.dtype, place, Unit::Seconds) else {
            continue;
        };
        let speed = speed(m, pass)?;
        let share = told(speed / step.roof());
        let mut row = vec![kernel(step), predicted(step), share, tflops(speed)];
        for backend in BACKENDS {
            let what = format!("{pass}/{backend} / {}", step.name);
            let ratio = find(record, &what, step.dtype, place, Unit::Ratio);
            let ratio = ratio.map(|m| m.median);
            row.push(
                ratio.map_or_else(
                    dash,
                    |x| if x < 10.0 { fixed(x, 2) } else { fixed(x, 0) },
                ),
            );
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "the record `gpu` has none of the kernels at n = {n}");
    let header = [
        "kernel",
        "predicted, of the roof",
        "measured",
        "TFLOP/s",
        "flash",
        "cuDNN",
        "efficient",
        "math",
    ];
    Ok(table(&header, &rows))
}

/// Our kernels of this pass at every length, and then PyTorch's, as far as anything was measured of them.
fn lengths_table(record: &Record, steps: &[Step], shown: &str) -> Result<String> {
    let lengths = lengths(record);
    let ours = steps.iter().filter(|step| pass(step) == shown);
    let ours = ours.map(|step| (step.name, step.dtype));
    let theirs = ["f32", "bf16"].map(|dtype| BACKENDS.map(|backend| (backend, dtype)));
    let mut rows = vec![];
    for (name, dtype) in ours.chain(theirs.concat()) {
        let what = format!("{shown}/{name}");
        let name = name.replace('_', " ").replace("torch-", "PyTorch, ");
        for (d, mask) in [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")] {
            let at = |&n| find(record, &what, dtype, (n, d, mask), Unit::Seconds);
            let times: Vec<_> = lengths.iter().map(at).collect();
            if times.iter().all(Option::is_none) {
                continue;
            }
            let mut row =
                vec![format!("{name}, {dtype}"), d.to_string(), mask.to_owned()];
            for time in times {
                let speed = time.map(|m| speed(m, shown)).transpose()?;
                row.push(speed.map_or_else(dash, tflops));
            }
            rows.push(row);
        }
    }
    let lengths: Vec<_> = lengths.iter().map(|&n| integer(n as usize)).collect();
    let mut header = vec!["kernel", "$d$", "mask"];
    header.extend(lengths.iter().map(String::as_str));
    Ok(table(&header, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::ladder::steps;

    /// Made up, to try the code: no such GPU exists.
    const MADE_UP: &str = include_str!("../made_up.json");

    #[test]
    fn with_a_record_what_was_measured_stands_beside_what_was_predicted() {
        let record = Record::parse("gpu", MADE_UP).unwrap();
        let text = in_words(&record, &steps()).unwrap();
        assert!(text.contains("Slide Rule 3000 beside Abacus"), "{text}");
        // 4 · 8 · 16384² · 128 FLOPs in 20 ms are 55 TFLOP/s, and 82 % of 67.
        let registers =
            text.lines().find(|line| line.starts_with("| 2 **registers**")).unwrap();
        assert!(
            registers.ends_with("| 82\u{202f}% | 55.0 | – | – | 1.25 | – |"),
            "{registers}"
        );
        // Causal, half of that, in 12 ms.
        let causal = text
            .lines()
            .find(|line| line.starts_with("| registers, f32 | 128 | causal"))
            .unwrap();
        assert!(causal.ends_with("| 45.8 |"), "{causal}");
        // Backward, 2.5 times as many in 100 ms.
        let backward =
            text.lines().find(|line| line.starts_with("| 5 **backward**")).unwrap();
        assert!(backward.contains("| 27.5 |"), "{backward}");
    }

    #[test]
    fn another_machine_is_named() {
        let mut record = Record::parse("gpu", MADE_UP).unwrap();
        let said = |record: &Record| in_words(record, &steps()).unwrap();
        assert!(said(&record).contains("says little of Slide Rule 3000"));
        record.machine.accelerator = Some("NVIDIA H200".to_owned());
        assert!(!said(&record).contains("not the machine of this chapter"));
    }
}
