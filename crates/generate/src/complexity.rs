//! Complexity: what is counted of attention, and what was measured.

use crate::claims::{A100_BANDWIDTH, A100_F32};
use crate::figure::{
    Axis, BLUE, GREEN, Line, MUTED, Marks, Side, Spot, VERMILION, line_chart, svg,
};
use crate::format::{bytes, duration, fixed, integer, percent, significant, table};
use crate::output::Page;
use crate::records::{log_log_slope, provenance_of};
use anyhow::{Context, Result, ensure};
use attention::AttentionShape;
use plotters::style::RGBColor;
use record::{Measurement, Record};

pub fn generate(page: &mut Page) -> Result<()> {
    counts(page)?;
    let [times, memory, roof] = records(page)?;
    let others = [("the memory", &memory), ("the roofline", &roof)];
    page.value("where", provenance_of(&times, &others));
    growth(page, &times)?;
    matrices(page, &roof, &times)?;
    crossover(page, &times)?;
    peaks(page, &memory)?;
    intensity(page)?;
    roofline(page, &roof, &times)
}

/// What this chapter shows: times, memory, and what the roofline is made of. Other chapters that speak of its machine take the
/// same ones.
pub fn records(page: &Page) -> Result<[Record; 3]> {
    page.records.of_one_machine(["complexity", "memory", "roofline"])
}

/// The width of a head, everywhere on this page.
const D: usize = 64;

/// Bytes of an `f32`.
const F32: usize = 4;

fn giga(count: u128) -> String {
    significant(count as f64 / 1e9, 3)
}

/// Operations and bytes of a layer with 32 heads.
fn counts(page: &mut Page) -> Result<()> {
    let heads = 32;
    let shape = |n| AttentionShape::self_attention(1, n, heads * D, D, heads);
    let mut rows = vec![];
    for n in [128, 256, 512, 1024, 2048, 4096, 8192] {
        let flops = shape(n).flops()?;
        let weights = shape(n).bytes(F32)?.weights;
        rows.push(vec![
            integer(n),
            giga(flops.projections),
            giga(flops.scores + flops.values),
            giga(flops.softmax),
            percent(flops.core() as f64 / flops.total() as f64, 0),
            bytes(weights / heads as u128),
            bytes(weights),
        ]);
    }
    let header = [
        "$n$",
        "projections",
        "products",
        "softmax",
        "core's share",
        "weights of a head",
        "of 32 heads",
    ];
    page.file("counts.md", table(&header, &rows));

    // What the chapter says in words.
    let at = |n| shape(n).flops();
    ensure!(shape(1).crossover() == 4096, "the table's crossover");
    let even = at(4096)?;
    ensure!(even.projections == even.scores + even.values, "even at the crossover");
    let shortest = at(128)?;
    ensure!(20 * shortest.core() < shortest.total(), "the core is under a twentieth");
    let softmax = even.softmax as f64 / even.core() as f64;
    page.value("softmax-share", percent(softmax, 1));
    let share = |n| -> Result<String> {
        let flops = at(n)?;
        Ok(percent(flops.core() as f64 / flops.total() as f64, 0))
    };
    page.value("share-128", share(128)?);
    page.value("share-8192", share(8192)?);
    // Doubling n: what the total grows by.
    for n in [128, 8192] {
        let growth = at(2 * n)?.total() as f64 / at(n)?.total() as f64;
        page.value(format!("doubling-{n}"), significant(growth, 3));
    }
    for (key, n) in [("shortest", 128), ("longest", 8192)] {
        let ratio = shape(n).backward_flops()?.total() as f64 / at(n)?.total() as f64;
        ensure!((1.95..2.0).contains(&ratio), "n = {n}: twice and hardly less");
        page.value(format!("backward-{key}"), fixed(ratio, 3));
    }
    // Weights that training keeps, of one sequence.
    let layers = 24;
    page.value("training-layers", integer(layers));
    page.value(
        "training-weights",
        bytes(layers as u128 * shape(2048).bytes(F32)?.weights),
    );
    let widest = shape(8192).bytes(F32)?;
    let weights = widest.weights as f64 / widest.total() as f64;
    page.value("weights-8192-share", percent(weights, 0));
    page.value("weights-8192", bytes(widest.weights));
    let middle = shape(4096).bytes(F32)?.weights;
    page.value("weights-4096", bytes(middle));
    page.value("weights-4096-head", bytes(middle / heads as u128));
    Ok(())
}

/// `(n, median)` of all measurements of `what`.
fn series(record: &Record, what: &str, dtype: &str) -> Result<Vec<(f64, f64)>> {
    let point = |m: &Measurement| -> Result<(f64, f64)> {
        let n = m.sizes.get("n").with_context(|| format!("{what} has no n"))?;
        Ok((*n as f64, m.median))
    };
    let points: Vec<_> = record.all(what, dtype).map(point).collect::<Result<_>>()?;
    ensure!(
        points.len() > 2,
        "the record `{}` has too little of {what}, {dtype}",
        record.topic
    );
    ensure!(points.is_sorted_by(|a, b| a.0 < b.0), "{what}, {dtype}: not in order of n");
    Ok(points)
}

/// The smallest range between two powers of the base that holds all points.
fn log_range(base: f64, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let logs: Vec<_> = values.map(|value| value.log(base)).collect();
    let least = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
    // A hair more on both sides, so that rounding leaves no border without its tick.
    base.powf(least) * (1.0 - 1e-12)..base.powf(most) * (1.0 + 1e-12)
}

fn line(name: &str, colour: RGBColor, dashed: bool, points: &[(f64, f64)]) -> Line {
    Line { name: name.to_owned(), colour, dashed, points: points.to_vec() }
}

/// Time against n, on axes on which a power is a straight line.
fn growth(page: &mut Page, record: &Record) -> Result<()> {
    let what = [
        ("forward", "f32", BLUE, false),
        ("forward", "f64", VERMILION, false),
        ("backward", "f32", BLUE, true),
        ("backward", "f64", VERMILION, true),
    ];
    let mut lines = vec![];
    let (mut times, mut slopes) = (vec![], vec![]);
    for (direction, dtype, colour, dashed) in what {
        let points = series(record, &format!("attention/{direction}"), dtype)?;
        let slope = log_log_slope(&points);
        let (from, dearest) = dearest_doubling(&points)?;
        slopes.push(vec![
            format!("{direction}, `{dtype}`"),
            fixed(slope, 2),
            format!("×{}", fixed(dearest, 1)),
            format!("{} to {}", integer(from), integer(2 * from)),
        ]);
        // What the chapter says in words.
        ensure!(
            (1.7..2.7).contains(&slope),
            "{direction}, {dtype}: slope {slope} is not near 2"
        );
        ensure!(dearest > 4.5, "{direction}, {dtype}: no doubling is far too dear");
        lines.push(line(&format!("{direction}, {dtype}"), colour, dashed, &points));
        times.push(points);
    }
    let header = ["", "slope", "dearest doubling", "of $n$, from"];
    page.file("slopes.md", table(&header, &slopes));

    let mut rows = vec![];
    for i in 0..times[0].len() {
        let n = times[0][i].0 as usize;
        ensure!(
            times.iter().all(|points| points[i].0 as usize == n),
            "the same n for all"
        );
        let times: Vec<_> = times.iter().map(|points| duration(points[i].1)).collect();
        rows.push([vec![integer(n)], times].concat());
    }
    let weights = AttentionShape::self_attention(1, 4096, D, D, 1).bytes(F32)?.weights;
    page.value("matrix-4096", bytes(weights));
    let timed = ["attention/forward", "attention/backward"];
    let timed = record.measurements.iter().filter(|m| timed.contains(&m.what.as_str()));
    let spread = timed.map(|m| m.spread / m.median).fold(0.0, f64::max);
    page.value("spread", percent(spread, 0));
    let header =
        ["$n$", "forward, `f32`", "forward, `f64`", "backward, `f32`", "backward, `f64`"];
    page.file("times.md", table(&header, &rows));

    let all = times.iter().flatten();
    let y_range = log_range(10.0, all.map(|point| point.1));
    page.file(
        "growth.svg",
        svg(
            "complexity-growth",
            "Time of attention against the number of tokens, forward and backward, in f32 and f64",
            "On logarithmic axes all four lines rise and are nearly straight, at a slope of about two.",
            (520, 420),
            |area| {
                let n = times[0].iter().map(|point| point.0);
                let x = Axis::log("tokens n (logarithmic)", 2.0, log_range(2.0, n));
                let y = Axis::log("seconds (logarithmic)", 10.0, y_range.clone());
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );

    // Causal: half of the work is needless, and all of the products are computed.
    let longest = times[0][times[0].len() - 1];
    let causal = record.find("attention/forward causal", "f32", longest.0 as u64)?.median;
    ensure!(causal > 0.6 * longest.1, "a causal mask saves this program nearly half");
    ensure!(causal < 1.6 * longest.1, "a causal mask costs this program half as much");
    page.value("causal", duration(causal));
    page.value("full", duration(longest.1));

    // Backward has twice the products of forward.
    let ratios = |forward: usize, backward: usize| -> Vec<(f64, f64)> {
        let pairs = times[forward].iter().zip(&times[backward]);
        pairs.map(|(forward, backward)| (forward.0, backward.1 / forward.1)).collect()
    };
    let (single, double) = (ratios(0, 2), ratios(1, 3));
    let all = single.iter().chain(&double).filter(|(n, _)| *n <= 256.0);
    let (least, most) = all
        .fold((f64::INFINITY, 0.0_f64), |(least, most), (_, ratio)| {
            (least.min(*ratio), most.max(*ratio))
        });
    ensure!(most < 2.0, "backward takes less than twice as long at small n");
    page.value("backward-short-least", fixed(least, 1));
    page.value("backward-short-most", fixed(most, 1));
    let all = single.iter().chain(&double).map(|(_, ratio)| *ratio);
    page.value("backward-most", fixed(all.fold(0.0, f64::max), 1));
    for (dtype, ratios) in [("f32", single), ("f64", double)] {
        let (_, longest) = ratios[ratios.len() - 1];
        ensure!(longest > 2.0, "{dtype}: backward takes more than twice as long at last");
        page.value(format!("backward-{dtype}"), fixed(longest, 1));
    }
    Ok(())
}

/// The n from which a doubling of it costs most, and how many times as much.
fn dearest_doubling(points: &[(f64, f64)]) -> Result<(usize, f64)> {
    let doublings =
        points.windows(2).map(|pair| (pair[0].0 as usize, pair[1].1 / pair[0].1));
    ensure!(
        points.windows(2).all(|pair| pair[1].0 == 2.0 * pair[0].0),
        "lengths that double"
    );
    doublings.max_by(|a, b| a.1.total_cmp(&b.1)).context("no doubling")
}

/// What a matrix costs by being new, and what it costs to transpose.
fn matrices(page: &mut Page, record: &Record, times: &Record) -> Result<()> {
    let mut rows = vec![];
    for new in record.all("matrix/new", "f32") {
        let n = *new.sizes.get("n").context("matrix/new has no n")?;
        let old = record.find("matrix/old", "f32", n)?;
        rows.push(vec![
            integer(n as usize),
            bytes(u128::from(n * n) * F32 as u128),
            duration(new.median),
            duration(old.median),
        ]);
        // What the chapter says in words.
        let extra = new.median - old.median;
        match n {
            4096 => {
                ensure!(extra > 2.0 * old.median, "a large new matrix costs far more");
                let forward = times.find("attention/forward", "f32", n)?.median;
                let scale = record.find("steps/scale", "f32", n)?.median;
                ensure!(2.0 * extra < forward, "two new matrices are a part of forward");
                ensure!(extra > 3.0 * scale, "the jump is many times a pass");
                page.value("new-extra", duration(extra));
                page.value("scale-time", duration(scale));
            }
            512 => {
                let large = record.find("matrix/new", "f32", 4096)?.median / 64.0;
                ensure!(4.0 * new.median < large, "a small matrix is cheap for its size");
            }
            _ => {}
        }
    }
    ensure!(rows.len() > 2, "the record `roofline` has too few new matrices");
    page.file("new.md", table(&["$n$", "bytes", "new", "there before"], &rows));

    let transposed = |n: u64| -> Result<f64> {
        Ok(record.find("matrix/transposed", "f32", n)?.median)
    };
    ensure!(transposed(512)? > 1.5 * transposed(500)?, "a power of two is dear");
    for n in [500, 512, 4096] {
        page.value(format!("transposed-{n}"), duration(transposed(n)?));
    }
    let backward = times.find("attention/backward", "f32", 4096)?.median;
    ensure!(2.0 * transposed(4096)? < backward, "both are a part of backward");
    page.value("backward-full", duration(backward));
    Ok(())
}

/// Where the core costs as much as the projections: counted, and measured.
fn crossover(page: &mut Page, record: &Record) -> Result<()> {
    let whole = series(record, "layer/forward", "f32")?;
    let projections = series(record, "layer/projections", "f32")?;
    let cores = series(record, "layer/cores", "f32")?;
    let first = record.all("layer/forward", "f32").next().context("a layer")?;
    let size = |name: &str| -> Result<usize> {
        Ok(*first.sizes.get(name).with_context(|| format!("the layer has no {name}"))?
            as usize)
    };
    let (d_model, heads) = (size("d_model")?, size("heads")?);
    let shape = |n| AttentionShape::self_attention(1, n, d_model, d_model / heads, heads);

    let mut rows = vec![];
    let (mut counted, mut measured) = ((vec![], vec![]), (vec![], vec![]));
    ensure!(whole.len() == projections.len() && whole.len() == cores.len(), "the same n");
    for ((&(n, whole), &(_, linear)), &(_, core)) in
        whole.iter().zip(&projections).zip(&cores)
    {
        let flops = shape(n as usize).flops()?;
        counted.0.push((n, flops.projections as f64 / 1e9));
        counted.1.push((n, flops.core() as f64 / 1e9));
        measured.0.push((n, linear));
        measured.1.push((n, core));
        rows.push(vec![
            integer(n as usize),
            percent(flops.core() as f64 / flops.total() as f64, 0),
            duration(linear),
            duration(core),
            duration(whole),
        ]);
        // What the chapter says in words.
        let even = n as usize == shape(1).crossover();
        ensure!(!even || core > linear, "the core takes longer where the FLOPs are even");
    }
    // The same core in two series: in which state the allocator is makes a difference.
    let alone = series(record, "attention/forward", "f32")?;
    let mut differ = 1.0_f64;
    for (n, together) in &cores {
        let core = alone.iter().find(|point| point.0 == *n).context("a core alone")?.1;
        let factor = together / heads as f64 / core;
        differ = differ.max(factor).max(1.0 / factor);
    }
    page.value("core-differs", fixed(differ, 1));
    let header =
        ["$n$", "core's share of the FLOPs", "projections", "cores", "whole layer"];
    page.file("shares.md", table(&header, &rows));
    page.value("layer-heads", integer(heads));
    page.value("layer-crossover", integer(shape(1).crossover()));
    page.value("layer-d-model", integer(d_model));
    let meeting = crossing(&measured.0, &measured.1);
    let shortest = whole[0].0;
    let text = match meeting {
        Some(n) => {
            ensure!(n < shape(1).crossover() as f64, "they meet at {n}, not earlier");
            format!("near $n = {}$", integer(n.round() as usize))
        }
        None => {
            format!("before $n = {}$, the shortest that was timed", fixed(shortest, 0))
        }
    };
    page.value("measured-crossover", text);

    let says = "The line of the core is steeper, and crosses the line of the projections";
    for (name, title, says, unit, (linear, core)) in [
        (
            "crossover-counted",
            "Operations of a layer's projections and of its core against the number of tokens",
            format!("{says} at twice the model's width."),
            "GFLOP (logarithmic)",
            &counted,
        ),
        (
            "crossover-measured",
            "Time of a layer's projections and of its cores against the number of tokens",
            "The line of the core is steeper, and above that of the projections before twice \
             the model's width."
                .to_owned(),
            "seconds (logarithmic)",
            &measured,
        ),
    ] {
        let lines =
            [line("four projections", BLUE, true, linear), line("core", VERMILION, false, core)];
        let values = linear.iter().chain(core).map(|point| point.1);
        let y_range = log_range(10.0, values);
        page.file(
            format!("{name}.svg"),
            svg(&format!("complexity-{name}"), title, &says, (380, 340), |area| {
                let n = linear.iter().map(|point| point.0);
                let x = Axis::log("tokens n (logarithmic)", 2.0, log_range(2.0, n));
                let y = Axis::log(unit, 10.0, y_range);
                line_chart(area, &x, &y, &lines, Marks::default())
            })?,
        );
    }
    Ok(())
}

/// Where the second line first rises above the first one, on logarithmic axes; `None` if it begins above.
fn crossing(a: &[(f64, f64)], b: &[(f64, f64)]) -> Option<f64> {
    let lead: Vec<_> =
        a.iter().zip(b).map(|(a, b)| (a.0.ln(), (b.1 / a.1).ln())).collect();
    let step = lead.windows(2).find(|step| step[0].1 < 0.0 && step[1].1 >= 0.0)?;
    let [(x0, y0), (x1, y1)] = [step[0], step[1]];
    Some((x0 - y0 * (x1 - x0) / (y1 - y0)).exp())
}

/// The peak of allocated bytes against what the shapes say.
fn peaks(page: &mut Page, record: &Record) -> Result<()> {
    let mut rows = vec![];
    for forward in record.all("memory/forward", "f32") {
        let n = *forward.sizes.get("n").context("memory/forward has no n")?;
        let both = record.find("memory/forward and backward", "f32", n)?;
        let n = n as usize;
        let shape = AttentionShape::self_attention(1, n, D, D, 1);
        let kept = shape.bytes(F32)?.total();
        let squares = |count: f64| count / (F32 * n * n) as f64;
        rows.push(vec![
            integer(n),
            bytes(kept),
            bytes(forward.median as u128),
            fixed(squares(forward.median), 2),
            bytes(both.median as u128),
            fixed(squares(both.median), 2),
        ]);
        // What the chapter says in words, to the byte.
        let square = F32 * n * n;
        let at_softmax = 2 * square + 3 * F32 * n; // scores, weights, and three numbers a row
        let at_the_end = kept as usize + F32 * n; // the cache and the output
        let expected = at_softmax.max(at_the_end);
        ensure!(forward.median as usize == expected, "n = {n}: {} bytes", forward.median);
        let both = both.median as usize;
        let kept_by_both = 3 * square + F32 * (7 * n * D + n);
        // matrixmultiply lays aside up to a block of each factor.
        ensure!(
            (kept_by_both..kept_by_both + (1 << 20)).contains(&both),
            "n = {n}: {both} bytes"
        );
        if n == 4096 {
            page.value("peak-4096", bytes(forward.median as u128));
            page.value("peak-both-4096", bytes(both as u128));
        }
    }
    let header = [
        "$n$",
        "Q, K, V, A, O",
        "peak forward",
        "in $n^2$",
        "peak with backward",
        "in $n^2$",
    ];
    page.file("memory.md", table(&header, &rows));
    Ok(())
}

/// Operations a byte, as n grows.
fn intensity(page: &mut Page) -> Result<()> {
    let at = |n, d| AttentionShape::self_attention(1, n, d, d, 1).intensity(F32);
    let limit = |d: usize| d as f64 + 1.25;
    let mut rows = vec![];
    let mut before = 0.0;
    for n in [64, 256, 1024, 4096, 16_384] {
        ensure!(at(n, D)? > before, "the intensity grows with n");
        before = at(n, D)?;
        let row = [at(n, D)?, at(n, 2 * D)?].map(|intensity| fixed(intensity, 1));
        rows.push([vec![integer(n)], row.to_vec()].concat());
    }
    let limits = [limit(D), limit(2 * D)].map(|intensity| fixed(intensity, 1));
    rows.push([vec!["$\\to \\infty$".to_owned()], limits.to_vec()].concat());
    page.file("intensity.md", table(&["$n$", "$d = 64$", "$d = 128$"], &rows));
    ensure!((at(1 << 40, D)? - limit(D)).abs() < 1e-6, "the limit is d + 5/4");
    Ok(())
}

/// A step of attention as the roofline sees it.
struct Step {
    name: &'static str,
    /// Operations, by the convention of `cost`.
    flops: f64,
    /// Bytes, each matrix counted once.
    bytes: f64,
    seconds: f64,
}

impl Step {
    fn intensity(&self) -> f64 {
        self.flops / self.bytes
    }

    /// GFLOP/s
    fn speed(&self) -> f64 {
        self.flops / self.seconds / 1e9
    }
}

/// The steps of attention for n tokens, and all of it, which is timed among the lengths.
fn steps(record: &Record, times: &Record, n: usize) -> Result<Vec<Step>> {
    let flops = AttentionShape::self_attention(1, n, D, D, 1).flops()?;
    let sizes = AttentionShape::self_attention(1, n, D, D, 1).bytes(F32)?;
    let step = |name, flops: u128, bytes: u128| -> Result<Step> {
        let timed = match name {
            "whole" => times.find("attention/forward", "f32", n as u64)?,
            _ => record.find(&format!("steps/{name}"), "f32", n as u64)?,
        };
        let seconds = timed.median;
        Ok(Step { name, flops: flops as f64, bytes: bytes as f64, seconds })
    };
    let squares = (n * n) as u128;
    Ok(vec![
        step("scores", flops.scores, sizes.q + sizes.k + sizes.weights)?,
        step("scale", squares, 2 * sizes.weights)?, // read and written
        step("softmax", flops.softmax, 2 * sizes.weights)?,
        step("values", flops.values, sizes.weights + sizes.v + sizes.output)?,
        step("whole", flops.core(), sizes.total())?,
    ])
}

/// The most that `of` makes of any measurement.
fn best(record: &Record, what: &str, of: impl Fn(f64) -> f64) -> Result<f64> {
    let speeds = record.all(what, "f32").map(|m| -> Result<f64> {
        let n = *m.sizes.get("n").with_context(|| format!("{what} has no n"))?;
        Ok(of(n as f64) / m.median / 1e9)
    });
    let speeds = speeds.collect::<Result<Vec<_>>>()?;
    ensure!(!speeds.is_empty(), "the record `{}` has no {what}", record.topic);
    Ok(speeds.into_iter().fold(0.0, f64::max))
}

/// What the ceilings are made of, in GFLOP/s and GB/s.
#[derive(Clone, Copy)]
struct Ceilings {
    registers: f64,
    product: f64,
    read: f64,
    update: f64,
    triad: f64,
}

impl Ceilings {
    fn of(record: &Record) -> Result<Self> {
        let bytes = F32 as f64;
        Ok(Ceilings {
            registers: best(record, "arithmetic/registers", |n| 2.0 * n)?,
            product: best(record, "arithmetic/product", |n| 2.0 * n.powi(3))?,
            read: best(record, "bandwidth/read", |n| bytes * n)?,
            update: best(record, "bandwidth/update", |n| 2.0 * bytes * n)?,
            triad: best(record, "bandwidth/triad", |n| 3.0 * bytes * n)?,
        })
    }

    fn peak(&self) -> f64 {
        self.registers.max(self.product)
    }

    fn bandwidth(&self) -> f64 {
        self.read.max(self.update).max(self.triad)
    }
}

/// FLOP/byte at which the roofline of the machine in the record is level.
pub fn ridge(record: &Record) -> Result<f64> {
    let ceilings = Ceilings::of(record)?;
    Ok(ceilings.peak() / ceilings.bandwidth())
}

/// The two ceilings, and the steps below them.
fn roofline(page: &mut Page, record: &Record, times: &Record) -> Result<()> {
    let ceilings = Ceilings::of(record)?;
    let Ceilings { registers, product, read: read_speed, update, triad } = ceilings;
    let (peak, bandwidth) = (ceilings.peak(), ceilings.bandwidth());
    let ridge = ridge(record)?;
    for (key, speed) in [
        ("registers", registers),
        ("product", product),
        ("read", read_speed),
        ("update", update),
        ("triad", triad),
        ("ridge", ridge),
    ] {
        page.value(format!("roof-{key}"), significant(speed, 3));
    }
    let roof = |intensity: f64| peak.min(bandwidth * intensity);

    let (short, long) = (steps(record, times, 512)?, steps(record, times, 4096)?);
    let mut rows = vec![];
    for (n, steps) in [(512, &short), (4096, &long)] {
        for step in steps {
            rows.push(vec![
                step.name.to_owned(),
                integer(n),
                duration(step.seconds),
                fixed(step.intensity(), if step.intensity() < 1.0 { 3 } else { 1 }),
                significant(step.speed(), 3),
                percent(step.speed() / roof(step.intensity()), 0),
            ]);
        }
    }
    let header = ["step", "$n$", "time", "FLOP/byte", "GFLOP/s", "of its roof"];
    page.file("steps.md", table(&header, &rows));

    // What the chapter says in words.
    let named = |name: &str| {
        let step = long.iter().find(|step| step.name == name);
        step.with_context(|| format!("no step is called {name}"))
    };
    let [scores, scale, softmax, values, whole] =
        ["scores", "scale", "softmax", "values", "whole"].map(named);
    let (scores, scale, softmax) = (scores?, scale?, softmax?);
    let (values, whole) = (values?, whole?);
    let shorter = |name: &str| {
        let step = short.iter().find(|step| step.name == name);
        step.with_context(|| format!("no short step is called {name}"))
    };
    let short_scale = shorter("scale")?;
    let short_softmax = shorter("softmax")?;
    ensure!(short_softmax.speed() > 1.1 * softmax.speed(), "softmax slows down");
    ensure!(10.0 * softmax.speed() < roof(softmax.intensity()), "far below its roof");
    ensure!(update > read_speed, "changing in place counts both directions");
    ensure!(scale.speed() > 0.7 * roof(scale.intensity()), "scale is at its roof");
    page.value("softmax-512", significant(short_softmax.speed(), 2));
    page.value("softmax-4096", significant(softmax.speed(), 2));
    page.value("gpu-peak", significant(A100_F32 / 1e12, 3));
    page.value("gpu-bandwidth", integer((A100_BANDWIDTH / 1e9) as usize));
    page.value("gpu-ridge", significant(A100_F32 / A100_BANDWIDTH, 3));
    ensure!(A100_F32 / A100_BANDWIDTH > ridge, "the GPU's ridge lies further right");
    let in_cache = short_scale.speed() / scale.speed();
    ensure!(in_cache > 1.3, "scaling what fits into a cache is faster");
    page.value("scale-in-cache", significant(in_cache, 2));
    ensure!(
        whole.intensity() > 2.0 * ridge,
        "the formula puts attention beyond the ridge"
    );
    ensure!(
        2.0 * whole.speed() < roof(whole.intensity()),
        "attention stands far below its roof"
    );
    ensure!(
        softmax.seconds > scores.seconds.max(values.seconds),
        "softmax is the longest step"
    );
    ensure!(scale.intensity() < ridge && softmax.intensity() < ridge, "below the slope");
    ensure!(values.speed() > 10.0 * softmax.speed(), "products run much faster");
    page.value("softmax-time", percent(softmax.seconds / whole.seconds, 0));
    page.value("softmax-flops", percent(softmax.flops / whole.flops, 0));
    page.value("whole-intensity", fixed(whole.intensity(), 1));
    page.value("whole-speed", significant(whole.speed(), 2));
    page.value("whole-share", percent(whole.speed() / roof(whole.intensity()), 0));
    let transposed = record.find("steps/tr_mul", "f32", 4096)?.median;
    ensure!(transposed > 1.2 * values.seconds, "tr_mul is slower than a product");
    page.value("tr-mul", significant(transposed / values.seconds, 2));
    let mask = record.find("steps/causal mask", "f32", 4096)?.median;
    page.value("mask-time", duration(mask));

    page.file("roofline.svg", draw_roofline(peak, bandwidth, &short, &long)?);
    Ok(())
}

fn draw_roofline(
    peak: f64,
    bandwidth: f64,
    short: &[Step],
    long: &[Step],
) -> Result<String> {
    let range = 0.0625..256.0;
    let roof_line = Line {
        name: "roof".to_owned(),
        colour: BLUE,
        dashed: false,
        points: [range.start, peak / bandwidth, range.end]
            .map(|intensity| (intensity, peak.min(bandwidth * intensity)))
            .to_vec(),
    };
    let side = |name| match name {
        "whole" | "values" | "scale" => Side::Right,
        "scores" => Side::Left,
        _ => Side::Below,
    };
    let mut spots: Vec<_> = short
        .iter()
        .map(|step| Spot {
            // One of them says what the grey ones are.
            name: if step.name == "softmax" {
                "n = 512".to_owned()
            } else {
                String::new()
            },
            place: (step.intensity(), step.speed()),
            colour: MUTED,
            side: Side::Right,
        })
        .collect();
    spots.extend(long.iter().map(|step| Spot {
        name: step.name.to_owned(),
        place: (step.intensity(), step.speed()),
        colour: if step.name == "whole" { VERMILION } else { GREEN },
        side: side(step.name),
    }));
    let speeds = spots.iter().map(|spot| spot.place.1).chain([peak]);
    let y_range = log_range(10.0, speeds.chain([bandwidth * range.start]));
    svg(
        "complexity-roofline",
        "The roofline of one thread, with the steps of attention below it",
        "The roof rises with the intensity and then is level. For n = 4096 scaling stands at its rising part and softmax far \
         below it, the two products and attention as a whole under the level part. The grey dot of scaling for n = 512 \
         stands higher than that for n = 4096.",
        (520, 440),
        |area| {
            let x = Axis::log("intensity in FLOP/byte (logarithmic)", 2.0, range.clone());
            let y = Axis::log("GFLOP/s (logarithmic)", 10.0, y_range);
            line_chart(
                area,
                &x,
                &y,
                &[roof_line],
                Marks { spots: &spots, ..Marks::default() },
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_where_they_are_equal() {
        let line = |factor: f64, power: i32| -> Vec<(f64, f64)> {
            [1.0_f64, 2.0, 4.0, 8.0].map(|n| (n, factor * n.powi(power))).to_vec()
        };
        let n = crossing(&line(3.0, 1), &line(1.0, 2)).unwrap(); // 3 n = n²
        assert!((n - 3.0).abs() < 1e-12);
        assert_eq!(crossing(&line(1.0, 1), &line(2.0, 1)), None);
    }
}
