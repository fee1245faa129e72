//! Making it fast: what each step was predicted to bring and what it brought, and the peers.

use crate::double::Double;
use crate::output::Page;
use crate::records::{Compared, list, provenance, provenance_of};
use anyhow::{Context, Result, ensure};
use attention::flash::{Flash, Tiles};
use figures::format::{
    bytes, duration, fixed, integer, percent, scientific, significant, table,
};
use figures::{
    Area, Axis, BLUE, Color, GREEN, Line, MUTED, Marks, RGBColor, TEXT, VERMILION,
    filled, label, line, line_chart, ring, svg, text,
};
use laboratory::LibraryFlash;
use record::statistics::{geometric_mean, median};
use record::{Machine, Measurement, Record, Unit};
use std::cmp::Ordering;
use std::collections::BTreeSet;

pub fn generate(page: &mut Page) -> Result<()> {
    let [mut ladder, parts_alone, roofline] =
        page.records.of_one_machine(["ladder", "parts", "roofline"])?;
    let others = [("the parts by themselves", &parts_alone), ("the roofline", &roofline)];
    page.value("where", provenance_of(&ladder, &others));
    ladder.measurements.extend(parts_alone.measurements);
    let roof = roof(&ladder, &roofline)?;
    page.value("roof", fixed(roof / 1e9, 0));
    parts(page, &ladder, roof)?;
    let gains = steps(page, &ladder, roof)?;
    both(page, &ladder, roof)?;
    let [record] = page.records.of_one_machine(["peers"])?;
    page.value("peers-where", provenance(&record));
    let beside = record.machine.is_same(&ladder.machine).then_some(&record);
    page.value("peers-machine", other_machine_in_words(beside, &record.machine));
    let apart = again(page, &ladder, beside, &gains)?;
    tile_sizes(page, &ladder, apart)?;
    polynomial(page)?;
    let scores = MicroKernel::of(&ladder, "scores", D)?;
    peers(page, &record, (scores.rows as u64, scores.numbers as u64))
}

// ---------------------------------------------------------------------------------------------------- the ladder

const N: usize = 2048;
const D: usize = 64;
const HEADS: usize = 8;
const SMALL: usize = 64;
const LARGE: (usize, usize) = (256, 512);

/// FLOPs of both products, forward and full: 4 h n² d.
fn flops() -> f64 {
    (4 * HEADS * N * N * D) as f64
}

fn scores() -> f64 {
    (HEADS * N * N) as f64
}

fn find<'a>(
    record: &'a Record,
    what: &str,
    sizes: &[(&str, usize)],
) -> Result<&'a Measurement> {
    let fits = |m: &&Measurement| {
        sizes.iter().all(|(name, size)| m.sizes.get(*name) == Some(&(*size as u64)))
    };
    let mut found = record.all(what, "f32").filter(fits);
    let topic = match what.split_once('/') {
        Some(("parts", _)) => "parts",
        _ => "ladder",
    };
    let name = || format!("{what}, f32, of {sizes:?}");
    let first = found
        .next()
        .with_context(|| format!("the record `{topic}` has no {}", name()))?;
    ensure!(found.next().is_none(), "the record `{topic}` has more than one {}", name());
    ensure!(
        first.unit == Unit::Seconds,
        "in the record `{topic}`, {} is in {:?} and not in {:?}",
        name(),
        first.unit,
        Unit::Seconds
    );
    Ok(first)
}

/// The seconds of one product of tiles by a library, `rows` × `columns` from width D.
fn product(record: &Record, (rows, columns): (usize, usize)) -> Result<f64> {
    let sizes = [("n", rows), ("columns", columns)];
    Ok(find(record, "parts/product matrixmultiply", &sizes)?.median)
}

/// What a micro-kernel does once: a panel of so many rows, with so many columns, meets so many numbers at a time.
#[derive(Debug, Clone, Copy)]
struct MicroKernel {
    rows: usize,
    columns: usize,
    numbers: usize,
    seconds: f64,
    /// FLOPs a second, if it has any.
    rate: f64,
}

impl MicroKernel {
    fn of(record: &Record, name: &str, d: usize) -> Result<Self> {
        let m = find(record, &format!("parts/micro-kernel {name}"), &[("d", d)])?;
        let size = |name: &str| {
            let size = m.sizes.get(name).copied();
            let size = size.with_context(|| format!("{} has no size {name}", m.what))?;
            ensure!(size > 0, "{} has a size {name} of 0", m.what);
            Ok(usize::try_from(size)?)
        };
        let (rows, columns, numbers) = (size("n")?, size("columns")?, size("numbers")?);
        let rate = 2.0 * (rows as f64) * (columns as f64) * (d as f64) / m.median;
        Ok(MicroKernel { rows, columns, numbers, seconds: m.median, rate })
    }

    /// How often it is due for all scores of the ladder's problem.
    fn count(self) -> f64 {
        scores() / (self.rows * self.columns) as f64
    }
}

fn rate(seconds: f64, (rows, columns): (usize, usize)) -> f64 {
    (2 * rows * columns * D) as f64 / seconds
}

/// The fastest product of all that were measured: no program whose work is products can be faster.
fn roof(ladder: &Record, roofline: &Record) -> Result<f64> {
    let mut best = 0.0_f64;
    for m in roofline.all("arithmetic/product", "f32") {
        let n = *m.sizes.get("n").context("a product without n")? as f64;
        best = best.max(2.0 * n.powi(3) / roofline.in_unit(m, Unit::Seconds)?);
    }
    for tile in [(SMALL, SMALL), LARGE] {
        best = best.max(rate(product(ladder, tile)?, tile));
    }
    for d in [D, 2 * D] {
        for name in ["scores", "values"] {
            best = best.max(MicroKernel::of(ladder, name, d)?.rate);
        }
    }
    Ok(best)
}

/// One exponential, each way.
fn exponential(record: &Record, way: &str) -> Result<f64> {
    let m = find(record, &format!("parts/exponentials {way}"), &[])?;
    let count = *m.sizes.get("n").context("exponentials without n")?;
    Ok(m.median / count as f64)
}

/// What the parts cost by themselves.
fn parts(page: &mut Page, record: &Record, roof: f64) -> Result<()> {
    let mut rows = vec![];
    let arch = &record.machine.arch;
    let arch = if arch == "x86_64" { "x86-64" } else { arch };
    let portable = format!("polynomial, instructions of every {arch}");
    for (way, name) in [
        ("one by one", "one call of the system's `exp2f` each"),
        ("portable", portable.as_str()),
        ("vector", "polynomial, the widest instructions there are"),
    ] {
        let seconds = exponential(record, way)?;
        let share = seconds * scores() / (flops() / roof);
        if way == "one by one" {
            page.value("exp-one-by-one", format!("{} ns", significant(seconds * 1e9, 2)));
            page.value("exp-share-one-by-one", percent(share, 0));
        }
        rows.push(vec![
            name.to_owned(),
            format!("{} ns", significant(seconds * 1e9, 2)),
            percent(share, 0),
        ]);
    }
    let header = [
        "an exponential",
        "time",
        "all of them, in the time of both products at the roof",
    ];
    page.file("exponentials.md", table(&header, &rows));

    products(page, record)?;

    let small = product(record, (SMALL, SMALL))?;
    let whole = find(record, "parts/product whole", &[])?.median;
    let copied = find(record, "parts/copied tile", &[])?.median;
    let speed = |seconds, sizes| fixed(rate(seconds, sizes) / 1e9, 0);
    let rows = [
        (
            format!("product of {0} × {0} entries", integer(N)),
            whole,
            speed(whole, (N, N)),
        ),
        (
            format!("product of {SMALL} × {SMALL} entries"),
            small,
            speed(small, (SMALL, SMALL)),
        ),
        (format!("copy of {SMALL} × {SMALL} entries"), copied, String::new()),
    ];
    let rows = rows.map(|(name, seconds, speed)| vec![name, duration(seconds), speed]);
    page.file("pieces.md", table(&["part", "time", "GFLOP/s"], &rows));
    let one_tile = (SMALL * SMALL * size_of::<f32>()) as u64;
    page.value("small-tile", bytes(one_tile.into()));
    page.value("five-tiles", five_tiles_in_words(5 * one_tile, &record.machine));
    let (small, whole) = (rate(small, (SMALL, SMALL)), rate(whole, (N, N)));
    let compared = Compared::of(small, whole).choose("slower", "about as fast", "faster");
    page.value("small-products", compared);
    let calls = exponential(record, "one by one")? * roof;
    page.value("exp-operations", significant(calls, 1));
    Ok(())
}

/// Products of tiles, by the library and by the micro-kernels, beside what the registers could do.
fn products(page: &mut Page, record: &Record) -> Result<()> {
    let mut rows = vec![];
    for tile in [(SMALL, SMALL), LARGE] {
        let speed = rate(product(record, tile)?, tile) / 1e9;
        rows.push(vec![format!("{} × {}", tile.0, tile.1), fixed(speed, 0)]);
    }
    page.file("products.md", table(&["tile", "matrixmultiply, GFLOP/s"], &rows));

    let mut rows = vec![];
    for d in [D, 2 * D] {
        let peak = MicroKernel::of(record, "registers", d)?.rate;
        let mut row = vec![format!("$d = {d}$"), fixed(peak / 1e9, 0)];
        for name in ["scores", "values", "queries"] {
            let rate = MicroKernel::of(record, name, d)?.rate;
            row.push(format!("{} ({})", fixed(rate / 1e9, 0), percent(rate / peak, 0)));
        }
        rows.push(row);
    }
    let header = [
        "",
        "in registers alone",
        "scores, $Q K^\\top$",
        "values, $A V$",
        "gradients of queries, $dS\\, K$",
    ];
    page.file("kernels.md", table(&header, &rows));

    let scores = MicroKernel::of(record, "scores", D)?;
    let (large, small) =
        (product(record, LARGE)?, MicroKernel::of(record, "registers", D)?);
    page.value("panel", integer(scores.rows));
    page.value("numbers", integer(scores.numbers));
    page.value("registers", fixed(small.rate / 1e9, 0));
    page.value("library-of-registers", percent(rate(large, LARGE) / small.rate, 0));
    let packing = MicroKernel::of(record, "packing", D)?.seconds;
    page.value("packing-shared", percent(packing / (scores.seconds * 2.0), 0));
    Ok(())
}

/// The size of the first-level or second-level cache of one core, if the record tells.
fn cache(machine: &Machine, level: u32) -> Option<u64> {
    let of_level = |c: &&record::Cache| c.level == level && c.kind != "Instruction";
    machine.caches.iter().find(of_level).map(|c| c.bytes)
}

/// So many bytes, and where they fit.
fn five_tiles_in_words(needed: u64, machine: &Machine) -> String {
    let needs = bytes(needed.into());
    let Some(first) = cache(machine, 1) else { return needs };
    let size = bytes(first.into());
    if needed <= first {
        return format!("{needs}: they fit the first cache ({size})");
    }
    let beyond = format!("{needs}: more than the first cache has ({size})");
    let Some(second) = cache(machine, 2) else { return beyond };
    let size = bytes(second.into());
    match second / needed {
        0 => format!("{beyond}, and more than the second ({size})"),
        1..4 => format!("{beyond}, but they fit the second ({size})"),
        _ => format!("{beyond}, and little for the second ({size})"),
    }
}

/// A step, the name of its measurement, and what it changes.
const STEPS: [(&str, &str); 8] = [
    ("naive", "the matrix of weights, head by head"),
    ("tiled", "tiles of 64 × 64, as in *Tiles, forward*; exponentials one by one"),
    ("scratch", "one scratch memory; softmax goes column by column"),
    ("portable", "exponentials by polynomial"),
    ("vector", "the widest vector instructions"),
    ("tiles", "larger tiles"),
    ("registers", "products by hand: packed, and summed in registers"),
    ("threads", "two threads"),
];

/// The steps that have no backward pass.
const FORWARD_ALONE: [&str; 4] = ["scratch", "portable", "vector", "tiles"];

/// What a step exchanges: so many of a part that takes so long come (or go, if the number is negative).
type Exchange = Vec<(f64, f64)>;

/// What each step but the last exchanges for what the one before it had.
fn exchanged(record: &Record, step: &str) -> Result<Exchange> {
    let tiles = |rows: usize, columns: usize| (HEADS * (N / rows) * (N / columns)) as f64;
    let small = tiles(SMALL, SMALL);
    let copied = find(record, "parts/copied tile", &[])?.median;
    let of_small = || product(record, (SMALL, SMALL));
    let exponentials = |from: &str, to: &str| -> Result<Exchange> {
        let (from, to) = (exponential(record, from)?, exponential(record, to)?);
        Ok(vec![(-scores(), from), (scores(), to)])
    };
    Ok(match step {
        // Two large products a head become two small ones a tile, and tiles are copied.
        "tiled" => {
            let mut exchange = vec![
                (-2.0 * HEADS as f64, find(record, "parts/product whole", &[])?.median),
                (2.0 * small, of_small()?),
                (5.0 * small, copied),
            ];
            exchange.extend(exponentials("vector", "one by one")?);
            exchange
        }
        // The transpose of the keys, the product, a copy of the scores, a copy of the values, their product.
        "scratch" => vec![(-5.0 * small, copied)],
        "portable" => exponentials("one by one", "portable")?,
        "vector" => exponentials("portable", "vector")?,
        "tiles" => vec![
            (-2.0 * small, of_small()?),
            (2.0 * tiles(LARGE.0, LARGE.1), product(record, LARGE)?),
        ],
        "registers" => {
            let [scores, values, packing] = ["scores", "values", "packing"]
                .map(|name| MicroKernel::of(record, name, D));
            let (scores, values, packing) = (scores?, values?, packing?);
            // A packed tile of keys and values serves a block of queries.
            let blocks = (HEADS * N.div_ceil(Flash::TILES.queries)) as f64;
            let packed = blocks * (N / packing.columns) as f64;
            vec![
                (-2.0 * tiles(LARGE.0, LARGE.1), product(record, LARGE)?),
                (scores.count(), scores.seconds),
                (values.count(), values.seconds),
                (packed, packing.seconds),
            ]
        }
        other => anyhow::bail!("nothing is predicted for {other}"),
    })
}

/// The time that is predicted for a step, from the measured time of the one before and the parts that it exchanges; and how.
fn predicted(record: &Record, step: &str, before: f64) -> Result<(f64, String)> {
    if step == "threads" {
        return Ok((before / 2.0, format!("{} / 2", duration(before))));
    }
    let exchange = exchanged(record, step)?;
    let predicted =
        before + exchange.iter().map(|(count, each)| count * each).sum::<f64>();
    let terms = exchange.iter().map(|(count, each)| {
        let sign = if *count < 0.0 { '−' } else { '+' };
        format!(" {sign} {} × {}", integer(count.abs() as usize), duration(*each))
    });
    let sum = format!(
        "{}{} = {}",
        duration(before),
        terms.collect::<String>(),
        duration(predicted)
    );
    Ok((predicted, sum))
}

fn time(record: &Record, pass: &str, step: &str) -> Result<f64> {
    Ok(find(record, &format!("ladder/{pass} {step}"), &[])?.median)
}

/// Returns what each step but the first gained.
fn steps(page: &mut Page, record: &Record, roof: f64) -> Result<Vec<Gain>> {
    let mut rows = vec![];
    let mut gains = vec![];
    let (mut measured, mut predictions) = (vec![], vec![]);
    for (i, (step, change)) in STEPS.iter().enumerate() {
        let seconds = time(record, "forward", step)?;
        let speed = flops() / seconds;
        let mut row = vec![format!("{} **{step}**: {change}", i + 1)];
        if let Some(&before) = measured.last() {
            let (prediction, sum) = predicted(record, step, before)?;
            // A ring can only be drawn at a time.
            predictions.push((prediction > 0.0).then_some(prediction));
            if *step != "threads" {
                page.value(format!("sum-{step}"), sum);
            }
            row.push(duration(prediction));
            row.push(duration(seconds));
            row.push(format!("{}\u{202f}×", fixed(before / seconds, 2)));
            let (predicted, measured) = (before / prediction, before / seconds);
            let gain = Gain { number: i + 1, predicted, measured };
            match *step {
                "tiled" => {
                    let both = ["both", "both causal"].map(|pass| {
                        Ok(time(record, pass, "tiled")? / time(record, pass, "naive")?)
                    });
                    let both = both.into_iter().collect::<Result<Vec<_>>>()?;
                    page.value("tiled", tiled_in_words(&gain));
                    page.value("tiled-predicted", tiled_predicted_in_words(&gain, &both));
                }
                "scratch" => page.value("predicted-scratch", gain.predicted_in_words()),
                _ => {
                    page.value(format!("gain-{step}"), fixed(measured, 2));
                    // Two threads are predicted to be twice as fast, in words.
                    if *step != "threads" {
                        page.value(
                            format!("predicted-{step}"),
                            gain.predicted_in_words(),
                        );
                    }
                }
            }
            gains.push(gain);
        } else {
            predictions.push(None);
            row.extend([String::new(), duration(seconds), String::new()]);
        }
        // Two threads have two roofs.
        let (roofs, which) =
            if *step == "threads" { (2.0, " of two") } else { (1.0, "") };
        row.push(fixed(speed / 1e9, 0));
        row.push(percent(speed / (roofs * roof), 0) + which);
        rows.push(row);
        measured.push(seconds);
    }
    let header = ["step", "predicted", "measured", "gain", "GFLOP/s", "of the roof"];
    page.file("steps.md", table(&header, &rows));
    page.value("n", integer(N));
    page.value("d", integer(D));
    page.value("heads", integer(HEADS));
    page.value("gain-one-thread", significant(measured[0] / measured[6], 2));

    // What is neither a product nor an exponential, before and after the loops were laid out anew.
    let small = (HEADS * (N / SMALL) * (N / SMALL)) as f64;
    let needed = 2.0 * small * product(record, (SMALL, SMALL))?
        + scores() * exponential(record, "one by one")?;
    let rests = [1, 2].map(|step: usize| 1.0 - needed / measured[step]);
    page.value("scratch", scratch_in_words(&gains[1], &gains[0], rests));
    let furthest = gains.iter().max_by(|a, b| a.surprise().total_cmp(&b.surprise()));
    page.value("surprise", furthest.context("the ladder has no steps")?.in_words());

    // What is left of the time of one thread, by the parts.
    let seconds = measured[6];
    let [of_scores, of_values] =
        ["scores", "values"].map(|name| MicroKernel::of(record, name, D));
    let (of_scores, of_values) = (of_scores?, of_values?);
    let products =
        of_scores.count() * of_scores.seconds + of_values.count() * of_values.seconds;
    let rate = flops() / products;
    let products = products / seconds;
    let exponentials = scores() * exponential(record, "vector")? / seconds;
    page.value("rest", rest_in_words(rate / roof, products, exponentials));
    page.value("most", most_in_words(products));

    let bars: Vec<_> = STEPS
        .iter()
        .zip(measured.iter().zip(&predictions))
        .map(|((step, _), (&measured, &predicted))| Bar { step, measured, predicted })
        .collect();
    let title = "Time of each step of the ladder, forward, measured and predicted";
    let told = bars.iter().map(|bar| {
        let predicted = |predicted| format!(", predicted {}", duration(predicted));
        let predicted = bar.predicted.map_or_else(String::new, predicted);
        format!("{} {}{predicted}", bar.step, duration(bar.measured))
    });
    let says = format!(
        "A bar for each step from top to bottom, and from the second on a ring at the time that was predicted: {}.",
        told.collect::<Vec<_>>().join("; ")
    );
    page.file(
        "steps.svg",
        svg("fast-steps", title, &says, (520, 380), |area| draw_bars(area, &bars))?,
    );
    Ok(gains)
}

/// How many times as fast as the step before one is.
#[derive(Debug, Clone, Copy)]
struct Gain {
    /// The step, counted from 1.
    number: usize,
    /// Negative if the parts that go take longer by themselves than the whole step before.
    predicted: f64,
    measured: f64,
}

impl Gain {
    fn predicted_in_words(&self) -> String {
        if self.predicted > 0.0 {
            format!("a factor of {}", fixed(self.predicted, 2))
        } else {
            "impossible (the parts that go take longer by themselves than all of the step before)"
                .to_owned()
        }
    }

    /// How far the measurement is from what was predicted.
    fn surprise(&self) -> f64 {
        if self.predicted > 0.0 {
            (self.measured / self.predicted).ln().abs()
        } else {
            f64::INFINITY
        }
    }

    fn in_words(&self) -> String {
        let Self { number, measured, .. } = self;
        let measured = fixed(*measured, 2);
        format!(
            "step {number}: {} was predicted, and {measured} measured",
            self.predicted_in_words()
        )
    }
}

/// What tiles cost, or bring, by themselves.
fn tiled_in_words(gain: &Gain) -> String {
    let times = format!(
        "The readable program of [Tiles, forward](tiles-forward.md) takes {} times as long as the naive one. Tiles save traffic \
         and memory",
        fixed(1.0 / gain.measured, 2)
    );
    Compared::of(gain.measured, 1.0).choose(
        format!(
            "The first step up goes down. {times}, but [traffic is not all that a program waits for](memory-wall.md#the-bill)."
        ),
        format!("The first step up stays level. {times}, and cost as much."),
        format!("The first step pays at once. {times}, and cost less."),
    )
}

/// How near the prediction of step 2 comes, and how many times as long tiles take with the backward pass, full and causal.
fn tiled_predicted_in_words(gain: &Gain, both: &[f64]) -> String {
    let predicted = if gain.predicted > 0.0 {
        let found = Compared::of(gain.predicted, gain.measured).choose(
            "That is longer than was measured.",
            "That is what was measured.",
            if gain.predicted > 1.3 * gain.measured {
                "That falls far short of what was measured; step 3 says what was missing."
            } else {
                "That falls short of what was measured."
            },
        );
        format!(
            "which is {} times as long as before. {found}",
            fixed(1.0 / gain.predicted, 2)
        )
    } else {
        "which no program can take: on the machine of this record the parts take longer by themselves.".to_owned()
    };
    let backward = if both.iter().all(|times| *times < 1.0) && gain.measured < 1.0 {
        "(With the backward pass tiles are no loss, as the table further down shows. The naive program makes more new matrices \
         there, which may be why.)"
            .to_owned()
    } else {
        let times: Vec<_> = both.iter().map(|times| fixed(*times, 2)).collect();
        format!(
            "(With the backward pass tiles take {} times as long as the naive program, full and causal.)",
            list(&times)
        )
    };
    format!("{predicted} {backward}")
}

/// What step 3 gained beside what was predicted, given step 2, and the shares of both steps that go into neither products nor
/// exponentials.
fn scratch_in_words(scratch: &Gain, tiled: &Gain, [before, after]: [f64; 2]) -> String {
    let is_more = scratch.predicted < 0.0
        || scratch.measured - 1.0 > 2.0 * (scratch.predicted - 1.0);
    let is_surprise = scratch.measured > 1.05 && is_more;
    let copies = if is_surprise { " So it was hardly the copies." } else { "" };
    let rest = if before > 0.0 && after > 0.0 {
        format!(
            "By the parts, {} of the readable version's time goes into neither products nor exponentials, and {} of this one's.",
            percent(before, 0),
            percent(after, 0)
        )
    } else {
        "Products and exponentials take longer by themselves than in these programs, so the parts do not tell what the rest \
         takes."
            .to_owned()
    };
    let together = if is_surprise && tiled.predicted > 1.3 * tiled.measured {
        "Together these must be what was missing in step 2 and came back here; none of them was timed by itself."
    } else {
        "None of these was timed by itself."
    };
    format!(
        "{}.{copies} {rest} What is gone besides the copies are loops that took one entry at a time with two indices: transposing \
         each block of keys, scaling each score, and looking at each value for a NaN, also where nothing is hidden. And the loops \
         of softmax go down columns. {together}",
        fixed(scratch.measured, 2)
    )
}

/// What the time of step 7 is made of: the rate of its products by themselves as a share of the roof, and the shares that products
/// at this rate and exponentials have in the time.
fn rest_in_words(rate: f64, products: f64, exponentials: f64) -> String {
    let split = format!(
        "By themselves, the two micro-kernels together reach {} of it. At that rate the products take {} of the time, and the \
         exponentials {}",
        percent(rate, 0),
        percent(products, 0),
        percent(exponentials, 0)
    );
    // What the two shares, as they are printed, leave.
    let others = 1.0
        - [products, exponentials]
            .map(|share| (100.0 * share).round())
            .iter()
            .sum::<f64>()
            / 100.0;
    if others > 0.0 {
        format!(
            "{split}. Packing, maxima, sums and corrections share the remaining {}; of these, packing alone was timed by itself.",
            percent(others, 0)
        )
    } else {
        format!(
            "{split}, which is more than all of it: on the machine of this record the parts run slower by themselves than in the \
             program."
        )
    }
}

/// Where our time goes, by the share of the products.
fn most_in_words(products: f64) -> &'static str {
    if products > 0.5 { "most of our time" } else { "a part of our time" }
}

/// One step of the ladder in the figure, in seconds.
struct Bar {
    step: &'static str,
    measured: f64,
    predicted: Option<f64>,
}

/// The distance from one line to the next, in seconds: 1, 2 or 5 times a power of ten, for at most six lines.
fn tick(longest: f64) -> f64 {
    let least = longest / 5.0;
    let power = 10.0_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// A bar for what was measured and a ring for what was predicted, step by step from top to bottom.
fn draw_bars(area: &Area, bars: &[Bar]) -> Result<()> {
    const LEFT: i32 = 104; // where the bars begin
    const TOP: i32 = 38;
    const ROW: i32 = 34;
    const HALF: i32 = 10; // of a bar's height
    let longest =
        bars.iter().flat_map(|bar| [bar.measured, bar.predicted.unwrap_or(0.0)]);
    let longest = longest.fold(0.0, f64::max);
    let tick = tick(longest);
    let decimals = usize::from(tick < 1e-3);
    let width = f64::from(area.dim_in_pixel().0 as i32 - LEFT - 84);
    let place = |seconds: f64| LEFT + (width * seconds / longest).round() as i32;
    let bottom = TOP + ROW * bars.len() as i32;

    filled(area, [(LEFT, 6), (LEFT + 28, 22)], BLUE.mix(0.45))?;
    text(area, (LEFT + 36, 14), "measured")?;
    ring(area, (LEFT + 160, 14), TEXT)?;
    text(area, (LEFT + 174, 14), "predicted from the step before")?;

    for i in 0..=(longest / tick) as usize {
        let seconds = tick * i as f64;
        line(area, &[(place(seconds), TOP), (place(seconds), bottom)], MUTED.mix(0.25))?;
        label(
            area,
            (place(seconds), bottom + 14),
            &fixed(1e3 * seconds, decimals),
            TEXT,
        )?;
    }
    label(area, (place(longest / 2.0), bottom + 42), "milliseconds", TEXT)?;
    for (i, Bar { step, measured, predicted }) in bars.iter().enumerate() {
        let middle = TOP + ROW * i as i32 + ROW / 2;
        let corners = [(LEFT, middle - HALF), (place(*measured), middle + HALF)];
        filled(area, corners, BLUE.mix(0.45))?;
        text(area, (4, middle), &format!("{} {step}", i + 1))?;
        let mut end = place(*measured);
        if let Some(predicted) = predicted {
            ring(area, (place(*predicted), middle), TEXT)?;
            // The time stands at the end of its bar, or behind the ring if that is in its way.
            let ring = place(*predicted);
            if (end - 6..end + 84).contains(&ring) {
                end = end.max(ring + 6);
            }
        }
        text(area, (end + 8, middle), &duration(*measured))?;
    }
    Ok(())
}

/// The same steps forward and backward, and with a causal mask.
fn both(page: &mut Page, record: &Record, roof: f64) -> Result<()> {
    let mut rows = vec![];
    for (step, _) in STEPS {
        let roofs = if step == "threads" { 2.0 } else { 1.0 };
        let mut row = vec![step.to_owned()];
        for (pass, work) in [
            ("forward", 1.0),
            ("forward causal", 0.5),
            ("both", 3.5),
            ("both causal", 1.75),
        ] {
            if pass.starts_with("both") && FORWARD_ALONE.contains(&step) {
                row.push("–".to_owned());
                continue;
            }
            let seconds = time(record, pass, step)?;
            let share = work * flops() / seconds / (roofs * roof);
            row.push(format!("{} ({})", duration(seconds), percent(share, 0)));
        }
        rows.push(row);
    }
    let header =
        ["step", "forward", "forward, causal", "forward + backward", "both, causal"];
    page.file("both.md", table(&header, &rows));
    let ratio =
        time(record, "both", "registers")? / time(record, "forward", "registers")?;
    page.value("both-over-forward", fixed(ratio, 1));
    let naive = time(record, "both", "naive")? / time(record, "both", "registers")?;
    page.value("gain-both", significant(naive, 2));
    page.value("both-near", near_in_words(ratio));
    let causal = |step| time(record, "forward causal", step);
    page.value(
        "causal-tiles",
        causal_tiles_in_words(causal("vector")?, causal("tiles")?),
    );
    let without =
        time(record, "forward", "tiles")? / time(record, "forward", "registers")?;
    let with = causal("tiles")? / causal("registers")?;
    page.value("causal-registers", causal_registers_in_words(without, with));
    // D again for each of two stripes, beside five products backward: 2 · 2 n d of 10 n² d.
    page.value("again-d", percent(2.0 * 2.0 / (10.0 * N as f64), 2));
    page.value(
        "roof-registers",
        percent(flops() / time(record, "forward", "registers")? / roof, 0),
    );
    Ok(())
}

/// How near both passes come to the roof, beside the forward pass: they take so many times as long, and 3.5 times are as near.
fn near_in_words(ratio: f64) -> &'static str {
    // As it is printed beside 3.5, with one decimal.
    match (10.0 * ratio).round().total_cmp(&35.0) {
        Ordering::Less => "nearer to the roof than",
        Ordering::Equal => "as near to the roof as",
        Ordering::Greater => "less near to the roof than",
    }
}

/// Times under a causal mask before step 6 and after it.
fn causal_tiles_in_words(before: f64, after: f64) -> String {
    let step = Compared::of(before, after).choose(
        "the step loses",
        "the step gains nothing",
        "the step gains, too",
    );
    format!(
        "Under a causal mask {step}: {} before and {} after it.",
        duration(before),
        duration(after)
    )
}

/// What step 7 gains without a mask and with a causal one.
fn causal_registers_in_words(without: f64, with: f64) -> String {
    format!(
        "Under a causal mask the factor is {}, beside {} without one; a panel ends nearer to the diagonal than a block of queries \
         does.",
        fixed(with, 2),
        fixed(without, 2)
    )
}

/// The speed over the sizes of tiles. Two runs of one program differ by the factor `apart`.
fn tile_sizes(page: &mut Page, record: &Record, apart: f64) -> Result<()> {
    let library = LibraryFlash::new().tiles();
    for (program, file, work, queries, default) in [
        ("library", "tile-sizes.md", 1.0, SIZES, library),
        ("library causal", "tile-sizes-causal.md", 0.5, SIZES, library),
        ("registers", "panel-sizes.md", 1.0, BLOCKS, Flash::TILES),
    ] {
        let causal = program.ends_with("causal");
        let speed = |queries: usize, keys: usize| {
            let sizes = [("queries", queries), ("keys", keys)];
            let time = find(record, &format!("tiles/{program}"), &sizes)?.median;
            anyhow::Ok(work * flops() / time / 1e9)
        };
        let mut rows = vec![];
        let mut best = (0.0, (0, 0));
        for queries in queries {
            let mut row = vec![integer(queries)];
            for keys in SIZES {
                let speed = speed(queries, keys)?;
                if speed > best.0 {
                    best = (speed, (queries, keys));
                }
                row.push(fixed(speed, 0));
            }
            if causal {
                // Of a block of B queries, B (B − 1) / 2 scores are computed and hidden; of all, (B − 1) of n + B.
                let hidden = (queries - 1) as f64 / (N + queries) as f64;
                row.push(percent(hidden, 0));
            }
            rows.push(row);
        }
        let key = program.replace(' ', "-");
        let behind = 1.0 - speed(default.queries, default.keys)? / best.0;
        let tile = |queries, keys| format!("{} × {keys}", integer(queries));
        let (queries, keys) = best.1;
        if !causal {
            page.value(format!("default-{key}"), tile(default.queries, default.keys));
        }
        page.value(format!("best-tile-{key}"), tile(queries, keys));
        page.value(format!("behind-{key}"), behind_in_words(behind, apart));
        let mut header = vec!["queries \\ keys", "64", "128", "256", "512"];
        if causal {
            header.push("computed, then hidden");
        }
        page.file(file, table(&header, &rows));
    }
    let bytes = |rows: usize, tiles: Tiles| (rows * tiles.keys * size_of::<f32>()) as u64;
    let panel = MicroKernel::of(record, "scores", D)?.rows;
    page.value(
        "tiles-cache",
        tiles_cache_in_words(
            bytes(library.queries, library),
            bytes(panel, Flash::TILES),
            [1, 2].map(|level| cache(&record.machine, level)),
        ),
    );
    Ok(())
}

/// The numbers of keys that were tried, and of queries with the library.
const SIZES: [usize; 4] = [64, 128, 256, 512];
/// The numbers of queries that were tried with the micro-kernels.
const BLOCKS: [usize; 4] = [48, 192, 576, 1152];

/// How far the tile that a program takes is behind the best of the table, where runs differ by the factor `apart`.
fn behind_in_words(behind: f64, apart: f64) -> String {
    if behind <= 0.0 {
        return "the best of the table".to_owned();
    }
    let runs = if 1.0 / (1.0 - behind) < apart { "less" } else { "more" };
    format!(
        "{} slower than the best, which is {runs} than two runs differ by",
        percent(behind, 1)
    )
}

/// Where the scores of a tile of these bytes fit, with the library and with the micro-kernels, if the caches' sizes are known.
fn tiles_cache_in_words(
    library: u64,
    panel: u64,
    [first, second]: [Option<u64>; 2],
) -> String {
    let (Some(first), Some(second)) = (first, second) else { return String::new() };
    let of = |needed: u64| {
        let size = bytes(needed.into());
        if needed <= first {
            format!("{size} and fit the first cache ({})", bytes(first.into()))
        } else if needed <= second {
            format!("{size} and fit the second cache ({})", bytes(second.into()))
        } else {
            format!("{size} and fit neither the first nor the second cache")
        }
    };
    format!(
        "With the library, the scores of a tile are {}; those of a panel are {}.",
        of(library),
        of(panel)
    )
}

/// What is said of a run beside the others that is of another machine than the ladder.
fn other_machine_in_words(beside: Option<&Record>, machine: &Machine) -> String {
    if beside.is_some() {
        String::new()
    } else {
        format!(" (on another machine, {})", machine.cpu)
    }
}

// ------------------------------------------------------------------------------------------------- measured again

/// The same computation in several runs: returns the factor that their medians are apart at most. `peers` are of the same machine, if
/// they are there.
fn again(
    page: &mut Page,
    ladder: &Record,
    peers: Option<&Record>,
    gains: &[Gain],
) -> Result<f64> {
    let beside = |name: &str, threads, mask, pass| -> Result<Option<f64>> {
        let Some(peers) = peers else { return Ok(None) };
        let here = Cell { threads, d: D as u64, mask, pass, n: N as u64 };
        let missing = || missing(peers, name, here);
        Ok(Some(seconds(peers, name, here)?.with_context(missing)?))
    };
    let mut rows = vec![];
    let mut largest = 1.0_f64;
    for (step, name, threads) in [
        ("naive", Some("naive"), 1),
        ("vector", None, 1),
        ("tiles", None, 1),
        ("registers", Some("flash"), 1),
        ("threads", Some("flash"), 2),
    ] {
        for (pass, mask, words, pass_beside) in [
            ("forward", "full", "forward", "forward"),
            ("forward causal", "causal", "forward, causal", "forward"),
            ("both", "full", "forward + backward", "forward+backward"),
            ("both causal", "causal", "both, causal", "forward+backward"),
        ] {
            if pass.starts_with("both") && FORWARD_ALONE.contains(&step) {
                continue;
            }
            let causal = pass.ends_with("causal");
            let tiles = match (step, pass) {
                ("vector", _) => Some(("library", Tiles { queries: SMALL, keys: SMALL })),
                ("tiles", _) => Some(("library", LibraryFlash::new().tiles())),
                ("registers", "forward" | "forward causal") => {
                    Some(("registers", Flash::TILES))
                }
                _ => None,
            };
            let sizes = tiles.map(|(program, Tiles { queries, keys })| {
                let mask = if causal { " causal" } else { "" };
                let sizes = [("queries", queries), ("keys", keys)];
                find(ladder, &format!("tiles/{program}{mask}"), &sizes)
            });
            let times = [
                Some(time(ladder, pass, step)?),
                sizes.transpose()?.map(|m| m.median),
                name.map(|name| beside(name, threads, mask, pass_beside))
                    .transpose()?
                    .flatten(),
            ];
            let known = || times.iter().flatten().copied();
            if known().count() < 2 {
                continue;
            }
            let apart = known().fold(0.0, f64::max) / known().fold(f64::MAX, f64::min);
            largest = largest.max(apart);
            let mut row = vec![format!("{step}, {words}")];
            row.extend(times.map(|t| t.map_or_else(String::new, duration)));
            row.push(fixed(apart, 2));
            rows.push(row);
        }
    }
    let header = [
        "computation",
        "ladder",
        "sizes of tiles",
        "beside the others",
        "longest / shortest",
    ];
    page.file("again.md", table(&header, &rows));
    let spreads: Vec<_> = ladder
        .measurements
        .iter()
        .filter(|m| m.what.starts_with("ladder/"))
        .map(|m| m.spread / m.median)
        .collect();
    let widest = spreads.iter().copied().fold(0.0, f64::max);
    page.value("spread-count", integer(spreads.len()));
    page.value("spread-median", percent(median(&spreads), 1));
    page.value("spread-most", percent(widest, 1));
    page.value("again-where", again_where_in_words(ladder, peers));
    page.value("again", again_in_words(largest, widest, gains));
    let bench = include_str!("../../laboratory/benches/support/mod.rs");
    let samples =
        bench.split_once(".sample_size(").and_then(|(_, rest)| rest.split_once(')'));
    page.value("samples", samples.context("how many samples are there?")?.0);
    Ok(largest)
}

/// Where some computations were timed again.
fn again_where_in_words(ladder: &Record, peers: Option<&Record>) -> String {
    let Some(peers) = peers else {
        return "in the ladder, and among the sizes of tiles of steps 6 and 7."
            .to_owned();
    };
    let commits = match [ladder, peers].map(|record| record.versions.get("commit")) {
        [Some(one), Some(other)] if one != other => {
            format!(
                " (The ladder is of commit {one}, and the last of these of commit {other}.)"
            )
        }
        _ => String::new(),
    };
    format!(
        "in the ladder, among the sizes of tiles of steps 6 and 7, and beside the others at the end of this chapter.{commits}"
    )
}

/// What the largest factor between two runs means for the gains of the steps, given the largest spread within one run.
fn again_in_words(largest: f64, spread: f64, gains: &[Gain]) -> String {
    let pace = if largest - 1.0 > spread {
        "The pace of the machine changes more from one benchmark to the next than within one"
    } else {
        "The pace of the machine changes as much within one benchmark as from one to the next"
    };
    let small: Vec<_> = gains
        .iter()
        .filter(|gain| gain.measured.max(1.0 / gain.measured) <= largest)
        .map(|gain| gain.number.to_string())
        .collect();
    let small = match &small[..] {
        [] => "every step of the ladder changes more".to_owned(),
        [only] => format!("the gain of step {only} is no larger"),
        several => format!("the gains of steps {} are no larger", list(several)),
    };
    format!(
        "{pace}: the medians are up to a factor of {} apart. So differences of that size between two tables of this page mean \
         nothing, and {small}.",
        fixed(largest, 2)
    )
}

// ------------------------------------------------------------------------------------------------ the polynomial

/// How far Taylor's polynomial of 2^x is off between −1/2 and 1/2, over its number of terms.
fn polynomial(page: &mut Page) -> Result<()> {
    // With more digits than an f64 has: what rounding adds is another matter.
    let off = |x: f64, terms: i32| {
        let y = Double::from(x) * Double::LN_2;
        let (mut term, mut sum) = (Double::from(1.0), Double::from(1.0));
        for k in 1..terms {
            term = term * y / Double::from(f64::from(k));
            sum = sum + term;
        }
        (sum / y.exp() - Double::from(1.0)).rounded().abs()
    };
    let worst = |terms: i32| {
        let places = (0..=100).map(|i| f64::from(i) / 100.0 - 0.5);
        places.map(|x| off(x, terms)).fold(0.0, f64::max)
    };
    let points: Vec<_> = (2..=14).map(|terms| (f64::from(terms), worst(terms))).collect();
    let level = |name: &str, colour: RGBColor, y: f64| Line {
        name: name.to_owned(),
        colour,
        dashed: true,
        points: vec![(2.0, y), (14.0, y)],
    };
    // Half the distance from 1 to the next number: what rounding alone may do.
    let (single, double) = (f64::from(f32::EPSILON) / 2.0, f64::EPSILON / 2.0);
    ensure!(worst(8) < single && worst(7) > single, "eight terms are needed for f32");
    ensure!(worst(14) < double && worst(12) > double, "fourteen are enough for f64");
    page.value("taylor-8", scientific(worst(8), 0));
    let lines = [
        Line { name: "polynomial".to_owned(), colour: BLUE, dashed: false, points },
        level("rounding, f32", VERMILION, single),
        level("rounding, f64", GREEN, double),
    ];
    let title = "Largest relative error of Taylor's polynomial of 2 to the x, over its number of terms";
    let says = "The error falls about a hundredfold with each further term or two, and passes the rounding of f32 at eight terms.";
    page.file(
        "taylor.svg",
        svg("fast-taylor", title, says, (520, 360), |area| {
            let x = Axis::linear("terms", 2.0..14.0);
            let y = Axis::log("largest relative error", 10.0, 1e-17..1.0);
            line_chart(area, &x, &y, &lines, Marks::default())
        })?,
    );
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- the peers

const PEERS: [(&str, &str); 6] = [
    ("pytorch-fused", "PyTorch, fused"),
    ("pytorch-written", "PyTorch, written out"),
    ("numpy", "NumPy"),
    ("candle-flash", "candle, fused"),
    ("candle-written", "candle, written out"),
    ("naive", "this crate, naive"),
];

/// One cell of the table: how many threads, how wide, which mask, which pass, how long.
#[derive(Clone, Copy, PartialEq)]
struct Cell<'a> {
    threads: usize,
    d: u64,
    mask: &'a str,
    pass: &'a str,
    n: u64,
}

fn cell<'a>(m: &'a Measurement) -> Result<Cell<'a>> {
    let size = |name| m.sizes.get(name).copied().with_context(|| format!("no {name}"));
    let setting = |name| {
        m.settings.get(name).map(String::as_str).with_context(|| format!("no {name}"))
    };
    Ok(Cell {
        threads: m.threads,
        d: size("d")?,
        mask: setting("mask")?,
        pass: setting("pass")?,
        n: size("n")?,
    })
}

/// How many times as long as this crate a peer took, cell by cell.
fn ratios<'a>(record: &'a Record, peer: &str) -> Result<Vec<(Cell<'a>, f64)>> {
    let what = format!("attention/{peer} / flash");
    let ratio = |m: &'a Measurement| Ok((cell(m)?, record.in_unit(m, Unit::Ratio)?));
    record.all(&what, "f32").map(ratio).collect()
}

/// The measurement of a cell.
fn in_cell<'a>(
    record: &'a Record,
    what: &str,
    unit: Unit,
    here: Cell,
) -> Result<Option<&'a Measurement>> {
    for m in record.all(what, "f32").filter(|m| m.unit == unit) {
        if cell(m)? == here {
            return Ok(Some(m));
        }
    }
    Ok(None)
}

/// How long somebody took in a cell: the median of the rounds.
fn seconds(record: &Record, name: &str, here: Cell) -> Result<Option<f64>> {
    let found = in_cell(record, &format!("attention/{name}"), Unit::Seconds, here)?;
    Ok(found.map(|m| m.median))
}

/// How many times as long as this crate somebody took in a cell: the median of the rounds' ratios, as everywhere.
fn ratio<'a>(
    record: &'a Record,
    name: &str,
    here: Cell,
) -> Result<Option<&'a Measurement>> {
    in_cell(record, &format!("attention/{name} / flash"), Unit::Ratio, here)
}

/// That a record lacks a time.
fn missing(record: &Record, name: &str, here: Cell) -> String {
    format!("the record `{}` has no time of {name} for {}", record.topic, describe(here))
}

fn peers(page: &mut Page, record: &Record, panel: (u64, u64)) -> Result<()> {
    let fused = ratios(record, "pytorch-fused")?;
    ensure!(
        fused.len() >= 96,
        "the record `peers` has only {} cells against PyTorch",
        fused.len()
    );
    let counted: Vec<_> =
        fused.iter().filter(|(cell, _)| cell.n >= 512).copied().collect();
    let (worst, least) =
        counted.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).context("no cell")?;
    let (best, most) =
        counted.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).context("no cell")?;
    let below = counted.iter().filter(|(_, ratio)| *ratio < 1.0).count();
    page.value("peers-cells", integer(counted.len()));
    page.value(
        "peers-below",
        if below == 0 { "none".to_owned() } else { integer(below) },
    );
    let mean = geometric_mean(&counted.iter().map(|c| c.1).collect::<Vec<_>>());
    page.value("peers-mean", fixed(mean, 2));
    let than =
        Compared::of(mean, 1.0).choose("slower than", "about as fast as", "faster than");
    page.value("than-pytorch", than);
    page.value("worth", worth_in_words(mean));
    for (key, cell, ratio) in [("worst", worst, least), ("best", best, most)] {
        page.value(format!("peers-{key}"), fixed(ratio, 2));
        page.value(format!("peers-{key}-cell"), describe(cell));
    }
    page.value("peers-causal", causal_in_words(best));
    unsure(page, record, &fused)?;
    let short: Vec<_> =
        fused.iter().filter(|(cell, _)| cell.n < 512).map(|c| c.1).collect();
    page.value("peers-short-mean", fixed(geometric_mean(&short), 2));

    let mut rows = vec![];
    let threads: BTreeSet<_> = counted.iter().map(|(cell, _)| cell.threads).collect();
    for threads in threads {
        for pass in ["forward", "forward+backward"] {
            let mut row = vec![integer(threads), pass.replace('+', " + ")];
            for (d, mask) in
                [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")]
            {
                let group = counted.iter().filter(|(cell, _)| {
                    (cell.threads, cell.pass, cell.d, cell.mask)
                        == (threads, pass, d, mask)
                });
                let group: Vec<_> = group.map(|c| c.1).collect();
                row.push(fixed(geometric_mean(&group), 2));
            }
            rows.push(row);
        }
    }
    let header = ["threads", "pass", "d = 64", "64, causal", "d = 128", "128, causal"];
    page.file("means.md", table(&header, &rows));
    times(page, record)?;
    charts(page, record, &fused)?;
    hidden(page, &fused, panel)?;
    layers(page, record)
}

/// Cells that could have come out the other way: by their spread, or by another statistic.
fn unsure(page: &mut Page, record: &Record, fused: &[(Cell, f64)]) -> Result<()> {
    let mut within = 0;
    let (mut turned, mut short) = (vec![], 0);
    for &(cell, _) in fused {
        let ratio = ratio(record, "pytorch-fused", cell)?.context("no ratio")?;
        let time = |name: &str| {
            let found =
                in_cell(record, &format!("attention/{name}"), Unit::Seconds, cell)?;
            found.with_context(|| missing(record, name, cell))
        };
        let (ours, theirs) = (time("flash")?, time("pytorch-fused")?);
        let quotient = theirs.median / ours.median;
        let is_turned = (quotient < 1.0) != (ratio.median < 1.0);
        if cell.n < 512 {
            short += usize::from(is_turned);
        } else {
            within += usize::from((ratio.median - 1.0).abs() < ratio.spread);
            if is_turned {
                turned.push(Turned { cell, quotient, spread: ours.spread / ours.median });
            }
        }
    }
    page.value("peers-within", integer(within));
    page.value("peers-turned", turned_in_words(&turned, short));
    Ok(())
}

/// A cell in which the quotient of the median times says the opposite of the median of the ratios.
struct Turned<'a> {
    cell: Cell<'a>,
    quotient: f64,
    /// Of this crate's times.
    spread: f64,
}

/// The cells that are turned round, and how many shorter ones are.
fn turned_in_words(turned: &[Turned], short: usize) -> String {
    let count = |count: usize| match count {
        0 => "none".to_owned(),
        1 => "one".to_owned(),
        more => integer(more),
    };
    let had = format!(
        "Had the two median times been divided instead, {} of these cells would have come out the other way, and {} of the shorter \
         ones.",
        count(turned.len()),
        count(short)
    );
    let furthest = turned
        .iter()
        .max_by(|a, b| a.quotient.ln().abs().total_cmp(&b.quotient.ln().abs()));
    let Some(Turned { cell, quotient, spread }) = furthest else { return had };
    let which = if turned.len() == 1 { "That one has" } else { "The furthest has" };
    format!(
        "{had} {which} {} ({}): this crate's own times spread by {} there, so its median is probably of other moments than \
         PyTorch's. That is what taking turns is for.",
        fixed(*quotient, 2),
        describe(*cell),
        percent(*spread, 0)
    )
}

/// What the largest ratio has to do with causal masks.
fn causal_in_words(largest: Cell) -> &'static str {
    match (largest.mask, largest.n) {
        ("causal", 512) => {
            "The largest ratios are those of causal masks at 512 tokens, and they have a cause."
        }
        ("causal", _) => {
            "The largest ratio is that of a causal mask, and part of it has a cause."
        }
        _ => "Of the ratios of causal masks, a part has a cause.",
    }
}

/// What the comparison shows.
fn worth_in_words(mean: f64) -> &'static str {
    Compared::of(mean, 1.0).choose(
        "It shows how much is still to be gained on the machine of this record.",
        "It shows that a few hundred lines can keep up.",
        "It shows that what is left over is worth the trouble.",
    )
}

/// How many scores of (n, n) a kernel computes under a causal mask that walks over blocks of `queries` queries, and for each
/// over `keys` keys at a time, as far as its last query sees; the last of them are computed whole.
fn computed(n: u64, queries: u64, keys: u64) -> u64 {
    let blocks =
        (0..n.div_ceil(queries)).map(|i| (i * queries, n.min((i + 1) * queries)));
    blocks.map(|(start, end)| (end - start) * n.min(end.div_ceil(keys) * keys)).sum()
}

/// The same of a walk over blocks of `keys` keys, and for each over `queries` queries at a time, from the first that sees one.
fn computed_back(n: u64, keys: u64, queries: u64) -> u64 {
    let blocks = (0..n.div_ceil(keys)).map(|i| (i * keys, n.min((i + 1) * keys)));
    blocks.map(|(start, end)| (end - start) * (n - start / queries * queries)).sum()
}

/// PyTorch's blocks of queries for a sequence of this length, and its tiles' keys: `flash_attention_kernel_impl` in
/// aten/src/ATen/native/cpu/FlashAttentionKernel.cpp, which has the same numbers for the way back.
fn split_sizes(n: u64) -> (u64, u64) {
    let queries = match n {
        768.. => 256,
        192.. => 64,
        _ => 32,
    };
    (queries, 512)
}

/// What causal masks cost both sides in scores that are computed and then hidden, and what that predicts.
fn hidden(
    page: &mut Page,
    fused: &[(Cell, f64)],
    (panel, numbers): (u64, u64),
) -> Result<()> {
    page.value("split-keys", integer(split_sizes(512).1 as usize));
    let mut rows = vec![];
    let mut gains = vec![];
    for n in [256, 512, 1024, 2048, 4096, 8192] {
        let (queries, keys) = split_sizes(n);
        let theirs = computed(n, queries, keys) as f64;
        let ours = computed(n, panel, numbers) as f64;
        let ours_back = computed_back(n, panel, numbers) as f64;
        let all = (n * n) as f64;
        let mut row = vec![
            integer(n as usize),
            percent(theirs / all, 0),
            percent(ours / all, 0),
            percent(ours_back / all, 0),
        ];
        for (pass, quotient) in [
            ("forward", theirs / ours),
            ("forward+backward", 7.0 * theirs / (2.0 * ours + 5.0 * ours_back)),
        ] {
            let measured = |mask| {
                let here = Cell { threads: 1, d: 64, mask, pass, n };
                let found = fused.iter().find(|(cell, _)| *cell == here);
                found.map(|c| c.1).with_context(|| describe(here))
            };
            let (full, causal) = (measured("full")?, measured("causal")?);
            row.push(fixed(full * quotient, 2));
            row.push(fixed(causal, 2));
            gains.push((pass, n, full * quotient, causal));
        }
        rows.push(row);
    }
    let header = [
        "$n$",
        "PyTorch",
        "this crate",
        "this crate, backward",
        "forward, predicted",
        "measured",
        "forward + backward, predicted",
        "measured",
    ];
    page.file("hidden.md", table(&header, &rows));
    let peaks = ["forward", "forward+backward"].map(|pass| {
        let of_pass = || gains.iter().filter(move |gain| gain.0 == pass);
        let predicted = of_pass().max_by(|a, b| a.2.total_cmp(&b.2));
        let measured = of_pass().max_by(|a, b| a.3.total_cmp(&b.3));
        [predicted, measured].map(|gain| gain.map_or(0, |gain| gain.1))
    });
    page.value("hidden-peaks", peaks_in_words(peaks));
    let off: Vec<_> = gains.iter().map(|g| g.2 / g.3 - 1.0).collect();
    page.value("hidden-off", off_in_words(&off));
    Ok(())
}

/// The lengths at which the ratio under a causal mask is largest, predicted and measured: forward, and with the backward pass.
fn peaks_in_words(peaks: [[u64; 2]; 2]) -> String {
    let [forward, both] = peaks.map(|[predicted, measured]| {
        format!(
            "predicted to be largest at {} tokens, and measured to be so at {}",
            integer(predicted as usize),
            integer(measured as usize)
        )
    });
    format!("Forward, the ratio is {forward}; with the backward pass it is {both}.")
}

/// By which share the forecast is off in each cell.
fn off_in_words(off: &[f64]) -> String {
    let (high, low): (Vec<f64>, Vec<f64>) = off.iter().partition(|off| **off >= 0.0);
    let most = |off: &[f64]| {
        percent(off.iter().fold(0.0, |most: f64, off| most.max(off.abs())), 0)
    };
    let parts: Vec<_> = [("high", &high), ("low", &low)]
        .into_iter()
        .filter(|(_, off)| !off.is_empty())
        .map(|(word, off)| format!("too {word} in {}, by up to {}", off.len(), most(off)))
        .collect();
    format!(
        "Of these {} forecasts none is exact: they are {}. That is not explained.",
        off.len(),
        parts.join(", and ")
    )
}

fn describe(cell: Cell) -> String {
    let Cell { threads, d, mask, pass, n } = cell;
    let threads = match threads {
        1 => "one thread".to_owned(),
        2 => "two threads".to_owned(),
        more => format!("{more} threads"),
    };
    format!(
        "{}, {mask}, d = {d}, n = {}, {threads}",
        pass.replace('+', " and "),
        integer(n as usize)
    )
}

/// This crate's times, at a width of 64 on one thread, and how many times as long everybody else took.
fn times(page: &mut Page, record: &Record) -> Result<()> {
    let mut longest_written = 0;
    let mut candle = vec![];
    for (pass, file, work) in
        [("forward", "times.md", 1.0), ("forward+backward", "times-both.md", 3.5)]
    {
        let mut rows = vec![];
        for mask in ["full", "causal"] {
            for n in [256, 512, 1024, 2048, 4096, 8192] {
                let here = Cell { threads: 1, d: 64, mask, pass, n };
                let ours = seconds(record, "flash", here)?
                    .with_context(|| missing(record, "flash", here))?;
                let work = work * if mask == "causal" { 0.5 } else { 1.0 };
                let flops = work * (4 * HEADS * D) as f64 * (n * n) as f64;
                let mut row = vec![
                    mask.to_owned(),
                    integer(n as usize),
                    duration(ours),
                    fixed(flops / ours / 1e9, 0),
                ];
                for (name, _) in PEERS {
                    let ratio = ratio(record, name, here)?.map(|m| m.median);
                    if name == "candle-flash" {
                        candle.extend(ratio);
                    }
                    if ratio.is_some() && name != "pytorch-fused" {
                        longest_written = longest_written.max(n);
                    }
                    row.push(ratio.map_or_else(|| "–".to_owned(), |r| fixed(r, 2)));
                }
                rows.push(row);
            }
        }
        let names = PEERS.map(|(_, name)| name);
        let header = [&["mask", "$n$", "this crate", "GFLOP/s"][..], &names[..]].concat();
        page.file(file, table(&header, &rows));
    }
    page.value("peers-up-to", integer(longest_written as usize));
    page.value("candle", candle_in_words(&candle));
    // The same comparison as the ladder's, from this record.
    for (key, pass) in [("naive-forward", "forward"), ("naive-both", "forward+backward")]
    {
        let here = Cell { threads: 1, d: D as u64, mask: "full", pass, n: N as u64 };
        let naive = ratio(record, "naive", here)?.context("no naive program")?;
        page.value(format!("peers-{key}"), significant(naive.median, 2));
    }
    Ok(())
}

/// How many times as long as this crate candle's fused kernel took.
fn candle_in_words(ratios: &[f64]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!(
        "Candle's fused kernel takes {} to {} times as long as this crate.",
        significant(least, 2),
        significant(most, 2)
    )
}

/// PyTorch's time over ours, against n.
fn charts(page: &mut Page, record: &Record, fused: &[(Cell, f64)]) -> Result<()> {
    let one_thread = |pass: &str, d: u64, mask: &str| {
        let of_line = |c: &&(Cell, f64)| {
            (c.0.threads, c.0.d, c.0.mask, c.0.pass) == (1, d, mask, pass)
        };
        fused.iter().filter(of_line).copied().collect::<Vec<_>>()
    };
    // The highest point of the second figure at 256 tokens.
    let highest = fused
        .iter()
        .filter(|c| (c.0.threads, c.0.pass, c.0.n) == (1, "forward+backward", 256))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .context("the record `peers` has no cell of 256 tokens")?
        .0;
    let wild = ratio(record, "pytorch-fused", highest)?.context("no ratio")?;
    page.value("peers-wild", wild_in_words(highest, wild.median, wild.spread));
    let most = fused.iter().map(|c| c.1).fold(1.0, f64::max);
    let least = fused.iter().map(|c| c.1).fold(1.0, f64::min);
    let range = (least * 10.0).floor() / 10.0..(most * 2.0).ceil() / 2.0;
    for (pass, file) in [("forward", "peers.svg"), ("forward+backward", "peers-both.svg")]
    {
        let series = [(64, "full"), (128, "full"), (64, "causal"), (128, "causal")];
        let mut lines: Vec<_> = series
            .into_iter()
            .map(|(d, mask)| {
                let points = one_thread(pass, d, mask);
                let points =
                    points.iter().map(|(cell, ratio)| (cell.n as f64, *ratio)).collect();
                let colour = if mask == "full" { BLUE } else { VERMILION };
                Line {
                    name: format!("d = {d}, {mask}"),
                    colour,
                    dashed: d == 128,
                    points,
                }
            })
            .collect();
        lines.push(Line {
            name: "as fast".to_owned(),
            colour: MUTED,
            dashed: true,
            points: vec![(256.0, 1.0), (8192.0, 1.0)],
        });
        let id = format!("fast-{}", file.trim_end_matches(".svg"));
        let title = format!(
            "PyTorch's time divided by this crate's, {}, one thread, against the number of tokens",
            pass.replace('+', " and ")
        );
        let drawn: Vec<_> =
            series.iter().flat_map(|(d, mask)| one_thread(pass, *d, mask)).collect();
        let says = chart_in_words(&drawn);
        page.file(
            file,
            svg(&id, &title, &says, (380, 380), |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 256.0..8192.0);
                let y = Axis::linear("PyTorch's time / ours", range.clone());
                line_chart(area, &x, &y, &lines, Marks::default())
            })?,
        );
    }
    Ok(())
}

/// What is to be seen in a figure of these points.
fn chart_in_words(points: &[(Cell, f64)]) -> String {
    let above = points.iter().filter(|point| point.1 > 1.0).count();
    let above = if above == points.len() {
        "All points lie".to_owned()
    } else {
        format!("{above} of {} points lie", points.len())
    };
    let peak = |d: u64| {
        let line = points.iter().filter(|(cell, _)| (cell.d, cell.mask) == (d, "causal"));
        line.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(cell, _)| cell.n)
    };
    let peaks = match (peak(64), peak(128)) {
        (one, other) if one == other => format!("{one} tokens"),
        (one, other) => format!("{one} tokens for d = 64 and {other} for d = 128"),
    };
    format!(
        "{above} above the dashed line at 1, where this crate is the faster one. The lines of causal masks are highest at {peaks}."
    )
}

/// A point that is far from 1, if its spread is as wide as that.
fn wild_in_words(cell: Cell, ratio: f64, spread: f64) -> String {
    if spread < 0.5 * (ratio - 1.0).abs() {
        return String::new();
    }
    format!(
        "The highest point of the second figure at 256 tokens, {} ({}), says little: the spread of its rounds is {}.",
        fixed(ratio, 2),
        describe(cell),
        fixed(spread, 2)
    )
}

/// The naive layer in f64 beside the same layer in NumPy.
fn layers(page: &mut Page, record: &Record) -> Result<()> {
    let what = "layer/numpy / naive";
    let found: Vec<_> = record.all(what, "f64").collect();
    ensure!(!found.is_empty(), "no layer beside NumPy's");
    let least = found.iter().map(|m| m.median).fold(f64::MAX, f64::min);
    let ratios: Vec<_> = found.iter().map(|m| m.median).collect();
    let mean = geometric_mean(&ratios);
    let layer = Compared::of(mean, 1.0).choose(
        "In one comparison this crate loses.",
        "In one comparison neither side wins.",
        "One more comparison was made.",
    );
    page.value("layer", layer);
    let lengths = found.iter().filter_map(|m| m.sizes.get("n").copied());
    let (shortest, longest) =
        (lengths.clone().min().context("no n")?, lengths.max().context("no n")?);
    page.value("layer-shortest", integer(shortest as usize));
    page.value("layer-longest", integer(longest as usize));
    page.value("layer-cells", integer(found.len()));
    page.value("layer-wins", integer(found.iter().filter(|m| m.median > 1.0).count()));
    page.value("layer-least", fixed(least, 2));
    page.value("layer-mean", fixed(mean, 2));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::committed;

    fn gain(number: usize, predicted: f64, measured: f64) -> Gain {
        Gain { number, predicted, measured }
    }

    const CELL: Cell =
        Cell { threads: 1, d: 64, mask: "causal", pass: "forward", n: 512 };

    #[test]
    fn caches_are_named_as_far_as_they_are_known() {
        let [record] = committed().of_one_machine(["parts"]).unwrap();
        let words = |caches: &[(u32, u64)]| {
            let caches = caches.iter().map(|&(level, kib)| record::Cache {
                level,
                kind: "Unified".to_owned(),
                bytes: kib << 10,
            });
            let machine = Machine { caches: caches.collect(), ..record.machine.clone() };
            five_tiles_in_words(80 << 10, &machine)
        };
        assert_eq!(words(&[]), "80\u{202f}KiB");
        assert!(
            words(&[(1, 128)]).ends_with("they fit the first cache (128\u{202f}KiB)")
        );
        assert!(
            words(&[(1, 32)]).ends_with("more than the first cache has (32\u{202f}KiB)")
        );
        assert!(words(&[(1, 32), (2, 1024)]).contains("little for the second"));
        assert!(words(&[(1, 32), (2, 128)]).contains("but they fit the second"));
        assert!(words(&[(1, 32), (2, 64)]).contains("and more than the second"));

        let tiles = |first, second| tiles_cache_in_words(512, 128, [first, second]);
        assert_eq!(tiles(None, Some(1024)), "");
        assert_eq!(tiles(Some(128), Some(512)).matches("fit the first").count(), 1);
        assert_eq!(tiles(Some(128), Some(512)).matches("fit the second").count(), 1);
        assert!(tiles(Some(16), Some(128)).contains("fit neither"));
    }

    #[test]
    fn steps_are_told_as_they_came_out() {
        assert_eq!(gain(4, 1.36, 1.3).predicted_in_words(), "a factor of 1.36");
        assert!(gain(4, -2.0, 1.3).predicted_in_words().starts_with("impossible"));
        assert!(gain(4, -2.0, 1.3).surprise() > gain(3, 1.0, 9.0).surprise());
        assert!(gain(3, 1.0, 1.7).surprise() > gain(4, 1.3, 1.4).surprise());

        assert!(tiled_in_words(&gain(2, 1.0, 0.56)).contains("goes down"));
        assert!(tiled_in_words(&gain(2, 1.0, 0.56)).contains("takes 1.79 times"));
        assert!(tiled_in_words(&gain(2, 1.0, 1.0)).contains("stays level"));
        assert!(tiled_in_words(&gain(2, 1.0, 1.5)).contains("pays at once"));
        let told = |predicted, measured, both: [f64; 2]| {
            tiled_predicted_in_words(&gain(2, predicted, measured), &both)
        };
        assert!(told(0.88, 0.56, [0.9, 0.9]).contains("falls far short"));
        assert!(told(0.88, 0.56, [0.9, 0.9]).contains("no loss"));
        assert!(told(0.88, 0.75, [0.9, 1.1]).contains("falls short"));
        assert!(told(0.88, 0.75, [0.9, 1.1]).contains("take 0.90 and 1.10 times"));
        assert!(told(0.88, 0.88, [0.9, 1.1]).contains("what was measured"));
        assert!(told(0.88, 1.2, [0.9, 1.1]).contains("longer than was measured"));
        assert!(told(-0.88, 1.2, [0.9, 1.1]).contains("no program can take"));

        let told = |predicted, measured, rests| {
            scratch_in_words(&gain(3, predicted, measured), &gain(2, 0.88, 0.56), rests)
        };
        assert!(told(1.02, 1.73, [0.5, 0.1]).contains("hardly the copies"));
        assert!(told(1.02, 1.73, [0.5, 0.1]).contains("Together these must be"));
        assert!(!told(1.5, 1.6, [0.5, 0.1]).contains("hardly the copies"));
        assert!(told(1.5, 1.6, [0.5, 0.1]).contains("None of these was timed"));
        assert!(told(1.5, 1.6, [0.5, -0.1]).contains("do not tell"));

        assert!(rest_in_words(0.9, 0.8, 0.1).starts_with("By themselves"));
        assert!(rest_in_words(1.0, 0.8, 0.1).contains("the remaining 10"));
        assert!(rest_in_words(1.0, 0.8, 0.3).contains("more than all of it"));
        assert_eq!(
            [0.8, 0.3].map(most_in_words),
            ["most of our time", "a part of our time"]
        );
        assert!(near_in_words(3.52).starts_with("as near"));
        assert!(near_in_words(2.0).starts_with("nearer"));
        assert!(near_in_words(5.0).starts_with("less near"));
    }

    #[test]
    fn tiles_are_praised_as_far_as_they_pay() {
        let causal = |before| causal_tiles_in_words(before, 1.0);
        assert!(causal(1.0).contains("gains nothing"));
        assert!(causal(1.2).contains("gains, too"));
        assert!(causal(0.8).contains("loses"));
        assert!(causal_registers_in_words(1.0, 1.5).contains("1.50, beside 1.00"));
        assert_eq!(behind_in_words(0.0, 1.2), "the best of the table");
        assert!(behind_in_words(0.02, 1.2).ends_with("is less than two runs differ by"));
        assert!(behind_in_words(0.4, 1.2).ends_with("is more than two runs differ by"));
    }

    #[test]
    fn runs_are_compared_as_far_as_they_can_be() {
        let gains = [gain(2, 1.0, 0.5), gain(3, 1.0, 1.1), gain(4, 1.0, 0.95)];
        let words = again_in_words(1.2, 0.1, &gains);
        assert!(
            words.contains("more from one") && words.contains("steps 3 and 4"),
            "{words}"
        );
        let words = again_in_words(1.07, 0.1, &gains);
        assert!(
            words.contains("as much within") && words.contains("gain of step 4"),
            "{words}"
        );
        assert!(again_in_words(1.01, 0.1, &gains).contains("every step"));
        let [ladder, peers] = committed().of_one_machine(["ladder", "peers"]).unwrap();
        let mut later = peers.clone();
        later.versions.insert("commit".to_owned(), "a later one".to_owned());
        let both = again_where_in_words(&ladder, Some(&later));
        assert!(
            both.contains("beside the others") && both.contains("of commit"),
            "{both}"
        );
        assert!(!again_where_in_words(&ladder, Some(&ladder)).contains("of commit"));
        assert!(!again_where_in_words(&ladder, None).contains("beside the others"));
        assert_eq!(other_machine_in_words(Some(&peers), &peers.machine), "");
        assert!(
            other_machine_in_words(None, &peers.machine).contains(&peers.machine.cpu)
        );
    }

    #[test]
    fn peers_are_told_as_they_came_out() {
        let turned = |quotient| Turned { cell: CELL, quotient, spread: 0.2 };
        let one = turned_in_words(&[turned(0.95)], 1);
        assert!(
            one.contains("one of these cells") && one.contains("one of the shorter"),
            "{one}"
        );
        assert!(one.contains("That one has 0.95 (forward, causal"), "{one}");
        let two = turned_in_words(&[turned(0.95), turned(1.5)], 0);
        assert!(
            two.contains("2 of these cells") && two.contains("The furthest has 1.50"),
            "{two}"
        );
        assert!(turned_in_words(&[], 0).ends_with("none of the shorter ones."));
        assert!(causal_in_words(CELL).contains("at 512 tokens"));
        assert!(
            causal_in_words(Cell { n: 1024, ..CELL }).contains("that of a causal mask")
        );
        assert!(causal_in_words(Cell { mask: "full", ..CELL }).contains("Of the ratios"));
        assert!(worth_in_words(1.2).contains("worth the trouble"));
        assert!(worth_in_words(1.0).contains("keep up"));
        assert!(worth_in_words(0.8).contains("still to be gained"));
        assert!(
            peaks_in_words([[512, 1024], [512, 256]])
                .contains("at 512 tokens, and measured to be so at 1\u{202f}024; with")
        );
        assert!(off_in_words(&[0.1, 0.2, -0.3]).contains(
            "too high in 2, by up to 20\u{202f}%, and too low in 1, by up to 30"
        ));
        assert!(!off_in_words(&[0.1, 0.2]).contains("low"));
        assert_eq!(candle_in_words(&[]), "");
        assert!(candle_in_words(&[0.5, 7.0]).contains("0.50 to 7.0 times"));
        let points = [(CELL, 1.2), (Cell { d: 128, ..CELL }, 1.1)];
        assert!(chart_in_words(&points).starts_with("All points"));
        assert!(chart_in_words(&points).ends_with("highest at 512 tokens."));
        let points = [(CELL, 0.9), (Cell { d: 128, n: 256, ..CELL }, 1.1)];
        assert!(chart_in_words(&points).starts_with("1 of 2 points"));
        assert!(
            chart_in_words(&points)
                .ends_with("512 tokens for d = 64 and 256 for d = 128.")
        );
        assert_eq!(wild_in_words(CELL, 1.4, 0.1), "");
        assert!(wild_in_words(CELL, 1.4, 0.4).contains("says little"));
    }

    #[test]
    fn a_few_round_numbers_stand_below_the_bars() {
        let about =
            |longest: f64, expected: f64| (tick(longest) / expected - 1.0).abs() < 1e-9;
        assert!(
            about(0.41, 0.1) && about(0.82, 0.2) && about(2.4, 0.5) && about(30.0, 10.0)
        );
        assert!(about(0.004, 0.001) && about(0.0017, 0.0005));
    }

    /// By asking for each score whether it is computed.
    #[test]
    fn scores_are_counted_as_tiles_compute_them() {
        for (n, queries, keys) in [(8, 2, 8), (8, 4, 2), (10, 4, 3), (7, 8, 8)] {
            let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
            let last = |i: u64| n.min((i / queries + 1) * queries) - 1; // of the block's rows
            let brute = pairs().filter(|&(i, j)| j / keys * keys <= last(i)).count();
            assert_eq!(
                computed(n, queries, keys),
                brute as u64,
                "{n}, {queries}, {keys}"
            );
            // Here i is a key, in blocks, and j a query.
            let first = |i: u64| i / queries * queries / keys * keys;
            let brute = pairs().filter(|&(i, j)| j >= first(i)).count();
            assert_eq!(computed_back(n, queries, keys), brute as u64, "{n}, back");
        }
    }
}
