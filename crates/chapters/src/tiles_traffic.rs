//! What attention in tiles moves between slow and fast memory, beside the programs of the chapter *The memory wall*:
//! for the chapters *Tiles, forward* and *Tiles, backward*.
//!
//! Lengths up to `N` are run by the machine that counts, and compared with `attention` and with what was foretold.
//! Longer ones are only foretold, tile by tile.

use crate::output::Page;
use anyhow::{Result, ensure};
use attention::{AttentionShape, Mask, attention, attention_backward};
use figures::format::{fixed, integer, percent, significant, table};
use figures::{
    Axis, BLUE, GREEN, Line, MUTED, Marks, RGBColor, VERMILION, line_chart, svg,
};
use laboratory::traffic::{
    Memory, Report, chunked_attention, chunked_traffic, fused_traffic,
    naive_backward_traffic, naive_traffic, strip_for, tiled_attention,
    tiled_attention_backward, tiled_backward_traffic, tiled_traffic, tiles_for,
    tiles_for_backward,
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
/// The longest sequence that is run.
const N: usize = 1024;
/// The length of the tables and of the figures over capacities.
const LONG: usize = 4096;
/// The lengths for which factors are named.
const NAMED: [usize; 3] = [N, LONG, 16_384];

/// Queries and keys of a tile.
type Tiles = (usize, usize);

fn shape(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, 1, D, 1)
}

fn total(report: attention::Result<Report>) -> Result<f64> {
    Ok(report?.total().all() as f64)
}

/// From numbers to bytes.
fn bytes(numbers: f64) -> f64 {
    numbers * ELEMENT as f64
}

fn mebibytes(numbers: f64) -> String {
    let mebibytes = bytes(numbers) / f64::from(1 << 20);
    if mebibytes < 1000.0 {
        fixed(mebibytes, 1)
    } else {
        integer(mebibytes.round() as usize)
    }
}

fn random(n: usize, seed: u64) -> DMatrix<f32> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(n, D, |_, _| StandardNormal.sample(rng))
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

// ---------------------------------------------------------------------------------------------------- what is run

/// A program for which nothing but its shape, mask and memory is left to be chosen.
#[derive(Clone, Copy)]
enum Program {
    Chunked(usize),
    Tiled(Tiles),
}

/// Runs a forward program and holds it against `attention`. Returns the most that fast memory held.
fn run(n: usize, mask: &Mask, capacity: usize, program: Program) -> Result<usize> {
    let [q, k, v] = [0, 1, 2].map(|seed| random(n, seed));
    let (expected, _) = attention(&q, &k, &v, mask)?;
    let memory = Memory::new(capacity);
    let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, m)| memory.put(name, m));
    let ((output, _), foretold) = match program {
        Program::Chunked(strip) => (
            chunked_attention(&memory, &q, &k, &v, mask, strip)?,
            chunked_traffic(&shape(n), mask, capacity, strip)?,
        ),
        Program::Tiled(tiles) => (
            tiled_attention(&memory, &q, &k, &v, mask, tiles)?,
            tiled_traffic(&shape(n), mask, capacity, tiles)?,
        ),
    };
    ensure!((output.into_matrix() - expected).amax() < 1e-4, "not attention");
    ensure!(memory.report() == foretold, "n = {n}: the formula and the count differ");
    Ok(memory.peak())
}

/// Runs the tiled backward pass and holds it against `attention_backward`. Returns the most that fast memory held.
fn run_backward(n: usize, mask: &Mask, capacity: usize, tiles: Tiles) -> Result<usize> {
    let [q, k, v, grad_output] = [0, 1, 2, 3].map(|seed| random(n, seed));
    let (output, cache) = attention(&q, &k, &v, mask)?;
    let expected = attention_backward(&cache, &grad_output)?;
    let memory = Memory::new(capacity);
    let lse = DMatrix::from_column_slice(n, 1, cache.log_sum_exp.as_slice());
    let matrices = [
        ("q", q),
        ("k", k),
        ("v", v),
        ("output", output),
        ("log_sum_exp", lse),
        ("grad_output", grad_output),
    ];
    let [q, k, v, o, lse, g] = matrices.map(|(name, m)| memory.put(name, m));
    let (inputs, kept) = ([&q, &k, &v], [&o, &lse]);
    let [grad_q, grad_k, grad_v] =
        tiled_attention_backward(&memory, inputs, kept, &g, mask, tiles)?;
    for (gradient, expected) in
        [(grad_q, expected.q), (grad_k, expected.k), (grad_v, expected.v)]
    {
        ensure!((gradient.into_matrix() - expected).amax() < 1e-3, "not the gradients");
    }
    let foretold = tiled_backward_traffic(&shape(n), mask, capacity, tiles)?;
    ensure!(memory.report() == foretold, "n = {n}: the formula and the count differ");
    Ok(memory.peak())
}

// ---------------------------------------------------------------------------------------------------- totals

fn naive(n: usize, capacity: usize) -> Result<f64> {
    total(naive_traffic(&shape(n), capacity))
}

fn fused(n: usize, capacity: usize) -> Result<f64> {
    total(fused_traffic(&shape(n), capacity))
}

fn chunked(n: usize, capacity: usize) -> Result<f64> {
    let strip = strip_for(capacity, n, D, D)?;
    total(chunked_traffic(&shape(n), &Mask::none(), capacity, strip))
}

fn tiled(n: usize, capacity: usize) -> Result<f64> {
    let tiles = tiles_for(capacity, D, D)?;
    total(tiled_traffic(&shape(n), &Mask::none(), capacity, tiles))
}

fn naive_backward(n: usize, capacity: usize) -> Result<f64> {
    total(naive_backward_traffic(&shape(n), capacity))
}

fn tiled_backward(n: usize, capacity: usize) -> Result<f64> {
    let tiles = tiles_for_backward(capacity, D, D)?;
    total(tiled_backward_traffic(&shape(n), &Mask::none(), capacity, tiles))
}

/// What [`tiled`] counts tile by tile, by the number of blocks of queries: fast enough for every capacity of a range.
fn tiled_by_blocks(n: usize, capacity: usize) -> Result<f64> {
    let (queries, _) = tiles_for(capacity, D, D)?;
    Ok((2 * n * D + n + n.div_ceil(queries) * 2 * n * D) as f64)
}

/// What [`tiled_backward`] counts tile by tile, by the number of blocks of keys. The first term is for D, and for the zeros
/// of the queries' gradient, to which every block of keys adds its share.
fn tiled_backward_by_blocks(n: usize, capacity: usize) -> Result<f64> {
    let (_, keys) = tiles_for_backward(capacity, D, D)?;
    let row_sums = n * (2 * D + 1) + n * D;
    let keys_and_values = 4 * n * D;
    Ok((row_sums + keys_and_values + n.div_ceil(keys) * n * (4 * D + 2)) as f64)
}

/// The most by which a count lies above its formula, as a share of the formula, over every capacity of a range and not only
/// over powers of two.
fn most_above(
    capacities: std::ops::RangeInclusive<usize>,
    count: Total,
    formula: fn(usize, usize) -> f64,
) -> Result<f64> {
    let mut most = f64::NEG_INFINITY;
    for capacity in capacities {
        let above = count(LONG, capacity)? / formula(LONG, capacity) - 1.0;
        ensure!(above > 0.0, "M = {capacity}: the formula is a little less");
        most = most.max(above);
    }
    Ok(most)
}

/// Queries, keys, values and output once, and the log-sum-exp.
fn each_once(n: usize) -> f64 {
    (4 * n * D + n) as f64
}

/// The same with three gradients more and one of the output; the log-sum-exp is read and not written.
fn each_once_backward(n: usize) -> f64 {
    (8 * n * D + n) as f64
}

/// With tiles that fill fast memory: 2nd + 4n²d² / M.
fn by_capacity(n: usize, capacity: usize) -> f64 {
    let numbers = (n * D) as f64;
    2.0 * numbers + 4.0 * numbers * numbers / capacity as f64
}

/// 7nd + 16n²d² / M.
fn by_capacity_backward(n: usize, capacity: usize) -> f64 {
    let numbers = (n * D) as f64;
    7.0 * numbers + 16.0 * numbers * numbers / capacity as f64
}

/// The smallest one for which it holds, of a range in which it begins to hold once.
fn first(
    range: std::ops::Range<usize>,
    holds: impl Fn(usize) -> Result<bool>,
) -> Result<usize> {
    let (mut below, mut above) = (range.start, range.end);
    ensure!(!holds(below)? && holds(above)?, "it does not begin in the range");
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if holds(middle)? { above = middle } else { below = middle }
    }
    Ok(above)
}

type Total = fn(usize, usize) -> Result<f64>;

/// The capacity from which on tiles always move less than the other program does, at `LONG` tokens. (Both come down in
/// steps, so that a little below it they may take turns.)
fn pays_from(least: usize, tiled: Total, other: Total) -> Result<usize> {
    let mut from = least;
    for m in least..CAPACITY / 2 {
        if tiled(LONG, m)? >= other(LONG, m)? {
            from = m + 1;
        }
    }
    ensure!(least < from && from < CAPACITY / 4, "it pays from some capacity on");
    for m in powers().into_iter().filter(|&m| m >= CAPACITY / 2) {
        ensure!(tiled(LONG, m)? < other(LONG, m)?, "M = {m}: it pays");
    }
    Ok(from)
}

fn over_lengths(
    name: &str,
    (colour, dashed): (RGBColor, bool),
    lengths: &[usize],
    numbers: impl Fn(usize) -> Result<f64>,
) -> Result<Line> {
    let points = lengths.iter().map(|&n| Ok((n as f64, bytes(numbers(n)?))));
    let points = points.collect::<Result<_>>()?;
    Ok(Line { name: name.to_owned(), colour, dashed, points })
}

fn kibibytes(numbers: usize) -> f64 {
    bytes(numbers as f64) / 1024.0
}

fn over_capacities(
    name: &str,
    (colour, dashed): (RGBColor, bool),
    capacities: &[usize],
    numbers: impl Fn(usize) -> Result<f64>,
) -> Result<Line> {
    let points = capacities.iter().map(|&m| Ok((kibibytes(m), bytes(numbers(m)?))));
    let points = points.collect::<Result<_>>()?;
    Ok(Line { name: name.to_owned(), colour, dashed, points })
}

/// What both chapters say of the machine.
fn machine(page: &mut Page, (queries, keys): Tiles) {
    page.value("d", integer(D));
    page.value("n", integer(N));
    page.value("long", integer(LONG));
    page.value("capacity", integer(CAPACITY));
    page.value("capacity-kib", integer(CAPACITY * ELEMENT / 1024));
    page.value("tile-queries", integer(queries));
    page.value("tile-keys", integer(keys));
}

/// How many times less.
fn factor(more: f64, less: f64) -> String {
    significant(more / less, 3)
}

// ---------------------------------------------------------------------------------------------------- forward

/// The pieces of the chapter *Tiles, forward*.
pub fn forward(page: &mut Page) -> Result<()> {
    let tiles = tiles_for(CAPACITY, D, D)?;
    machine(page, tiles);
    forward_saved(page)?;
    forward_shares(page, tiles)?;
    forward_over_tokens(page)?;
    forward_over_capacity(page)?;
    forward_over_tiles(page)?;
    chunks(page)
}

/// How many times less than the programs that store the matrix.
fn forward_saved(page: &mut Page) -> Result<()> {
    for n in NAMED {
        let (naive, fused) = (naive(n, CAPACITY)?, fused(n, CAPACITY)?);
        let tiled = tiled(n, CAPACITY)?;
        ensure!(naive > fused && fused > 4.0 * tiled, "n = {n}: tiles move least");
        page.value(format!("naive-over-tiled-{n}"), factor(naive, tiled));
        page.value(format!("naive-mib-{n}"), mebibytes(naive));
        page.value(format!("fused-mib-{n}"), mebibytes(fused));
        page.value(format!("tiled-mib-{n}"), mebibytes(tiled));
    }
    // What the factors tend to, (c + 2d/r) / (2d/B_q) for c crossings and products in strips of r rows: as long as a row
    // of scores fits, and from then on, when softmax has to sweep.
    let (queries, _) = tiles_for(CAPACITY, D, D)?;
    let strip = (CAPACITY - D) / (D + 1);
    let of_length = |rows: usize| (2 * D) as f64 / rows as f64;
    let programs: [(&str, Total, [f64; 2]); 2] =
        [("naive", naive, [8.0, 10.0]), ("fused", fused, [4.0, 6.0])];
    for (name, program, crossings) in programs {
        let lengths = [CAPACITY, 1_000_000];
        let within = [0.98, 0.999];
        for i in [0, 1] {
            let limit = (crossings[i] + of_length(strip)) / of_length(queries);
            let n = lengths[i];
            let factor = program(n, CAPACITY)? / tiled(n, CAPACITY)?;
            ensure!(factor < limit && factor > within[i] * limit, "{name}: {factor}");
            let key = ["fits", "sweeps"][i];
            page.value(format!("{name}-over-tiled-{key}"), significant(limit, 3));
        }
        let factor = |n| anyhow::Ok(program(n, CAPACITY)? / tiled(n, CAPACITY)?);
        let step = factor(CAPACITY + 1)? / factor(CAPACITY)?;
        ensure!(step > 1.2, "{name}: the step where a row no longer fits");
    }
    Ok(())
}

/// Whose numbers they are.
fn forward_shares(page: &mut Page, tiles: Tiles) -> Result<()> {
    for n in NAMED {
        let report = tiled_traffic(&shape(n), &Mask::none(), CAPACITY, tiles)?;
        let all = report.total().all() as f64;
        let [k, v] = ["k", "v"].map(|matrix| report.matrix(matrix).all());
        ensure!(k == v && k > report.matrix("q").all(), "n = {n}: K and V are most");
        ensure!(report.matrix("scores").all() == 0, "scores never cross");
        page.value(format!("share-k-and-v-{n}"), percent((k + v) as f64 / all, 1));
    }
    Ok(())
}

fn forward_over_tokens(page: &mut Page) -> Result<()> {
    let lengths: Vec<usize> = (6..=14).map(|power| 1 << power).collect();
    let line = |name: &str, style, numbers: Total| {
        over_lengths(name, style, &lengths, |n| numbers(n, CAPACITY))
    };
    let lines = [
        line("naive", (VERMILION, false), naive)?,
        line("fused", (VERMILION, true), fused)?,
        line("strips", (MUTED, false), chunked)?,
        line("tiles", (BLUE, false), tiled)?,
        line("each once", (GREEN, true), |n, _| Ok(each_once(n)))?,
    ];
    for (i, &n) in lengths.iter().enumerate() {
        let [naive, fused, _, tiled, once] =
            [0, 1, 2, 3, 4].map(|line| lines[line].points[i].1);
        ensure!(tiled < fused && fused < naive, "n = {n}: tiled, fused, naive");
        ensure!(tiled >= once, "n = {n}: nothing moves less than each matrix once");
    }
    let tiles = tiles_for(CAPACITY, D, D)?;
    let mut dots = vec![];
    for n in [64, 128, 256, 512, N] {
        run(n, &Mask::none(), CAPACITY, Program::Tiled(tiles))?;
        dots.push((n as f64, bytes(tiled(n, CAPACITY)?)));
        let strip = strip_for(CAPACITY, n, D, D)?;
        run(n, &Mask::none(), CAPACITY, Program::Chunked(strip))?;
        dots.push((n as f64, bytes(chunked(n, CAPACITY)?)));
    }
    page.file(
        "tokens.svg",
        svg(
            "tiles-forward-tokens",
            "Bytes between slow and fast memory against the number of tokens, for four programs",
            "The naive and the fused program rise with the square of n. Strips begin below them, rise \
             with the cube, and cross both. The tiled program runs along the line of each matrix once until it needs a \
             second block of queries, and then turns to the square of n too, but far below the others. Dots mark counts \
             on the lines of strips and tiles.",
            (520, 420),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 64.0..16384.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e4..1e12);
                line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

/// From the smallest power of two at which a tile fits to 4 MiB.
fn powers() -> Vec<usize> {
    (9..=20).map(|power| 1 << power).collect()
}

fn forward_over_capacity(page: &mut Page) -> Result<()> {
    let capacities = powers();
    let again: Vec<usize> =
        capacities.iter().copied().filter(|&m| m <= 2 * LONG * D).collect();
    let line = |name: &str, style, numbers: Total| {
        over_capacities(name, style, &capacities, |m| numbers(LONG, m))
    };
    let lines = [
        line("naive", (VERMILION, false), naive)?,
        line("fused", (VERMILION, true), fused)?,
        // As far as keys and values are read more than once.
        over_capacities("2nd + 4n²d²/M", (BLUE, false), &again, |m| {
            Ok(by_capacity(LONG, m))
        })?,
        line("each matrix once", (GREEN, true), |n, _| Ok(each_once(n)))?,
    ];
    let mut dots = vec![];
    let mut few_blocks = vec![];
    let close = 64 * D..=LONG * D / 8; // the capacities for which the formula is close
    for &m in &capacities {
        let tiles = tiles_for(m, D, D)?;
        run(N / 2, &Mask::none(), m, Program::Tiled(tiles))?; // where it takes little time
        let counted = tiled(LONG, m)?;
        ensure!(counted == tiled_by_blocks(LONG, m)?, "M = {m}: the count by blocks");
        dots.push((kibibytes(m), bytes(counted)));
        let difference = counted / by_capacity(LONG, m) - 1.0;
        ensure!(difference > 0.0, "M = {m}: the formula is a little less");
        if again.contains(&m) && m > LONG * D / 8 {
            let kib = kibibytes(m);
            page.value(format!("blocks-{kib}"), integer(LONG.div_ceil(tiles.0)));
            page.value(format!("above-{kib}"), percent(difference, 0));
            few_blocks.push(difference);
        }
    }
    let (from, to) = (*close.start(), *close.end());
    let most = |range| most_above(range, tiled_by_blocks, by_capacity);
    let largest_difference = most(close)?;
    ensure!(largest_difference < 0.1, "within 10 %: {largest_difference}");
    ensure!(most(from / 2..=from - 1)? > largest_difference, "further above below");
    ensure!(most(to + 1..=2 * to)? > largest_difference, "further above beyond");
    ensure!(few_blocks.is_sorted(), "the fewer the blocks: {few_blocks:?}");
    ensure!(dots[dots.len() - 1].1 == bytes(each_once(LONG)), "down to each once");
    page.value("formula-within", percent(largest_difference, 1));
    page.value("formula-from-kib", integer(from * ELEMENT / 1024));
    page.value("formula-to-kib", integer(to * ELEMENT / 1024));

    // Where tiles begin to pay, and where they leave nothing to be saved.
    let least = tiles_for_least();
    let than_naive = pays_from(least, tiled, naive)?;
    let than_fused = pays_from(least, tiled, fused)?;
    ensure!(than_naive < than_fused && than_fused < LONG, "and no row fits");
    for (name, crossings, pays) in [("naive", 10, than_naive), ("fused", 6, than_fused)] {
        // 4d²/M against c + 2d²/M; then with B_q = (M − 2d) / (2d + 3) and r = (M − d) / (d + 1); then in whole rows.
        let about = 2 * D * D / crossings;
        let exact = first(2 * D + 1..CAPACITY, |m| {
            let tiles = (2 * D * (2 * D + 3)) as f64 / (m - 2 * D) as f64;
            let strips = (2 * D * (D + 1)) as f64 / (m - D) as f64;
            Ok(tiles < crossings as f64 + strips)
        })?;
        ensure!(about < exact && exact < pays, "{name}: {about}, {exact}, {pays}");
        page.value(format!("pays-about-{name}-kib"), fixed(kibibytes(about), 1));
    }
    page.value("pays-against-naive-kib", fixed(kibibytes(than_naive), 1));
    page.value("pays-against-fused-kib", fixed(kibibytes(than_fused), 1));
    for n in NAMED {
        let once = first(least..1 << 24, |m| Ok(tiled(n, m)? == each_once(n)))?;
        ensure!(once == n * (2 * D + 3) + 2 * D, "n = {n}: one block, and one key");
        page.value(format!("once-kib-{n}"), integer(kibibytes(once).ceil() as usize));
    }
    page.file(
        "capacity.svg",
        svg(
            "tiles-forward-capacity",
            "Bytes between slow and fast memory against the capacity of fast memory",
            "The rings of the tiled program lie a little above the falling line of the formula, further above it in the \
             smallest memories and where only a few blocks are left, and end at the level at which each matrix crosses \
             once. In the smallest memories they lie above the lines of the naive and the fused program, which soon are \
             almost level.",
            (520, 420),
            |area| {
                let x = Axis::log("fast memory in KiB (logarithmic)", 2.0, 2.0..4096.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e6..1e10);
                line_chart(area, &x, &y, &lines, Marks { rings: &dots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

/// The smallest fast memory that a tile of one query and one key fits.
fn tiles_for_least() -> usize {
    (1..).find(|&m| tiles_for(m, D, D).is_ok()).unwrap_or(CAPACITY)
}

/// Counted and by formula, with and without a causal mask.
fn forward_over_tiles(page: &mut Page) -> Result<()> {
    let chosen = tiles_for(CAPACITY, D, D)?;
    let square = first(1..CAPACITY, |b| {
        Ok(tiled_traffic(&shape(LONG), &Mask::none(), CAPACITY, (b, b)).is_err())
    })? - 1;
    page.value("largest-square", integer(square));
    let all = [(16, 16), (32, 32), (64, 64), (square, square), (128, 32), chosen];
    let once = (2 * LONG * D + LONG) as f64;
    let (mut rows, mut totals) = (vec![], vec![]);
    let mut largest: f64 = 0.0;
    for tiles @ (b_q, b_k) in all {
        let peak = run(N, &Mask::none(), CAPACITY, Program::Tiled(tiles))?;
        run(N, &Mask::causal(), CAPACITY, Program::Tiled(tiles))?;
        let counted =
            |mask: &Mask| total(tiled_traffic(&shape(LONG), mask, CAPACITY, tiles));
        let (full, causal) = (counted(&Mask::none())?, counted(&Mask::causal())?);
        let blocks = LONG as f64 / b_q as f64;
        let formula = once + blocks * (2 * LONG * D) as f64;
        let diagonal = (b_q + b_k - greatest_common_divisor(b_q, b_k)) as f64;
        let of_causal = once + blocks * D as f64 * (LONG as f64 + diagonal);
        let off = full / formula - 1.0;
        let causal_off = causal / of_causal - 1.0;
        ensure!(off >= 0.0, "{tiles:?}: at least as many blocks as the formula has");
        ensure!(!LONG.is_multiple_of(b_q) || off == 0.0, "{tiles:?}: exact");
        largest = largest.max(off).max(causal_off.abs());
        totals.push(full);
        rows.push(vec![
            format!("{b_q} × {b_k}"),
            integer(peak),
            mebibytes(full),
            mebibytes(formula),
            percent(off, 1),
            mebibytes(causal),
            mebibytes(of_causal),
            percent(causal_off, 1),
        ]);
    }
    ensure!(largest < 0.1, "within 10 %: {largest}");
    page.value("tiles-formula-within", percent(largest, 1));
    ensure!(totals.is_sorted_by(|a, b| a > b), "more queries, less traffic");
    page.value("square-over-chosen", significant(totals[3] / totals[5], 3));
    page.file("tiles.md", table(&TILES_HEADER, &rows));
    Ok(())
}

/// Of the tables over sizes of tiles, forward and backward.
const TILES_HEADER: [&str; 8] = [
    "queries × keys",
    "fast memory",
    "MiB",
    "formula",
    "off by",
    "causal, MiB",
    "formula",
    "off by",
];

/// The half-way step, and where it is none.
fn chunks(page: &mut Page) -> Result<()> {
    for n in NAMED {
        page.value(format!("strip-{n}"), integer(strip_for(CAPACITY, n, D, D)?));
        page.value(format!("chunked-mib-{n}"), mebibytes(chunked(n, CAPACITY)?));
        let over_tiled = chunked(n, CAPACITY)? / tiled(n, CAPACITY)?;
        ensure!(over_tiled > 3.0, "n = {n}: tiles move less than strips");
    }
    // The rows of a strip and the number of strips are whole, so that for a while the two take turns: up to where strips
    // always move less, and up to where they ever do. Far beyond, a sample suffices.
    let less = |other: Total| {
        let (mut always, mut ever) = (0, 0);
        for n in (1..LONG).chain((LONG..CAPACITY - 2 * D).step_by(1000)) {
            let strips = n.div_ceil(strip_for(CAPACITY, n, D, D)?);
            let numbers = chunked(n, CAPACITY)?;
            ensure!(numbers == (2 * n * D * (1 + strips) + n) as f64, "n = {n}: strips");
            if numbers < other(n, CAPACITY)? {
                always += usize::from(always + 1 == n);
                ever = n;
            }
        }
        anyhow::Ok((always, ever))
    };
    let (always, ever) = less(fused)?;
    ensure!(always < N && N < ever, "strips and fused take turns around {N}");
    ensure!(chunked(N, CAPACITY)? == fused(N, CAPACITY)? + N as f64, "but for the lse");
    let before_naive = less(naive)?;
    ensure!(before_naive.0 == before_naive.1 && ever < before_naive.1, "in this order");
    page.value("chunked-always-less-than-fused-to", integer(always));
    page.value("chunked-less-than-fused-to", integer(ever));
    page.value("chunked-less-than-naive-to", integer(before_naive.1));
    let longest = CAPACITY - 2 * D;
    ensure!(strip_for(CAPACITY, longest, D, D)? == 1, "one row fits");
    ensure!(strip_for(CAPACITY, longest + 1, D, D).is_err(), "and no longer one");
    page.value("chunked-longest", integer(longest));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- backward

/// The pieces of the chapter *Tiles, backward*.
pub fn backward(page: &mut Page) -> Result<()> {
    let tiles = tiles_for_backward(CAPACITY, D, D)?;
    machine(page, tiles);
    backward_saved(page)?;
    backward_over_tokens(page, tiles)?;
    backward_over_capacity(page)?;
    backward_over_tiles(page, tiles)?;
    orders(page)
}

fn backward_saved(page: &mut Page) -> Result<()> {
    for n in NAMED {
        let (naive_back, tiled_back) =
            (naive_backward(n, CAPACITY)?, tiled_backward(n, CAPACITY)?);
        let (naive, fused) = (naive(n, CAPACITY)?, fused(n, CAPACITY)?);
        let tiled = tiled(n, CAPACITY)?;
        ensure!(naive_back > 2.0 * tiled_back, "n = {n}: tiles move less");
        page.value(format!("naive-over-tiled-{n}"), factor(naive_back, tiled_back));
        page.value(format!("naive-mib-{n}"), mebibytes(naive_back));
        page.value(format!("tiled-mib-{n}"), mebibytes(tiled_back));
        page.value(format!("backward-over-forward-{n}"), factor(tiled_back, tiled));
        let there_and_back = tiled + tiled_back;
        page.value(format!("both-naive-{n}"), factor(naive + naive_back, there_and_back));
        page.value(format!("both-fused-{n}"), factor(fused + naive_back, there_and_back));
    }
    Ok(())
}

fn backward_over_tokens(page: &mut Page, tiles: Tiles) -> Result<()> {
    let lengths: Vec<usize> = (6..=14).map(|power| 1 << power).collect();
    let line = |name: &str, style, numbers: Total| {
        over_lengths(name, style, &lengths, |n| numbers(n, CAPACITY))
    };
    let lines = [
        line("naive", (VERMILION, false), naive_backward)?,
        line("tiled", (BLUE, false), tiled_backward)?,
        line("each once", (GREEN, true), |n, _| Ok(each_once_backward(n)))?,
    ];
    for (i, &n) in lengths.iter().enumerate() {
        let [naive, tiled, once] = [0, 1, 2].map(|line| lines[line].points[i].1);
        ensure!(once < tiled && tiled < naive, "n = {n}: in this order");
    }
    let mut dots = vec![];
    for n in [64, 128, 256, 512, N] {
        run_backward(n, &Mask::none(), CAPACITY, tiles)?;
        dots.push((n as f64, bytes(tiled_backward(n, CAPACITY)?)));
    }
    page.file(
        "tokens.svg",
        svg(
            "tiles-backward-tokens",
            "Bytes between slow and fast memory on the way back against the number of tokens",
            "The naive program rises with the square of n. The tiled one begins below it, not far above the line of \
             each matrix once, and stays below, though it too rises with the square of n in the end.",
            (520, 420),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 64.0..16384.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e4..1e11);
                line_chart(area, &x, &y, &lines, Marks { rings: &dots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

fn backward_over_capacity(page: &mut Page) -> Result<()> {
    let capacities = &powers()[1..]; // a tile of one query and one key does not fit the smallest
    let line = |name: &str, style, numbers: Total| {
        over_capacities(name, style, capacities, |m| numbers(LONG, m))
    };
    let lines = [
        line("naive", (VERMILION, false), naive_backward)?,
        line("7nd + 16n²d²/M", (BLUE, false), |n, m| Ok(by_capacity_backward(n, m)))?,
        line("each matrix once", (GREEN, true), |n, _| Ok(each_once_backward(n)))?,
    ];
    let mut dots = vec![];
    for &m in capacities {
        let counted = tiled_backward(LONG, m)?;
        let by_blocks = tiled_backward_by_blocks(LONG, m)?;
        ensure!(counted == by_blocks, "M = {m}: the count by blocks");
        dots.push((kibibytes(m), bytes(counted)));
    }
    let (from, to) = (128 * D, LONG * D / 4); // the capacities for which the formula is close
    let most = |range| most_above(range, tiled_backward_by_blocks, by_capacity_backward);
    let largest_difference = most(from..=to)?;
    ensure!(largest_difference < 0.1, "within 10 %: {largest_difference}");
    ensure!(most(from / 2..=from - 1)? > largest_difference, "further above below");
    ensure!(most(to + 1..=2 * to)? > largest_difference, "further above beyond");
    page.value("formula-within", percent(largest_difference, 1));
    page.value("formula-from-kib", integer(from * ELEMENT / 1024));
    page.value("formula-to-kib", integer(to * ELEMENT / 1024));
    let pays = pays_from(capacities[0], tiled_backward, naive_backward)?;
    page.value("pays-against-naive", integer(pays));
    page.value("pays-against-naive-kib", fixed(kibibytes(pays), 1));
    page.file(
        "capacity.svg",
        svg(
            "tiles-backward-capacity",
            "Bytes between slow and fast memory on the way back against the capacity of fast memory",
            "The rings of the tiled program lie a little above the falling line of the formula, further above it in the \
             smallest memories and where only a few blocks are left, and come down to a level that is not far above \
             each matrix once. In the smallest memories they lie above the line of the naive program, \
             which soon is almost level.",
            (520, 420),
            |area| {
                let x = Axis::log("fast memory in KiB (logarithmic)", 2.0, 4.0..4096.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e6..1e11);
                line_chart(area, &x, &y, &lines, Marks { rings: &dots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

fn backward_over_tiles(page: &mut Page, chosen: Tiles) -> Result<()> {
    let fixed_part = (3 * LONG * D + LONG + 4 * LONG * D) as f64;
    let (mut rows, mut totals) = (vec![], vec![]);
    let mut largest: f64 = 0.0;
    for tiles @ (b_q, b_k) in [(16, 16), (32, 32), (32, 64), (8, 112), chosen] {
        let peak = run_backward(N, &Mask::none(), CAPACITY, tiles)?;
        let counted = |mask: &Mask| {
            total(tiled_backward_traffic(&shape(LONG), mask, CAPACITY, tiles))
        };
        let (full, causal) = (counted(&Mask::none())?, counted(&Mask::causal())?);
        let blocks = LONG as f64 / b_k as f64;
        let query = (4 * D + 2) as f64;
        let formula = fixed_part + blocks * LONG as f64 * query;
        let diagonal = (b_q + b_k - greatest_common_divisor(b_q, b_k)) as f64;
        let of_causal = fixed_part + blocks / 2.0 * (LONG as f64 + diagonal) * query;
        let (off, causal_off) = (full / formula - 1.0, causal / of_causal - 1.0);
        largest = largest.max(off.abs()).max(causal_off.abs());
        totals.push(full);
        rows.push(vec![
            format!("{b_q} × {b_k}"),
            integer(peak),
            mebibytes(full),
            mebibytes(formula),
            percent(off, 1),
            mebibytes(causal),
            mebibytes(of_causal),
            percent(causal_off, 1),
        ]);
    }
    run_backward(N, &Mask::causal(), CAPACITY, (32, 64))?;
    ensure!(largest < 0.1, "within 10 %: {largest}");
    page.value("tiles-formula-within", percent(largest, 1));
    ensure!(totals.is_sorted_by(|a, b| a > b), "more keys, less traffic");
    page.file("tiles.md", table(&TILES_HEADER, &rows));
    Ok(())
}

/// Three orders of the loops, by formula, each with the tiles that suit it best. Of the first one there is a program.
fn orders(page: &mut Page) -> Result<()> {
    let n = LONG as f64;
    let d = D as f64;
    let blocks = |size: usize| LONG.div_ceil(size) as f64;

    // D, and zeros for what is added to in slow memory.
    let row_sums = n * (2.0 * d + 1.0);
    let keys_outside = tiled_backward_by_blocks(LONG, CAPACITY)?;
    ensure!(keys_outside == tiled_backward(LONG, CAPACITY)?, "the order of the program");

    // Queries, their gradient and that of the output stay; keys, values and two gradients come by, the gradients twice.
    let b_q = (CAPACITY - 4 * D) / (3 * D + 4);
    let queries_outside =
        row_sums + 2.0 * n * d + n * (3.0 * d + 2.0) + blocks(b_q) * n * 6.0 * d;

    // The first order without the gradient of the queries, then the second one without those of keys and values.
    let b_k_alone = (CAPACITY - (2 * D + 2)) / (4 * D + 2);
    let b_q_alone = (CAPACITY - 2 * D) / (3 * D + 4);
    let twice = row_sums
        + (4.0 * n * d + blocks(b_k_alone) * n * (2.0 * d + 2.0))
        + (n * (3.0 * d + 2.0) + blocks(b_q_alone) * n * 2.0 * d);
    ensure!(keys_outside < queries_outside, "keys outside move less");
    ensure!(twice < keys_outside, "and two sweeps less still");

    let row = |name: &str, numbers: f64, products: usize| {
        vec![name.to_owned(), mebibytes(numbers), products.to_string()]
    };
    let rows = [
        row("keys outside", keys_outside, 5),
        row("queries outside", queries_outside, 5),
        row("two sweeps, one of each", twice, 7),
    ];
    let header = ["order of the loops", "MiB", "products of a tile"];
    page.file("orders.md", table(&header, &rows));
    page.value("queries-outside-more", percent(queries_outside / keys_outside - 1.0, 0));
    page.value("two-sweeps-less", percent(1.0 - twice / keys_outside, 0));
    Ok(())
}
