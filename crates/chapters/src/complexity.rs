//! Complexity: what is counted of attention, and what was measured.

use crate::claims::{A100_BANDWIDTH, A100_F32};
use crate::output::Page;
use crate::records::{Compared, list, log_log_slope, provenance_of, threads};
use anyhow::{Context, Result, ensure};
use attention::AttentionShape;
use figures::format::{bytes, duration, fixed, integer, percent, significant, table};
use figures::{
    Axis, BLUE, GREEN, Line, MUTED, Marks, RGBColor, Side, Spot, VERMILION, line_chart,
    svg,
};
use record::{Measurement, Record, Unit};

pub fn generate(page: &mut Page) -> Result<()> {
    counts(page)?;
    let [times, memory, roof] = records(page)?;
    let others = [("the memory", &memory), ("the roofline", &roof)];
    page.value("where", provenance_of(&times, &others));
    page.value("threads", threads(&roof));
    growth(page, &times, &roof)?;
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
        Ok((*n as f64, record.in_unit(m, Unit::Seconds)?))
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
fn growth(page: &mut Page, record: &Record, record_of_steps: &Record) -> Result<()> {
    let what = [
        ("forward", "f32", BLUE, false),
        ("forward", "f64", VERMILION, false),
        ("backward", "f32", BLUE, true),
        ("backward", "f64", VERMILION, true),
    ];
    let mut lines = vec![];
    let (mut times, mut slopes, mut fitted, mut doublings) =
        (vec![], vec![], vec![], vec![]);
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
        fitted.push(slope);
        doublings.push(dearest);
        lines.push(line(&format!("{direction}, {dtype}"), colour, dashed, &points));
        times.push(points);
    }
    let header = ["", "slope", "most expensive doubling", "of $n$, from"];
    page.file("slopes.md", table(&header, &slopes));
    page.value("slopes", slopes_in_words(&fitted, &doublings));

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
    let causal = record.seconds("attention/forward causal", "f32", longest.0 as u64)?;
    page.value("causal", causal_in_words(causal, longest.1));

    // A doubling of n should cost four times.
    let before = times[0][times[0].len() - 2];
    let scale = record_of_steps.seconds("steps/scale", "f32", longest.0 as u64)?;
    page.value("jump", jump_in_words(longest.1 - 4.0 * before.1, scale));

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
    let short = most;
    page.value("backward-short-least", fixed(least, 1));
    page.value("backward-short-most", fixed(most, 1));
    let all = single.iter().chain(&double).map(|(_, ratio)| *ratio);
    let most = all.fold(0.0, f64::max);
    page.value("backward-most", fixed(most, 1));
    for (dtype, ratios) in [("f32", single), ("f64", double)] {
        let (_, longest) = ratios[ratios.len() - 1];
        page.value(format!("backward-{dtype}"), fixed(longest, 1));
    }
    page.value("backward-why", backward_in_words(short, most));
    Ok(())
}

/// What the slopes of all lines say, and the most expensive doubling of each.
fn slopes_in_words(slopes: &[f64], doublings: &[f64]) -> String {
    let least = slopes.iter().copied().fold(f64::INFINITY, f64::min);
    let most = slopes.iter().copied().fold(0.0, f64::max);
    let slopes = if least > 1.7 && most < 2.5 {
        "The slopes are near 2".to_owned()
    } else {
        format!("The slopes lie between {} and {}", fixed(least, 1), fixed(most, 1))
    };
    let dear = doublings.iter().filter(|times| **times > 4.5).count();
    match dear {
        0 => format!("{slopes}, and no doubling costs much more than four times."),
        _ if dear == doublings.len() => {
            format!(
                "{slopes}, but in each row one doubling costs far more than four times."
            )
        }
        _ => format!(
            "{slopes}, but in {dear} of the {} rows a doubling costs far more than four times.",
            doublings.len()
        ),
    }
}

/// The time of the last doubling beyond four times, beside that of a pass over the whole matrix.
fn jump_in_words(jump: f64, pass: f64) -> String {
    if jump > 3.0 * pass {
        format!(
            "Forward, the last doubling in `f32` costs {} more than four times, and that is many such passes.",
            duration(jump)
        )
    } else if jump > pass {
        format!(
            "Forward, the last doubling in `f32` costs {} more than four times, which is one such pass or a few.",
            duration(jump)
        )
    } else {
        "Forward, the last doubling in `f32` costs no more than four times and one such pass.".to_owned()
    }
}

/// The time of a program that computes all products, with a causal mask and without.
fn causal_in_words(causal: f64, full: f64) -> String {
    let times =
        format!("{} with a mask and {} without", duration(causal), duration(full));
    if (0.6..1.6).contains(&(causal / full)) {
        format!("{times}. Neither is half of the other.")
    } else {
        format!(
            "{times}. The program computes all products in both cases, so that the products are not what makes the difference."
        )
    }
}

/// Why backward takes less than twice as long as forward, or more: the largest ratio of the short lengths, and of all.
fn backward_in_words(short: f64, most: f64) -> String {
    let less = "Less than twice, because forward has an exponential for each score, which counts as one operation and takes the \
                time of many, and backward has none.";
    let more = "More than twice, because backward passes over two matrices of $(n, n)$ again and again, and forward over one.";
    match (short < 2.0, most > 2.0) {
        (true, true) => format!("{less} {more}"),
        (true, false) => less.to_owned(),
        (false, true) => more.to_owned(),
        (false, false) => String::new(),
    }
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
        let old = record.seconds("matrix/old", "f32", n)?;
        rows.push(vec![
            integer(n as usize),
            bytes(u128::from(n * n) * F32 as u128),
            duration(record.in_unit(new, Unit::Seconds)?),
            duration(old),
        ]);
    }
    ensure!(rows.len() > 2, "the record `roofline` has too few new matrices");
    page.file("new.md", table(&["$n$", "bytes", "new", "there before"], &rows));

    let filled = |n: u64| -> Result<(f64, f64)> {
        Ok((
            record.seconds("matrix/new", "f32", n)?,
            record.seconds("matrix/old", "f32", n)?,
        ))
    };
    let forward = times.seconds("attention/forward", "f32", 4096)?;
    page.value("new", new_in_words(filled(512)?, filled(4096)?, forward));
    page.value("scale-time", duration(record.seconds("steps/scale", "f32", 4096)?));

    let transposed = |n: u64| record.seconds("matrix/transposed", "f32", n);
    for n in [500, 512, 4096] {
        page.value(format!("transposed-{n}"), duration(transposed(n)?));
    }
    page.value("transposed", transposed_in_words(transposed(500)?, transposed(512)?));
    let backward = times.seconds("attention/backward", "f32", 4096)?;
    page.value("backward-full", duration(backward));
    Ok(())
}

/// What a matrix costs by being new, if it is small and if it is large: times to fill one that is new, and one that was there.
fn new_in_words(small: (f64, f64), large: (f64, f64), forward: f64) -> String {
    let times = format!(
        "At $n = 4096$ a new matrix takes {} times as long to fill as one that was there before, at 512 it takes {} times as \
         long.",
        significant(large.0 / large.1, 2),
        significant(small.0 / small.1, 2)
    );
    let extra = large.0 - large.1;
    let forward = format!("of {} in all", duration(forward));
    match Compared::of(large.0, large.1) {
        Compared::More => format!(
            "{times} A forward pass makes one such matrix, of scores that become weights, and at $n = 4096$ pays {} more for \
             it than if it had been there, {forward}.",
            duration(extra)
        ),
        _ => format!(
            "{times} So on the machine of this record new matrices are not what makes a forward pass slow, which makes one of \
             them and takes {}.",
            forward.trim_start_matches("of ")
        ),
    }
}

/// The time to transpose a matrix whose columns are a power of two apart, beside one whose columns are not.
fn transposed_in_words(other: f64, power: f64) -> &'static str {
    if power > 1.5 * other {
        "So caches have a part in it after all, but here it is the power of two that they mind."
    } else {
        "On the machine of this record that makes little difference."
    }
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
    let even = shape(1).crossover() as f64;
    let timed =
        |points: &[(f64, f64)]| points.iter().find(|point| point.0 == even).copied();
    let (core, linear) =
        timed(&measured.1).zip(timed(&measured.0)).with_context(|| {
            format!("the record `{}` has no layer of n = {even}", record.topic)
        })?;
    page.value("even", even_in_words(core.1, linear.1));
    let lengths = (whole[0].0, whole[whole.len() - 1].0);
    let meeting = Meeting::of(&measured.0, &measured.1);
    let counted_at = shape(1).crossover() as f64;
    page.value("measured-crossover", meeting.in_words(lengths));
    page.value("crossover-remember", meeting.beside(counted_at));
    let slopes = [&measured.1, &measured.0].map(|points| log_log_slope(points));

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
            format!(
                "The line of the core has a slope of {}, that of the projections one of {}. They cross {}.",
                fixed(slopes[0], 1),
                fixed(slopes[1], 1),
                meeting.in_words(lengths).replace('$', "")
            ),
            "seconds (logarithmic)",
            &measured,
        ),
    ] {
        let lines = [
            line("four projections", BLUE, true, linear),
            line("core", VERMILION, false, core),
        ];
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

/// Times of the core and of the projections where both have the same FLOPs.
fn even_in_words(core: f64, projections: f64) -> String {
    let times = significant(core / projections, 2);
    Compared::of(core, projections).choose(
        format!(
            "the core takes {times} times as long as the projections. Its operations are faster than theirs. All of them?"
        ),
        "the core takes about as long as the projections. Are all of its operations as fast as theirs, then?".to_owned(),
        format!(
            "the core takes {times} times as long as the projections. Its operations are slower than theirs. Which ones, and \
             why?"
        ),
    )
}

/// Where one line rises above another.
#[derive(Debug, PartialEq)]
enum Meeting {
    /// At this n, interpolated on logarithmic axes.
    At(f64),
    /// It is above from the start.
    Before,
    /// It stays below.
    Beyond,
}

impl Meeting {
    /// Where the second line first rises above the first one.
    fn of(a: &[(f64, f64)], b: &[(f64, f64)]) -> Self {
        let lead: Vec<_> =
            a.iter().zip(b).map(|(a, b)| (a.0.ln(), (b.1 / a.1).ln())).collect();
        let step = lead.windows(2).find(|step| step[0].1 < 0.0 && step[1].1 >= 0.0);
        match step {
            Some(step) => {
                let [(x0, y0), (x1, y1)] = [step[0], step[1]];
                Self::At((x0 - y0 * (x1 - x0) / (y1 - y0)).exp())
            }
            None if lead[0].1 >= 0.0 => Self::Before,
            None => Self::Beyond,
        }
    }

    /// The end of a sentence that begins with "They cross".
    fn in_words(&self, (shortest, longest): (f64, f64)) -> String {
        match self {
            Self::At(n) => format!("near $n = {}$", integer(n.round() as usize)),
            Self::Before => {
                format!(
                    "before $n = {}$, the shortest that was timed",
                    fixed(shortest, 0)
                )
            }
            Self::Beyond => {
                format!("beyond $n = {}$, the longest that was timed", fixed(longest, 0))
            }
        }
    }

    /// The end of a sentence that begins with "In time, the quadratic part begins".
    fn beside(&self, counted: f64) -> &'static str {
        match self {
            Self::At(n) => Compared::of(*n, counted).choose(
                "earlier than that",
                "about there, too",
                "later than that",
            ),
            Self::Before => "earlier than that",
            Self::Beyond => "later than that",
        }
    }
}

/// The peak of allocated bytes against what the shapes say.
fn peaks(page: &mut Page, record: &Record) -> Result<()> {
    let mut rows = vec![];
    for forward in record.all("memory/forward", "f32") {
        let n = *forward.sizes.get("n").context("memory/forward has no n")?;
        record.in_unit(forward, Unit::Bytes)?;
        let both = record.find("memory/forward and backward", "f32", n)?;
        record.in_unit(both, Unit::Bytes)?;
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
        // What the chapter says in words. The product packs up to a block of each factor.
        let (square, buffers) = (F32 * n * n, 1 << 19);
        let formulas = [
            (forward, kept as usize + F32 * n), // the cache and the output
            (both, 2 * square + F32 * (7 * n * D + n)),
        ];
        for (found, formula) in formulas {
            ensure!(
                (formula..formula + buffers).contains(&(found.median as usize)),
                "the record `memory`: {} at n = {n} takes {} bytes, far from {formula}",
                found.what,
                found.median
            );
        }
        if n == 4096 {
            page.value("peak-4096", bytes(forward.median as u128));
            page.value("peak-both-4096", bytes(both.median as u128));
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
#[derive(Debug, Clone, Copy)]
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
        let seconds = match name {
            "whole" => times.seconds("attention/forward", "f32", n as u64)?,
            _ => record.seconds(&format!("steps/{name}"), "f32", n as u64)?,
        };
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
        Ok(of(n as f64) / record.in_unit(m, Unit::Seconds)? / 1e9)
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
    let step_of = |steps: &'_ [Step], name: &str| {
        let step = steps.iter().find(|step| step.name == name);
        step.copied().with_context(|| format!("no step is called {name}"))
    };
    let [scale, softmax, values, whole] =
        ["scale", "softmax", "values", "whole"].map(|name| step_of(&long, name));
    let (scale, softmax, values, whole) = (scale?, softmax?, values?, whole?);
    let share = |step: Step| step.speed() / roof(step.intensity());
    page.value("both-directions", directions_in_words(&ceilings));
    page.value("gpu-peak", significant(A100_F32 / 1e12, 3));
    page.value("gpu-bandwidth", integer((A100_BANDWIDTH / 1e9) as usize));
    page.value("gpu-ridge", significant(A100_F32 / A100_BANDWIDTH, 3));
    let side = Compared::of(A100_F32 / A100_BANDWIDTH, ridge).choose(
        "lies further left",
        "lies at about the same place",
        "lies further right",
    );
    page.value("gpu-side", side);
    page.value("whole-intensity", fixed(whole.intensity(), 1));
    page.value("whole", whole_in_words(whole, ridge, share(whole)));
    page.value("scale-roof", scale_in_words(share(scale), update == bandwidth));
    page.value(
        "left",
        left_in_words(scale.intensity() < ridge, softmax.intensity() < ridge),
    );
    let longest = long
        .iter()
        .filter(|step| step.name != "whole")
        .all(|step| step.seconds <= softmax.seconds);
    page.value(
        "softmax-time",
        softmax_time_in_words(
            softmax.flops / whole.flops,
            softmax.seconds / whole.seconds,
            longest,
        ),
    );
    page.value("softmax-roof", softmax_roof_in_words(share(softmax)));
    let new = record.seconds("matrix/new", "f32", 4096)?;
    let old = record.seconds("matrix/old", "f32", 4096)?;
    let short_softmax = step_of(&short, "softmax")?;
    page.value("softmax-slows", slows_in_words(short_softmax, softmax, new - old));
    let largest = record.machine.caches.iter().map(|cache| cache.bytes).max();
    let in_cache = step_of(&short, "scale")?.speed() / scale.speed();
    page.value(
        "scale-in-cache",
        cache_in_words(in_cache, (F32 * 512 * 512) as u64, largest),
    );
    let transposed = record.seconds("steps/tr_mul", "f32", 4096)?;
    page.value("tr-mul", significant(transposed / values.seconds, 2));
    let mask = record.seconds("steps/causal mask", "f32", 4096)?;
    page.value("mask-time", duration(mask));

    let shares = |steps: &[Step]| {
        let share = |step: &Step| format!("{} {}", step.name, percent(share(*step), 0));
        list(&steps.iter().map(share).collect::<Vec<_>>())
    };
    let says = format!(
        "The roof rises with the intensity and is level from {} FLOP/byte on. For n = 4096 the steps reach these shares of the \
         roof above them: {}. The grey dots, for n = 512: {}.",
        significant(ridge, 3),
        shares(&long),
        shares(&short)
    );
    page.file("roofline.svg", draw_roofline(peak, bandwidth, &short, &long, &says)?);
    Ok(())
}

/// Why the best of three bandwidths is the roof.
fn directions_in_words(ceilings: &Ceilings) -> String {
    let Ceilings { read, update, .. } = *ceilings;
    let beats = if Compared::of(update, read) == Compared::More {
        "Both directions count, and they can run at the same time, so changing in place beats reading."
    } else {
        "Both directions count."
    };
    let too_high = if Compared::of(read, ceilings.bandwidth()) == Compared::Less {
        ", which is therefore too high for a step that mostly reads"
    } else {
        ""
    };
    format!("{beats} The best of each makes the roof{too_high}.")
}

/// What the formula says of attention as a whole, and how fast it is.
fn whole_in_words(whole: Step, ridge: f64, share: f64) -> String {
    let place = match whole.intensity() / ridge {
        ratio if ratio > 2.0 => "far to the right of the ridge",
        ratio if ratio > 1.0 => "to the right of the ridge",
        _ => "to the left of the ridge",
    };
    let should = if whole.intensity() > ridge {
        "That is compute-bound, so it should run at the peak"
    } else {
        "That is memory-bound, so it should run at its roof, the bandwidth times the intensity"
    };
    format!(
        "{place}. {should}. It runs at {} GFLOP/s, {} of that.",
        significant(whole.speed(), 2),
        percent(share, 0)
    )
}

/// How near scaling comes to its roof, and whether the roof was measured in the same way.
fn scale_in_words(share: f64, same_way: bool) -> String {
    match (share > 0.7, same_way) {
        (true, true) => {
            "stands at its roof because the roof was measured in that very way, by changing in place".to_owned()
        }
        (true, false) => "stands at its roof".to_owned(),
        (false, _) => format!("reaches {} of its roof", percent(share, 0)),
    }
}

/// Which of the passes in the middle lie left of the ridge.
fn left_in_words(scale: bool, softmax: bool) -> &'static str {
    match (scale, softmax) {
        (true, true) => {
            "Taken one by one, scale and softmax belong to the left, where the roof rises; the intensity of the whole hides them."
        }
        (true, false) => {
            "Taken by itself, scale belongs to the left, where the roof rises; the intensity of the whole hides it."
        }
        (false, _) => {
            "On the machine of this record the ridge lies so far to the left that even these passes stand right of it."
        }
    }
}

/// The shares that softmax has in the operations and in the time.
fn softmax_time_in_words(flops: f64, time: f64, longest: bool) -> String {
    let (flops_text, time_text) = (percent(flops, 0), percent(time, 0));
    let longest = if longest { ", the longest of the steps" } else { "" };
    if time > flops {
        format!(
            "Softmax is only {flops_text} of the operations and takes as long as {time_text} of the whole{longest}."
        )
    } else {
        format!(
            "Softmax is {flops_text} of the operations and takes as long as {time_text} of the whole on the machine of this \
             record{longest}."
        )
    }
}

/// Whether softmax waits for memory.
fn softmax_roof_in_words(share: f64) -> String {
    match share {
        share if share < 0.1 => {
            "It stands far below even its own roof, so bandwidth is not to blame."
                .to_owned()
        }
        share if share < 0.5 => format!(
            "It stands at {} of its own roof, so bandwidth alone is not to blame.",
            percent(share, 0)
        ),
        share => format!(
            "It stands at {} of its own roof, so bandwidth holds it back as well.",
            percent(share, 0)
        ),
    }
}

/// How fast softmax is for long sequences, beside short ones. A new matrix takes so many seconds more to fill than an old one.
fn slows_in_words(short: Step, long: Step, extra: f64) -> String {
    let speeds = format!(
        "from {} to {} GFLOP/s, at the same intensity",
        significant(short.speed(), 2),
        significant(long.speed(), 2)
    );
    let lost = long.seconds - long.flops / short.flops * short.seconds;
    let why = if extra > lost / 2.0 {
        ", chiefly because its result is a new matrix"
    } else {
        ""
    };
    Compared::of(long.speed(), short.speed()).choose(
        format!("From $n = 512$ to 4096 it slows down further, {speeds}{why}."),
        "It is about as fast at $n = 512$ as at 4096.".to_owned(),
        format!("From $n = 512$ to 4096 it becomes faster, {speeds}."),
    )
}

/// How many times as fast scaling is for a small matrix as for a large one, and whether the largest cache holds the small one.
fn cache_in_words(ratio: f64, small: u64, largest: Option<u64>) -> String {
    let times =
        format!("{} times as many operations a second as at 4096", significant(ratio, 2));
    let why = match (Compared::of(ratio, 1.0), largest) {
        (Compared::More, Some(cache)) if small <= cache => {
            ": the smaller matrix fits into a cache, which is faster than memory."
        }
        (Compared::More, _) => ": the bytes of the smaller matrix come from nearer by.",
        _ => {
            ". On the machine of this record the smaller matrix gains nothing from being small."
        }
    };
    format!("{times}{why}")
}

/// Which share of its roof softmax reaches for long sequences: whether it waits for memory.
pub fn softmax_share([times, _, roof]: &[Record; 3]) -> Result<f64> {
    let ceilings = Ceilings::of(roof)?;
    let steps = steps(roof, times, 4096)?;
    let softmax = steps.iter().find(|step| step.name == "softmax").context("softmax")?;
    let best = ceilings.peak().min(ceilings.bandwidth() * softmax.intensity());
    Ok(softmax.speed() / best)
}

fn draw_roofline(
    peak: f64,
    bandwidth: f64,
    short: &[Step],
    long: &[Step],
    says: &str,
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
        says,
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
        let Meeting::At(n) = Meeting::of(&line(3.0, 1), &line(1.0, 2)) else {
            panic!("3 n = n² has a solution")
        };
        assert!((n - 3.0).abs() < 1e-12);
        assert_eq!(Meeting::of(&line(1.0, 1), &line(2.0, 1)), Meeting::Before);
        assert_eq!(Meeting::of(&line(2.0, 1), &line(1.0, 1)), Meeting::Beyond);
        assert_eq!(Meeting::At(500.0).beside(1024.0), "earlier than that");
        assert_eq!(Meeting::At(1000.0).beside(1024.0), "about there, too");
        assert_eq!(Meeting::At(1500.0).beside(1024.0), "later than that");
        assert!(Meeting::Before.in_words((64.0, 2048.0)).contains("before $n = 64$"));
        assert!(Meeting::Beyond.in_words((64.0, 2048.0)).contains("beyond $n = 2048$"));
    }

    #[test]
    fn slopes_and_doublings_are_told_as_they_are() {
        let all = slopes_in_words(&[2.0, 2.1], &[6.0, 7.0]);
        assert!(all.contains("near 2, but in each row"), "{all}");
        let some = slopes_in_words(&[2.0, 2.9], &[4.0, 7.0]);
        assert!(some.contains("between 2.0 and 2.9, but in 1 of the 2 rows"), "{some}");
        assert!(slopes_in_words(&[2.0], &[4.1]).contains("no doubling costs much more"));
        assert!(jump_in_words(0.07, 0.002).contains("many such passes"));
        assert!(jump_in_words(0.004, 0.002).contains("one such pass or a few"));
        assert!(jump_in_words(-0.1, 0.002).contains("no more than four times"));
    }

    #[test]
    fn new_matrices_and_strides_are_blamed_only_where_they_cost() {
        let dear = new_in_words((1.1, 1.0), (0.034, 0.004), 0.189);
        assert!(dear.contains("takes 8.5 times as long"), "{dear}");
        assert!(dear.contains("pays 30.0\u{202f}ms more"), "{dear}");
        let cheap = new_in_words((1.0, 1.0), (0.004, 0.004), 0.189);
        assert!(cheap.contains("not what makes a forward pass slow"), "{cheap}");
        assert!(transposed_in_words(1.0, 4.0).contains("the power of two"));
        assert!(transposed_in_words(1.0, 1.1).contains("little difference"));
    }

    #[test]
    fn counts_are_held_against_times() {
        assert!(causal_in_words(1.0, 1.0).contains("Neither is half"));
        assert!(causal_in_words(0.5, 1.0).contains("the products are not what"));
        assert!(backward_in_words(1.5, 4.0).starts_with("Less than twice"));
        assert!(backward_in_words(1.5, 4.0).contains("More than twice"));
        assert!(!backward_in_words(1.5, 1.9).contains("More than twice"));
        assert!(backward_in_words(2.5, 4.0).starts_with("More than twice"));
        assert!(
            even_in_words(2.0, 1.0).contains(
                "2.0 times as long as the projections. Its operations are slower"
            )
        );
        assert!(even_in_words(0.5, 1.0).contains("faster than theirs"));
        assert!(even_in_words(1.0, 1.0).contains("about as long"));
    }

    #[test]
    fn steps_are_told_beside_their_roofs() {
        let step = |flops, bytes, seconds| Step { name: "step", flops, bytes, seconds };
        let ceilings = |read, update| Ceilings {
            registers: 100.0,
            product: 90.0,
            read,
            update,
            triad: 1.0,
        };
        let words = directions_in_words(&ceilings(24.0, 48.0));
        assert!(words.contains("beats reading") && words.contains("too high"), "{words}");
        let words = directions_in_words(&ceilings(48.0, 24.0));
        assert!(!words.contains("beats") && !words.contains("too high"), "{words}");

        let whole = step(60e9, 1e9, 2.0); // 60 FLOP/byte, 30 GFLOP/s
        assert!(whole_in_words(whole, 2.4, 0.3).starts_with("far to the right"));
        assert!(
            whole_in_words(whole, 2.4, 0.3).contains("30 GFLOP/s, 30\u{202f}% of that")
        );
        assert!(whole_in_words(whole, 40.0, 0.3).starts_with("to the right"));
        assert!(whole_in_words(whole, 80.0, 0.3).contains("memory-bound"));

        assert!(scale_in_words(1.2, true).contains("in that very way"));
        assert_eq!(scale_in_words(1.2, false), "stands at its roof");
        assert!(scale_in_words(0.5, true).starts_with("reaches 50"));
        assert!(left_in_words(true, true).contains("scale and softmax"));
        assert!(left_in_words(true, false).contains("scale belongs"));
        assert!(left_in_words(false, false).contains("right of it"));

        assert!(softmax_time_in_words(0.02, 0.5, true).contains("only 2"));
        assert!(
            softmax_time_in_words(0.02, 0.5, true).ends_with("the longest of the steps.")
        );
        assert!(!softmax_time_in_words(0.02, 0.01, false).contains("only"));
        assert!(softmax_roof_in_words(0.03).contains("not to blame"));
        assert!(softmax_roof_in_words(0.3).contains("alone is not"));
        assert!(softmax_roof_in_words(0.9).contains("as well"));

        let (short, long) = (step(1e9, 1.0, 1.0), step(64e9, 1.0, 100.0));
        assert!(slows_in_words(short, long, 30.0).contains("chiefly"));
        assert!(!slows_in_words(short, long, 3.0).contains("chiefly"));
        assert!(
            slows_in_words(short, step(64e9, 1.0, 64.0), 3.0).contains("about as fast")
        );
        assert!(
            slows_in_words(short, step(64e9, 1.0, 30.0), 3.0).contains("becomes faster")
        );

        assert!(
            cache_in_words(2.0, 1 << 20, Some(1 << 25)).contains("fits into a cache")
        );
        assert!(cache_in_words(2.0, 1 << 20, Some(1 << 15)).contains("nearer by"));
        assert!(cache_in_words(2.0, 1 << 20, None).contains("nearer by"));
        assert!(cache_in_words(0.9, 1 << 20, Some(1 << 25)).contains("gains nothing"));
    }
}
