//! Tiles, forward: the walk, what masks leave of it, the memory it takes, what it costs and how exact it is.

use crate::claims::{A100_BANDWIDTH, A100_F32};
use crate::double::Double;
use crate::output::Page;
use crate::tiles_traffic;
use anyhow::{Result, ensure};
use attention::flash::{Inputs, Tiles, tiled_attention};
use attention::{AttentionShape, Mask, Visibility, attention, scaled_scores};
use figures::format::{bytes, fixed, integer, percent, significant, table};
use figures::{
    Area, Axis, BLUE, Block, Color, GREEN, Line, MUTED, Marks, VERMILION, arrow, filled,
    framed, label, line, line_chart, svg, text,
};
use laboratory::traffic::{blocks, naive_traffic, tiled_traffic, tiles_for};
use nalgebra::{DMatrix, RealField};
use peak_alloc::PeakAlloc;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::ops::Add;

/// Counts what the program allocates.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Width of queries, keys and values.
const D: usize = 64;
/// Queries and keys of a tile.
const TILE: usize = 64;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("tile", integer(TILE));
    walk(page)?;
    kinds(page)?;
    causal_share(page)?;
    unequal(page)?;
    memory(page)?;
    operations(page)?;
    rises(page)?;
    rounding(page)?;
    traffic(page)?;
    tiles_traffic::forward(page)
}

fn normal(n: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(n, D, |_, _| StandardNormal.sample(rng))
}

// ---------------------------------------------------------------------------------------------------- the walk

/// The matrix of scores, cut into tiles, and the way through it.
fn walk(page: &mut Page) -> Result<()> {
    const CELL: (i32, i32) = (50, 42);
    const CORNER: (i32, i32) = (92, 74);
    let (rows, columns) = (5, 6);
    let (row, column) = (2, 3); // where the walk is
    let place = |i: i32, j: i32| (CORNER.0 + CELL.0 * j, CORNER.1 + CELL.1 * i);
    let size = (CELL.0 - 4, CELL.1 - 4);
    let drawn = svg(
        "tiles-forward-walk",
        "The walk over the tiles of the score matrix",
        "A grid of five rows and six columns of tiles. Blocks of queries stand to the left of it, blocks of keys and values above \
         it, blocks of the output to its right. The third block of queries and its output are marked as staying; the fourth block of \
         keys and values is marked as passing by; the tile where they meet is filled. Two rows of tiles and three tiles of \
         the third row are done, and an arrow runs along the third row to the right.",
        (520, 336),
        |area| {
            let block = |corner, text: &str, colour, now| {
                if now {
                    Block::new(corner, size, text, colour).draw(area)
                } else {
                    let opposite = (corner.0 + size.0, corner.1 + size.1);
                    framed(area, [corner, opposite], MUTED.mix(0.5))?;
                    label(
                        area,
                        (corner.0 + size.0 / 2, corner.1 + size.1 / 2),
                        text,
                        MUTED,
                    )
                }
            };
            let index = |name: &str, i: i32| format!("{name}{}", subscript(i + 1));
            for i in 0..rows {
                let (x, y) = place(i, 0);
                block((x - 66, y), &index("Q", i), BLUE, i == row)?;
                block((x + CELL.0 * columns + 16, y), &index("O", i), GREEN, i == row)?;
                for j in 0..columns {
                    let corner = place(i, j);
                    let opposite = (corner.0 + size.0, corner.1 + size.1);
                    let done = i < row || i == row && j < column;
                    if done {
                        filled(area, [corner, opposite], MUTED.mix(0.2))?;
                    }
                    framed(area, [corner, opposite], MUTED.mix(0.5))?;
                }
            }
            Block::new(place(row, column), size, "S, P", figures::TEXT).draw(area)?;
            for j in 0..columns {
                let (x, y) = place(0, j);
                let text = format!("K{0} V{0}", subscript(j + 1));
                block((x, y - 58), &text, VERMILION, j == column)?;
            }
            let (x, y) = place(row, column);
            let middle = y + size.1 / 2;
            let down = x + size.0 / 2;
            arrow(area, &[(down, CORNER.1 - 58 + size.1 + 2), (down, y - 3)], VERMILION)?;
            arrow(
                area,
                &[(x + size.0 + 4, middle), (place(0, columns).0 - 6, middle)],
                BLUE,
            )?;
            label(area, (CORNER.0 - 42, 312), "stays", BLUE)?;
            label(area, (CORNER.0 + CELL.0 * 3, 312), "K and V pass by", VERMILION)?;
            label(area, (CORNER.0 + CELL.0 * columns + 38, 312), "stays", GREEN)
        },
    )?;
    page.file("walk.svg", drawn);
    Ok(())
}

fn subscript(i: i32) -> char {
    char::from_u32(0x2080 + i as u32).unwrap_or('?')
}

// ---------------------------------------------------------------------------------------------------- masks

/// The kind of every tile, (blocks of queries, blocks of keys).
fn tile_kinds(mask: &Mask, n: usize, tiles: Tiles) -> Result<DMatrix<Visibility>> {
    let sized = mask.sized(n, n)?;
    let rows: Vec<_> = blocks(n, tiles.queries).collect();
    let columns: Vec<_> = blocks(n, tiles.keys).collect();
    Ok(DMatrix::from_fn(rows.len(), columns.len(), |i, j| {
        sized.visibility(rows[i].clone(), columns[j].clone())
    }))
}

fn square(size: usize) -> Tiles {
    Tiles { queries: size, keys: size }
}

fn count(kinds: &DMatrix<Visibility>, kind: Visibility) -> usize {
    kinds.iter().filter(|&&k| k == kind).count()
}

/// Which tiles are computed, which of them are looked at entry by entry, and which are skipped.
fn kinds(page: &mut Page) -> Result<()> {
    let n = 512;
    let (width, valid) = (128, 300);
    let padding = Mask::padding(&(0..n).map(|j| j < valid).collect::<Vec<_>>())?;
    let masks = [
        ("causal", Mask::causal()),
        ("window", Mask::window(width)?),
        ("padding", padding.clone()),
        ("causal and padding", Mask::causal().and(padding)),
    ];
    page.value("kinds-n", integer(n));
    page.value("kinds-window", integer(width));
    page.value("kinds-valid", integer(valid));
    let mut rows = vec![];
    let mut maps = vec![];
    for (name, mask) in masks {
        let kinds = tile_kinds(&mask, n, square(TILE))?;
        let [full, partial, hidden] =
            [Visibility::Full, Visibility::Partial, Visibility::Hidden]
                .map(|kind| count(&kinds, kind));
        let allowed = mask.sized(n, n)?.allowed_matrix();
        let seen = allowed.iter().filter(|&&seen| seen).count() as f64 / (n * n) as f64;
        let computed = (full + partial) as f64 / kinds.len() as f64;
        ensure!(computed >= seen && full + partial + hidden == kinds.len());
        rows.push(vec![
            name.to_owned(),
            full.to_string(),
            partial.to_string(),
            hidden.to_string(),
            percent(computed, 1),
            percent(seen, 1),
        ]);
        if maps.len() < 3 {
            maps.push((name, kinds));
        }
    }
    let header = ["mask", "full", "partial", "hidden", "computed", "visible pairs"];
    page.file("kinds.md", table(&header, &rows));

    const CELL: i32 = 19;
    const PANEL: i32 = 8 * CELL + 32;
    let drawn = svg(
        "tiles-forward-kinds",
        "Tiles of three masks: full, partial and hidden",
        "Three grids of eight by eight tiles. Causal: all tiles below the diagonal are full, those on it partial, those above it \
         hidden. Window: three diagonals, of which the middle one is full and the others are partial. Padding: four full columns, a \
         partial one, three hidden ones.",
        (3 * PANEL as u32 - 24, 8 * CELL as u32 + 72),
        |area| {
            for (panel, (name, kinds)) in (0..).zip(&maps) {
                let left = 4 + PANEL * panel;
                label(area, (left + 4 * CELL, 14), name, figures::TEXT)?;
                for i in 0..kinds.nrows() {
                    for j in 0..kinds.ncols() {
                        let corner = (left + CELL * j as i32, 30 + CELL * i as i32);
                        draw_kind(area, corner, CELL - 2, kinds[(i, j)])?;
                    }
                }
            }
            let y = 30 + 8 * CELL + 16;
            for (x, kind, name) in [
                (40, Visibility::Full, "full"),
                (180, Visibility::Partial, "partial"),
                (340, Visibility::Hidden, "hidden, skipped"),
            ] {
                draw_kind(area, (x, y), CELL - 2, kind)?;
                text(area, (x + 26, y + CELL / 2 - 1), name)?;
            }
            Ok(())
        },
    )?;
    page.file("kinds.svg", drawn);

    // What the caption and the description say.
    let [causal, window, padding] = [0, 1, 2].map(|i: usize| &maps[i].1);
    for (i, j) in (0..8).flat_map(|i| (0..8).map(move |j| (i, j))) {
        let expected = match i.cmp(&j) {
            std::cmp::Ordering::Greater => Visibility::Full,
            std::cmp::Ordering::Equal => Visibility::Partial,
            std::cmp::Ordering::Less => Visibility::Hidden,
        };
        ensure!(causal[(i, j)] == expected, "causal at {i}, {j}");
        let expected = match i as i32 - j as i32 {
            1 => Visibility::Full,
            0 | 2 => Visibility::Partial,
            _ => Visibility::Hidden,
        };
        ensure!(window[(i, j)] == expected, "window at {i}, {j}");
        let expected = match j {
            0..4 => Visibility::Full,
            4 => Visibility::Partial,
            _ => Visibility::Hidden,
        };
        ensure!(padding[(i, j)] == expected, "padding at {i}, {j}");
    }
    Ok(())
}

/// Full is filled, partial is half as strong and struck through, hidden is an empty frame.
fn draw_kind(area: &Area, (x, y): (i32, i32), size: i32, kind: Visibility) -> Result<()> {
    let corners = [(x, y), (x + size, y + size)];
    match kind {
        Visibility::Full => {
            filled(area, corners, BLUE.mix(0.75))?;
        }
        Visibility::Partial => {
            filled(area, corners, BLUE.mix(0.25))?;
            line(area, &corners, BLUE.stroke_width(2))?;
        }
        Visibility::Hidden => {
            framed(area, corners, MUTED.mix(0.4))?;
        }
    }
    Ok(())
}

/// The share of tiles that a causal mask leaves, and the formula (1 + 1/m) / 2.
fn causal_share(page: &mut Page) -> Result<()> {
    let sizes = [32, 64, 128, 256];
    let mut rows = vec![];
    for n in [256, 512, 1024, 4096, 16_384] {
        let mut row = vec![integer(n)];
        for size in sizes {
            let kinds = tile_kinds(&Mask::causal(), n, square(size))?;
            let left = kinds.len() - count(&kinds, Visibility::Hidden);
            let m = n / size;
            ensure!(2 * left == m * m + m, "n = {n}, tiles of {size}: (1 + 1/m) / 2");
            row.push(percent(left as f64 / kinds.len() as f64, 1));
        }
        rows.push(row);
    }
    let header = ["$n$", "$B = 32$", "$B = 64$", "$B = 128$", "$B = 256$"];
    page.file("causal.md", table(&header, &rows));
    Ok(())
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Tiles that are not square: (1 + (B_q + B_k − gcd) / n) / 2.
fn unequal(page: &mut Page) -> Result<()> {
    let n = 3840;
    for queries in [16, 24, 60, 64, 128, 256] {
        for keys in [8, 16, 30, 64, 96, 240] {
            let kinds = tile_kinds(&Mask::causal(), n, Tiles { queries, keys })?;
            let left = kinds.len() - count(&kinds, Visibility::Hidden);
            let more = queries + keys - greatest_common_divisor(queries, keys);
            ensure!(
                2 * left * n == kinds.len() * (n + more),
                "{queries} × {keys}: {left} of {}",
                kinds.len()
            );
        }
    }
    let share = |queries, keys| -> Result<f64> {
        let kinds = tile_kinds(&Mask::causal(), 4096, Tiles { queries, keys })?;
        Ok(1.0 - count(&kinds, Visibility::Hidden) as f64 / kinds.len() as f64)
    };
    page.value("unequal-share", percent(share(128, 256)?, 1));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- memory

/// The most bytes alive at once on one thread, beyond those that were there before. More threads have more buffers.
fn peak<O: Send>(work: impl FnOnce() -> Result<O> + Send) -> Result<usize> {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    one.install(|| {
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        let output = work()?;
        let most = MEMORY.peak_usage();
        drop(output);
        Ok(most - before)
    })
}

/// The half-way step: the ordinary attention, a strip of queries at a time.
fn in_strips([q, k, v]: [&DMatrix<f32>; 3], strip: usize) -> Result<DMatrix<f32>> {
    let mut output = DMatrix::zeros(q.nrows(), v.ncols());
    for rows in blocks(q.nrows(), strip) {
        let q = q.rows_range(rows.clone()).into_owned();
        let (o, _) = attention(&q, k, v, &Mask::none())?;
        output.rows_range_mut(rows).copy_from(&o);
    }
    Ok(output)
}

/// The bytes that three programs allocate, counted.
fn memory(page: &mut Page) -> Result<()> {
    let mut counted = [vec![], vec![], vec![], vec![]];
    let lengths = [128, 256, 512, 1024, 2048, 4096];
    for n in lengths {
        let rng = &mut ChaCha8Rng::seed_from_u64(n as u64);
        let [q, k, v] = [0, 1, 2].map(|_| normal(n, rng).map(|x| x as f32));
        let all = [&q, &k, &v];
        let (mask, tiles) = (Mask::none(), square(TILE));
        let inputs = Inputs::new(&q, &k, &v, &mask)?;
        let naive = peak(|| Ok(attention(&q, &k, &v, &mask)?))?;
        let strips = peak(|| in_strips(all, TILE))?;
        let tiled = peak(|| Ok(tiled_attention(&inputs, tiles)?))?;
        let output = 4 * n * (D + 2); // with a log-sum-exp for each row, in two parts

        // What the chapter says of each.
        let [square, matrix] = [4 * n * n, 4 * n * D];
        let buffers = 1 << 19; // into which the product packs its factors
        ensure!(
            (square + 4 * matrix..square + 4 * matrix + buffers).contains(&naive)
                || n < 1024,
            "n = {n}: naive attention takes {naive}, not {}",
            square + 4 * matrix
        );
        let strip = 4 * n * TILE;
        // Output, a strip of weights, copies of keys and values; two blocks of queries.
        let counted_strips = 3 * matrix + strip + 2 * 4 * TILE * D;
        ensure!(
            (counted_strips..counted_strips + buffers).contains(&strips) || n < 1024,
            "n = {n}: strips take {strips}, not {counted_strips}"
        );
        for (list, count) in counted.iter_mut().zip([naive, strips, tiled, output]) {
            list.push((n as f64, count as f64));
        }
    }
    let [naive, strips, tiled, output] = counted;
    let beside: Vec<_> = tiled.iter().zip(&output).map(|(t, o)| t.1 - o.1).collect();
    ensure!(
        beside.windows(2).all(|pair| pair[0] == pair[1]),
        "beside its result tiled attention takes the same memory at every length: {beside:?}"
    );
    let in_tiles = beside[0] / (4 * TILE * TILE) as f64;
    ensure!((in_tiles - 7.0).abs() < 0.05, "seven tiles, not {in_tiles}");
    page.value("memory-beside", bytes(beside[0] as u128));
    let last = lengths.len() - 1;
    page.value("memory-n", integer(lengths[last]));
    page.value("memory-strip", bytes((4 * TILE * lengths[last]) as u128));
    for (name, points) in [("naive", &naive), ("strips", &strips), ("tiled", &tiled)] {
        page.value(format!("memory-{name}"), bytes(points[last].1 as u128));
    }
    let line = |name: &str, colour, dashed, points| Line {
        name: name.to_owned(),
        colour,
        dashed,
        points,
    };
    let lines = [
        line("naive", VERMILION, false, naive),
        line("strips of 64 queries", MUTED, false, strips),
        line("tiles of 64 × 64", BLUE, false, tiled),
        line("the result itself", GREEN, true, output),
    ];
    page.file(
        "memory.svg",
        svg(
            "tiles-forward-memory",
            "Bytes allocated against the number of tokens, for three programs",
            "The naive program rises with the square of n. Strips rise in proportion to n, far below it. Tiles lie lower still, and \
             approach the line of the result from above.",
            (520, 400),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 128.0..4096.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 1e4..1e9);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- operations

/// What the corrections add to the operations, by the keys in a tile.
fn operations(page: &mut Page) -> Result<()> {
    let n = 4096.0;
    let d = D as f64;
    let naive = n * (4.0 * d + 5.0);
    let mut rows = vec![];
    let mut all = vec![];
    for keys in [1, 4, 16, 64, 256] {
        let tiles = n / f64::from(keys);
        let corrections = tiles * (d + 5.0);
        let tiled = n * (4.0 * d + 4.0) + corrections + d;
        let more = tiled / naive - 1.0;
        all.push(more);
        let sign = if more > 0.0 { "+" } else { "" };
        rows.push(vec![
            keys.to_string(),
            percent(corrections / naive, 1),
            format!("{sign}{}", percent(more, 1)),
            fixed(1.0 + 1.0 / f64::from(keys), 2),
        ]);
    }
    ensure!(all[0] > 0.2 && all[3].abs() < 0.005 && all[4] < 0.0, "{all:?}");
    let header =
        ["keys in a tile", "corrections", "all operations", "exponentials a score"];
    page.file("operations.md", table(&header, &rows));
    Ok(())
}

/// How often the largest score of a row rises from tile to tile: the corrections that are not 1.
fn rises(page: &mut Page) -> Result<()> {
    let n = 4096;
    let rng = &mut ChaCha8Rng::seed_from_u64(12);
    let q = normal(256, rng);
    let k = normal(n, rng);
    let scores = scaled_scores(&q, &k)?; // (256, n)
    let mut rises = 0;
    for row in scores.row_iter() {
        let mut max = f64::NEG_INFINITY;
        for columns in blocks(n, TILE) {
            let of_tile = row.columns_range(columns).max();
            if of_tile > max {
                max = of_tile;
                rises += 1;
            }
        }
    }
    let m = n / TILE;
    let expected: f64 = (1..=m).map(|t| 1.0 / t as f64).sum();
    let mean = f64::from(rises) / q.nrows() as f64;
    ensure!((mean / expected - 1.0).abs() < 0.1, "{mean} against {expected}");
    page.value("rises-n", integer(n));
    page.value("rises-tiles", integer(m));
    page.value("rises-expected", fixed(expected, 1));
    page.value("rises-mean", fixed(mean, 1));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- rounding

/// Attention to about 30 digits, rounded to f64 with what is left over.
fn exactly(q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>) -> DMatrix<Double> {
    let [zero, eight] = [0.0, 8.0].map(Double::from);
    let rows: Vec<Vec<Double>> = (0..q.nrows())
        .map(|i| {
            let score = |j: usize| {
                let products =
                    (0..D).map(|c| Double::from(q[(i, c)]) * Double::from(k[(j, c)]));
                products.fold(zero, Add::add) / eight // √64
            };
            let scores: Vec<Double> = (0..k.nrows()).map(score).collect();
            let rounded = scores.iter().map(|score| score.rounded());
            let max = Double::from(rounded.fold(f64::NEG_INFINITY, f64::max));
            let weights: Vec<Double> = scores.iter().map(|&s| (s - max).exp()).collect();
            let sum = weights.iter().copied().fold(zero, Add::add);
            let column = |c: usize| {
                let products = weights.iter().zip(v.as_slice()[c * v.nrows()..].iter());
                products.fold(zero, |sum, (&w, &x)| sum + w * Double::from(x)) / sum
            };
            (0..D).map(column).collect()
        })
        .collect();
    DMatrix::from_fn(q.nrows(), D, |i, c| rows[i][c])
}

/// The root of the mean square of the differences, in units of the type's rounding and of the entries' own size.
fn error<T: RealField + Copy>(output: &DMatrix<T>, exact: &DMatrix<Double>) -> f64 {
    let rounding: f64 =
        nalgebra::try_convert(T::default_epsilon()).unwrap_or(f64::NAN) / 2.0;
    let mut differences = 0.0;
    let mut sizes = 0.0;
    for (&x, &exact) in output.iter().zip(exact.iter()) {
        let x: f64 = nalgebra::try_convert(x).unwrap_or(f64::NAN);
        differences += (Double::from(x) - exact).rounded().powi(2);
        sizes += exact.rounded().powi(2);
    }
    (differences / sizes).sqrt() / rounding
}

const WIDTHS: [usize; 4] = [1, 16, 64, 256];

/// The errors of the naive program, of tiles of several widths, and of the naive program with sums in parts.
fn errors<T: RealField + Copy>(
    inputs: [&DMatrix<f64>; 3],
    exact: &DMatrix<Double>,
) -> Result<Vec<f64>> {
    let [q, k, v] = inputs.map(|m| m.map(nalgebra::convert::<f64, T>));
    let mask = Mask::none();
    let (naive, _) = attention(&q, &k, &v, &mask)?;
    let mut errors = vec![error(&naive, exact)];
    for keys in WIDTHS {
        let tiles = Tiles { queries: TILE, keys };
        let tiled = tiled_attention(&Inputs::new(&q, &k, &v, &mask)?, tiles)?;
        errors.push(error(&tiled.output, exact));
    }
    errors.push(error(&summed_in_parts(&q, &k, &v)?, exact));
    Ok(errors)
}

/// The naive program, but that the exponentials of 64 keys are summed by themselves before they are added to the others.
fn summed_in_parts<T: RealField + Copy>(
    q: &DMatrix<T>,
    k: &DMatrix<T>,
    v: &DMatrix<T>,
) -> Result<DMatrix<T>> {
    let mut weights = scaled_scores(q, k)?;
    for mut row in weights.row_iter_mut() {
        let max = row.max();
        row.apply(|x| *x = (*x - max).exp());
    }
    let mut output = &weights * v;
    for (row, mut output) in weights.row_iter().zip(output.row_iter_mut()) {
        let parts = blocks(row.len(), TILE).map(|part| row.columns_range(part).sum());
        output.unscale_mut(parts.fold(T::zero(), |sum, part| sum + part));
    }
    Ok(output)
}

/// Against attention in twice the digits.
fn rounding(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    let mut all = vec![];
    for n in [256, 1024, 4096] {
        let rng = &mut ChaCha8Rng::seed_from_u64(7);
        let q = normal(TILE, rng);
        let (k, v) = (normal(n, rng), normal(n, rng));
        // Numbers that an f32 holds, so that both types begin with the same.
        let [q, k, v] = [q, k, v].map(|m| m.map(|x| f64::from(x as f32)));
        let exact = exactly(&q, &k, &v);
        for (name, errors) in [
            ("`f32`", errors::<f32>([&q, &k, &v], &exact)?),
            ("`f64`", errors::<f64>([&q, &k, &v], &exact)?),
        ] {
            let mut row = vec![integer(n), name.to_owned()];
            row.extend(errors.iter().map(|&error| significant(error, 2)));
            rows.push(row);
            all.push((n, errors));
        }
    }
    let header = [
        "$n$",
        "type",
        "naive",
        "$B_k = 1$",
        "$B_k = 16$",
        "$B_k = 64$",
        "$B_k = 256$",
        "in parts",
    ];
    page.file("rounding.md", table(&header, &rows));

    // What the chapter says of the table.
    for (n, errors) in &all {
        let [naive, single, tiles @ .., parts] = &errors[..] else {
            anyhow::bail!("the columns of the table");
        };
        ensure!(single > naive, "{n}: single keys are worse than the naive program");
        ensure!(
            tiles[..2].iter().all(|tiled| tiled < naive),
            "{n}: 16 and 64 are better"
        );
        if *n == 4096 {
            ensure!(tiles.iter().all(|tiled| *tiled < 0.55 * naive), "half of the error");
            ensure!(*parts < 0.55 * naive, "and that is how the sum is taken");
        }
    }
    let grows = |of: usize, column: usize| all[4 + of].1[column] / all[of].1[column];
    for of in [0, 1] {
        ensure!(grows(of, 0) > 2.0, "the naive program's errors grow");
        let less = [0, 2, 3, 4, 5].iter().all(|&c| grows(of, c) < grows(of, 1));
        ensure!(less, "those of single keys grow most");
        ensure!(grows(of, 4) < 1.0, "those of 256 keys fall: {}", grows(of, 4));
        ensure!(
            (0.9..1.15).contains(&grows(of, 5)),
            "those of the sum in parts hardly change: {}",
            grows(of, 5)
        );
    }
    let of_64 = [0, 1].map(|of| grows(of, 3) - 1.0);
    ensure!(of_64.iter().all(|&more| (0.05..0.4).contains(&more)), "{of_64:?}");
    page.value("rounding-64-grows-f32", percent(of_64[0], 0));
    page.value("rounding-64-grows-f64", percent(of_64[1], 0));
    let of_16 = [0, 1].map(|of| grows(of, 2));
    ensure!((1.4..1.65).contains(&of_16[0]), "16 keys, f32: by half, not {}", of_16[0]);
    ensure!((1.9..2.2).contains(&of_16[1]), "16 keys, f64: to twice, not {}", of_16[1]);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- traffic

/// What is said of traffic beside the figures of [`tiles_traffic`].
fn traffic(page: &mut Page) -> Result<()> {
    // The longest sequence of which each matrix crosses once.
    for kibibytes in [32, 1024, 32 * 1024] {
        let capacity = kibibytes * 1024 / 4;
        let tiles @ (longest, _) = tiles_for(capacity, D, D)?;
        let total = |n: usize| {
            let shape = AttentionShape::self_attention(1, n, 1, D, 1);
            let report = tiled_traffic(&shape, &Mask::none(), capacity, tiles)?;
            anyhow::Ok(report.total().all() as usize)
        };
        let once = |n: usize| 4 * n * D + n;
        ensure!(total(longest)? == once(longest), "{kibibytes} KiB: each once");
        ensure!(total(longest + 1)? > once(longest + 1), "{kibibytes} KiB: and no more");
        page.value(format!("linear-{kibibytes}"), integer(longest));
    }

    let (n, capacity) = (4096, 32_768);
    let shape = AttentionShape::self_attention(1, n, 1, D, 1);
    let tiled =
        tiled_traffic(&shape, &Mask::none(), capacity, tiles_for(capacity, D, D)?)?;
    // With the scaling of each score, as in *The memory wall*.
    let operations = shape.flops()?.core() as f64 + (n * n) as f64;
    let [naive, tiled] = [naive_traffic(&shape, capacity)?, tiled]
        .map(|report| operations / report.total().bytes(4) as f64);
    let ridge = A100_F32 / A100_BANDWIDTH;
    ensure!(naive < ridge && ridge < tiled, "on either side of the ridge");
    page.value("intensity-naive", fixed(naive, 1));
    page.value("intensity-tiled", fixed(tiled, 0));
    Ok(())
}
