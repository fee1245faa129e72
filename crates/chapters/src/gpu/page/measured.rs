//! Measurements on a GPU beside the predictions; without any, instructions for taking them.

use super::{kernel, predicted};
use crate::gpu::banks::D;
use crate::gpu::ladder::Step;
use crate::gpu::machine::H100;
use crate::gpu::measured::{
    BACKENDS, WIDTH, find, is_of_the_chapter, lengths, longest, pass, size, speed,
    speed_of_product, tokens,
};
use crate::records::provenance;
use anyhow::{Result, ensure};
use figures::format::{fixed, integer, percent, significant, table};
use record::{Record, Unit};

const NOTHING_YET: &str = "\
> [!IMPORTANT]
> **No kernel of this book has been timed on a GPU yet.** The numbers above are counted, or predicted from counts and from the \
rates that NVIDIA states. The kernels themselves are tested [on a CPU](gpu-on-cpu.md). If you have a GPU, \
you can change this:
>
> ```sh
> cargo xtask gpu pack          # makes target/gpu/attention-gpu.tar.gz
> ./run.sh                      # unpacked, on the machine with the GPU: about six minutes
> cargo xtask gpu add gpu.json  # back here: puts the record into records/
> cargo xtask generate
> ```
>
> After that, the tables stand here in place of this box. It takes Linux on x86-64 and a driver that knows CUDA 13.0. Kernels that \
the GPU can't run are left out, with the reason.
";

/// Returns a sentence or two on what has been done with the kernels, for pages that only touch on them.
pub fn status(record: Option<&Record>) -> String {
    let gpu = record.and_then(|record| record.machine.accelerator.as_deref());
    let tested = "They are compiled by NVIDIA's compiler, and tested on a CPU, on which a program stands in for the GPU.";
    match gpu {
        None => format!("{tested} No GPU has run them yet."),
        Some(gpu) => format!(
            "{tested} [What was measured](gpu-backward.md#what-was-measured) has their speeds on {gpu}."
        ),
    }
}

/// Returns the text of the section: either that there are no measurements, or all of them.
pub fn in_words(record: Option<&Record>, steps: &[Step]) -> Result<String> {
    let Some(record) = record else { return Ok(NOTHING_YET.to_owned()) };
    ensure!(
        record.machine.accelerator.is_some(),
        "the record `gpu` does not say which GPU"
    );
    let mut text = format!(
        "Measured {}. All are medians. A speed is $4 h n^2 d$ FLOPs over the time, half of that with a causal mask, and $2.5$ times as many \
         backward. A batch has {} tokens at any length, and a model width of {}. ",
        provenance(record),
        integer(tokens(record)? as usize),
        integer(WIDTH as usize),
    );
    text.push_str(&roofs(record)?);
    text.push_str(&other_machine(record));
    if record.all("forward/torch-efficient", "f32").next().is_some() {
        text.push_str(
            " (Whether PyTorch's *efficient* backend multiplies `f32` in full or on the tensor cores, in TF32 or in several \
             products of it, is not known here; its times in `f32` are to be read with that in mind.)",
        );
    }
    let n = longest(record)?;
    text.push_str(&format!(
        "\n\nAgainst what was predicted, for $d = {D}$ and $n = {}$ without a mask; the last columns say how many times as long a \
         backend of PyTorch takes (a dash: it does not take part):\n\n{}",
        integer(n as usize),
        predicted_table(record, steps, n)?
    ));
    for (pass, heading) in [("forward", "Forward"), ("backward", "Backward")] {
        text.push_str(&format!(
            "\n{heading}, TFLOP/s over the length:\n\n{}",
            lengths_table(record, steps, pass)?
        ));
    }
    Ok(text)
}

fn tflops(speed: f64) -> String {
    significant(speed / 1e12, 3)
}

fn roofs(record: &Record) -> Result<String> {
    let mut parts = vec![];
    for (dtype, stated) in [("f32", H100.f32), ("bf16", H100.bf16)] {
        for m in record.all("roof/product", dtype) {
            let side = size(m, "n")?;
            let speed = speed_of_product(side, m.median);
            let side = integer(side as usize);
            let mut part = format!(
                "a product of {side} × {side} matrices in {dtype} runs at {} TFLOP/s",
                tflops(speed)
            );
            if is_of_the_chapter(record) {
                part += &format!(" ({} of what is stated)", percent(speed / stated, 0));
            }
            parts.push(part);
        }
    }
    let copies = record.all("roof/copy", "f32");
    parts.extend(copies.map(|m| format!("a copy moves {} TB/s", tflops(m.median))));
    Ok(match parts.is_empty() {
        true => String::new(),
        false => format!("On the same machine {}.", parts.join(", ")),
    })
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
        let share = percent(speed / step.roof(), 0);
        let mut row = vec![kernel(step), predicted(step), share, tflops(speed)];
        for backend in BACKENDS {
            let what = format!("{pass}/{backend} / {}", step.name);
            let ratio = find(record, &what, step.dtype, place, Unit::Ratio);
            row.push(ratio.map_or_else(dash, |m| fixed(m.median, 2)));
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
    fn without_a_record_nothing_was_measured() {
        let text = in_words(None, &[]).unwrap();
        assert!(status(None).ends_with("No GPU has run them yet."));
        assert!(text.contains("No kernel of this book has been timed on a GPU yet"));
        assert!(text.contains("cargo xtask gpu pack"));
    }

    #[test]
    fn with_a_record_what_was_measured_stands_beside_what_was_predicted() {
        let record = Record::parse("gpu", MADE_UP).unwrap();
        let text = in_words(Some(&record), &steps().unwrap()).unwrap();
        assert!(!text.contains("has been timed"), "{text}");
        assert!(status(Some(&record)).ends_with("has their speeds on Slide Rule 3000."));
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
        let product = "a product of 8\u{202f}192 × 8\u{202f}192 matrices in bf16 runs at 733 TFLOP/s";
        assert!(text.contains(&format!("{product}.")), "{text}");
        let mut record = record;
        record.machine.accelerator = Some("NVIDIA H100".to_owned());
        let text = in_words(Some(&record), &steps().unwrap()).unwrap();
        assert!(text.contains(&format!("{product} (74\u{202f}% of what is stated)")));
    }

    #[test]
    fn another_machine_is_named() {
        let mut record = Record::parse("gpu", MADE_UP).unwrap();
        let said = |record: &Record| in_words(Some(record), &steps().unwrap()).unwrap();
        assert!(said(&record).contains("says little of Slide Rule 3000"));
        assert!(said(&record).contains("in TF32 or in several"));
        record.machine.accelerator = Some("NVIDIA H200".to_owned());
        assert!(!said(&record).contains("not the machine of this chapter"));
        record.measurements.retain(|m| !m.what.contains("efficient"));
        assert!(!said(&record).contains("TF32"));
    }
}
