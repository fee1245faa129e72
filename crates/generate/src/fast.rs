//! Making it fast: what each step was foretold to bring and what it brought, and the peers.

use crate::double::Double;
use crate::figure::{Axis, BLUE, GREEN, Line, MUTED, Marks, VERMILION, line_chart, svg};
use crate::format::{duration, fixed, integer, percent, scientific, significant, table};
use crate::output::Page;
use crate::records::{provenance, read};
use anyhow::{Context, Result, ensure};
use attention::flash::Flash;
use plotters::style::RGBColor;
use record::{Measurement, Record, Unit};

pub fn generate(page: &mut Page) -> Result<()> {
    let (mut ladder, parts_alone) = (read("ladder")?, read("parts")?);
    // A gain is foretold from the one and measured in the other.
    let circumstances =
        |record: &Record| (record.machine.clone(), record.features.clone());
    ensure!(
        circumstances(&ladder) == circumstances(&parts_alone),
        "the records `ladder` and `parts` are of different machines; take them together"
    );
    page.value("parts-day", parts_alone.day());
    page.value("where", provenance(&ladder));
    ladder.measurements.extend(parts_alone.measurements);
    let roof = roof(&ladder)?;
    page.value("roof", fixed(roof / 1e9, 0));
    parts(page, &ladder)?;
    steps(page, &ladder, roof)?;
    both(page, &ladder, roof)?;
    tile_sizes(page, &ladder)?;
    polynomial(page)?;
    let record = read("peers")?;
    page.value("peers-where", provenance(&record));
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
fn roof(ladder: &Record) -> Result<f64> {
    let roofline = read("roofline")?;
    ensure!(
        roofline.machine == ladder.machine,
        "the roof was measured on another machine"
    );
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
    Ok(best)
}

/// One exponential, each way.
fn exponential(record: &Record, way: &str) -> Result<f64> {
    let m = find(record, &format!("parts/exponentials {way}"), &[])?;
    let count = *m.sizes.get("n").context("exponentials without n")?;
    Ok(m.median / count as f64)
}

/// What the parts cost by themselves.
fn parts(page: &mut Page, record: &Record) -> Result<()> {
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
        let share = seconds * scores() / (flops() / roof(record)?);
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

    // What the chapter says in words.
    let small = rate(product(record, "matrixmultiply", (SMALL, SMALL))?, (SMALL, SMALL));
    let whole = rate(find(record, "parts/product whole", &[])?.median, (N, N));
    ensure!(small < whole, "a small product is slower, entry by entry");
    let calls = exponential(record, "one by one")? * roof(record)?;
    ensure!((100.0..1000.0).contains(&calls), "hundreds of operations");
    page.value("exp-operations", significant(calls, 1));
    Ok(())
}

/// A step, the name of its measurement, and what it changes.
const STEPS: [(&str, &str); 8] = [
    ("naive", "the matrix of weights, head by head"),
    ("tiled", "tiles of 64 × 64, as in *Tiles, forward*"),
    ("scratch", "one scratch memory; scores turned so that softmax runs down columns"),
    ("portable", "exponentials by polynomial"),
    ("vector", "the widest vector instructions"),
    ("products", "products from another library"),
    ("tiles", "larger tiles"),
    ("threads", "two threads"),
];

/// The time that is foretold for a step, from the measured time of the one before and the parts that it exchanges.
fn foretold(record: &Record, step: &str, before: f64) -> Result<f64> {
    let tiles = |rows: usize, columns: usize| (HEADS * (N / rows) * (N / columns)) as f64;
    let small = tiles(SMALL, SMALL);
    let copies = 5.0 * small * find(record, "parts/copied tile", &[])?.median;
    let exchange = |from: &str, to: &str| -> Result<f64> {
        Ok(scores() * (exponential(record, from)? - exponential(record, to)?))
    };
    Ok(match step {
        // Two large products a head become two small ones a tile, and tiles are copied.
        "tiled" => {
            let whole =
                2.0 * HEADS as f64 * find(record, "parts/product whole", &[])?.median;
            let pieces = 2.0 * small * product(record, "matrixmultiply", (SMALL, SMALL))?;
            before - whole + pieces + copies
        }
        // The transpose of the keys, the product, a copy of the scores, a copy of the values, their product.
        "scratch" => {
            before - 5.0 * small * find(record, "parts/copied tile", &[])?.median
        }
        "portable" => before - exchange("one by one", "portable")?,
        "vector" => before - exchange("portable", "vector")?,
        "products" => {
            let of = |library| product(record, library, (SMALL, SMALL));
            before - 2.0 * small * (of("matrixmultiply")? - of("gemmkit")?)
        }
        "tiles" => {
            let large = tiles(LARGE.0, LARGE.1) * product(record, "gemmkit", LARGE)?;
            before - 2.0 * (small * product(record, "gemmkit", (SMALL, SMALL))? - large)
        }
        "threads" => before / 2.0,
        other => anyhow::bail!("nothing is foretold for {other}"),
    })
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
        if let Some((_, before)) = measured.last() {
            let before: f64 = *before;
            let prediction = foretold(record, step, before)?;
            ensure!(prediction > 0.0, "a negative time is foretold for {step}");
            predictions.push(((i + 1) as f64, prediction));
            row.push(duration(prediction));
            row.push(duration(seconds));
            row.push(format!("{}\u{202f}×", significant(before / seconds, 2)));
            // What the chapter says in words.
            let slower = *step == "tiled";
            ensure!(
                (seconds > before) == slower,
                "{step}: faster than the step before, but for tiles"
            );
            if slower {
                page.value("slower-tiled", significant(seconds / before, 2));
                page.value("slower-foretold", significant(prediction / before, 2));
            } else {
                page.value(format!("gain-{step}"), significant(before / seconds, 2));
                if *step != "threads" {
                    // Two threads are foretold to be twice as fast, in words.
                    let gain = significant(before / prediction, 2);
                    page.value(format!("foretold-{step}"), gain);
                }
            }
        } else {
            row.extend([String::new(), duration(seconds), String::new()]);
        }
        // Two threads have two roofs.
        let roofs = if *step == "threads" { 2.0 } else { 1.0 };
        row.push(fixed(speed / 1e9, 0));
        row.push(percent(speed / (roofs * roof), 0));
        rows.push(row);
        measured.push(((i + 1) as f64, seconds));
    }
    let header = ["step", "foretold", "measured", "gain", "GFLOP/s", "of the roof"];
    page.file("steps.md", table(&header, &rows));
    page.value("n", integer(N));
    page.value("d", integer(D));
    page.value("heads", integer(HEADS));
    page.value("gain-one-thread", significant(measured[0].1 / measured[6].1, 2));

    // What is neither a product nor an exponential, before and after the loops were laid out anew.
    let small = (HEADS * (N / SMALL) * (N / SMALL)) as f64;
    let needed = 2.0 * small * product(record, "matrixmultiply", (SMALL, SMALL))?
        + scores() * exponential(record, "one by one")?;
    for (key, step) in [("tiled", 1), ("scratch", 2)] {
        let rest = 1.0 - needed / measured[step].1;
        ensure!(rest > 0.0, "the parts are no more than the whole of {key}");
        page.value(format!("rest-{key}"), percent(rest, 0));
    }

    // What is left of the time of one thread, by the parts.
    let seconds = measured[6].1;
    let products = flops() / rate(product(record, "gemmkit", LARGE)?, LARGE);
    let exponentials = scores() * exponential(record, "vector")?;
    page.value("rest-products", percent(products / seconds, 0));
    page.value("rest-exponentials", percent(exponentials / seconds, 0));
    page.value("rest-others", percent(1.0 - (products + exponentials) / seconds, 0));
    ensure!(products + exponentials < seconds, "the parts are no more than the whole");

    let lines = [Line {
        name: "measured".to_owned(),
        colour: BLUE,
        dashed: false,
        points: measured.clone(),
    }];
    let least = measured.iter().chain(&predictions).map(|p| p.1).fold(f64::MAX, f64::min);
    let most = measured.iter().chain(&predictions).map(|p| p.1).fold(0.0, f64::max);
    let title = "Time of each step of the ladder, measured and foretold";
    let says = "A line falls from step to step; rings show what was foretold for each step from the one before it.";
    page.file(
        "steps.svg",
        svg("fast-steps", title, says, (520, 360), |area| {
            let x = Axis::linear("step", 1.0..8.0);
            let power = |x: f64, round: fn(f64) -> f64| 10_f64.powf(round(x.log10()));
            let range = power(least, f64::floor)..power(most, f64::ceil);
            let y = Axis::log("seconds (logarithmic)", 10.0, range);
            line_chart(
                area,
                &x,
                &y,
                &lines,
                Marks { rings: &predictions, ..Marks::default() },
            )
        })?,
    );
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
    for (how, file) in
        [("forward", "tile-sizes.md"), ("forward causal", "tile-sizes-causal.md")]
    {
        let work = if how == "forward" { 1.0 } else { 0.5 };
        let mut rows = vec![];
        let default =
            if how == "forward" { Flash::TILES } else { Flash::TILES_IF_MASKED };
        let mut best = (0.0, (0, 0));
        let mut of_default = 0.0;
        for queries in SIZES {
            let mut row = vec![integer(queries)];
            for keys in SIZES {
                let sizes = [("queries", queries), ("keys", keys)];
                let seconds = find(record, &format!("tiles/{how}"), &sizes)?.median;
                let speed = work * flops() / seconds / 1e9;
                if speed > best.0 {
                    best = (speed, (queries, keys));
                }
                if (queries, keys) == (default.queries, default.keys) {
                    of_default = speed;
                }
                row.push(fixed(speed, 0));
            }
            rows.push(row);
        }
        ensure!(
            of_default > 0.95 * best.0,
            "the tile that `Flash` takes for {how}, {default:?}, is slower than the best by 5 %"
        );
        page.value(
            format!("default-{}", how.replace(' ', "-")),
            format!("{} × {}", default.queries, default.keys),
        );
        let (queries, keys) = best.1;
        page.value(
            format!("best-tile-{}", how.replace(' ', "-")),
            format!("{queries} × {keys}"),
        );
        page.file(file, table(&["queries \\ keys", "64", "128", "256", "512"], &rows));
    }
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
    charts(page, &fused)?;
    layers(page, record)
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

/// Everybody's times, at a width of 64 on one thread.
fn times(page: &mut Page, record: &Record) -> Result<()> {
    for (pass, file, work) in
        [("forward", "times.md", 1.0), ("forward+backward", "times-both.md", 3.5)]
    {
        let mut rows = vec![];
        for mask in ["full", "causal"] {
            for n in [256, 512, 1024, 2048, 4096, 8192] {
                let cell_here = Cell { threads: 1, d: 64, mask, pass, n };
                let seconds = |name: &str| -> Result<Option<f64>> {
                    let what = format!("attention/{name}");
                    for m in record.all(&what, "f32").filter(|m| m.unit == Unit::Seconds)
                    {
                        if cell(m)? == cell_here {
                            return Ok(Some(m.median));
                        }
                    }
                    Ok(None)
                };
                let ours = seconds("flash")?.context("a cell without this crate")?;
                let work = work * if mask == "causal" { 0.5 } else { 1.0 };
                let flops = work * (4 * HEADS * D) as f64 * (n * n) as f64;
                let mut row = vec![
                    mask.to_owned(),
                    integer(n as usize),
                    duration(ours),
                    fixed(flops / ours / 1e9, 0),
                ];
                for (name, _) in PEERS {
                    row.push(
                        seconds(name)?
                            .map_or_else(|| "–".to_owned(), |t| fixed(t / ours, 2)),
                    );
                }
                rows.push(row);
            }
        }
        let names = PEERS.map(|(_, name)| name);
        let header = [&["mask", "$n$", "this crate", "GFLOP/s"][..], &names[..]].concat();
        page.file(file, table(&header, &rows));
    }
    Ok(())
}

/// PyTorch's time over ours, against n.
fn charts(page: &mut Page, fused: &[(Cell, f64)]) -> Result<()> {
    let most = fused.iter().map(|c| c.1).fold(1.0, f64::max);
    let least = fused.iter().map(|c| c.1).fold(1.0, f64::min);
    let range = (least * 10.0).floor() / 10.0..(most * 2.0).ceil() / 2.0;
    for (pass, file) in [("forward", "peers.svg"), ("forward+backward", "peers-both.svg")]
    {
        let series = [(64, "full"), (128, "full"), (64, "causal"), (128, "causal")];
        let mut lines: Vec<_> = series
            .into_iter()
            .map(|(d, mask)| {
                let points = fused
                    .iter()
                    .filter(|(cell, _)| {
                        (cell.threads, cell.d, cell.mask, cell.pass) == (1, d, mask, pass)
                    })
                    .map(|(cell, ratio)| (cell.n as f64, *ratio))
                    .collect();
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
        let says = "Above the dashed line at 1 this crate is the faster one. The lines of causal masks are highest at short lengths.";
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
    page.value("layer-least", fixed(least, 2));
    page.value("layer-mean", fixed(mean, 2));
    Ok(())
}
