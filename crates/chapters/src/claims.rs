//! Claims, checked: what people repeat about attention, each computed, and a verdict that follows from the computation.

use crate::output::Page;
use crate::random::normal;
use crate::why_sqrt_d_k::{self, FAINT, ROWS};
use anyhow::{Result, ensure};
use attention::flash::{Inputs, Tiles, tiled_attention};
use attention::{
    AttentionShape, Mask, attention, log_sum_exp_rows, scaled_scores, softmax,
    softmax_rows,
};
use figures::format::{fixed, integer, percent, scientific, significant, table, tuple};
use figures::{Axis, BLUE, GREEN, Line, MUTED, Marks, VERMILION, line_chart, svg};
use half::{bf16, f16};
use laboratory::traffic::{fused_traffic, naive_traffic};
use nalgebra::{DMatrix, RealField, dmatrix, dvector};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::f64::consts::{LN_10, TAU};

/// One row of the summary.
struct Claim {
    /// The id of the section that checks it, behind its number.
    section: &'static str,
    said: String,
    verdict: String,
    measured: String,
}

pub fn generate(page: &mut Page) -> Result<()> {
    let claims = [
        four_scores(page)?,
        three_queries(page)?,
        core_and_projections(page)?,
        layer_in_numbers(page)?,
        ridge(page)?,
        short_and_long(page)?,
        reach(page)?,
        largest_weight(page)?,
        large_negative(page)?,
        crossings(page)?,
        flash(page)?,
        way_back(page)?,
        small_gradients(page)?,
        linear_traffic(page)?,
        approximate(page)?,
    ];
    let row = |(i, claim): (usize, &Claim)| {
        let said = format!("[{0}](#{0}-{1}) {2}", i + 1, claim.section, claim.said);
        // Stacked, so that a phone shows both.
        let answer = format!("{}<br>{}", claim.verdict, claim.measured);
        vec![said, answer]
    };
    let rows: Vec<_> = claims.iter().enumerate().map(row).collect();
    let table = table(&["people say", "verdict, and what was computed"], &rows);
    // Sentences are aligned to the left.
    page.file("summary.md", table.replacen("| :-- | --: |", "| :-- | :-- |", 1));
    for (i, claim) in claims.iter().enumerate() {
        page.value(format!("claim-{}", i + 1), claim.said.clone());
        page.value(format!("verdict-{}", i + 1), claim.verdict.clone());
    }
    tally(page, &claims)
}

/// How many verdicts there are of each kind, in words.
fn tally(page: &mut Page, claims: &[Claim]) -> Result<()> {
    let count = |is: fn(&str) -> bool| claims.iter().filter(|c| is(&c.verdict)).count();
    let when = count(|v| v.starts_with(WHEN));
    let not = count(|v| v.starts_with(NOT));
    let part = count(|v| v.starts_with(HOLDS) && !v.starts_with(WHEN) && v.contains(NOT));
    ensure!(when + not + part == claims.len(), "a claim holds as it stands: say so");
    const WORDS: [&str; 11] = [
        "none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
        "ten",
    ];
    for (name, count) in [("when", when), ("not", not), ("part", part)] {
        page.value(format!("count-{name}"), WORDS[count]);
    }
    Ok(())
}

const HOLDS: &str = "**holds**";
const WHEN: &str = "**holds when**";
const NOT: &str = "**does not hold**";

/// The verdict on a claim of several parts, each with whether it is true.
fn by_parts(parts: &[(&str, bool)]) -> String {
    let of = |word: &str, wanted: bool| {
        let names: Vec<_> =
            parts.iter().filter(|part| part.1 == wanted).map(|part| part.0).collect();
        (!names.is_empty()).then(|| format!("{word} for {}", names.join(" and ")))
    };
    let verdicts: Vec<_> =
        [of(HOLDS, true), of(NOT, false)].into_iter().flatten().collect();
    if verdicts.len() == 2 {
        verdicts.join(", ")
    } else if parts[0].1 {
        HOLDS.to_owned()
    } else {
        NOT.to_owned()
    }
}

/// The verdict on a claim that is not true as it was said, but is under a condition.
fn only_when(condition: &str, as_said: bool, under_condition: bool) -> Result<String> {
    ensure!(!as_said, "true as said, so the verdict needs no condition: {condition}");
    ensure!(under_condition, "not even true under the condition: {condition}");
    Ok(format!("{WHEN} {condition}"))
}

/// Whether two rows agree to the two decimals that a claim gives.
fn to_two_decimals(computed: &[f64], said: &[f64]) -> bool {
    let hundredths = |x: f64| (100.0 * x).round();
    computed.iter().zip(said).all(|(x, y)| hundredths(*x) == hundredths(*y))
}

/// Whether a number that was said with one or two digits is right within a tenth.
fn about(computed: f64, said: f64) -> bool {
    (computed / said - 1.0).abs() < 0.1
}

/// The value below which this share of the numbers lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[(share * (sorted.len() - 1) as f64).round() as usize]
}

fn sorted(mut x: Vec<f64>) -> Vec<f64> {
    x.sort_by(f64::total_cmp);
    x
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Of the mean of independent numbers.
fn standard_error(x: &[f64]) -> f64 {
    let variance =
        x.iter().map(|x_i| (x_i - mean(x)).powi(2)).sum::<f64>() / (x.len() - 1) as f64;
    (variance / x.len() as f64).sqrt()
}

/// (1) Softmax of four scores, and of the same divided by 8.
fn four_scores(page: &mut Page) -> Result<Claim> {
    let x = dvector![12.3, -8.7, 15.1, -3.2];
    let said = [[0.06, 0.0, 0.94, 0.0], [0.28, 0.06, 0.40, 0.10]];
    let (plain, divided) = (softmax(&x)?, softmax(&(&x / 8.0))?);
    let right = to_two_decimals(plain.as_slice(), &said[0]);
    let right_divided = to_two_decimals(divided.as_slice(), &said[1]);
    page.value("four-divided", tuple(&divided, 2));
    page.value("four-said-sum", fixed(said[1].iter().sum(), 2));
    ensure!(said[1].iter().sum::<f64>() < 0.9, "the claimed weights sum to one");

    // Which divisors c give the claimed ratio p_i / p_3 = e^((x_i − x_3) / c), whose two decimals leave an interval?
    let mut intervals = vec![];
    for i in [0, 1, 3] {
        let gap = x[2] - x[i];
        let divisor = |p: f64, p_3: f64| gap / (p_3 / p).ln();
        let (from, to) = (
            divisor(said[1][i] - 0.005, said[1][2] + 0.005),
            divisor(said[1][i] + 0.005, said[1][2] - 0.005),
        );
        page.value(
            format!("four-divisor-{}", i + 1),
            format!("{} to {}", fixed(from, 1), fixed(to, 1)),
        );
        intervals.push((from, to));
    }
    let (first, second, fourth) = (intervals[0], intervals[1], intervals[2]);
    ensure!(first.0 < 8.0 && 8.0 < first.1, "8 does not fit the first ratio");
    ensure!(first.1 < second.0 && first.1 < fourth.0, "one divisor fits all ratios");
    Ok(Claim {
        section: "four-scores-and-a-division",
        said: format!(
            "Softmax of $(12.3, -8.7, 15.1, -3.2)$ is ${}$; of the same divided by 8 it is ${}$.",
            tuple(said[0], 2),
            tuple(said[1], 2)
        ),
        verdict: by_parts(&[
            ("the scores as they are", right),
            ("the divided ones", right_divided),
        ]),
        measured: format!("divided: ${}$", tuple(&divided, 2)),
    })
}

/// (2) The weights and the first output of the second worked example.
fn three_queries(page: &mut Page) -> Result<Claim> {
    let q = dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, 1.0];
    let k = dmatrix![1.0, 1.0; 0.0, 1.0; 1.0, 0.0];
    let v = dmatrix![2.0, 1.0; 1.0, 3.0; 0.0, 2.0];
    let (output, cache) = attention(&q, &k, &v, &Mask::none())?;
    let said = dmatrix![0.41, 0.20, 0.41; 0.38, 0.38, 0.24; 0.52, 0.25, 0.25];
    let said_output = [1.02, 1.83];

    let mut table_rows = vec![];
    for i in 0..3 {
        let (right, wrong) = (cache.weights.row(i), said.row(i));
        table_rows.push(vec![
            format!("query {}", i + 1),
            format!("${}$", tuple(wrong, 2)),
            fixed(wrong.sum(), 2),
            format!("${}$", tuple(right, 2)),
        ]);
    }
    let header = ["", "said", "its sum", "computed"];
    page.file("three-queries.md", table(&header, &table_rows));
    // Which keys tie and which lead is right in every row.
    for (right, wrong) in cache.weights.row_iter().zip(said.row_iter()) {
        let order =
            |a: f64, b: f64| if (a - b).abs() < 1e-9 { 0.0 } else { (a - b).signum() };
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            let same = order(right[i], right[j]) == order(wrong[i], wrong[j]);
            ensure!(same, "the claimed order of keys {i} and {j} is wrong");
        }
    }
    // The claimed output follows from the claimed weights.
    let follows = said.row(0) * &v;
    ensure!(
        to_two_decimals(follows.transpose().as_slice(), &said_output),
        "the claimed output follows from something else"
    );
    let rows_right: Vec<bool> = (0..3)
        .map(|i| {
            let row = |m: &DMatrix<f64>| m.row(i).iter().copied().collect::<Vec<_>>();
            to_two_decimals(&row(&cache.weights), &row(&said))
        })
        .collect();
    ensure!(rows_right == [false; 3], "a row of the claimed weights is right");
    // Two decimals may take half a hundredth from each weight, and no more.
    let (rounding, off) = (3.0 * 0.005, (said.row(0).sum() - 1.0).abs());
    ensure!(
        off > rounding && said.row(2).sum() == said.row(0).sum(),
        "rounding explains {off}"
    );
    page.value("three-rounding", fixed(rounding, 3));
    page.value("three-off", fixed(off, 2));
    ensure!((output[(0, 0)] - 1.0).abs() < 1e-14, "the first output is not exactly 1");
    // In the second row the first two keys are claimed to lie ahead of the third by this much; it should be 1/√2.
    let gap = (said[(1, 0)] / said[(1, 2)]).ln();
    page.value("three-gap", fixed(gap, 2));
    page.value("three-gap-right", fixed(0.5_f64.sqrt(), 2));
    let output_right =
        to_two_decimals(output.row(0).transpose().as_slice(), &said_output);
    let first = tuple(output.row(0), 2);
    page.value("three-output-said", tuple(said_output, 2));
    page.value("three-sum", fixed(said.row(0).sum(), 2));
    Ok(Claim {
        section: "three-queries-by-hand",
        said: format!(
            "In example (b) the three queries have the weights ${}$, ${}$ and ${}$, and the first the output ${}$.",
            tuple(said.row(0), 2),
            tuple(said.row(1), 2),
            tuple(said.row(2), 2),
            tuple(said_output, 2)
        ),
        verdict: by_parts(&[
            ("the weights", rows_right.contains(&true)),
            ("the output", output_right),
        ]),
        measured: format!(
            "the first: ${}$ and ${first}$",
            tuple(cache.weights.row(0), 2)
        ),
    })
}

/// (3) FLOPs of core and projections at n = 4096, d = 64.
fn core_and_projections(page: &mut Page) -> Result<Claim> {
    let (n, d) = (4096, 64);
    let of = |d_model| AttentionShape::self_attention(1, n, d_model, d, 1).flops();
    let narrow = of(d)?;
    let (core, projections) = (narrow.core() as f64, narrow.projections as f64);
    let mut rows = vec![];
    for d_model in [2, 64, 512, 2048] {
        let flops = of(d_model)?;
        let products = (flops.scores + flops.values) as f64;
        let ratio = products / flops.projections as f64;
        ensure!(
            ratio == n as f64 / (2.0 * d_model as f64),
            "the ratio is not n / (2 d_model)"
        );
        rows.push(vec![
            integer(d_model),
            format!("${}$", scientific(flops.core() as f64, 1)),
            format!("${}$", scientific(flops.projections as f64, 1)),
            fixed(ratio, 0),
        ]);
    }
    let header = ["$d_{\\text{model}}$", "core", "projections", "products ÷ projections"];
    page.file("core-and-projections.md", table(&header, &rows));
    page.value("projections-too-small-64", fixed(projections / 4e6, 0));
    page.value("projections-too-small-512", fixed(of(512)?.projections as f64 / 4e6, 0));
    ensure!(about(of(2)?.projections as f64, 4e6), "not even with d_model = 2");
    let narrow_bytes = (4 * 4 * n * d) as f64; // q, k, v and the output in f32
    ensure!(about(narrow_bytes, 4e6), "4·10⁶ is no number of bytes");
    page.value("projections-narrow-bytes", scientific(narrow_bytes, 1));
    Ok(Claim {
        section: "the-core-and-the-projections",
        said: "At $n = 4096$, $d = 64$ the core takes about $4 \\cdot 10^9$ FLOPs and the projections about $4 \\cdot \
               10^6$."
            .to_owned(),
        verdict: by_parts(&[
            ("the core", about(core, 4e9)),
            ("the projections", about(projections, 4e6)),
        ]),
        measured: format!(
            "${}$ and, with $d_{{\\text{{model}}}} = 64$, ${}$",
            scientific(core, 1),
            scientific(projections, 1)
        ),
    })
}

/// (4) FLOPs of a layer and bytes of its weights at n = 8192, d = 512.
fn layer_in_numbers(page: &mut Page) -> Result<Claim> {
    let (n, d) = (8192_usize, 512_usize);
    let one = AttentionShape::self_attention(1, n, d, d, 1);
    let eight = AttentionShape::self_attention(1, n, d, d / 8, 8);
    let (flops, bytes) = (one.flops()?, one.bytes(4)?);
    let total = flops.total() as f64;
    let products = (flops.scores + flops.values) as f64;
    let multiply_adds = n * n * d; // of one of the two products
    ensure!(about(multiply_adds as f64, 34e9), "34·10⁹ is something else");
    ensure!(eight.flops()?.projections == flops.projections, "heads change projections");
    ensure!(eight.flops()?.scores == flops.scores, "heads change the scores' FLOPs");
    ensure!(eight.bytes(4)?.weights == 8 * bytes.weights, "weights of eight heads");
    let billions = |x: f64| fixed(x / 1e9, 1);
    page.value("layer-projections", billions(flops.projections as f64));
    page.value("layer-products", billions(products));
    page.value("layer-softmax", billions(flops.softmax as f64));
    page.value("layer-total", billions(total));
    page.value("layer-one-product", billions(multiply_adds as f64));
    page.value("layer-mib", integer((bytes.weights >> 20) as usize));
    page.value("layer-eight-gb", billions(eight.bytes(4)?.weights as f64));
    page.value("layer-bf16-mb", fixed(one.bytes(2)?.weights as f64 / 1e6, 0));
    let megabytes = bytes.weights as f64 / 1e6;
    page.value("layer-mb", fixed(megabytes, 1));
    Ok(Claim {
        section: "a-layer-in-numbers",
        said: "At $n = 8192$, $d = 512$ a layer takes about $34 \\cdot 10^9$ FLOPs, and its weights 268 MB."
            .to_owned(),
        verdict: by_parts(&[
            ("the bytes", (megabytes - 268.0).abs() < 0.5),
            ("the FLOPs", about(total, 34e9)),
        ]),
        measured: format!(
            "${} \\cdot 10^9$ FLOPs; {} MB for one head in `f32`",
            fixed(total / 1e9, 0),
            fixed(megabytes, 0)
        ),
    })
}

/// NVIDIA A100, 80 GB, SXM: what its datasheet gives, in FLOP/s and byte/s. No sparsity.
pub const A100_BANDWIDTH: f64 = 2.039e12;
pub const A100_F32: f64 = 19.5e12;
const A100_TF32: f64 = 156e12;
pub const A100_BF16: f64 = 312e12;

/// How often the (n, n) matrix crosses slow memory if each step is a pass of its own: written by the scores, read and
/// written by scale, mask and softmax, read by the product with the values.
/// [`crossings`] holds both to what `laboratory::traffic` counts.
const NAIVE_CROSSINGS: usize = 1 + 2 + 2 + 2 + 1;
/// The same if scaling and masking are done on the way into softmax.
const FUSED_CROSSINGS: usize = 1 + 2 + 1;

/// Numbers that cross slow memory: q, k, v and the output once, the (n, n) matrix so many times.
fn core_traffic(n: usize, d: usize, crossings: usize) -> f64 {
    (4 * n * d + crossings * n * n) as f64
}

/// Numbers that cross slow memory if `rows` queries at a time visit all keys and values: q read once, the output written
/// once, k and v read once for each group of queries. The weights never leave fast memory.
fn tiled_traffic(n: usize, d: usize, rows: usize) -> f64 {
    (2 * n * d + n.div_ceil(rows) * 2 * n * d) as f64
}

/// (5) Arithmetic intensity and the ridge of an A100.
fn ridge(page: &mut Page) -> Result<Claim> {
    let (n, d) = (4096, 64);
    let shape = AttentionShape::self_attention(1, n, d, d, 1);
    let flops = shape.flops()?;
    let products = (flops.scores + flops.values) as f64;
    let intensity = shape.intensity(4)?;
    let without_softmax = products / shape.bytes(4)?.total() as f64;
    let two_narrow = flops.core() as f64 / (4.0 * core_traffic_of(2, n, d));
    page.value("intensity", fixed(intensity, 1));
    page.value("intensity-products", fixed(without_softmax, 1));
    page.value("intensity-two", fixed(two_narrow, 1));
    let one_narrow = products / (4.0 * core_traffic_of(1, n, d));
    page.value("intensity-one", fixed(one_narrow, 1));
    ensure!(fixed(intensity, 0) == "61", "61 is something else");
    ensure!(fixed(two_narrow, 0) == "63" && fixed(one_narrow, 0) == "63", "63");
    page.value("ridge-said", fixed(A100_BF16 / 2e12, 0));
    page.value("a100-bandwidth", integer((A100_BANDWIDTH / 1e9) as usize));
    page.value("a100-f32", fixed(A100_F32 / 1e12, 1));
    page.value("a100-tf32", fixed(A100_TF32 / 1e12, 0));
    page.value("a100-bf16", fixed(A100_BF16 / 1e12, 0));
    ensure!(A100_BF16 / 2e12 == 156.0, "156 is another ratio");

    let mut below = vec![];
    let mut rows = vec![];
    for (name, rate, bytes) in [
        ("`f32`, no tensor cores", A100_F32, 4),
        ("`f32` rounded to TF32", A100_TF32, 4),
        ("bf16", A100_BF16, 2),
    ] {
        let ridge = rate / A100_BANDWIDTH;
        let intensities = [
            shape.intensity(bytes)?,
            flops.core() as f64 / (bytes as f64 * core_traffic(n, d, NAIVE_CROSSINGS)),
            flops.core() as f64 / (bytes as f64 * core_traffic(n, d, 0)),
        ];
        below.push(intensities.map(|x| x < ridge));
        let cell = |x: &f64| {
            let bound = if *x < ridge { "memory" } else { "compute" };
            format!("{} ({bound})", fixed(*x, 0))
        };
        let mut row = vec![name.to_owned(), fixed(ridge, 0)];
        row.extend(intensities.iter().map(cell));
        rows.push(row);
    }
    let header = [
        "numbers",
        "ridge",
        "each matrix once",
        "all passes, average",
        "weights never leave",
    ];
    page.file("ridges.md", table(&header, &rows));
    // In words: with each matrix once the tensor cores wait, the plain ones do not; with every pass all wait; tiled none.
    ensure!(
        below == [[false, true, false], [true, true, false], [true, true, false]],
        "who waits for memory: {below:?}"
    );
    // In the quick questions: the rates of bf16 against f32 and TF32.
    ensure!(A100_BF16 / A100_F32 == 16.0 && A100_BF16 / A100_TF32 == 2.0);
    let bf16_ridge = A100_BF16 / A100_BANDWIDTH;
    page.value("ridge-factor", fixed(bf16_ridge / shape.intensity(2)?, 2));
    page.value("ridge-factor-said", fixed(156.0 / intensity, 1));
    // Heads twice as wide are compute-bound in bf16, and so is `f32` with four crossings.
    let wide = AttentionShape::self_attention(1, n, 128, 128, 1).intensity(2)?;
    ensure!(wide > bf16_ridge, "d = 128 is memory-bound: {wide}");
    page.value("intensity-wide", fixed(wide, 0));
    page.value("ridge-bf16", fixed(bf16_ridge, 0));
    let fused = flops.core() as f64 / (4.0 * core_traffic(n, d, FUSED_CROSSINGS));
    ensure!(fused > A100_F32 / A100_BANDWIDTH, "fused in f32: {fused}");
    page.value("intensity-fused", fixed(fused, 0));
    page.value("ridge-f32", fixed(A100_F32 / A100_BANDWIDTH, 0));
    // A product by itself, which writes or reads the weights once.
    let product = (2 * n * n * d) as f64 / (4 * (2 * n * d + n * n)) as f64;
    ensure!(product > A100_F32 / A100_BANDWIDTH, "a product in f32 waits: {product}");
    page.value("intensity-product", fixed(product, 0));
    Ok(Claim {
        section: "below-the-ridge",
        said: "At $n = 4096$, $d = 64$ the intensity is 61 FLOP/byte (or 63), below the 156 of an A100, so attention is \
               memory-bound."
            .to_owned(),
        verdict: only_when(
            "the tensor cores do the products, and each matrix is counted once",
            below.iter().all(|by| by[0]),
            below[1][0] && below[2][0],
        )?,
        measured: format!(
            "`f32`: {} against {}; bf16: {} against {}",
            fixed(intensity, 0),
            fixed(A100_F32 / A100_BANDWIDTH, 0),
            fixed(shape.intensity(2)?, 0),
            fixed(A100_BF16 / A100_BANDWIDTH, 0)
        ),
    })
}

/// As [`core_traffic`] with one crossing, but with this many of the four (n, d) matrices.
fn core_traffic_of(narrow: usize, n: usize, d: usize) -> f64 {
    (narrow * n * d + n * n) as f64
}

/// The figure's layer: 32 heads of width 128 in a model of width 4096, in bf16.
const WIDE: (usize, usize, usize) = (4096, 128, 32);

/// Arithmetic intensity of a whole layer in bf16: each projection reads its input and parameters and writes its output,
/// and the core of each head moves `core` numbers.
fn layer_intensity(n: usize, core: f64) -> Result<f64> {
    let (d_model, d, heads) = WIDE;
    let flops = AttentionShape::self_attention(1, n, d_model, d, heads).flops()?;
    let projections = (4 * d_model * d_model + 8 * n * d_model) as f64;
    Ok(flops.total() as f64 / (2.0 * (projections + heads as f64 * core)))
}

/// (6) Arithmetic intensity against n.
fn short_and_long(page: &mut Page) -> Result<Claim> {
    let ridge = A100_BF16 / A100_BANDWIDTH;
    let (d_model, d, _) = WIDE;
    let lengths: Vec<usize> = (4..=16).map(|power| 1 << power).collect();
    let line = |name: &str, colour, dashed, of: &dyn Fn(usize) -> Result<f64>| {
        let points =
            lengths.iter().map(|&n| Ok((n as f64, of(n)?))).collect::<Result<_>>()?;
        anyhow::Ok(Line { name: name.to_owned(), colour, dashed, points })
    };
    let core = |n| Ok(AttentionShape::self_attention(1, n, d_model, d, 1).intensity(2)?);
    let unfused = |n| layer_intensity(n, core_traffic(n, d, NAIVE_CROSSINGS));
    let tiled = |n| layer_intensity(n, tiled_traffic(n, d, 256));
    let lines = [
        line("core, each matrix once", BLUE, false, &core)?,
        line("layer, every pass", VERMILION, false, &unfused)?,
        line("layer, tiled core", GREEN, false, &tiled)?,
        line("ridge of an A100", MUTED, true, &|_| Ok(ridge))?,
    ];
    let rises = |line: &Line| line.points.windows(2).all(|w| w[0].1 < w[1].1);
    ensure!(rises(&lines[0]), "the core's intensity does not grow with n");
    ensure!(core(512)? < ridge && core(1024)? > ridge, "where the core passes the ridge");
    ensure!(core(65_536)? / core(32_768)? < 1.01, "the core's line is not flat");
    let above = lines[2].points.iter().skip_while(|point| point.1 < ridge);
    ensure!(
        above.clone().count() > 5 && above.clone().all(|point| point.1 > ridge),
        "the tiled layer does not stay above the ridge"
    );
    // A tiled core tends to as many FLOP/byte as a tile has queries: 128 are too few.
    let narrow = |n| layer_intensity(n, tiled_traffic(n, d, 128));
    ensure!(narrow(1024)? > ridge && narrow(65_536)? < ridge, "tiles of 128 queries");
    page.value("short-ridge", fixed(ridge, 0));
    let bound: Vec<bool> =
        lengths.iter().map(|&n| unfused(n).map(|x| x > ridge)).collect::<Result<_>>()?;
    let (first, last) = (
        bound.iter().position(|b| *b).map(|i| lengths[i]),
        bound.iter().rposition(|b| *b).map(|i| lengths[i]),
    );
    let (Some(first), Some(last)) = (first, last) else {
        anyhow::bail!("the unfused layer is never compute-bound")
    };
    ensure!(
        first > 16 && last < 65_536,
        "the unfused layer does not cross the ridge twice"
    );
    page.value("short-first", integer(first));
    page.value("short-last", integer(last));
    let f32_of = |n| AttentionShape::self_attention(1, n, 64, 64, 1).intensity(4);
    let (short, long) = (f32_of(16)?, f32_of(65_536)?);
    page.value("short-16", fixed(short, 1));
    page.value("short-65536", fixed(long, 1));
    let limit = 64.0 + 5.0 / 4.0;
    ensure!(long < limit && limit - long < 1.0, "the limit is not d + 5/4");
    page.value("short-limit", fixed(limit, 2));
    // Where the f32 intensity n(4d + 5) / (4(4d + n)) equals a ridge r: n = 16 d r / (4d + 5 − 4r).
    let r = A100_F32 / A100_BANDWIDTH;
    let crossing = 16.0 * 64.0 * r / (4.0 * 64.0 + 5.0 - 4.0 * r);
    ensure!(
        f32_of(crossing.floor() as usize)? < r && f32_of(crossing.ceil() as usize)? > r
    );
    page.value("short-crossing", fixed(crossing.ceil(), 0));
    page.file(
        "intensity.svg",
        svg(
            "claims-intensity",
            "Arithmetic intensity against the number of tokens",
            "The core's intensity, with each matrix counted once, rises through the ridge and flattens above it. That of a \
             whole layer with every pass over the scores rises above the ridge, and falls below it again for long \
             sequences. With a tiled core it rises above the ridge and stays there.",
            (520, 420),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 16.0..65_536.0);
                let y = Axis::log("FLOP/byte (logarithmic)", 2.0, 4.0..4096.0);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    let falls = |of: &dyn Fn(usize) -> Result<f64>| -> Result<bool> {
        Ok(of(first)? > ridge && of(65_536)? < ridge)
    };
    Ok(Claim {
        section: "short-and-long-sequences",
        said: "Short sequences are compute-bound and long ones memory-bound.".to_owned(),
        verdict: only_when(
            "a whole layer is meant, wide and unfused, and not very short",
            falls(&core)?,
            falls(&unfused)?,
        )?,
        measured: format!(
            "core in `f32`, $d = 64$: {} FLOP/byte at $n = 16$, {} at {}",
            fixed(short, 1),
            fixed(long, 1),
            integer(65_536)
        ),
    })
}

/// (7) How far scores reach and weights fall: eight tokens, d_k = 512, many draws.
fn reach(page: &mut Page) -> Result<Claim> {
    let (n, d, draws) = (8, 512, 4000);
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let root = (d as f64).sqrt();
    let [mut scores, mut weights, mut scaled_weights] = [const { vec![] }; 3];
    for _ in 0..draws {
        let (q, k) = (normal(n, d, rng), normal(n, d, rng));
        let s = scaled_scores(&q, &k)?; // (n, n)
        scores.push(s.amax() * root);
        // log₁₀ of the smallest weight, since the weight itself may be too small for a number
        let smallest = |s: &DMatrix<f64>| -> Result<f64> {
            let lse = log_sum_exp_rows(s)?;
            let rows = s.row_iter().zip(lse.iter());
            Ok(rows.map(|(row, lse)| row.min() - lse).fold(0.0, f64::min) / LN_10)
        };
        weights.push(smallest(&(&s * root))?);
        scaled_weights.push(smallest(&s)?);
    }
    let (scores, weights, scaled_weights) =
        (sorted(scores), sorted(weights), sorted(scaled_weights));
    let scaled: Vec<f64> = scores.iter().map(|s| s / root).collect();
    let negated = |x: &[f64]| sorted(x.iter().map(|x| -x).collect());
    let (weights, scaled_weights) = (negated(&weights), negated(&scaled_weights));
    let shares = [0.05, 0.5, 0.95, 1.0];
    let number = |decimals: usize| {
        move |x: &[f64]| shares.map(|share| fixed(quantile(x, share), decimals)).to_vec()
    };
    let power = |x: &[f64]| {
        shares.map(|share| format!("$10^{{{}}}$", fixed(-quantile(x, share), 1))).to_vec()
    };
    let rows = [
        ("largest score, unscaled", number(0)(&scores), "180"),
        ("smallest weight, unscaled", power(&weights), "$10^{−78}$"),
        ("largest score, scaled", number(1)(&scaled), "8"),
        ("smallest weight, scaled", power(&scaled_weights), "$10^{−4}$"),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, cells, said)| {
            [vec![name.to_owned()], cells, vec![said.to_owned()]].concat()
        })
        .collect();
    let header = ["", "tamest 1 in 20", "median", "wildest 1 in 20", "wildest", "said"];
    page.file("reach.md", table(&header, &rows));
    page.value("reach-draws", integer(draws));
    page.value("reach-sigmas", fixed(180.0 / root, 2));
    page.value("reach-power", fixed(-180.0 / LN_10, 1));
    page.value("reach-scaled-power", fixed(-8.0 / LN_10, 1));
    page.value("reach-sigma", fixed(root, 1));
    page.value("reach-beyond", scientific(2.0 * normal_tail(180.0 / root), 0));
    let beyond = 2.0 * product_tail(180.0, d);
    // In words: below this power of ten, but fatter than the normal tail.
    ensure!(beyond < 1e-14 && beyond > 2.0 * normal_tail(180.0 / root), "{beyond:e}");
    page.value("reach-beyond-score", "10^{−14}");
    // All entries with a variance of f multiply all scores by f.
    let factor = 180.0 / quantile(&scores, 0.5);
    page.value("reach-factor", fixed(factor, 1));
    let factor = 180.0 / LN_10 / quantile(&weights, 0.5);
    page.value("reach-factor-weights", fixed(factor, 1));
    ensure!(scores.iter().chain(&weights).all(|x| x.is_finite()));
    let most = quantile(&scores, 1.0);
    // In words: dozens of powers of ten unscaled, two or three scaled.
    ensure!(quantile(&weights, 0.05) > 24.0);
    let powers = |share| quantile(&scaled_weights, share);
    ensure!(powers(0.05) > 1.5 && powers(0.95) < 3.5);
    ensure!(quantile(&weights, 1.0) < 78.0 && most < 180.0, "some draw gets there");
    ensure!(quantile(&scaled, 1.0) < 8.0 && quantile(&scaled_weights, 1.0) < 4.0);
    Ok(Claim {
        section: "how-far-scores-reach",
        said: "For $d_k = 512$ and eight tokens, unscaled scores reach 180 and weights fall to $10^{-78}$; scaled, 8 and \
               $10^{-4}$."
            .to_owned(),
        verdict: by_parts(&[("the scores", most >= 180.0)]),
        measured: format!(
            "medians: {} and $10^{{{}}}$; scaled {} and $10^{{{}}}$",
            fixed(quantile(&scores, 0.5), 0),
            fixed(-quantile(&weights, 0.5), 0),
            fixed(quantile(&scaled, 0.5), 1),
            fixed(-quantile(&scaled_weights, 0.5), 1)
        ),
    })
}

/// The probability that a normal number exceeds x, for large x: the first terms of the asymptotic series.
fn normal_tail(x: f64) -> f64 {
    let y = 1.0 / (x * x);
    (-x * x / 2.0).exp() / (TAU.sqrt() * x) * (1.0 - y + 3.0 * y * y - 15.0 * y * y * y)
}

/// The probability that the dot product of two vectors of `d` independent standard normal entries exceeds x, by the
/// formula of Lugannani and Rice (1980). One product's cumulant generating function is −ln(1 − t²) / 2.
fn product_tail(x: f64, d: usize) -> f64 {
    let d = d as f64;
    let t = ((d * d + 4.0 * x * x).sqrt() - d) / (2.0 * x); // where K'(t) = d t / (1 − t²) = x
    let free = 1.0 - t * t;
    let w = (2.0 * (t * x + d / 2.0 * free.ln())).sqrt();
    let u = t * (d * (1.0 + t * t)).sqrt() / free;
    normal_tail(w) + (-w * w / 2.0).exp() / TAU.sqrt() * (1.0 / u - 1.0 / w)
}

/// `sets` times `queries` rows of unscaled scores against `n` keys, for d_k = `d`.
fn score_sets(
    n: usize,
    d: usize,
    sets: usize,
    queries: usize,
) -> impl Iterator<Item = DMatrix<f64>> {
    let mut rng = ChaCha8Rng::seed_from_u64((10_000 * n + d) as u64);
    (0..sets).map(move |_| {
        let (q, k) = (normal(queries, d, &mut rng), normal(n, d, &mut rng));
        &q * k.transpose()
    })
}

const SETS: usize = 40;
const QUERIES: usize = 500;

/// (8) The mean largest weight of a row against n, for d_k = 512.
fn largest_weight(page: &mut Page) -> Result<Claim> {
    let d = 512;
    let root = (d as f64).sqrt();
    let (mut unscaled, mut scaled) = (vec![], vec![]);
    let mut rows = vec![];
    let mut errors = vec![];
    for n in [2, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256, 512, 1024] {
        let [mut sharp, mut soft] = [const { vec![] }; 2]; // the mean of each set
        for scores in score_sets(n, d, SETS, QUERIES) {
            let largest = |w: DMatrix<f64>| {
                mean(&w.row_iter().map(|r| r.max()).collect::<Vec<_>>())
            };
            sharp.push(largest(softmax_rows(&scores)?));
            soft.push(largest(softmax_rows(&(scores / root))?));
        }
        errors.push((n, standard_error(&sharp)));
        let (sharp, soft) = (mean(&sharp), mean(&soft));
        unscaled.push((n as f64, sharp));
        scaled.push((n as f64, soft));
        rows.push((n, sharp, soft));
    }
    let held: Vec<usize> = rows
        .iter()
        .filter(|(_, sharp, soft)| *sharp > 0.9 && *soft < 0.5)
        .map(|row| row.0)
        .collect();
    let (Some(&from), Some(&to)) = (held.first(), held.last()) else {
        anyhow::bail!("the claim holds for no n")
    };
    ensure!(rows.iter().all(|row| held.contains(&row.0) == (from..=to).contains(&row.0)));
    ensure!(
        from > 2 && rows.iter().any(|row| row.0 == from - 1),
        "{from} is not the first"
    );
    let of = |wanted: usize| rows.iter().find(|row| row.0 == wanted);
    for (n, sharp, soft) in &rows {
        match n {
            2 | 4 | 5 => page.value(format!("largest-{n}-scaled"), fixed(*soft, 2)),
            512 | 1024 => page.value(format!("largest-{n}"), fixed(*sharp, 3)),
            _ => {}
        }
    }
    let largest_error = errors.iter().map(|row| row.1).fold(0.0, f64::max);
    page.value("largest-error", fixed(largest_error, 4));
    // In words: the error does not tell the last mean from the limit.
    let (last, error) = (rows[rows.len() - 1], errors[errors.len() - 1].1);
    ensure!((last.1 - 0.9).abs() < 2.0 * error, "{last:?} ± {error}");
    page.value("largest-rows", integer(SETS * QUERIES));
    page.value("largest-sets", integer(SETS));
    page.value("largest-queries", integer(QUERIES));
    let level = |y: f64| vec![(2.0, y), (1024.0, y)];
    let line = |name: &str, colour, dashed, points| Line {
        name: name.to_owned(),
        colour,
        dashed,
        points,
    };
    let lines = [
        line("unscaled", VERMILION, false, unscaled),
        line("scaled", BLUE, false, scaled),
        line("0.9", VERMILION, true, level(0.9)),
        line("0.5", BLUE, true, level(0.5)),
    ];
    page.file(
        "largest-weight.svg",
        svg(
            "claims-largest-weight",
            "The mean largest weight of a row against the number of keys, for a width of 512",
            &format!(
                "Unscaled it falls slowly and stays above 0.9 up to {to} keys. Scaled it falls fast and is below 0.5 from \
                 {from} keys on."
            ),
            (520, 380),
            |area| {
                let x = Axis::log("keys n (logarithmic)", 2.0, 2.0..1024.0);
                let y = Axis::linear("mean largest weight", 0.0..1.0);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    let at_all = rows.iter().all(|(_, sharp, soft)| *sharp > 0.9 && *soft < 0.5);
    let (_, sharp, soft) = of(from).copied().unwrap_or_default();
    Ok(Claim {
        section: "the-largest-weight",
        said: "For $d_k = 512$ the largest weight of a row averages over $0.9$ unscaled, and under $0.5$ scaled.".to_owned(),
        verdict: only_when(
            &format!("there are {from} to {to} keys"),
            at_all,
            !held.is_empty(),
        )?,
        measured: format!("at $n = {from}$: {} and {}", fixed(sharp, 2), fixed(soft, 2)),
    })
}

/// A number format: rounds after every operation, as arithmetic in that format does.
type Rounding = fn(f64) -> f64;
const FORMATS: [(&str, Rounding); 4] = [
    ("f64", |x| x),
    ("f32", |x| f64::from(x as f32)),
    ("bf16", |x| bf16::from_f64(x).to_f64()),
    ("f16", |x| f16::from_f64(x).to_f64()),
];

/// Softmax of scores plus a mask, as a textbook writes it (no guard for rows that see nothing), in a format.
fn softmax_in(round: Rounding, scores: &[f64], mask: &[f64]) -> Vec<f64> {
    let masked = scores.iter().zip(mask).map(|(s, m)| round(round(*s) + round(*m)));
    plain_softmax(round, &masked.collect::<Vec<_>>())
}

/// Softmax as a textbook writes it, in a format.
fn plain_softmax(round: Rounding, masked: &[f64]) -> Vec<f64> {
    let max = masked.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> =
        masked.iter().map(|s| round(round(s - max).exp())).collect();
    let sum = exponentials.iter().fold(0.0, |sum, e| round(sum + e));
    exponentials.iter().map(|e| round(e / sum)).collect()
}

/// (9) −10⁹ against −∞.
fn large_negative(page: &mut Page) -> Result<Claim> {
    let infinity = f64::NEG_INFINITY;
    let masks = [
        ("$−\\infty$", infinity),
        ("$−10^9$", -1e9),
        ("$−65504$", -65_504.0),
        ("$−100$", -100.0),
        ("$−10$", -10.0),
    ];
    let scores = [2.0, 0.0, 1.0];
    let cell = |x: f64| match x {
        0.0 => "0".to_owned(),
        x if x < 0.005 => format!("${}$", scientific(x, 0)),
        x => fixed(x, 2),
    };
    let (mut beside, mut alone) = (vec![], vec![]);
    let mut leaks = vec![];
    for (name, mask) in masks {
        let hidden =
            FORMATS.map(|(_, round)| softmax_in(round, &scores, &[0.0, 0.0, mask])[2]);
        leaks.push(hidden);
        beside.push([vec![name.to_owned()], hidden.map(cell).to_vec()].concat());
        if mask <= -65_504.0 {
            let rows = FORMATS.map(|(_, round)| softmax_in(round, &scores, &[mask; 3]));
            let text = |row: Vec<f64>| {
                if row[0].is_nan() {
                    "NaN".to_owned()
                } else {
                    format!("${}$", tuple(row, 2))
                }
            };
            alone.push([vec![name.to_owned()], rows.map(text).to_vec()].concat());
        }
    }
    let header = ["added", "`f64`", "`f32`", "bf16", "`f16`"];
    page.file("hidden-beside.md", table(&header, &beside));
    page.file("hidden-alone.md", table(&header, &alone));

    // What the page says in words.
    let unmasked = softmax(&dvector![2.0, 0.0, 1.0])?;
    let row =
        |format: usize, mask: f64| softmax_in(FORMATS[format].1, &scores, &[mask; 3]);
    let close =
        |row: Vec<f64>, to: &[f64]| row.iter().zip(to).all(|(a, b)| (a - b).abs() < 1e-6);
    ensure!(close(row(0, -1e9), unmasked.as_slice()), "f64: a hidden row as if unmasked");
    ensure!(close(row(1, -1e9), &[1.0 / 3.0; 3]), "f32: a hidden row becomes uniform");
    ensure!(
        row(2, -1e9).iter().all(|p| *p == bf16::from_f64(1.0 / 3.0).to_f64()),
        "bf16 does as f32 does"
    );
    ensure!(row(3, -1e9)[0].is_nan(), "f16: −10⁹ is −∞");
    ensure!((0..4).all(|format| row(format, infinity)[0].is_nan()), "−∞ gives NaN");
    // Put in the place of the scores, a finite number makes the row uniform.
    for (name, round) in FORMATS {
        let replaced = plain_softmax(round, &[round(-1e9); 3]);
        let uniform = replaced.iter().all(|p| *p == round(1.0 / 3.0));
        ensure!(uniform == (name != "f16"), "{name}: {replaced:?}");
    }
    ensure!(f16::MIN + f16::MIN == f16::NEG_INFINITY);
    page.value("f16-max", integer(f16::MAX.to_f64() as usize));
    page.value("f32-gap", integer((1e9_f32.next_up() - 1e9_f32) as usize));
    ensure!(leaks[0] == [0.0; 4], "−∞ leaks");
    ensure!(leaks[4].iter().all(|w| *w > 0.0), "−10 does not leak");
    page.value("hidden-unmasked", tuple(&unmasked, 2));
    for (name, round) in FORMATS {
        let zero = (1..1000)
            .find(|gap| softmax_in(round, &[0.0; 2], &[0.0, -f64::from(*gap)])[1] == 0.0);
        let Some(gap) = zero else { anyhow::bail!("{name}: no gap is large enough") };
        page.value(format!("hidden-gap-{name}"), fixed(f64::from(gap), 0));
    }
    Ok(Claim {
        section: "a-large-negative-number",
        said: "A mask of $-10^9$ leaks small probabilities to hidden keys; $-\\infty$ does not.".to_owned(),
        verdict: by_parts(&[("any format", leaks[1].iter().any(|w| *w > 0.0))]),
        measured: format!(
            "leak beside a visible key: {}; in a row that sees nothing: everything",
            cell(leaks[1].iter().copied().fold(0.0, f64::max))
        ),
    })
}

/// (10) How often the (n, n) matrix crosses slow memory.
fn crossings(page: &mut Page) -> Result<Claim> {
    let bytes = AttentionShape::self_attention(1, 4096, 2048, 64, 32).bytes(4)?.weights;
    let steps: [(&str, &[&str], &[&str]); 5] = [
        ("scores $QK^\\top$", &["write"], &["write"]),
        ("scale", &["read", "write"], &[]),
        ("mask", &["read", "write"], &[]),
        ("softmax", &["read", "write"], &["read", "write"]),
        ("times values", &["read"], &["read"]),
    ];
    let naive: usize = steps.iter().map(|step| step.1.len()).sum();
    let fused: usize = steps.iter().map(|step| step.2.len()).sum();
    ensure!(naive == NAIVE_CROSSINGS && fused == FUSED_CROSSINGS, "{naive}, {fused}");
    // The same from the machine that counts, where a row fits fast memory.
    let (small, matrix) =
        (AttentionShape::self_attention(1, 4096, 64, 64, 1), 4096 * 4096);
    for (counted, crossings) in [
        (naive_traffic(&small, 1 << 15)?, NAIVE_CROSSINGS),
        (fused_traffic(&small, 1 << 15)?, FUSED_CROSSINGS),
    ] {
        let counted = counted.matrix("scores").all();
        ensure!(counted == crossings as u128 * matrix, "the model counts {counted}");
    }
    let cell = |crossings: &[&str]| match crossings {
        [] => "–".to_owned(),
        crossings => crossings.join(", "),
    };
    let mut cells: Vec<_> = steps
        .iter()
        .map(|(step, naive, fused)| vec![(*step).to_owned(), cell(naive), cell(fused)])
        .collect();
    let gigabytes = |times: usize| fixed(times as f64 * bytes as f64 / 1e9, 1);
    let gibibytes = |times: usize| (times as u128 * bytes) >> 30;
    let total = |times: usize| format!("{times}: {}\u{202f}GB", gigabytes(times));
    cells.push(vec!["together".to_owned(), total(naive), total(fused)]);
    page.file("crossings.md", table(&["step", "step by step", "fused"], &cells));
    page.value("crossing-gib", integer((bytes >> 30) as usize));
    page.value("crossing-fused-gib", integer(gibibytes(FUSED_CROSSINGS) as usize));
    page.value("crossing-fused-gb", gigabytes(FUSED_CROSSINGS));
    Ok(Claim {
        section: "how-often-the-matrix-crosses",
        said: "The $(n, n)$ matrix crosses slow memory four times, 8 GB at $n = 4096$ with 32 heads.".to_owned(),
        verdict: only_when(
            "scale and mask are fused with softmax, in `f32`, and GB means GiB",
            NAIVE_CROSSINGS == 4,
            FUSED_CROSSINGS == 4 && gibibytes(FUSED_CROSSINGS) == 8,
        )?,
        measured: format!(
            "step by step {} times, {} GB; fused {} times, {} GB",
            NAIVE_CROSSINGS,
            gigabytes(NAIVE_CROSSINGS),
            FUSED_CROSSINGS,
            gigabytes(FUSED_CROSSINGS)
        ),
    })
}

/// (11) What tiles cost in work and save in memory.
fn flash(page: &mut Page) -> Result<Claim> {
    let d = 64;
    // A score and its share of the products: 4d + 5 operations. Tiles of c keys add, to each row of each tile, five
    // operations for maximum, correction and sum, and d for the rescaled output; the division, one of the five per
    // score, moves to the end, once per entry of the output.
    let forward = |n: usize, c: usize| {
        let (n, c, d) = (n as f64, c as f64, d as f64);
        let naive = n * (4.0 * d + 5.0);
        let tiled = n * (4.0 * d + 4.0) + (n / c) * (d + 5.0) + d;
        tiled / naive - 1.0
    };
    let percents: Vec<f64> = [16, 32, 64, 128].map(|c| forward(4096, c)).to_vec();
    let rows: Vec<_> = [16, 32, 64, 128]
        .iter()
        .zip(&percents)
        .map(|(c, extra)| {
            let sign = if *extra > 0.0 { "+" } else { "" };
            vec![integer(*c), format!("{sign}{}", percent(*extra, 1))]
        })
        .collect();
    page.file(
        "flash-forward.md",
        table(&["keys in a tile", "operations, forward"], &rows),
    );
    ensure!(
        percents.iter().all(|extra| extra.abs() < 0.02),
        "the forward pass is not free"
    );
    ensure!(percents[3] < 0.0, "wide tiles do not save work");

    // Products with n²·d multiplications, and one more where the scores are computed again.
    let (forward_products, backward_products) = (2.0, 4.0);
    let step = 1.0 / (forward_products + backward_products);
    let backward = 1.0 / backward_products;
    page.value("flash-step", percent(step, 0));
    page.value("flash-backward", percent(backward, 0));
    // What the authors of flash attention count, in figure 2 of their paper of 2022.
    page.value("flash-paper", percent(75.2 / 66.6 - 1.0, 0));
    // A layer of 32 heads of 64, with projections three times (forward, and both gradients).
    let layer = AttentionShape::self_attention(1, 4096, 2048, 64, 32).flops()?;
    let products = (layer.scores + layer.values) as f64;
    let extra = layer.scores as f64 / (3.0 * (products + layer.projections as f64));
    page.value("flash-layer", percent(extra, 0));

    let stored = |n: usize| ((4 * n * d + n * n) as f64, (4 * n * d + n) as f64);
    let mut rows = vec![];
    let mut ratios = vec![];
    for n in [256, 512, 1024, 2048, 4096, 8192, 16_384] {
        let (naive, tiled) = stored(n);
        let mib = |numbers: f64| fixed(4.0 * numbers / f64::from(1 << 20), 2);
        rows.push(vec![integer(n), mib(naive), mib(tiled), fixed(naive / tiled, 1)]);
        ratios.push((n, naive / tiled));
    }
    page.file(
        "flash-memory.md",
        table(&["$n$", "naive, MiB", "tiled, MiB", "ratio"], &rows),
    );
    ensure!(ratios.windows(2).all(|w| w[0].1 < w[1].1), "the ratio does not grow");
    let said: Vec<usize> = ratios
        .iter()
        .filter(|(_, ratio)| (2.9..5.05).contains(ratio))
        .map(|(n, _)| *n)
        .collect();
    ensure!(said == [512, 1024], "the ratio is 3 to 5 for {said:?}");
    for (n, ratio) in ratios.iter().filter(|row| [2048, 4096].contains(&row.0)) {
        page.value(format!("flash-memory-{n}"), fixed(*ratio, 0));
    }
    let (first, first_ratio) = ratios[0];
    let (last, last_ratio) = ratios[ratios.len() - 1];
    let near_15 = 0.145..0.175;
    Ok(Claim {
        section: "more-work-less-memory",
        said: "Flash attention does 15 % more work and uses 3–5 times less memory."
            .to_owned(),
        verdict: only_when(
            "the core of a whole training step is meant, and 512 to 1024 tokens at $d = 64$",
            percents.iter().any(|extra| near_15.contains(extra))
                && said.len() == ratios.len(),
            near_15.contains(&step) && !said.is_empty(),
        )?,
        measured: format!(
            "work: +{} to {} forward, +{} for a step; memory: {} times less at $n = {}$, {} at {}",
            percent(percents[0], 1),
            percent(percents[3], 1),
            percent(step, 0),
            fixed(first_ratio, 0),
            first,
            fixed(last_ratio, 0),
            integer(last)
        ),
    })
}

/// (12) What the backward pass costs, product by product.
fn way_back(page: &mut Page) -> Result<Claim> {
    let (n, d_model, d) = (1024_usize, 512_usize, 512_usize); // all heads together
    // a forward product (rows, inner, columns), how often, and whether one of its factors is parameters
    let products = [
        ("$XW_Q$, $XW_K$, $XW_V$", (n, d_model, d), 3, true),
        ("$QK^\\top$", (n, d, n), 1, false),
        ("$AV$", (n, n, d), 1, false),
        ("$OW_O$", (n, d, d_model), 1, true),
    ];
    let flops =
        |(rows, inner, columns): (usize, usize, usize)| 2 * rows * inner * columns;
    let [mut forward, mut backward, mut frozen] = [0, 0, 0];
    let mut rows = vec![];
    for (name, (m, k, l), times, parameters) in products {
        // C = A B: grad_A = grad_C Bᵀ is (m, l) by (l, k), grad_B = Aᵀ grad_C is (k, m) by (m, l)
        let (a, b) = (times * flops((m, l, k)), times * flops((k, m, l)));
        let c = times * flops((m, k, l));
        ensure!(a == c && b == c, "a gradient of {name} costs other than the product");
        forward += c;
        backward += a + b;
        frozen += if parameters { a } else { a + b };
        let billions = |flops: usize| fixed(flops as f64 / 1e9, 1);
        rows.push(vec![name.to_owned(), billions(c), billions(a), billions(b)]);
    }
    page.file(
        "way-back.md",
        table(
            &["product $AB$", "forward", "for the left factor", "for the right"],
            &rows,
        ),
    );
    let shape = AttentionShape::self_attention(1, n, d_model, d, 1).flops()?;
    let counted = shape.total() - shape.softmax;
    ensure!(
        counted == forward as u128,
        "the products are not those of the crate's count"
    );
    let ratio = backward as f64 / forward as f64;
    page.value("back-frozen", fixed(frozen as f64 / forward as f64, 1));
    page.value("back-n", integer(n));
    page.value("back-d", integer(d));
    ensure!(ratio == 2.0 && frozen > forward && frozen < backward);
    Ok(Claim {
        section: "the-price-of-going-back",
        said: "The backward pass costs what the forward pass costs.".to_owned(),
        verdict: by_parts(&[("the products", ratio == 1.0)]),
        measured: "twice the FLOPs in products".to_owned(),
    })
}

/// (13) The size of gradients without scaling, of the rows that [Why √dₖ](why_sqrt_d_k) draws.
fn small_gradients(page: &mut Page) -> Result<Claim> {
    let (mut table_rows, mut shares) = (vec![], vec![]);
    for (n, d) in [(8, 64), (8, 512), (64, 64), (64, 512), (512, 64), (512, 512)] {
        let [unscaled, scaled] = why_sqrt_d_k::rows(n, d, [0.0, 0.5])?;
        let below = |row: &why_sqrt_d_k::Row| f64::from(row.grad_query < FAINT);
        ensure!(
            why_sqrt_d_k::mean(&scaled, below) == 0.0,
            "n = {n}, d = {d}: a scaled row is below the limit"
        );
        let median = why_sqrt_d_k::median(&unscaled, |row| row.grad_query);
        ensure!(median > 100.0 * FAINT, "n = {n}, d = {d}: the median is near the limit");
        let of_rows = why_sqrt_d_k::mean(&unscaled, below);
        let of_scores = why_sqrt_d_k::mean(&unscaled, |row| row.faint_scores);
        shares.push((n, d, of_rows, of_scores));
        table_rows.push(vec![
            integer(n),
            integer(d),
            if median < 0.01 {
                format!("${}$", scientific(median, 0))
            } else {
                significant(median, 1)
            },
            percent(of_rows, 0),
            percent(of_scores, 0),
            percent(why_sqrt_d_k::mean(&scaled, |row| row.faint_scores), 1),
        ]);
    }
    let header = [
        "$n$",
        "$d_k$",
        "median $\\lVert \\partial L / \\partial q \\rVert$",
        "rows below",
        "scores below",
        "scores below, scaled",
    ];
    page.file("small-gradients.md", table(&header, &table_rows));
    page.value("small-draws", integer(ROWS));
    let range = |of: fn(&(usize, usize, f64, f64)) -> f64| {
        let of_all = shares.iter().map(of);
        (of_all.clone().fold(1.0, f64::min), of_all.fold(0.0, f64::max))
    };
    let ((least, most), of_scores) = (range(|row| row.2), range(|row| row.3));
    page.value("small-most", percent(most, 0));
    ensure!(shares[1].2 == most, "the largest share is not that of n = 8, d = 512");
    // In words: most scores are below in every case but n = 8, d_k = 64.
    for (n, d, _, of_scores) in &shares {
        ensure!((*of_scores > 0.5) == ((*n, *d) != (8, 64)), "n = {n}, d = {d}: scores");
    }
    Ok(Claim {
        section: "gradients-that-vanish",
        said: "Without scaling, gradients are below $10^{-6}$.".to_owned(),
        verdict: by_parts(&[("most rows", most > 0.5)]),
        measured: format!(
            "{} to {} of the rows, {} to {} of the scores",
            percent(least, 0),
            percent(most, 0),
            percent(of_scores.0, 0),
            percent(of_scores.1, 0)
        ),
    })
}

/// (14) Bytes through slow memory against n.
fn linear_traffic(page: &mut Page) -> Result<Claim> {
    let d = 64;
    let lengths: Vec<usize> = (7..=16).map(|power| 1 << power).collect();
    let bytes = |numbers: f64| 2.0 * numbers; // bf16
    let naive = |n| bytes(core_traffic(n, d, NAIVE_CROSSINGS));
    let fused = |n| bytes(core_traffic(n, d, FUSED_CROSSINGS));
    let tiled = |n| bytes(tiled_traffic(n, d, 128));
    let once = |n| bytes(core_traffic(n, d, 0));
    let line = |name: &str, colour, dashed, of: &dyn Fn(usize) -> f64| Line {
        name: name.to_owned(),
        colour,
        dashed,
        points: lengths.iter().map(|&n| (n as f64, of(n) / f64::from(1 << 20))).collect(),
    };
    let lines = [
        line("eight crossings", VERMILION, false, &naive),
        line("tiles of 128 queries", BLUE, false, &tiled),
        line("each matrix once", GREEN, true, &once),
    ];
    page.file(
        "traffic.svg",
        svg(
            "claims-traffic",
            "Traffic with slow memory against the number of tokens",
            "On logarithmic axes the traffic of the naive program and of the tiled one rise in parallel for large n, with a \
             slope of two; the tiled one lies far below. A line of slope one, for each matrix once, leaves them both behind.",
            (520, 400),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 128.0..65_536.0);
                let y = Axis::log("MiB (logarithmic)", 10.0, 0.01..100_000.0);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    let slope = |of: &dyn Fn(usize) -> f64| (of(65_536) / of(32_768)).log2();
    ensure!((slope(&naive) - 2.0).abs() < 0.01, "the naive slope");
    let mut rows = vec![];
    for queries in [64, 128, 256, 512] {
        let of = |n| tiled_traffic(n, d, queries);
        let (now, twice) = (of(16_384), of(32_768));
        rows.push(vec![
            integer(queries),
            fixed(bytes(now) / f64::from(1 << 20), 0),
            fixed(bytes(twice) / f64::from(1 << 20), 0),
            fixed(twice / now, 2),
            fixed(naive(16_384) / bytes(now), 0),
            fixed(fused(16_384) / bytes(now), 0),
        ]);
        ensure!(
            twice / now > 3.8,
            "tiles of {queries}: traffic grows by {}",
            twice / now
        );
    }
    let header = [
        "queries in a tile",
        "MiB, $n = 16384$",
        "MiB, $n = 32768$",
        "growth",
        "gain on eight crossings",
        "on four",
    ];
    page.file("tiled-traffic.md", table(&header, &rows));
    // If a tile may grow with n, so that all queries are one tile, K and V are read once.
    let grown = |n| tiled_traffic(n, d, n);
    ensure!(grown(32_768) / grown(16_384) == 2.0, "one tile is not linear");
    page.value(
        "linear-fast-memory",
        fixed(bytes((2 * 16_384 * d) as f64) / f64::from(1 << 20), 0),
    );
    page.value("traffic-gain", fixed(naive(65_536) / tiled(65_536), 0));
    page.value("traffic-gain-fused", fixed(fused(65_536) / tiled(65_536), 0));
    let tiled_slope = slope(&tiled);
    Ok(Claim {
        section: "traffic-that-grows-with-n",
        said: "With flash attention HBM traffic becomes $O(n)$.".to_owned(),
        verdict: by_parts(&[("the traffic", tiled_slope < 1.5)]),
        measured: format!(
            "twice the tokens, {} times the traffic",
            fixed(tiled(65_536) / tiled(32_768), 1)
        ),
    })
}

/// Attention by flash attention's algorithm, in tiles that do not divide its length.
fn in_tiles<T: RealField + Copy>(
    q: &DMatrix<T>,
    k: &DMatrix<T>,
    v: &DMatrix<T>,
) -> Result<DMatrix<T>> {
    let tiles = Tiles { queries: 40, keys: 48 };
    Ok(tiled_attention(&Inputs::new(q, k, v, &Mask::none())?, tiles)?.output)
}

/// (15) Tiled against plain attention.
fn approximate(page: &mut Page) -> Result<Claim> {
    let (n, d) = (512, 64);
    let rng = &mut ChaCha8Rng::seed_from_u64(15);
    let (q, k, v) = (normal(n, d, rng), normal(n, d, rng), normal(n, d, rng));
    let plain = attention(&q, &k, &v, &Mask::none())?.0;
    let tiled = in_tiles(&q, &k, &v)?;
    let difference = (&tiled - &plain).amax();
    let [q, k, v] = [q, k, v].map(|m| m.map(|x| x as f32));
    // Both in f32, against f64 on the same rounded inputs.
    let [q64, k64, v64] = [&q, &k, &v].map(|m| m.map(f64::from));
    let exact = attention(&q64, &k64, &v64, &Mask::none())?.0;
    let error = |output: DMatrix<f32>| (output.map(f64::from) - &exact).amax();
    let plain_error = error(attention(&q, &k, &v, &Mask::none())?.0);
    let tiled_error = error(in_tiles(&q, &k, &v)?);
    let not_the_same_bits = tiled.iter().zip(&plain).any(|(a, b)| a != b);
    ensure!(not_the_same_bits, "the same bits: say so");
    // A power of ten with room above what was measured, since another system's `exp` rounds otherwise.
    for (name, bound, error) in [
        ("f64", 1e-14, difference),
        ("f32-plain", 1e-6, plain_error),
        ("f32-tiled", 1e-6, tiled_error),
    ] {
        ensure!(error < bound / 1.5 && error > bound / 100.0, "{name}: {error:e}");
    }
    ensure!(tiled_error < 2.0 * plain_error, "{tiled_error:e} against {plain_error:e}");
    page.value("exact-f64", "10^{−14}");
    page.value("exact-f32", "10^{−6}");
    page.value("exact-n", integer(n));
    Ok(Claim {
        section: "is-it-approximate",
        said: "Flash attention is approximate.".to_owned(),
        verdict: by_parts(&[("the output", difference > 1e-12)]),
        measured: "differs by less than $10^{−14}$ in `f64`: rounding".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_by_parts_names_what_holds_and_what_does_not() {
        let parts = [("the core", true), ("the rest", false), ("the end", false)];
        let both = "**holds** for the core, **does not hold** for the rest and the end";
        assert_eq!(by_parts(&parts), both);
        assert_eq!(by_parts(&parts[..1]), HOLDS);
        assert_eq!(by_parts(&parts[1..]), NOT);
    }

    #[test]
    fn a_condition_must_be_needed_and_must_be_enough() {
        let verdict = only_when("it is so", false, true).unwrap();
        assert_eq!(verdict, "**holds when** it is so");
        assert!(only_when("it is so", true, true).is_err());
        assert!(only_when("it is so", false, false).is_err());
    }

    #[test]
    fn two_decimals_are_compared_as_they_are_rounded() {
        assert!(to_two_decimals(&[0.4011, 0.1978], &[0.40, 0.20]));
        assert!(!to_two_decimals(&[0.4011, 0.1978], &[0.41, 0.20]));
    }

    #[test]
    fn a_format_rounds_every_operation() {
        let rounded = FORMATS.map(|(_, round)| round(-1e9 + 2.0));
        let near = f64::from(bf16::from_f64(-1e9)); // steps of 2²² there
        assert!(near != -1e9 && (near + 1e9).abs() <= f64::from(1 << 21));
        assert_eq!(rounded, [-999_999_998.0, -1e9, near, f64::NEG_INFINITY]);
        let p = softmax_in(FORMATS[3].1, &[0.0, 0.0, 0.0], &[0.0; 3]);
        assert_eq!(p[0], f16::from_f64(1.0 / 3.0).to_f64());
    }
}
