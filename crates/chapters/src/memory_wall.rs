//! The memory wall: what attention moves between slow and fast memory, counted by a machine that does nothing else but run
//! it, and foretold by formula where it would run too long.

use crate::claims::{A100_BANDWIDTH, A100_BF16, A100_F32};
use crate::complexity::{self, ridge, softmax_share};
use crate::output::Page;
use anyhow::{Result, ensure};
use attention::{AttentionShape, Mask, attention};
use figures::format::{duration, fixed, integer, percent, significant, table};
use figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart, svg};
use laboratory::traffic::{
    Counts, Memory, Report, fused_attention, fused_traffic, naive_attention,
    naive_attention_backward, naive_backward_traffic, naive_traffic,
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Width of queries, keys and values.
const D: usize = 64;
/// Numbers that fast memory holds.
const CAPACITY: usize = 32_768;
/// Bytes of an f32.
const ELEMENT: usize = 4;
/// Tokens in the tables.
const N: usize = 1024;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("d", integer(D));
    page.value("n", integer(N));
    page.value("capacity", integer(CAPACITY));
    page.value("capacity-kib", integer(CAPACITY * ELEMENT / 1024));
    page.value("fits", integer(CAPACITY.isqrt()));
    passes(page)?;
    fused(page)?;
    on_a_thread(page)?;
    over_tokens(page)?;
    over_capacity(page)?;
    backward(page)
}

fn shape(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, 1, D, 1)
}

/// Rows of a strip.
fn strip(capacity: usize) -> usize {
    (capacity - D) / (D + 1)
}

fn mebibytes(counts: Counts) -> String {
    fixed(counts.bytes(ELEMENT) as f64 / f64::from(1 << 20), 1)
}

fn gibibytes(bytes: u128) -> String {
    fixed(bytes as f64 / f64::from(1 << 30), 0)
}

fn random(n: usize, seed: u64) -> DMatrix<f32> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(n, D, |_, _| StandardNormal.sample(rng))
}

/// Both programs, and the backward pass, run on `n` random tokens under a causal mask.
struct Runs {
    naive: Report,
    fused: Report,
    backward: Report,
    peak: usize,
}

fn run(n: usize) -> Result<Runs> {
    let [q, k, v, grad_output] = [0, 1, 2, 3].map(|seed| random(n, seed));
    let (expected, _) = attention(&q, &k, &v, &Mask::causal())?;
    let mut reports = vec![];
    let mut peak = 0;
    for program in [naive_attention, fused_attention] {
        let memory = Memory::new(CAPACITY);
        let q = memory.put("q", q.clone());
        let k = memory.put("k", k.clone());
        let v = memory.put("v", v.clone());
        let (output, _) = program(&memory, &q, &k, &v, &Mask::causal())?;
        ensure!((output.into_matrix() - &expected).amax() < 1e-4, "not attention");
        reports.push(memory.report());
        peak = memory.peak();
    }
    let (_, cache) = attention(&q, &k, &v, &Mask::causal())?;
    let memory = Memory::new(CAPACITY);
    let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, m)| memory.put(name, m));
    let weights = memory.put("scores", cache.weights);
    let grad_output = memory.put("grad_output", grad_output);
    naive_attention_backward(&memory, [&q, &k, &v], &weights, &grad_output)?;
    reports.push(memory.report());

    let foretold = [
        naive_traffic(&shape(n), CAPACITY)?,
        fused_traffic(&shape(n), CAPACITY)?,
        naive_backward_traffic(&shape(n), CAPACITY)?,
    ];
    ensure!(reports == foretold, "n = {n}: the formula and the count differ");
    let [naive, fused, backward] = foretold;
    Ok(Runs { naive, fused, backward, peak })
}

/// Operations of a pass for each of the n² scores, as the chapter counts them.
fn operations(pass: &str) -> Result<usize> {
    Ok(match pass {
        "scores" | "values" => 2 * D,
        "scale" => 1,
        "mask" => 0,
        "softmax" => 5,
        other => anyhow::bail!("no operations are known of the pass {other}"),
    })
}

/// Operations per byte.
fn intensity(operations: usize, counts: Counts) -> String {
    let intensity = operations as f64 / counts.bytes(ELEMENT) as f64;
    let decimals = match intensity {
        0.0 => 0,
        x if x < 1.0 => 3,
        _ => 1,
    };
    fixed(intensity, decimals)
}

/// As many times as the matrix (n, n) has entries.
fn crossings(numbers: u128) -> Result<usize> {
    let entries = (N * N) as u128;
    ensure!(numbers.is_multiple_of(entries), "{numbers} is no multiple of n²");
    Ok((numbers / entries) as usize)
}

/// The naive program, pass by pass.
fn passes(page: &mut Page) -> Result<()> {
    let Runs { naive, peak, .. } = run(N)?;
    let mut rows = vec![];
    let mut all_operations = 0;
    for &pass in naive.passes() {
        let Counts { read, written } = naive.of(pass, "scores");
        let counts = naive.pass(pass);
        let operations = operations(pass)? * N * N;
        all_operations += operations;
        rows.push(vec![
            pass.to_owned(),
            crossings(read)?.to_string(),
            crossings(written)?.to_string(),
            integer((counts.all() - read - written) as usize),
            mebibytes(counts),
            intensity(operations, counts),
        ]);
    }
    let total = naive.total();
    let matrix = naive.matrix("scores");
    rows.push(vec![
        "**all**".to_owned(),
        crossings(matrix.read)?.to_string(),
        crossings(matrix.written)?.to_string(),
        integer((total.all() - matrix.all()) as usize),
        mebibytes(total),
        intensity(all_operations, total),
    ]);
    let header = [
        "pass",
        "$(n, n)$ read",
        "$(n, n)$ written",
        "numbers of $Q, K, V, O$",
        "MiB",
        "operations per byte",
    ];
    page.file("passes.md", table(&header, &rows));

    let strips = N.div_ceil(strip(CAPACITY));
    page.value("strip", integer(strip(CAPACITY)));
    page.value("strips", integer(strips));
    ensure!(total.all() as usize == 8 * N * N + 2 * N * D * (1 + strips), "the total");
    page.value("total", integer(total.all() as usize));
    page.value("peak", integer(peak));
    ensure!(peak <= CAPACITY && peak > CAPACITY * 9 / 10, "nearly all of fast memory");

    // Against the formula of the chapter Complexity, and the ridge of a GPU that it names.
    let counted = all_operations as f64 / total.bytes(ELEMENT) as f64;
    let ideal = shape(N).intensity(ELEMENT)?;
    let gpu = A100_F32 / A100_BANDWIDTH;
    ensure!(counted < gpu && counted < ideal, "left of the ridge, and of the formula");
    let per_byte = |pass: &str, operations: f64| {
        operations * (N * N) as f64 / naive.pass(pass).bytes(ELEMENT) as f64
    };
    let product = per_byte("scores", 2.0 * D as f64);
    let softmax = per_byte("softmax", 5.0);
    let tensor_cores = A100_BF16 / A100_BANDWIDTH;
    ensure!(
        softmax < gpu && gpu < product,
        "on the GPU the middle waits, products do not"
    );
    ensure!(2.0 * product < tensor_cores, "with tensor cores, in two bytes, all wait");
    page.value("naive-intensity", fixed(counted, 1));
    page.value("ideal-intensity", fixed(ideal, 1));
    page.value("gpu-ridge", significant(gpu, 3));

    // What the chapter says of the three passes in the middle.
    let middle = ["scale", "mask", "softmax"];
    let moved: u128 = middle.iter().map(|pass| naive.pass(pass).all()).sum();
    let share_moved = moved as f64 / total.all() as f64;
    let share_of_work = 6.0 / (4 * D + 6) as f64;
    ensure!((all_operations as f64 * share_of_work - (6 * N * N) as f64).abs() < 1e-3);
    page.value("middle-moved", percent(share_moved, 0));
    page.value("middle-work", percent(share_of_work, 1));
    ensure!(share_moved > 0.66, "two thirds and more");
    page.value("matrix-share", percent(matrix.all() as f64 / total.all() as f64, 1));
    page.value("matrix-mib", integer((N * N * ELEMENT) >> 20));
    let inputs = 4 * N * D;
    page.value("inputs-mib", integer((inputs * ELEMENT) >> 20));
    page.value("over-inputs", fixed(total.all() as f64 / inputs as f64, 0));
    Ok(())
}

/// How scale, mask and softmax do on the thread of the chapter Complexity: operations per byte of the first and the last one, the
/// ridge, and the share of its roof that softmax reaches. A mask has no operations.
fn cpu_in_words(scale: f64, softmax: f64, ridge: f64, share: f64) -> String {
    let left = match (scale < ridge, softmax < ridge) {
        (true, true) => "the same three passes stand left of the ridge.",
        (true, false) => {
            "scale and mask stand left of the ridge, and softmax right of it."
        }
        (false, _) => "only the mask stands left of the ridge.",
    };
    let waits = if share < 0.5 {
        "But softmax does not run at its roof there: its exponential, which counts as one operation and takes the time of many, \
         keeps it busy for longer than its numbers take to arrive, and hides the wall."
            .to_owned()
    } else {
        format!(
            "Softmax reaches {} of its roof there, so it waits for its numbers for a good part of its time.",
            percent(share, 0)
        )
    };
    format!("{left} {waits}")
}

/// What fusing saves, and what four crossings are for many heads.
fn fused(page: &mut Page) -> Result<()> {
    let Runs { naive, fused, .. } = run(N)?;
    let crossings = |report: &Report| crossings(report.matrix("scores").all());
    page.value("crossings-naive", crossings(&naive)?.to_string());
    page.value("crossings-with-mask", (crossings(&naive)? + 1).to_string());
    page.value("crossings-fused", crossings(&fused)?.to_string());
    ensure!(crossings(&naive)? == 8 && crossings(&fused)? == 4, "eight and four");
    let saved = 1.0 - fused.total().all() as f64 / naive.total().all() as f64;
    page.value("fused-saves", percent(saved, 0));
    ensure!(saved > 0.45 && saved < 0.5, "nearly half");
    page.value("fused-mib", mebibytes(fused.total()));
    page.value("naive-mib", mebibytes(naive.total()));

    let heads = AttentionShape::self_attention(1, 4096, 1, D, 32);
    for (name, report) in [
        ("naive", naive_traffic(&heads, CAPACITY)?),
        ("fused", fused_traffic(&heads, CAPACITY)?),
    ] {
        let bytes = report.matrix("scores").bytes(ELEMENT);
        page.value(format!("heads-{name}-gib"), gibibytes(bytes));
    }
    page.value("heads-weights-gib", gibibytes(heads.bytes(ELEMENT)?.weights));

    Ok(())
}

/// What was measured on the thread of the chapter Complexity: how the passes in the middle do there, and what fusing could save at
/// most.
pub fn on_a_thread(page: &mut Page) -> Result<()> {
    let records = complexity::records(page)?;
    let naive = naive_traffic(&shape(N), CAPACITY)?;
    let per_byte = |pass: &str| -> Result<f64> {
        let bytes = naive.pass(pass).bytes(ELEMENT) as f64;
        Ok((operations(pass)? * N * N) as f64 / bytes)
    };
    let ridge = ridge(&records[2])?;
    let share = softmax_share(&records)?;
    page.value(
        "cpu",
        cpu_in_words(per_byte("scale")?, per_byte("softmax")?, ridge, share),
    );
    page.value("cpu-name", records[0].machine.cpu.clone());
    let [times, _, steps] = records;
    let step = |name: &str| steps.seconds(name, "f32", 4096);
    let removed = step("steps/scale")? + step("steps/causal mask")?;
    let whole = times.seconds("attention/forward causal", "f32", 4096)?;
    page.value("fusable-time", duration(removed));
    page.value("whole-time", duration(whole));
    Ok(())
}

/// The bytes of a part of a report.
type Part = fn(&Report) -> u128;
/// The (n, n) matrix.
const MATRIX: Part = |report| report.matrix("scores").bytes(ELEMENT);
/// Keys and values, again and again.
const KEYS_AND_VALUES: Part =
    |report| report.matrix("k").bytes(ELEMENT) + report.matrix("v").bytes(ELEMENT);

fn inputs_and_output(n: usize) -> f64 {
    (4 * n * D * ELEMENT) as f64
}

fn over_tokens(page: &mut Page) -> Result<()> {
    let lengths: Vec<usize> = (6..=14).map(|power| 1 << power).collect();
    let line = |name: &str, colour, dashed, part: &dyn Fn(usize) -> Result<f64>| {
        let points = lengths.iter().map(|&n| Ok((n as f64, part(n)?)));
        let points = points.collect::<Result<_>>()?;
        anyhow::Ok(Line { name: name.to_owned(), colour, dashed, points })
    };
    let naive = |part: Part| {
        move |n| anyhow::Ok(part(&naive_traffic(&shape(n), CAPACITY)?) as f64)
    };
    let fused = |n| anyhow::Ok(MATRIX(&fused_traffic(&shape(n), CAPACITY)?) as f64);
    let lines = [
        line("(n, n), naive", VERMILION, false, &naive(MATRIX))?,
        line("(n, n), fused", VERMILION, true, &fused)?,
        line("K and V", BLUE, false, &naive(KEYS_AND_VALUES))?,
        line("inputs and output, once", GREEN, true, &|n| Ok(inputs_and_output(n)))?,
    ];
    for (i, &n) in lengths.iter().enumerate() {
        let [matrix, fused, keys, inputs] =
            [0, 1, 2, 3].map(|line| lines[line].points[i].1);
        ensure!(matrix == 2.0 * fused, "n = {n}: half as much");
        ensure!(matrix > keys && fused > keys || n <= 128, "n = {n}: the matrix is most");
        ensure!(matrix > inputs, "n = {n}: more than the inputs");
    }
    let counted: Vec<usize> = vec![64, 128, 256, 512, N];
    let mut dots = vec![];
    for &n in &counted {
        let Runs { naive, fused, .. } = run(n)?;
        dots.push((n as f64, MATRIX(&naive) as f64));
        dots.push((n as f64, MATRIX(&fused) as f64));
        dots.push((n as f64, KEYS_AND_VALUES(&naive) as f64));
    }
    let largest = lengths[lengths.len() - 1];
    let at_largest = naive(MATRIX)(largest)?;
    page.value("largest", integer(largest));
    page.value(
        "largest-ratio",
        integer((at_largest / inputs_and_output(largest)) as usize),
    );
    page.file(
        "tokens.svg",
        svg(
            "memory-wall-tokens",
            "Bytes between slow and fast memory against the number of tokens",
            "Both lines of the (n, n) matrix rise with the square of n, the fused one at half the height of the naive one. \
             Inputs and output rise in proportion to n and fall far behind. Keys and values first run beside them and \
             turn towards the square when they have to be read in several strips.",
            (520, 420),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 64.0..16384.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e4..1e10);
                line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

fn over_capacity(page: &mut Page) -> Result<()> {
    let n = 4096;
    page.value("capacity-n", integer(n));
    // From 1 KiB to 4 MiB, eight steps for each doubling.
    let capacities: Vec<usize> =
        (64..=160).map(|i| (f64::from(i) / 8.0).exp2().round() as usize).collect();
    let kibibytes = |numbers: usize| (numbers * ELEMENT) as f64 / 1024.0;
    type Foretold = fn(&AttentionShape, usize) -> attention::Result<Report>;
    let line = |name: &str, colour, dashed, foretold: Foretold, part: Part| {
        let point =
            |&m: &usize| Ok((kibibytes(m), part(&foretold(&shape(n), m)?) as f64));
        let points = capacities.iter().map(point).collect::<Result<_>>()?;
        anyhow::Ok(Line { name: name.to_owned(), colour, dashed, points })
    };
    let mut lines = vec![
        line("(n, n), naive", VERMILION, false, naive_traffic, MATRIX)?,
        line("(n, n), fused", VERMILION, true, fused_traffic, MATRIX)?,
        line("K and V", BLUE, false, naive_traffic, KEYS_AND_VALUES)?,
    ];
    let level = capacities.iter().map(|&m| (kibibytes(m), inputs_and_output(n)));
    lines.push(Line {
        name: "inputs and output, once".to_owned(),
        colour: GREEN,
        dashed: true,
        points: level.collect(),
    });

    // What the chapter says of the figure.
    let [matrix, keys] = [0, 2].map(|line: usize| &lines[line].points);
    for (i, &m) in capacities.iter().enumerate() {
        let times = if m < n { 10 } else { 8 };
        ensure!(matrix[i].1 == (times * n * n * ELEMENT) as f64, "M = {m}: the matrix");
        ensure!(i == 0 || keys[i].1 <= keys[i - 1].1, "M = {m}: K and V fall");
        let about = (2 * n * n * D * D * ELEMENT) as f64 / m as f64;
        let is_about = (keys[i].1 / about - 1.0).abs() < 0.2;
        ensure!(
            is_about || !(1024..=32_768).contains(&m),
            "M = {m}: K and V by the formula"
        );
    }
    let last = capacities.len() - 1;
    ensure!(keys[last].1 == inputs_and_output(n) / 2.0, "K and V once at last");
    page.value("row-fits-kib", integer(n * ELEMENT / 1024));
    let more = (0..=last).filter(|&i| keys[i].1 > matrix[i].1).count();
    ensure!(
        more > 0 && (0..more).all(|i| keys[i].1 > matrix[i].1),
        "K and V more at first"
    );
    page.value("keys-less-kib", fixed(kibibytes(capacities[more]), 0));
    let share = |i: usize| keys[i].1 / (keys[i].1 + matrix[i].1);
    page.value("keys-share-first", percent(share(0), 0));
    page.value("keys-share-last", percent(share(last), 1));
    page.file(
        "capacity.svg",
        svg(
            "memory-wall-capacity",
            "Bytes between slow and fast memory against the capacity of fast memory",
            "The line of keys and values falls steeply as the capacity grows, until each is read once only. The lines of the \
             (n, n) matrix have one small step down where a row of scores fits, and are level on both sides of it.",
            (520, 420),
            |area| {
                let x = Axis::log("fast memory in KiB (logarithmic)", 2.0, 1.0..4096.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e6..1e10);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    Ok(())
}

fn backward(page: &mut Page) -> Result<()> {
    let Runs { naive, backward, .. } = run(N)?;
    let mut rows = vec![];
    let mut all = [0; 4];
    for &pass in backward.passes() {
        let weights = backward.of(pass, "scores");
        let gradients = backward.of(pass, "grad_scores");
        let counts = [weights.read, weights.written, gradients.read, gradients.written];
        ensure!(weights.written == 0, "{pass}: the weights are kept");
        let mut row = vec![pass.to_owned()];
        for (i, numbers) in counts.into_iter().enumerate() {
            let times = crossings(numbers)?;
            all[i] += times;
            if i != 1 {
                row.push(times.to_string());
            }
        }
        row.push(mebibytes(backward.pass(pass)));
        rows.push(row);
    }
    let [weights, _, read, written] = all.map(|times| times.to_string());
    rows.push(vec![
        "**all**".to_owned(),
        weights,
        read,
        written,
        mebibytes(backward.total()),
    ]);
    let header = ["pass", "weights read", "gradients read", "gradients written", "MiB"];
    page.file("backward.md", table(&header, &rows));
    let of_backward: usize = all.iter().sum();
    let both = of_backward + crossings(naive.matrix("scores").all())?;
    page.value("crossings-backward", of_backward.to_string());
    page.value("crossings-both", both.to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_told_as_it_is() {
        let usual = cpu_in_words(0.125, 0.625, 2.4, 0.03);
        assert!(usual.starts_with("the same three") && usual.contains("hides the wall"));
        let slow = cpu_in_words(0.125, 0.625, 0.5, 0.8);
        assert!(slow.contains("softmax right of it. Softmax reaches 80"), "{slow}");
        assert!(cpu_in_words(0.125, 0.625, 0.1, 0.8).starts_with("only the mask"));
    }
}
