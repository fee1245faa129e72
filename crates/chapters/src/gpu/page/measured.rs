//! What was measured on a GPU, beside what was predicted; or how to measure it.

use super::{kernel, predicted};
use crate::gpu::banks::D;
use crate::gpu::ladder::Step;
use crate::gpu::machine::H100;
use crate::gpu::measured::{
    OverLengths, Product, Timed, WIDTH, beside_the_predicted, is_of_the_chapter, lengths,
    longest, over_lengths, products, tokens,
};
use crate::records::provenance;
use anyhow::{Result, ensure};
use figures::format::{fixed, integer, percent, significant, table};
use record::Record;

const NOTHING_YET: &str = "\
> [!IMPORTANT]
> **No kernel of this book has been timed on a GPU yet.** The numbers above are counted, or predicted from counts and from the \
rates that NVIDIA states. The kernels themselves are tested, on a CPU, as in the [appendix](gpu-on-cpu.md). If you have a GPU, \
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

/// What the section says: either that there is nothing, or all of it.
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
        predicted_table(&beside_the_predicted(record, steps, n)?)
    ));
    for (pass, heading) in [("forward", "Forward"), ("backward", "Backward")] {
        let rows = over_lengths(record, steps, pass)?;
        text.push_str(&format!(
            "\n{heading}, TFLOP/s over the length:\n\n{}",
            lengths_table(&lengths(record), &rows)
        ));
    }
    Ok(text)
}

fn tflops(speed: f64) -> String {
    significant(speed / 1e12, 3)
}

fn roofs(record: &Record) -> Result<String> {
    let product = |product: Product| {
        let share = percent(product.speed / product.stated, 0);
        let of_stated =
            is_of_the_chapter(record).then(|| format!(" ({share} of what is stated)"));
        format!(
            "a product of {0} × {0} matrices in {1} runs at {2} TFLOP/s{3}",
            integer(product.side as usize),
            product.dtype,
            tflops(product.speed),
            of_stated.unwrap_or_default()
        )
    };
    let mut parts: Vec<_> = products(record)?.into_iter().map(product).collect();
    let copies = record.all("roof/copy", "f32");
    parts.extend(copies.map(|m| format!("a copy moves {} TB/s", tflops(m.median))));
    Ok(match parts.is_empty() {
        true => String::new(),
        false => format!("On the same machine {}.", parts.join(", ")),
    })
}

/// What is predicted, and every roof, are those of one chip.
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

fn number_or_dash(number: Option<f64>, in_words: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| "–".to_owned(), in_words)
}

fn predicted_table(timed: &[Timed]) -> String {
    let row = |Timed { step, speed, backends }: &Timed| {
        let ours = [
            kernel(step),
            predicted(step),
            percent(speed / step.roof(), 0),
            tflops(*speed),
        ];
        let theirs = backends.map(|ratio| number_or_dash(ratio, |ratio| fixed(ratio, 2)));
        [ours, theirs].concat()
    };
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
    table(&header, &timed.iter().map(row).collect::<Vec<_>>())
}

fn lengths_table(lengths: &[u64], rows: &[OverLengths]) -> String {
    let row = |OverLengths { name, dtype, d, mask, speeds }: &OverLengths| {
        let name = name.replace('_', " ").replace("torch-", "PyTorch, ");
        let mut row =
            vec![format!("{name}, {dtype}"), integer(*d as usize), (*mask).to_owned()];
        row.extend(speeds.iter().map(|speed| number_or_dash(*speed, tflops)));
        row
    };
    let lengths: Vec<_> = lengths.iter().map(|&n| integer(n as usize)).collect();
    let mut header = vec!["kernel", "$d$", "mask"];
    header.extend(lengths.iter().map(String::as_str));
    table(&header, &rows.iter().map(row).collect::<Vec<_>>())
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
        assert!(text.contains("No kernel of this book has been timed on a GPU yet"));
        assert!(text.contains("cargo xtask gpu pack"));
    }

    #[test]
    fn with_a_record_what_was_measured_stands_beside_what_was_predicted() {
        let record = Record::parse("gpu", MADE_UP).unwrap();
        let text = in_words(Some(&record), &steps().unwrap()).unwrap();
        assert!(!text.contains("has been timed"), "{text}");
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
