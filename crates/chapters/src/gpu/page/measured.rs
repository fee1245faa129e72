//! Measurements on a GPU beside the predictions.

use super::{kernel, predicted, told};
use crate::figures::format::{fixed, integer, percent, significant, table};
use crate::gpu::banks::D;
use crate::gpu::ladder::{Step, clocks_of_lines, naive_with_one_line_a_clock};
use crate::gpu::machine::H100;
use crate::gpu::measured::{
    BACKENDS, WIDTH, find, is_of_the_chapter, lengths, longest, pass, size, speed,
    speed_of_product, tokens,
};
use crate::gpu::published::{FLASH_2, FLASH_3};
use crate::output::Page;
use crate::records::provenance;
use anyhow::{Context, Result, ensure};
use record::{Record, Unit};

/// Writes the section's tables, and what other sections say of the measurements. `waiting` are kernels that no GPU has run, with their
/// predictions.
pub fn generate(
    page: &mut Page,
    record: &Record,
    steps: &[Step; 6],
    waiting: &[[String; 2]],
) -> Result<()> {
    page.file("measured.md", in_words(record, steps, waiting)?);
    roofs(page, record)?;
    let shares = shares(record, steps)?;
    for i in [0, 2, 4] {
        let (step, share) = (&steps[i], shares[i]);
        page.value(format!("measured-{}", step.name), told(share));
    }
    worked(page, &steps[4], shares[4]);
    at_the_products_rate(page, record, steps, &shares)?;
    page.value("left-registers", fixed(1.0 / shares[2], 1));
    let ranges = steps.each_ref().map(Step::predicted);
    page.value("place-naive", place(shares[0], ranges[0]));
    page.value("in-range", in_range(&shares, &ranges));
    let of_one_line = naive_with_one_line_a_clock();
    page.value("one-line-clocks", integer(clocks_of_lines() as usize + 1));
    page.value("one-line-predicted", super::predicted(&of_one_line));
    page.value("naive-ratio", scores_over_weigh(&steps[0]));
    page.value("one-line-ratio", scores_over_weigh(&of_one_line));
    let product = of_product(record, "bf16")?.context("no product in bf16 was timed")?;
    let product = product / H100.bf16;
    page.value("product-bf16", told(product));
    page.value("rest-hopper", fixed(100.0 * (product - shares[4]), 0));
    page.value("one-line-says", one_line_says(shares[0], of_one_line.predicted()));
    let l2 = steps[4].asked_of_l2_at(shares[4]);
    page.value("beyond-hopper-measured", fixed(l2 / 1e12, 1));
    let copy = record.all("roof/copy", "f32").next().context("no copy")?.median;
    page.value("measured-copy", significant(copy / 1e12, 3));
    page.value("l2-says", if l2 > copy { ", so L2 must serve part of it" } else { "" });
    where_the_rest_went(page, steps, shares);
    for (dtype, backends) in [("f32", &BACKENDS[4..]), ("bf16", &BACKENDS[..4])] {
        beside_table(page, record, steps, dtype, backends)?;
    }
    for (i, key, published) in
        [(3, "over-flash-2", FLASH_2), (4, "over-flash-3", FLASH_3)]
    {
        let speed = shares[i] * steps[i].roof() / 1e12;
        page.value(key, percent(speed / published.speeds[0], 0));
    }
    beside_pytorch(page, record)
}

/// Where a share of the roof lies beside the range that was predicted: the end of a sentence about a kernel.
fn place(share: f64, (least, most): (f64, f64)) -> String {
    if share < least {
        format!(
            "takes {} times as long as the slowest that we predicted",
            significant(least / share, 2)
        )
    } else if share > most {
        "is faster than the fastest that we predicted".to_owned()
    } else {
        "lies in the predicted range".to_owned()
    }
}

/// How many times as long the first function of kernel 0 takes as the last one, if all overlaps or nothing does.
fn scores_over_weigh(naive: &Step) -> String {
    let [scores, .., weigh] = &naive.functions[..] else { return dash() };
    let ratios =
        [scores.together() / weigh.together(), scores.in_turns() / weigh.in_turns()];
    let [least, most] = [ratios[0].min(ratios[1]), ratios[0].max(ratios[1])];
    match [least, most].map(|ratio| significant(ratio, 2)) {
        [least, most] if least == most => format!("about {least}"),
        [least, most] => format!("{least} to {most}"),
    }
}

/// `5 of 6`: how many shares lie in their ranges.
pub fn in_range(shares: &[f64], ranges: &[(f64, f64)]) -> String {
    let is_in =
        |(share, (least, most)): &(&f64, &(f64, f64))| (least..=most).contains(share);
    let count = shares.iter().zip(ranges).filter(is_in).count();
    format!("{count} of {}", shares.len())
}

/// Says whether the naive kernel's share fits the prediction with one line a clock.
fn one_line_says(share: f64, (least, most): (f64, f64)) -> &'static str {
    if (0.95 * least..=1.05 * most).contains(&share) {
        "This fits, but we chose it because it fits."
    } else {
        "This doesn't fit either."
    }
}

/// FLOP/s of a plain product of the same numbers, if it was timed.
fn of_product(record: &Record, dtype: &str) -> Result<Option<f64>> {
    let Some(product) = record.all("roof/product", dtype).next() else { return Ok(None) };
    Ok(Some(speed_of_product(size(product, "n")?, product.median)))
}

/// The way from the first forward kernel to the last: what each step changed, and how many times as fast it made the program.
fn where_the_rest_went(page: &mut Page, steps: &[Step; 6], shares: [f64; 6]) {
    let higher = significant(H100.bf16 / H100.f32, 2);
    let changed = [
        ["the equations, one function each", "scattered loads"],
        ["tiles in shared memory, no scattered loads, no stored matrix", "loads"],
        ["a loaded number is used eight times", "multiply-adds"],
        [&format!("bf16, and a roof {higher} times as high"), "loads and products"],
        ["products, loads and softmax at the same time", "products"],
    ];
    let speeds: Vec<_> =
        steps.iter().zip(shares).map(|(step, share)| share * step.roof()).collect();
    let row = |i: usize| {
        let [changed, waits] = changed[i].map(str::to_owned);
        let times = |before: f64| format!("{}×", significant(speeds[i] / before, 2));
        let gain = if i == 0 { dash() } else { times(speeds[i - 1]) };
        let what = format!("{}: {changed}", kernel(&steps[i]));
        vec![what, tflops(speeds[i]), gain, told(shares[i]), waits]
    };
    let rows: Vec<_> = (0..5).map(row).collect();
    let header = [
        "kernel, and what is new",
        "TFLOP/s",
        "gain",
        "of its roof",
        "its largest count",
    ];
    page.table("where-the-rest-went", &header, &rows);
    page.value("first-steps", significant(speeds[2] / speeds[0], 2));
    page.value("last-steps", significant(speeds[4] / speeds[2], 2));
    page.value("higher-roof", higher);
    page.value("slowest-tflops", tflops(speeds[0]));
    page.value("fastest-tflops", tflops(speeds[4]));
    page.value("fastest-over-slowest", significant(speeds[4] / speeds[0], 2));
}

/// How many times as long backends of PyTorch take as our kernels of one type of numbers.
fn beside_table(
    page: &mut Page,
    record: &Record,
    steps: &[Step; 6],
    dtype: &str,
    backends: &[&str],
) -> Result<()> {
    let place = (longest(record)?, D as u64, "full");
    let took_part = |backend: &&&str| {
        record.measurements.iter().any(|m| m.what.ends_with(&format!("/{backend}")))
    };
    let backends: Vec<_> = backends.iter().filter(took_part).collect();
    let row = |step: &Step| {
        let ratio = |backend: &&&str| {
            let what = format!("{}/{backend} / {}", pass(step), step.name);
            let ratio = find(record, &what, dtype, place, Unit::Ratio);
            ratio.map_or_else(dash, |m| fixed(m.median, 2))
        };
        let ratios = backends.iter().map(ratio);
        [kernel(step)].into_iter().chain(ratios).collect::<Vec<_>>()
    };
    let rows: Vec<_> = steps.iter().filter(|step| step.dtype == dtype).map(row).collect();
    let names = backends.iter().map(|name| match name.trim_start_matches("torch-") {
        "cudnn" => "cuDNN",
        name => name,
    });
    let header: Vec<_> = ["kernel"].into_iter().chain(names).collect();
    page.table(&format!("beside-{dtype}"), &header, &rows);
    Ok(())
}

/// Says in how many settings our kernel is faster than a backend of PyTorch: both widths, both masks and all lengths.
fn wins(record: &Record, what: &str, dtype: &str) -> String {
    let ratios: Vec<_> = record.all(what, dtype).map(|m| m.median).collect();
    match (ratios.iter().filter(|ratio| **ratio > 1.0).count(), ratios.len()) {
        (0, _) => "no setting".to_owned(),
        (wins, all) if wins == all => "every setting".to_owned(),
        (wins, all) => format!("{wins} of {all} settings"),
    }
}

/// What the text tells of backends of PyTorch.
fn beside_pytorch(page: &mut Page, record: &Record) -> Result<()> {
    for (key, what, dtype) in [
        ("wins-tensor-cores", "forward/torch-flash / tensor_cores", "bf16"),
        ("wins-hopper", "forward/torch-flash / hopper", "bf16"),
        ("wins-over-cudnn", "forward/torch-cudnn / hopper", "bf16"),
        ("wins-backward-efficient", "backward/torch-efficient / backward", "f32"),
    ] {
        page.value(key, wins(record, what, dtype));
    }
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
fn in_words(record: &Record, steps: &[Step], waiting: &[[String; 2]]) -> Result<String> {
    ensure!(
        record.machine.accelerator.is_some(),
        "the record `gpu` does not say which GPU"
    );
    let n = longest(record)?;
    let gpu = record.machine.accelerator.as_deref().unwrap_or_default();
    let mut text = format!(
        "On an {gpu}, for $d = {D}$ and $n = {}$ without a mask. *Overlap* says where in its range the time lies: 0 % if all parts of the \
         machine work one after the other, 100 % if all work at once. (The time, not the speed.)\n\n{}",
        integer(n as usize),
        predicted_table(record, steps, waiting, n)?
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

/// The kernels without a mask: what was predicted and measured, and the share of a plain product's speed.
fn predicted_table(
    record: &Record,
    steps: &[Step],
    waiting: &[[String; 2]],
    n: u64,
) -> Result<String> {
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
        let product = of_product(record, step.dtype)?;
        let of_product = product.map_or_else(dash, |product| told(speed / product));
        let place = place_in_range(speed / step.roof(), step.predicted());
        let numbers = [share, place, tflops(speed), of_product];
        rows.push([[kernel(step), predicted(step)].as_slice(), &numbers].concat());
    }
    ensure!(!rows.is_empty(), "the record `gpu` has none of the kernels at n = {n}");
    rows.extend(waiting.iter().map(|[kernel, predicted]| {
        let numbers = ["not yet".to_owned(), dash(), dash(), dash()];
        [[kernel.clone(), predicted.clone()].as_slice(), &numbers].concat()
    }));
    let header = [
        "kernel",
        "predicted, of the roof",
        "measured",
        "overlap",
        "TFLOP/s",
        "of a plain product",
    ];
    Ok(table(&header, &rows))
}

/// How the overlap of a kernel is computed, number by number.
fn worked(page: &mut Page, step: &Step, share: f64) {
    let (least, most) = step.predicted();
    let [slowest, fastest, measured] = [least, most, share].map(|share| 1.0 / share);
    for (key, time) in [
        ("slowest", slowest),
        ("fastest", fastest),
        ("measured", measured),
        ("saved", slowest - measured),
        ("could", slowest - fastest),
    ] {
        page.value(format!("overlap-{key}"), fixed(time, 1));
    }
    page.value("overlap-share", place_in_range(share, step.predicted()));
}

/// How much overlaps if products are no faster than those of plain matrices.
fn at_the_products_rate(
    page: &mut Page,
    record: &Record,
    steps: &[Step; 6],
    shares: &[f64; 6],
) -> Result<()> {
    let mut overlaps = vec![]; // of those that lie in their ranges
    for i in [1, 2, 4, 5] {
        let step = &steps[i];
        let product = of_product(record, step.dtype)?.context("no product was timed")?;
        let slower = step.at_rate(product / step.roof());
        overlaps.extend(overlap_of(shares[i], slower.predicted()));
    }
    let told = |overlap: Option<f64>| overlap.map_or_else(dash, |it| percent(it, 0));
    page.value("overlap-least", told(overlaps.iter().copied().reduce(f64::min)));
    page.value("overlap-most", told(overlaps.into_iter().reduce(f64::max)));
    Ok(())
}

/// How much overlaps, by the time that was measured: 0 if all parts of the machine work one after the other, 1 if all work at once;
/// nothing if the time lies outside of these.
pub fn overlap_of(share: f64, (least, most): (f64, f64)) -> Option<f64> {
    let [slowest, fastest, measured] = [least, most, share].map(|share| 1.0 / share);
    let overlap = (slowest - measured) / (slowest - fastest);
    (0.0..=1.0).contains(&overlap).then_some(overlap)
}

fn place_in_range(share: f64, range: (f64, f64)) -> String {
    overlap_of(share, range).map_or_else(dash, |overlap| percent(overlap, 0))
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
        let text = in_words(&record, &steps(), &[]).unwrap();
        assert!(text.contains("Slide Rule 3000 beside Abacus"), "{text}");
        // 4 · 8 · 16384² · 128 FLOPs in 20 ms are 55 TFLOP/s, and 82 % of 67.
        let registers =
            text.lines().find(|line| line.starts_with("| 2 **registers**")).unwrap();
        assert!(
            registers.ends_with("| 82\u{202f}% | 78\u{202f}% | 55.0 | – |"),
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
    fn a_measurement_is_placed_beside_its_range() {
        let range = (0.2, 0.4);
        assert_eq!(place(0.3, range), "lies in the predicted range");
        assert!(place(0.5, range).starts_with("is faster"));
        assert!(place(0.1, range).starts_with("takes 2.0 times as long"));
        assert_eq!(in_range(&[0.3, 0.1], &[range; 2]), "1 of 2");
        assert!(one_line_says(0.3, range).starts_with("This fits"));
        assert!(one_line_says(0.1, range).starts_with("This doesn't"));
    }

    #[test]
    fn settings_are_counted_in_which_our_kernel_is_faster() {
        let mut record = Record::parse("gpu", MADE_UP).unwrap();
        let mut of = |medians: [f64; 2]| {
            record.measurements.truncate(2);
            for (m, median) in record.measurements.iter_mut().zip(medians) {
                (m.what, m.dtype, m.median) =
                    ("theirs / ours".into(), "f32".into(), median);
            }
            wins(&record, "theirs / ours", "f32")
        };
        assert_eq!(of([0.5, 0.9]), "no setting");
        assert_eq!(of([1.5, 0.9]), "1 of 2 settings");
        assert_eq!(of([1.5, 1.9]), "every setting");
    }

    #[test]
    fn another_machine_is_named() {
        let mut record = Record::parse("gpu", MADE_UP).unwrap();
        let said = |record: &Record| in_words(record, &steps(), &[]).unwrap();
        assert!(said(&record).contains("says little of Slide Rule 3000"));
        record.machine.accelerator = Some("NVIDIA H200".to_owned());
        assert!(!said(&record).contains("not the machine of this chapter"));
    }
}
