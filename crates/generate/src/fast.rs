//! Making it fast: what each step was foretold to bring and what it brought, and the peers.

use crate::double::Double;
use crate::figure::{
    Area, Axis, BLUE, GREEN, Line, MUTED, Marks, TEXT, VERMILION, label, left_aligned,
    line_chart, svg,
};
use crate::format::{
    bytes, duration, fixed, integer, percent, scientific, significant, table,
};
use crate::output::Page;
use crate::records::{provenance, provenance_of};
use anyhow::{Context, Result, ensure};
use attention::flash::Flash;
use plotters::prelude::{Circle, PathElement, Rectangle, Text};
use plotters::style::{Color, RGBColor};
use record::{Measurement, Record, Unit};

pub fn generate(page: &mut Page) -> Result<()> {
    let [mut ladder, parts_alone, roofline] =
        page.records.of_one_machine(["ladder", "parts", "roofline"])?;
    let others = [("the parts by themselves", &parts_alone), ("the roofline", &roofline)];
    page.value("where", provenance_of(&ladder, &others));
    ladder.measurements.extend(parts_alone.measurements);
    let roof = roof(&ladder, &roofline)?;
    page.value("roof", fixed(roof / 1e9, 0));
    parts(page, &ladder, roof)?;
    steps(page, &ladder, roof)?;
    both(page, &ladder, roof)?;
    tile_sizes(page, &ladder)?;
    polynomial(page)?;
    let [record] = page.records.of_one_machine(["peers"])?;
    page.value("peers-where", provenance(&record));
    again(page, &ladder, &record)?;
    peers(page, &record)
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
    let first =
        found.next().with_context(|| format!("no measurement {what} of {sizes:?}"))?;
    ensure!(found.next().is_none(), "several measurements {what} of {sizes:?}");
    Ok(first)
}

/// The seconds of one product of tiles, `rows` × `columns` from width D.
fn product(
    record: &Record,
    library: &str,
    (rows, columns): (usize, usize),
) -> Result<f64> {
    let sizes = [("n", rows), ("columns", columns)];
    Ok(find(record, &format!("parts/product {library}"), &sizes)?.median)
}

fn rate(seconds: f64, (rows, columns): (usize, usize)) -> f64 {
    (2 * rows * columns * D) as f64 / seconds
}

/// The fastest product of all that were measured: no program whose work is products can be faster.
fn roof(ladder: &Record, roofline: &Record) -> Result<f64> {
    let mut best = 0.0_f64;
    for m in roofline.all("arithmetic/product", "f32") {
        let n = *m.sizes.get("n").context("a product without n")? as f64;
        best = best.max(2.0 * n.powi(3) / m.median);
    }
    for library in ["matrixmultiply", "gemmkit"] {
        for tile in [(SMALL, SMALL), LARGE] {
            best = best.max(rate(product(ladder, library, tile)?, tile));
        }
    }
    // What the chapter says in words.
    ensure!(
        best == rate(product(ladder, "gemmkit", LARGE)?, LARGE),
        "the roof is the rate of gemmkit's product of a large tile"
    );
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
    let mut last = f64::INFINITY;
    for (way, name) in [
        ("one by one", "one call of the system's `exp2f` each"),
        ("portable", "polynomial, instructions of every x86-64"),
        ("vector", "polynomial, the widest instructions there are"),
    ] {
        let seconds = exponential(record, way)?;
        ensure!(seconds < last, "each way to exponentiate is faster than the one before");
        last = seconds;
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

    let mut rows = vec![];
    for tile in [(SMALL, SMALL), LARGE] {
        let of = |library| product(record, library, tile).map(|t| rate(t, tile) / 1e9);
        let (slow, fast) = (of("matrixmultiply")?, of("gemmkit")?);
        ensure!(fast > slow, "gemmkit is the faster one at {tile:?}");
        let name = format!("{} × {}", tile.0, tile.1);
        rows.push(vec![name, fixed(slow, 0), fixed(fast, 0)]);
    }
    let header = ["tile", "matrixmultiply, GFLOP/s", "gemmkit, GFLOP/s"];
    page.file("products.md", table(&header, &rows));

    let small = product(record, "matrixmultiply", (SMALL, SMALL))?;
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
    let cache = |level| {
        let of_level = |c: &&record::Cache| c.level == level && c.kind != "Instruction";
        let cache = record.machine.caches.iter().find(of_level);
        cache.map(|c| c.bytes).with_context(|| format!("no cache of level {level}"))
    };
    let (first, second) = (cache(1)?, cache(2)?);
    page.value("small-tile", bytes(one_tile.into()));
    page.value("five-tiles", bytes((5 * one_tile).into()));
    page.value("first-cache", bytes(first.into()));
    page.value("second-cache", bytes(second.into()));

    // What the chapter says in words.
    let (small, whole) = (rate(small, (SMALL, SMALL)), rate(whole, (N, N)));
    ensure!(small < whole, "a small product is slower, entry by entry");
    ensure!(
        first < 5 * one_tile && 5 * one_tile < second,
        "five tiles fit the second cache and not the first"
    );
    for tiles in [Flash::TILES, Flash::TILES_IF_MASKED] {
        let tile = (tiles.queries * tiles.keys * size_of::<f32>()) as u64;
        ensure!(tile < second, "a tile fits the second cache");
    }
    let large = (Flash::TILES.queries * Flash::TILES.keys * size_of::<f32>()) as u64;
    ensure!(
        2 * large == second,
        "two of the larger tiles are as large as the second cache"
    );
    let calls = exponential(record, "one by one")? * roof;
    ensure!((100.0..1000.0).contains(&calls), "hundreds of operations");
    page.value("exp-operations", significant(calls, 1));
    Ok(())
}

/// A step, the name of its measurement, and what it changes.
const STEPS: [(&str, &str); 8] = [
    ("naive", "the matrix of weights, head by head"),
    ("tiled", "tiles of 64 × 64, as in *Tiles, forward*"),
    ("scratch", "one scratch memory; softmax goes column by column"),
    ("portable", "exponentials by polynomial"),
    ("vector", "the widest vector instructions"),
    ("products", "products from another library"),
    ("tiles", "larger tiles"),
    ("threads", "two threads"),
];

/// What a step exchanges: so many of a part that takes so long come (or go, if the number is negative).
type Exchange = Vec<(f64, f64)>;

/// What each step but the last exchanges for what the one before it had.
fn exchanged(record: &Record, step: &str) -> Result<Exchange> {
    let tiles = |rows: usize, columns: usize| (HEADS * (N / rows) * (N / columns)) as f64;
    let small = tiles(SMALL, SMALL);
    let copied = find(record, "parts/copied tile", &[])?.median;
    let of_small = |library| product(record, library, (SMALL, SMALL));
    let exponentials = |from: &str, to: &str| -> Result<Exchange> {
        let (from, to) = (exponential(record, from)?, exponential(record, to)?);
        Ok(vec![(-scores(), from), (scores(), to)])
    };
    Ok(match step {
        // Two large products a head become two small ones a tile, and tiles are copied.
        "tiled" => vec![
            (-2.0 * HEADS as f64, find(record, "parts/product whole", &[])?.median),
            (2.0 * small, of_small("matrixmultiply")?),
            (5.0 * small, copied),
        ],
        // The transpose of the keys, the product, a copy of the scores, a copy of the values, their product.
        "scratch" => vec![(-5.0 * small, copied)],
        "portable" => exponentials("one by one", "portable")?,
        "vector" => exponentials("portable", "vector")?,
        "products" => vec![
            (-2.0 * small, of_small("matrixmultiply")?),
            (2.0 * small, of_small("gemmkit")?),
        ],
        "tiles" => vec![
            (-2.0 * small, of_small("gemmkit")?),
            (2.0 * tiles(LARGE.0, LARGE.1), product(record, "gemmkit", LARGE)?),
        ],
        other => anyhow::bail!("nothing is foretold for {other}"),
    })
}

/// The time that is foretold for a step, from the measured time of the one before and the parts that it exchanges; and how.
fn foretold(record: &Record, step: &str, before: f64) -> Result<(f64, String)> {
    if step == "threads" {
        return Ok((before / 2.0, format!("{} / 2", duration(before))));
    }
    let exchange = exchanged(record, step)?;
    let foretold =
        before + exchange.iter().map(|(count, each)| count * each).sum::<f64>();
    let terms = exchange.iter().map(|(count, each)| {
        let sign = if *count < 0.0 { '−' } else { '+' };
        format!(" {sign} {} × {}", integer(count.abs() as usize), duration(*each))
    });
    let sum = format!(
        "{}{} = {}",
        duration(before),
        terms.collect::<String>(),
        duration(foretold)
    );
    Ok((foretold, sum))
}

fn time(record: &Record, pass: &str, step: &str) -> Result<f64> {
    Ok(find(record, &format!("ladder/{pass} {step}"), &[])?.median)
}

fn steps(page: &mut Page, record: &Record, roof: f64) -> Result<()> {
    let mut rows = vec![];
    let (mut measured, mut predictions) = (vec![], vec![]);
    for (i, (step, change)) in STEPS.iter().enumerate() {
        let seconds = time(record, "forward", step)?;
        let speed = flops() / seconds;
        let mut row = vec![format!("{} **{step}**: {change}", i + 1)];
        if let Some(&before) = measured.last() {
            let (prediction, sum) = foretold(record, step, before)?;
            ensure!(prediction > 0.0, "a negative time is foretold for {step}");
            predictions.push(Some(prediction));
            if *step != "threads" {
                page.value(format!("sum-{step}"), sum);
            }
            row.push(duration(prediction));
            row.push(duration(seconds));
            row.push(format!("{}\u{202f}×", fixed(before / seconds, 2)));
            // What the chapter says in words.
            let slower = *step == "tiled";
            ensure!(
                (seconds > before) == slower,
                "{step}: faster than the step before, but for tiles"
            );
            if slower {
                page.value("slower-tiled", fixed(seconds / before, 2));
                page.value("slower-foretold", fixed(prediction / before, 2));
            } else {
                page.value(format!("gain-{step}"), fixed(before / seconds, 2));
                if *step != "threads" {
                    // Two threads are foretold to be twice as fast, in words.
                    let gain = fixed(before / prediction, 2);
                    page.value(format!("foretold-{step}"), gain);
                }
            }
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
    let header = ["step", "foretold", "measured", "gain", "GFLOP/s", "of the roof"];
    page.file("steps.md", table(&header, &rows));
    page.value("n", integer(N));
    page.value("d", integer(D));
    page.value("heads", integer(HEADS));
    page.value("gain-one-thread", significant(measured[0] / measured[6], 2));

    // What is neither a product nor an exponential, before and after the loops were laid out anew.
    let small = (HEADS * (N / SMALL) * (N / SMALL)) as f64;
    let needed = 2.0 * small * product(record, "matrixmultiply", (SMALL, SMALL))?
        + scores() * exponential(record, "one by one")?;
    for (key, step) in [("tiled", 1), ("scratch", 2)] {
        let rest = 1.0 - needed / measured[step];
        ensure!(rest > 0.0, "the parts are no more than the whole of {key}");
        page.value(format!("rest-{key}"), percent(rest, 0));
    }

    // What is left of the time of one thread, by the parts.
    let seconds = measured[6];
    let products = flops() / rate(product(record, "gemmkit", LARGE)?, LARGE);
    let exponentials = scores() * exponential(record, "vector")?;
    // With products at the roof, their share of the time is the share of the roof: `roof-tiles`.
    page.value("rest-exponentials", percent(exponentials / seconds, 0));
    page.value("rest-others", percent(1.0 - (products + exponentials) / seconds, 0));
    ensure!(products + exponentials < seconds, "the parts are no more than the whole");

    let bars: Vec<_> = STEPS
        .iter()
        .zip(measured.iter().zip(&predictions))
        .map(|((step, _), (&measured, &foretold))| Bar { step, measured, foretold })
        .collect();
    // What the description says.
    ensure!(
        (2..8).all(|i| measured[i] < measured[i - 1]) && measured[1] > measured[0],
        "one step up, and from there on down"
    );
    let title = "Time of each step of the ladder, forward, measured and foretold";
    let says = format!(
        "From {} for naive the bars rise to {} for tiled and then become shorter with each step, to {} for threads. Rings are \
         near the ends of the bars, but for tiled, where the ring is far to the left of the end, and for scratch, where it is \
         far to the right.",
        duration(measured[0]),
        duration(measured[1]),
        duration(measured[7])
    );
    for (i, bar) in bars.iter().enumerate() {
        let off = bar.foretold.map_or(0.0, |foretold| foretold / bar.measured - 1.0);
        let far = if off < -0.3 { "tiled" } else { "scratch" };
        ensure!(
            off.abs() < 0.15 || bar.step == far && (1..=2).contains(&i),
            "{}: the ring is off by {off}",
            bar.step
        );
    }
    page.file(
        "steps.svg",
        svg("fast-steps", title, &says, (520, 380), |area| draw_bars(area, &bars))?,
    );
    Ok(())
}

/// One step of the ladder in the figure, in seconds.
struct Bar {
    step: &'static str,
    measured: f64,
    foretold: Option<f64>,
}

/// A bar for what was measured and a ring for what was foretold, step by step from top to bottom.
fn draw_bars(area: &Area, bars: &[Bar]) -> Result<()> {
    const LEFT: i32 = 104; // where the bars begin
    const TOP: i32 = 38;
    const ROW: i32 = 34;
    const HALF: i32 = 10; // of a bar's height
    const TICK: f64 = 0.1; // seconds from one line to the next
    let longest = bars.iter().flat_map(|bar| [bar.measured, bar.foretold.unwrap_or(0.0)]);
    let longest = longest.fold(0.0, f64::max);
    let width = f64::from(area.dim_in_pixel().0 as i32 - LEFT - 84);
    let place = |seconds: f64| LEFT + (width * seconds / longest).round() as i32;
    let bottom = TOP + ROW * bars.len() as i32;

    let filled = BLUE.mix(0.45).filled();
    let ring = |x, y| Circle::new((x, y), 5, TEXT.stroke_width(2));
    area.draw(&Rectangle::new([(LEFT, 6), (LEFT + 28, 22)], filled))?;
    area.draw(&Text::new("measured", (LEFT + 36, 14), left_aligned()))?;
    area.draw(&ring(LEFT + 160, 14))?;
    let says = "foretold from the step before";
    area.draw(&Text::new(says, (LEFT + 174, 14), left_aligned()))?;

    for tick in 0..=(longest / TICK) as usize {
        let seconds = TICK * tick as f64;
        let line = vec![(place(seconds), TOP), (place(seconds), bottom)];
        area.draw(&PathElement::new(line, MUTED.mix(0.25)))?;
        label(area, (place(seconds), bottom + 14), &fixed(1e3 * seconds, 0), TEXT)?;
    }
    label(area, (place(longest / 2.0), bottom + 42), "milliseconds", TEXT)?;
    for (i, Bar { step, measured, foretold }) in bars.iter().enumerate() {
        let middle = TOP + ROW * i as i32 + ROW / 2;
        let corners = [(LEFT, middle - HALF), (place(*measured), middle + HALF)];
        area.draw(&Rectangle::new(corners, filled))?;
        let name = format!("{} {step}", i + 1);
        area.draw(&Text::new(name, (4, middle), left_aligned()))?;
        let mut end = place(*measured);
        if let Some(foretold) = foretold {
            area.draw(&ring(place(*foretold), middle))?;
            // The time stands at the end of its bar, or behind the ring if that is in its way.
            let ring = place(*foretold);
            if (end - 6..end + 84).contains(&ring) {
                end = end.max(ring + 6);
            }
        }
        area.draw(&Text::new(duration(*measured), (end + 8, middle), left_aligned()))?;
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
            let seconds = time(record, pass, step)?;
            let share = work * flops() / seconds / (roofs * roof);
            row.push(format!("{} ({})", duration(seconds), percent(share, 0)));
        }
        rows.push(row);
    }
    let header =
        ["step", "forward", "forward, causal", "forward + backward", "both, causal"];
    page.file("both.md", table(&header, &rows));
    let ratio = time(record, "both", "tiles")? / time(record, "forward", "tiles")?;
    page.value("both-over-forward", fixed(ratio, 1));
    let naive = time(record, "both", "naive")? / time(record, "both", "tiles")?;
    page.value("gain-both", significant(naive, 2));
    // Larger tiles gain nothing under a causal mask.
    for (pass, key) in [("forward causal", "forward"), ("both causal", "both")] {
        let (before, after) =
            (time(record, pass, "products")?, time(record, pass, "tiles")?);
        ensure!((0.95..1.05).contains(&(before / after)), "{pass}: tiles gain nothing");
        page.value(format!("causal-{key}-products"), duration(before));
        page.value(format!("causal-{key}-tiles"), duration(after));
    }
    // D again for each of four stripes, beside five products backward: 4 · 2 n d of 10 n² d.
    page.value("again-d", percent(4.0 * 2.0 / (10.0 * N as f64), 2));
    // What the chapter says in words.
    for pass in ["both", "both causal"] {
        let (tiled, naive) = (time(record, pass, "tiled")?, time(record, pass, "naive")?);
        ensure!(tiled < naive, "{pass}: tiles are no loss");
    }
    page.value(
        "roof-tiles",
        percent(flops() / time(record, "forward", "tiles")? / roof, 0),
    );
    Ok(())
}

/// The time over the sizes of tiles.
fn tile_sizes(page: &mut Page, record: &Record) -> Result<()> {
    const SIZES: [usize; 4] = [64, 128, 256, 512];
    for (how, file, work, default) in [
        ("forward", "tile-sizes.md", 1.0, Flash::TILES),
        ("forward causal", "tile-sizes-causal.md", 0.5, Flash::TILES_IF_MASKED),
    ] {
        let causal = how != "forward";
        let measured = |queries: usize, keys: usize| {
            find(record, &format!("tiles/{how}"), &[("queries", queries), ("keys", keys)])
        };
        let speed = |queries, keys| {
            anyhow::Ok(work * flops() / measured(queries, keys)?.median / 1e9)
        };
        let mut rows = vec![];
        let mut best = (0.0, (0, 0));
        for queries in SIZES {
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
        let key = how.replace(' ', "-");
        let behind = 1.0 - speed(default.queries, default.keys)? / best.0;
        ensure!(
            behind < 0.05,
            "the tile that `Flash` takes for {how}, {default:?}, is slower than the best by 5 %"
        );
        let tile = |queries, keys| format!("{queries} × {keys}");
        let (queries, keys) = best.1;
        page.value(format!("default-{key}"), tile(default.queries, default.keys));
        page.value(format!("best-tile-{key}"), tile(queries, keys));
        let mut header = vec!["queries \\ keys", "64", "128", "256", "512"];
        if causal {
            header.push("computed, then hidden");
            page.value("default-behind", percent(behind, 1));
            // What the chapter says in words.
            ensure!(
                (queries, keys) == (default.queries, 2 * default.keys),
                "the tile that `Flash` takes is half of the best"
            );
            for queries in [64, 128] {
                let speeds: Vec<_> = SIZES
                    .map(|keys| speed(queries, keys))
                    .into_iter()
                    .collect::<Result<_>>()?;
                ensure!(
                    speeds.is_sorted(),
                    "with {queries} queries, more keys are faster"
                );
            }
            for keys in [256, 512] {
                ensure!(
                    speed(256, keys)? < speed(512, keys)?,
                    "256 queries are slower than 512, with {keys} keys"
                );
            }
            let spreads =
                [256, 512].map(|keys| measured(256, keys).map(|m| m.spread / m.median));
            let spreads: Vec<f64> = spreads.into_iter().collect::<Result<_>>()?;
            page.value(
                "row-256-spread",
                percent(spreads.into_iter().fold(0.0, f64::max), 0),
            );
        } else {
            ensure!(
                best.1 == (default.queries, default.keys),
                "without a mask the default is the best"
            );
            let gain = speed(best.1.0, best.1.1)? / speed(SMALL, SMALL)?;
            page.value("gain-tiles-sizes", fixed(gain, 2));
        }
        page.file(file, table(&header, &rows));
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------------- measured again

/// The same computation in several runs: how far their medians are apart.
fn again(page: &mut Page, ladder: &Record, peers: &Record) -> Result<()> {
    ensure!(ladder.machine == peers.machine, "ladder and peers are of two machines");
    let beside = |name: &str, threads, mask, pass| {
        let here = Cell { threads, d: D as u64, mask, pass, n: N as u64 };
        seconds(peers, name, here)?.with_context(|| format!("no time of {name}"))
    };
    let mut rows = vec![];
    let mut largest = 1.0_f64;
    for (step, name, threads) in [
        ("naive", Some("naive"), 1),
        ("products", None, 1),
        ("tiles", Some("flash"), 1),
        ("threads", Some("flash"), 2),
    ] {
        for (pass, mask, words, pass_beside) in [
            ("forward", "full", "forward", "forward"),
            ("forward causal", "causal", "forward, causal", "forward"),
            ("both", "full", "forward + backward", "forward+backward"),
            ("both causal", "causal", "both, causal", "forward+backward"),
        ] {
            let tiles = match (step, pass) {
                ("products", "forward" | "forward causal") => Some((SMALL, SMALL)),
                ("tiles", "forward") => Some((Flash::TILES.queries, Flash::TILES.keys)),
                ("tiles", "forward causal") => {
                    Some((Flash::TILES_IF_MASKED.queries, Flash::TILES_IF_MASKED.keys))
                }
                _ => None,
            };
            let sizes = tiles.map(|(queries, keys)| {
                find(
                    ladder,
                    &format!("tiles/{pass}"),
                    &[("queries", queries), ("keys", keys)],
                )
            });
            let times = [
                Some(time(ladder, pass, step)?),
                sizes.transpose()?.map(|m| m.median),
                name.map(|name| beside(name, threads, mask, pass_beside)).transpose()?,
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
    page.value("again-most", fixed(largest, 2));
    let mut spreads: Vec<_> = ladder
        .measurements
        .iter()
        .filter(|m| m.what.starts_with("ladder/") || m.what.starts_with("tiles/"))
        .map(|m| m.spread / m.median)
        .collect();
    spreads.sort_by(f64::total_cmp);
    page.value("spread-half", percent(spreads[spreads.len() / 2], 1));
    page.value("spread-most", percent(spreads[spreads.len() - 1], 0));
    // What the chapter says in words.
    for (before, step, lost) in [
        ("portable", "vector", true),
        ("products", "tiles", true),
        ("scratch", "portable", false),
        ("vector", "products", false),
    ] {
        let gain = time(ladder, "forward", before)? / time(ladder, "forward", step)?;
        ensure!(
            (gain < largest) == lost,
            "{step}: a gain of {gain}, where runs differ by {largest}"
        );
    }
    let bench = include_str!("../../attention/benches/support/mod.rs");
    let samples =
        bench.split_once(".sample_size(").and_then(|(_, rest)| rest.split_once(')'));
    page.value("samples", samples.context("how many samples are there?")?.0);
    Ok(())
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
    record.all(&what, "f32").map(|m| Ok((cell(m)?, m.median))).collect()
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

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<_> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn peers(page: &mut Page, record: &Record) -> Result<()> {
    let fused = ratios(record, "pytorch-fused")?;
    ensure!(fused.len() >= 96, "{} cells against PyTorch", fused.len());
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
    page.value("peers-mean", fixed(geometric_mean(counted.iter().map(|c| c.1)), 2));
    for (key, cell, ratio) in [("worst", worst, least), ("best", best, most)] {
        page.value(format!("peers-{key}"), fixed(ratio, 2));
        page.value(format!("peers-{key}-cell"), describe(cell));
    }
    // What the chapter says in words.
    ensure!(
        (best.mask, best.n) == ("causal", 512),
        "the largest ratio is a short causal one"
    );
    unsure(page, record, &counted)?;
    let short: Vec<_> =
        fused.iter().filter(|(cell, _)| cell.n < 512).map(|c| c.1).collect();
    page.value("peers-short-mean", fixed(geometric_mean(short.into_iter()), 2));

    let mut rows = vec![];
    for threads in [1, 2] {
        for pass in ["forward", "forward+backward"] {
            let mut row = vec![integer(threads), pass.replace('+', " + ")];
            for (d, mask) in
                [(64, "full"), (64, "causal"), (128, "full"), (128, "causal")]
            {
                let group = counted.iter().filter(|(cell, _)| {
                    (cell.threads, cell.pass, cell.d, cell.mask)
                        == (threads, pass, d, mask)
                });
                row.push(fixed(geometric_mean(group.map(|c| c.1)), 2));
            }
            rows.push(row);
        }
    }
    let header = ["threads", "pass", "d = 64", "64, causal", "d = 128", "128, causal"];
    page.file("means.md", table(&header, &rows));
    times(page, record)?;
    charts(page, record, &fused)?;
    hidden(page, &fused)?;
    layers(page, record)
}

/// Cells that could have come out the other way: by their spread, or by another statistic.
fn unsure(page: &mut Page, record: &Record, counted: &[(Cell, f64)]) -> Result<()> {
    let mut within = 0;
    let mut turned = vec![];
    for &(cell, _) in counted {
        let ratio = ratio(record, "pytorch-fused", cell)?.context("no ratio")?;
        within += usize::from(ratio.median - ratio.spread < 1.0);
        let time = |name: &str| {
            let found =
                in_cell(record, &format!("attention/{name}"), Unit::Seconds, cell)?;
            found.with_context(|| format!("no time of {name}"))
        };
        let (ours, theirs) = (time("flash")?, time("pytorch-fused")?);
        if theirs.median < ours.median {
            turned.push((cell, theirs.median / ours.median, ours.spread / ours.median));
        }
    }
    page.value("peers-within", integer(within));
    // The chapter speaks of one.
    let [(cell, quotient, spread)] = turned[..] else {
        anyhow::bail!(
            "{} cells are turned round by the quotient of medians",
            turned.len()
        )
    };
    page.value("peers-turned-cell", describe(cell));
    page.value("peers-turned", fixed(quotient, 2));
    page.value("peers-turned-spread", percent(spread, 0));
    Ok(())
}

/// How many scores of (n, n) a kernel computes under a causal mask that walks over blocks of `queries` queries, and for each
/// over tiles of `keys` keys, as far as its last query sees; the last tile is computed whole, unless it is cut there.
fn computed(n: u64, queries: u64, keys: u64, cut: bool) -> u64 {
    let blocks =
        (0..n.div_ceil(queries)).map(|i| (i * queries, n.min((i + 1) * queries)));
    blocks
        .map(|(start, end)| {
            let seen = if cut { end } else { n.min(end.div_ceil(keys) * keys) };
            (end - start) * seen
        })
        .sum()
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

/// What causal masks cost both sides in scores that are computed and then hidden, and what that foretells.
fn hidden(page: &mut Page, fused: &[(Cell, f64)]) -> Result<()> {
    let tiles = Flash::TILES_IF_MASKED;
    page.value("split-keys", integer(split_sizes(512).1 as usize));
    page.value("masked-keys", integer(tiles.keys));
    let mut rows = vec![];
    let mut gains = vec![];
    for n in [256, 512, 1024, 2048, 4096, 8192] {
        let (queries, keys) = split_sizes(n);
        let theirs = computed(n, queries, keys, false) as f64;
        let ours = computed(n, tiles.queries as u64, tiles.keys as u64, true) as f64;
        // The way back goes over blocks of keys, and for each from the first query that sees one to the last.
        let ours_back = computed(n, tiles.keys as u64, tiles.queries as u64, true) as f64;
        let all = (n * n) as f64;
        ensure!(
            n > tiles.keys as u64 || ours_back == all && theirs == all,
            "at {n} tokens both compute everything on the way back"
        );
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
        "forward, foretold",
        "measured",
        "forward + backward, foretold",
        "measured",
    ];
    page.file("hidden.md", table(&header, &rows));
    // What the chapter says in words.
    for pass in ["forward", "forward+backward"] {
        let of_pass: Vec<_> = gains.iter().filter(|g| g.0 == pass).collect();
        let most = |by: fn(&(&str, u64, f64, f64)) -> f64| {
            of_pass.iter().max_by(|a, b| by(a).total_cmp(&by(b))).map(|g| g.1)
        };
        ensure!(
            most(|g| g.2) == Some(512) && most(|g| g.3) == Some(512),
            "{pass}: the largest ratio is foretold and measured at 512"
        );
    }
    let off = |g: &(&str, u64, f64, f64)| g.2 / g.3 - 1.0;
    let most = gains.iter().map(off).fold(f64::MIN, f64::max);
    let least = gains.iter().map(off).fold(f64::MAX, f64::min);
    ensure!(
        gains.iter().filter(|g| off(g) < 0.0).count() == 2,
        "what is foretold is too high, but for two cells"
    );
    page.value("hidden-too-high", percent(most, 0));
    page.value("hidden-too-low", percent(-least, 0));
    Ok(())
}

fn describe(cell: Cell) -> String {
    let Cell { threads, d, mask, pass, n } = cell;
    let threads = if threads == 1 { "one thread" } else { "two threads" };
    format!(
        "{}, {mask}, d = {d}, n = {}, {threads}",
        pass.replace('+', " and "),
        integer(n as usize)
    )
}

/// This crate's times, at a width of 64 on one thread, and how many times as long everybody else took.
fn times(page: &mut Page, record: &Record) -> Result<()> {
    let mut longest_written = 0;
    for (pass, file, work) in
        [("forward", "times.md", 1.0), ("forward+backward", "times-both.md", 3.5)]
    {
        let mut rows = vec![];
        for mask in ["full", "causal"] {
            for n in [256, 512, 1024, 2048, 4096, 8192] {
                let here = Cell { threads: 1, d: 64, mask, pass, n };
                let ours = seconds(record, "flash", here)?
                    .context("a cell without this crate")?;
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
                    // What the chapter says in words.
                    ensure!(
                        name != "candle-flash" || ratio.is_none_or(|r| r > 5.0),
                        "candle's fused kernel takes many times as long"
                    );
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
    // The same comparison as the ladder's, from this record.
    for (key, pass) in [("naive-forward", "forward"), ("naive-both", "forward+backward")]
    {
        let here = Cell { threads: 1, d: D as u64, mask: "full", pass, n: N as u64 };
        let naive = ratio(record, "naive", here)?.context("no naive program")?;
        page.value(format!("peers-{key}"), significant(naive.median, 2));
    }
    Ok(())
}

/// PyTorch's time over ours, against n.
fn charts(page: &mut Page, record: &Record, fused: &[(Cell, f64)]) -> Result<()> {
    let one_thread = |pass: &str, d: u64, mask: &str| {
        let of_line = |c: &&(Cell, f64)| {
            (c.0.threads, c.0.d, c.0.mask, c.0.pass) == (1, d, mask, pass)
        };
        fused.iter().filter(of_line).copied().collect::<Vec<_>>()
    };
    // What the descriptions say.
    for pass in ["forward", "forward+backward"] {
        for d in [64, 128] {
            let causal = one_thread(pass, d, "causal");
            let top =
                causal.iter().max_by(|a, b| a.1.total_cmp(&b.1)).context("no line")?;
            ensure!(
                top.0.n == 512,
                "{pass}, {d}: the line of causal masks is highest at 512"
            );
        }
    }
    ensure!(fused.iter().all(|c| c.1 > 1.0), "every point is above the dashed line");
    // The highest point of the second figure at 256 tokens.
    let wild =
        Cell { threads: 1, d: 128, mask: "full", pass: "forward+backward", n: 256 };
    let shortest =
        fused.iter().filter(|c| (c.0.threads, c.0.pass, c.0.n) == (1, wild.pass, wild.n));
    let highest = shortest.max_by(|a, b| a.1.total_cmp(&b.1)).context("no point")?;
    ensure!(
        highest.0 == wild,
        "the highest point at 256 tokens is {}",
        describe(highest.0)
    );
    let wild = ratio(record, "pytorch-fused", wild)?.context("no ratio")?;
    page.value("peers-wild", fixed(wild.median, 2));
    page.value("peers-wild-spread", fixed(wild.spread, 2));
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
        let says = "All points lie above the dashed line at 1, where this crate is the faster one. The lines of causal masks are highest at 512 tokens.";
        page.file(
            file,
            svg(&id, &title, says, (380, 380), |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 256.0..8192.0);
                let y = Axis::linear("PyTorch's time / ours", range.clone());
                line_chart(area, &x, &y, &lines, Marks::default())
            })?,
        );
    }
    Ok(())
}

/// The naive layer in f64 beside the same layer in NumPy.
fn layers(page: &mut Page, record: &Record) -> Result<()> {
    let what = "layer/numpy / naive";
    let found: Vec<_> = record.all(what, "f64").collect();
    ensure!(!found.is_empty(), "no layer beside NumPy's");
    let least = found.iter().map(|m| m.median).fold(f64::MAX, f64::min);
    let mean = geometric_mean(found.iter().map(|m| m.median));
    // What the chapter says in words.
    ensure!(mean < 1.0, "NumPy's layer is the faster one");
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

    /// By asking for each score whether a tile that holds it is computed.
    #[test]
    fn scores_are_counted_as_tiles_compute_them() {
        for (n, queries, keys) in [(8, 2, 8), (8, 4, 2), (10, 4, 3), (7, 8, 8)] {
            let brute = |cut: bool| {
                let is_computed = |i: u64, j: u64| {
                    let last = n.min((i / queries + 1) * queries) - 1; // of the block's rows
                    if cut { j <= last } else { j / keys * keys <= last }
                };
                let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
                pairs.filter(|&(i, j)| is_computed(i, j)).count() as u64
            };
            for cut in [true, false] {
                assert_eq!(
                    computed(n, queries, keys, cut),
                    brute(cut),
                    "{n}, {queries}, {keys}"
                );
            }
        }
    }
}
