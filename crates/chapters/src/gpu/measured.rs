//! What was measured on a GPU, if something was; and what the compiler says, if that is recorded.

use super::banks::D;
use super::ladder::{Step, steps};
use super::machine::{
    BF16, F32, H100, MOST_BLOCKS, MOST_THREADS, REGISTERS, SHARED, WARP,
};
use super::source::has;
use crate::output::Page;
use crate::records::provenance;
use anyhow::{Context, Result, ensure};
use figures::format::{fixed, integer, percent, significant, table};
use record::{Measurement, Record, Unit};

pub fn generate(page: &mut Page) -> Result<()> {
    let kernels = page.records.of_no_machine("kernels")?;
    page.file("compiled.md", compiled(kernels.as_ref())?);
    let times = page.records.if_recorded(["gpu"])?.map(|[record]| record);
    page.file("measured.md", measured(times.as_ref(), &steps()?)?);
    published(page)
}

fn size(m: &Measurement, name: &str) -> Result<u64> {
    m.sizes.get(name).copied().with_context(|| format!("{} has no {name}", m.what))
}

fn setting<'a>(m: &'a Measurement, name: &str) -> Result<&'a str> {
    m.settings
        .get(name)
        .map(String::as_str)
        .with_context(|| format!("{} has no {name}", m.what))
}

// -------------------------------------------------------------------------------------------- the compiler

/// What a function needs on Hopper.
struct Needs {
    registers: usize,
    spills: usize,
    shared: usize,
    threads: usize,
}

impl Needs {
    /// Blocks that a multiprocessor holds at once. Registers are given to warps, 256 at a time; of shared memory, the system
    /// keeps one KiB a block.
    fn blocks(&self) -> usize {
        let warps = self.threads / WARP;
        let registers = (self.registers * WARP).next_multiple_of(256) * warps;
        [
            REGISTERS / registers.max(1),
            SHARED / (self.shared + 1024),
            MOST_THREADS / self.threads,
            MOST_BLOCKS,
        ]
        .into_iter()
        .min()
        .unwrap_or(0)
    }
}

/// Registers, spills, shared memory and what fits a multiprocessor, of every function on Hopper.
fn compiled(record: Option<&Record>) -> Result<String> {
    let Some(record) = record else {
        return Ok("*The compiler's report is not recorded yet: `cargo xtask gpu compile` does that, and needs no GPU.*\n"
            .to_owned());
    };
    let is_shown = |m: &&Measurement| {
        let is = |name: &str, what: &str| {
            m.settings.get(name).is_some_and(|setting| setting == what)
        };
        let hopper = if is("kernel", "hopper") { "sm_90a" } else { "sm_90" };
        is("architecture", hopper) && is("mask", "full")
    };
    let mut rows = vec![];
    let mut note = String::new();
    for first in record.measurements.iter().filter(is_shown) {
        let Some(function) = first.what.strip_prefix("registers/") else { continue };
        let (kernel, d) = (setting(first, "kernel")?, size(first, "d")?);
        if d as usize != D {
            continue;
        }
        let number = |what: &str| -> Result<usize> {
            let what = format!("{what}/{function}");
            let found = record.measurements.iter().filter(is_shown).find(|m| {
                m.what == what
                    && m.settings == first.settings
                    && m.sizes.get("d") == Some(&d)
            });
            Ok(found.with_context(|| format!("no {what} of {kernel}"))?.median as usize)
        };
        let needs = Needs {
            registers: first.median as usize,
            spills: number("spills")?,
            shared: number("shared")?,
            threads: first.threads,
        };
        let blocks = needs.blocks();
        ensure!(blocks > 0, "{function} of {kernel} does not fit a multiprocessor");
        if kernel == "hopper" {
            note = registers_change_hands(needs.registers, needs.threads)?;
        }
        rows.push(vec![
            format!("{kernel}: `{function}`"),
            integer(needs.threads),
            integer(needs.registers),
            integer(needs.spills),
            if needs.shared < 1024 {
                "–".to_owned()
            } else {
                fixed(needs.shared as f64 / 1024.0, 0)
            },
            integer(blocks),
            integer(blocks * needs.threads / WARP),
        ]);
    }
    ensure!(!rows.is_empty(), "the record `kernels` has nothing for Hopper");
    let nvrtc = record
        .versions
        .get("nvrtc")
        .context("the record `kernels` does not say which nvrtc")?;
    let header = [
        "function",
        "threads of a block",
        "registers of a thread",
        "spilled bytes",
        "shared memory of a block, KiB",
        "blocks on a multiprocessor",
        "warps",
    ];
    Ok(format!(
        "{}\nWithout a mask, $d = {D}$, for `sm_90` (`sm_90a` for the kernel *hopper*); compiled with NVRTC {nvrtc} on {}.{note}\n",
        table(&header, &rows),
        record.day()
    ))
}

/// Kernel 4 deals its registers out anew when it runs, which the report does not say.
fn registers_change_hands(registers: usize, threads: usize) -> Result<String> {
    const PRODUCER: usize = 24;
    const CONSUMER: usize = 240;
    has(
        "hopper.cu",
        &[
            &format!("constexpr int PRODUCER_REGISTERS = D == 128 ? {PRODUCER} : "),
            &format!("constexpr int CONSUMER_REGISTERS = D == 128 ? {CONSUMER} : "),
        ],
    )?;
    let warpgroups = threads / (4 * WARP);
    ensure!(PRODUCER + (warpgroups - 1) * CONSUMER <= warpgroups * registers);
    Ok(format!(
        " The {registers} of *hopper* are those at the launch; then each thread of its producer keeps {PRODUCER}, and each of its \
         consumers has {CONSUMER}."
    ))
}

// ---------------------------------------------------------------------------------------------- the GPU

const NOTHING_YET: &str = "\
> [!IMPORTANT]
> **No kernel of this page has been timed on a GPU yet.** The numbers above are counted, or foretold from counts and from the \
rates that NVIDIA states. The kernels themselves are tested, on a CPU, as [above](#the-same-kernel-on-your-cpu). Whoever has a \
GPU can change this:
>
> ```sh
> cargo xtask gpu pack
> ```
>
> makes `target/gpu/attention-gpu.tar.gz`. On the machine with the GPU, unpack it and run
>
> ```sh
> ./run.sh
> ```
>
> which tests the kernels, times them, and writes `gpu.json`, in about six minutes. It takes Linux on x86-64 and a driver that \
knows CUDA 13.0 (version 580 or newer). A GPU of the Turing generation or newer runs the kernels 0, 1 and backward, from Ampere on \
also 2 and 3, and Hopper alone kernel 4; what cannot run is left out, with its reason. `cargo xtask gpu add gpu.json` puts the \
record into the folder of its machine in `records/`, and says which line of `records/shown.txt` shows it. After `cargo xtask \
generate` the tables stand here, in place of this box, beside what was foretold. That is foretold for an H100; if the record is \
another GPU's, the text beside the tables says so.
";

/// FLOPs, by the convention of the chapter.
fn flops(m: &Measurement, pass: &str) -> Result<f64> {
    let (heads, n, d) = (size(m, "heads")?, size(m, "n")?, size(m, "d")?);
    let forward = 4.0 * heads as f64 * (n * n) as f64 * d as f64;
    let masked = if setting(m, "mask")? == "causal" { forward / 2.0 } else { forward };
    Ok(if pass == "backward" { 2.5 * masked } else { masked })
}

/// The measurement of this pass and contestant, or pair of them, at this place of the grid.
fn find<'a>(
    record: &'a Record,
    what: &str,
    dtype: &str,
    (n, d, mask): (u64, u64, &str),
    unit: Unit,
) -> Option<&'a Measurement> {
    record.all(what, dtype).find(|m| {
        m.unit == unit
            && m.sizes.get("n") == Some(&n)
            && m.sizes.get("d") == Some(&d)
            && m.settings.get("mask").is_some_and(|setting| setting == mask)
    })
}

const BACKENDS: [(&str, &str); 4] = [
    ("torch-flash", "flash"),
    ("torch-cudnn", "cuDNN"),
    ("torch-efficient", "efficient"),
    ("torch-math", "math"),
];

fn pass(step: &Step) -> &'static str {
    if step.name == "backward" { "backward" } else { "forward" }
}

fn dtype(step: &Step) -> &'static str {
    if step.bf16 { "bf16" } else { "f32" }
}

/// What the section says: either that there is nothing, or all of it.
fn measured(record: Option<&Record>, steps: &[Step]) -> Result<String> {
    let Some(record) = record else { return Ok(NOTHING_YET.to_owned()) };
    ensure!(
        record.machine.accelerator.is_some(),
        "the record `gpu` does not say which GPU"
    );
    let mut text = format!(
        "Measured {}; medians. A speed is $4 h n^2 d$ FLOPs over the time, half of that with a causal mask, and $2.5$ times as many \
         backward. A batch has {} tokens at any length, and a model width of {}. ",
        provenance(record),
        integer(tokens(record)?),
        integer(width(record)?),
    );
    text.push_str(&roofs(record)?);
    text.push_str(&other_machine(record));
    if record.all("forward/torch-efficient", "f32").next().is_some() {
        text.push_str(
            " (Whether PyTorch's *efficient* backend multiplies `f32` in full or on the tensor cores, in TF32 or in several \
             products of it, is not known here; its times in `f32` are to be read with that in mind.)",
        );
    }
    let longest = record
        .measurements
        .iter()
        .filter_map(|m| m.sizes.get("n"))
        .filter(|n| **n <= 16_384);
    let n = *longest.max().context("the record `gpu` has no lengths")?;
    text.push_str(&format!(
        "\n\nAgainst what was foretold, for $d = {D}$ and $n = {}$ without a mask; the last columns say how many times as long a \
         backend of PyTorch takes (a dash: it does not take part):\n\n",
        integer(n as usize)
    ));
    text.push_str(&beside_the_foretold(record, steps, n)?);
    for (pass_shown, heading) in [("forward", "Forward"), ("backward", "Backward")] {
        text.push_str(&format!(
            "\n{heading}, TFLOP/s over the length:\n\n{}",
            over_lengths(record, steps, pass_shown)?
        ));
    }
    Ok(text)
}

fn tokens(record: &Record) -> Result<usize> {
    let m = record
        .measurements
        .iter()
        .find(|m| m.sizes.contains_key("heads"))
        .context("no cell")?;
    // heads counts those of the whole batch: tokens = heads · n · d / width, with the width below.
    Ok((size(m, "heads")? * size(m, "n")? * size(m, "d")?) as usize / width(record)?)
}

/// heads · d of one sequence; the grid keeps it.
fn width(_: &Record) -> Result<usize> {
    Ok(2048)
}

fn roofs(record: &Record) -> Result<String> {
    let mut parts = vec![];
    for (dtype, stated) in [("f32", F32), ("bf16", BF16)] {
        for m in record.all("roof/product", dtype) {
            let side = size(m, "n")? as f64;
            let rate = 2.0 * side.powi(3) / m.median;
            let share = if is_of_the_chapter(record) {
                format!(" ({} of what is stated)", percent(rate / stated, 0))
            } else {
                String::new()
            };
            parts.push(format!(
                "a product of {0} × {0} matrices in {dtype} runs at {1} TFLOP/s{share}",
                integer(side as usize),
                significant(rate / 1e12, 3),
            ));
        }
    }
    for m in record.all("roof/copy", "f32") {
        parts.push(format!("a copy moves {} TB/s", significant(m.median / 1e12, 3)));
    }
    Ok(if parts.is_empty() {
        String::new()
    } else {
        format!("On the same machine {}.", parts.join(", "))
    })
}

/// Whether the GPU has the chip of this chapter, which two products have.
fn is_of_the_chapter(record: &Record) -> bool {
    let name = record.machine.accelerator.as_deref().unwrap_or_default();
    ["H100", "H200"].iter().any(|chip| name.contains(chip))
}

/// What is foretold, and every roof, are those of one chip.
fn other_machine(record: &Record) -> String {
    match record.machine.accelerator.as_deref() {
        Some(name) if !is_of_the_chapter(record) => {
            format!(
                " **This is not the machine of this chapter**: roofs and all that is foretold are those of an {}, and a share of \
                 its roof says little of {name}.",
                H100.name
            )
        }
        _ => String::new(),
    }
}

fn beside_the_foretold(record: &Record, steps: &[Step], n: u64) -> Result<String> {
    let mut rows = vec![];
    for step in steps {
        let (pass, dtype) = (pass(step), dtype(step));
        let place = (n, D as u64, "full");
        let what = format!("{pass}/{}", step.name);
        let Some(m) = find(record, &what, dtype, place, Unit::Seconds) else { continue };
        let rate = flops(m, pass)? / m.median;
        let mut row = vec![
            format!("{} **{}**", step.number, step.name.replace('_', " ")),
            step.foretold_in_words(),
            percent(rate / step.roof(), 0),
            significant(rate / 1e12, 3),
        ];
        for (backend, _) in BACKENDS {
            let what = format!("{pass}/{backend} / {}", step.name);
            let ratio = find(record, &what, dtype, place, Unit::Ratio);
            row.push(ratio.map_or_else(|| "–".to_owned(), |m| fixed(m.median, 2)));
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "the record `gpu` has none of the kernels at n = {n}");
    let header = [
        &["kernel", "foretold, of the roof", "measured", "TFLOP/s"][..],
        &BACKENDS.map(|b| b.1)[..],
    ]
    .concat();
    Ok(table(&header, &rows))
}

fn over_lengths(record: &Record, steps: &[Step], pass_shown: &str) -> Result<String> {
    let mut lengths: Vec<u64> = record
        .measurements
        .iter()
        .filter_map(|m| m.sizes.get("heads").and(m.sizes.get("n")))
        .copied()
        .collect();
    lengths.sort_unstable();
    lengths.dedup();
    let ours = steps
        .iter()
        .filter(|step| pass(step) == pass_shown)
        .map(|step| (step.name, dtype(step)));
    let theirs = ["f32", "bf16"]
        .into_iter()
        .flat_map(|dtype| BACKENDS.map(|(backend, _)| (backend, dtype)));
    let mut rows = vec![];
    for (name, dtype) in ours.chain(theirs) {
        for d in [64, 128] {
            for mask in ["full", "causal"] {
                let what = format!("{pass_shown}/{name}");
                let found = lengths
                    .iter()
                    .map(|&n| find(record, &what, dtype, (n, d, mask), Unit::Seconds));
                let cells: Vec<_> = found
                    .map(|m| match m {
                        Some(m) => {
                            Ok(significant(flops(m, pass_shown)? / m.median / 1e12, 3))
                        }
                        None => Ok("–".to_owned()),
                    })
                    .collect::<Result<_>>()?;
                if cells.iter().any(|cell| cell != "–") {
                    let name = name.replace('_', " ").replace("torch-", "PyTorch, ");
                    rows.push(
                        [
                            vec![
                                format!("{name}, {dtype}"),
                                integer(d as usize),
                                mask.to_owned(),
                            ],
                            cells,
                        ]
                        .concat(),
                    );
                }
            }
        }
    }
    let lengths: Vec<_> = lengths.iter().map(|&n| integer(n as usize)).collect();
    let header: Vec<_> = ["kernel", "$d$", "mask"]
        .into_iter()
        .chain(lengths.iter().map(String::as_str))
        .collect();
    Ok(table(&header, &rows))
}

// -------------------------------------------------------------------------------------------- what others say

/// Forward, d = 128, on an H100, in the numbers of J. Shah et al., *FlashAttention-3* (2024): TFLOP/s full and causal, and tokens.
const PUBLISHED: [(&str, f64, f64, usize); 4] = [
    ("unfused, PyTorch", 139.0, 35.0, 8192),
    ("FlashAttention-2", 370.0, 335.0, 16_384),
    ("cuDNN", 595.0, 539.0, 16_384),
    ("FlashAttention-3", 648.0, 616.0, 16_384),
];

/// Of kernels that were written to teach: what of which roof, in percent; gau-nernst (2025) and S. Li (2025).
const OF_A_5090: f64 = 0.94;
const OF_FLASH_2: f64 = 0.99;

fn published(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    for (name, full, causal, n) in PUBLISHED {
        rows.push(vec![
            name.to_owned(),
            integer(n),
            fixed(full, 0),
            percent(full * 1e12 / BF16, 0),
            fixed(causal, 0),
            percent(causal * 1e12 / BF16, 0),
        ]);
    }
    let header = ["who", "tokens", "TFLOP/s", "of the roof", "causal", "of the roof"];
    page.file("published.md", table(&header, &rows));
    page.value("published-5090", percent(OF_A_5090, 0));
    page.value("published-a100", percent(OF_FLASH_2, 0));
    page.value("published-machine", H100.name);
    // The design of kernel 3 is that of FlashAttention-2, and kernel 4's that of FlashAttention-3.
    for (kernel, (who, full, ..)) in
        [("tensor_cores", PUBLISHED[1]), ("hopper", PUBLISHED[3])]
    {
        let steps = steps()?;
        let step = steps.iter().find(|step| step.name == kernel).context("a kernel")?;
        let share = full * 1e12 / BF16;
        let (least, most) = step.foretold();
        ensure!(
            (least..most).contains(&share),
            "{who} does not lie between {least} and {most}"
        );
        page.value(format!("published-{}", kernel.replace('_', "-")), percent(share, 0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made up, to try the code: no such GPU exists.
    const MADE_UP: &str = include_str!("made_up.json");

    #[test]
    fn without_a_record_nothing_was_measured() {
        let text = measured(None, &[]).unwrap();
        assert!(text.contains("No kernel of this page has been timed on a GPU yet"));
        assert!(text.contains("cargo xtask gpu pack"));
        assert!(compiled(None).unwrap().contains("not recorded yet"));
    }

    #[test]
    fn with_a_record_what_was_measured_stands_beside_what_was_foretold() {
        let record = Record::parse("gpu", MADE_UP).unwrap();
        let text = measured(Some(&record), &steps().unwrap()).unwrap();
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
        let text = measured(Some(&record), &steps().unwrap()).unwrap();
        assert!(text.contains(&format!("{product} (74\u{202f}% of what is stated)")));
    }

    #[test]
    fn another_machine_is_named() {
        let mut record = Record::parse("gpu", MADE_UP).unwrap();
        let said = |record: &Record| measured(Some(record), &steps().unwrap()).unwrap();
        assert!(said(&record).contains("says little of Slide Rule 3000"));
        assert!(said(&record).contains("in TF32 or in several"));
        record.machine.accelerator = Some("NVIDIA H200".to_owned());
        assert!(!said(&record).contains("not the machine of this chapter"));
        record.measurements.retain(|m| !m.what.contains("efficient"));
        assert!(!said(&record).contains("TF32"));
    }

    /// Made up, too.
    fn compiled_record(change: impl FnOnce(&mut Record)) -> Record {
        let mut record = Record::parse("gpu", MADE_UP).unwrap();
        let first = record.measurements[0].clone();
        record.topic = "kernels".to_owned();
        record.versions.insert("nvrtc".to_owned(), "99.9".to_owned());
        let with = |what: &str, number: f64, architecture: &str| {
            let settings =
                [("architecture", architecture), ("kernel", "tiled"), ("mask", "full")];
            Measurement {
                what: format!("{what}/attention_forward"),
                sizes: [("d".to_owned(), 128), ("rows".to_owned(), 32)].into(),
                settings: settings
                    .map(|(name, setting)| (name.to_owned(), setting.to_owned()))
                    .into(),
                threads: 128,
                unit: Unit::Count,
                median: number,
                ..first.clone()
            }
        };
        record.measurements = vec![
            with("registers", 40.0, "sm_80"),
            with("registers", 121.0, "sm_90"),
            with("spills", 0.0, "sm_90"),
            with("shared", 51_200.0, "sm_90"),
        ];
        change(&mut record);
        record.check().unwrap();
        record
    }

    #[test]
    fn the_compilers_report_of_hopper_is_shown() {
        let text = compiled(Some(&compiled_record(|_| ()))).unwrap();
        let row = text.lines().nth(2).unwrap();
        assert_eq!(row, "| tiled: `attention_forward` | 128 | 121 | 0 | 50 | 4 | 16 |");
        assert_eq!(
            text.lines().filter(|line| line.contains("tiled")).count(),
            1,
            "{text}"
        );
        assert!(text.contains("NVRTC 99.9 on 2026-01-31"), "{text}");
        let partial = compiled_record(|record| record.measurements.truncate(3));
        assert!(
            compiled(Some(&partial))
                .unwrap_err()
                .to_string()
                .contains("no shared/attention_forward of tiled")
        );
        let too_large =
            compiled_record(|record| record.measurements[3].median = 400_000.0);
        assert!(
            compiled(Some(&too_large)).unwrap_err().to_string().contains("does not fit")
        );
    }

    #[test]
    fn blocks_are_bound_by_what_runs_out_first() {
        let needs = |registers, shared, threads| {
            Needs { registers, spills: 0, shared, threads }.blocks()
        };
        assert_eq!(needs(32, 0, 128), 16); // threads
        assert_eq!(needs(128, 0, 128), 4); // registers
        assert_eq!(needs(121, 0, 128), 4); // given eight at a time: 128
        assert_eq!(needs(64, 100 << 10, 128), 2); // shared memory
        assert_eq!(needs(16, 0, 32), 32); // blocks
    }
}
