//! Online softmax in numbers: one row by hand, what it costs, how often the maximum changes, and what rounding does to it.

use crate::double::Double;
use crate::gradient_checking::exponential;
use crate::output::Page;
use anyhow::{Context, Result, ensure};
use attention::flash::OnlineSoftmax;
use attention::{AttentionShape, Mask, attention, example, scaled_scores, softmax_rows};
use figures::format::{fixed, integer, percent, significant, table};
use figures::{
    Area, Axis, BLUE, Block, GREEN, Line, MUTED, Marks, Side, Spot, TEXT, VERMILION,
    arrow, line_chart, svg,
};
use laboratory::traffic::{Memory, blocks, fused_traffic, naive_traffic};
use nalgebra::{DMatrix, RealField, convert};
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use std::collections::BTreeMap;

/// Keys in a tile.
const TILE: usize = 64;
/// Width of a value, where only counting is done.
const D_V: usize = 64;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("tile", integer(TILE));
    page.value("d-v", integer(D_V));
    // The largest whole numbers whose exponentials a type can hold.
    page.value("exponent-f64", integer(f64::MAX.ln() as usize));
    page.value("exponent-f32", integer(f32::MAX.ln() as usize));
    // What the answer to the first question says: each of these exponentials is finite, and the sum of three is not.
    let exponentials = [f64::MAX.ln().floor().exp(), 1.0];
    ensure!(exponentials[0].is_finite(), "one exponential overflows");
    ensure!((3.0 * exponentials[0] + exponentials[1]).is_infinite(), "three do not");
    let single = f32::MAX.ln().floor().exp();
    ensure!(single.is_finite() && (3.0 * single).is_infinite(), "not so in f32");
    sweeps(page)?;
    by_hand(page)?;
    staircase(page)?;
    shapes_of_merging(page)?;
    rounding(page)?;
    best_width(page)?;
    any_way(page)?;
    changes(page)?;
    cost(page)
}

// ------------------------------------------------------------------------------------------------ sweeps over a row

/// How often a program goes over a row that does not fit, counted by the machine of the chapter on the memory wall.
fn sweeps(page: &mut Page) -> Result<()> {
    let (n, capacity) = (4096, 1024);
    let scores = DMatrix::from_fn(1, n, |_, j| (0.7 * j as f64).sin());
    let values = DMatrix::from_fn(n, 1, |j, _| (0.3 * j as f64).cos());
    let expected = (softmax_rows(&scores)? * &values)[0];

    let mut rows = vec![];
    type Program = fn(&mut Sweeps) -> Result<f64>;
    let programs: [(&str, Program); 3] = [
        ("maximum; sum; divide; average", |s| s.textbook()),
        ("maximum; both sums; divide once, at the end", |s| s.divide_last()),
        ("both sums and a running maximum", |s| s.online()),
    ];
    let mut all = vec![];
    for (name, program) in programs {
        let memory = Memory::new(capacity);
        let row = memory.put("scores", scores.clone());
        let mut sweeps = Sweeps { row, values: values.clone() };
        let average = program(&mut sweeps)?;
        ensure!((average - expected).abs() < 1e-14, "{name}: {average}, not {expected}");
        let counts = memory.report().matrix("scores");
        let times = |numbers: u128| {
            ensure!(numbers.is_multiple_of(n as u128), "{name}: not whole rows");
            Ok((numbers / n as u128).to_string())
        };
        all.push((counts.read / n as u128, counts.written / n as u128));
        rows.push(vec![name.to_owned(), times(counts.read)?, times(counts.written)?]);
    }
    ensure!(all == [(4, 1), (2, 0), (1, 0)], "four and one, two, one: {all:?}");
    let header = ["sweeps", "the row is read", "and written"];
    page.file("sweeps.md", table(&header, &rows));

    // The programs of that chapter, with rows that do not fit.
    let n = 1024;
    let shape = AttentionShape::self_attention(1, n, 1, 64, 1);
    for (key, report) in [
        ("naive", naive_traffic(&shape, n / 2)?),
        ("fused", fused_traffic(&shape, n / 2)?),
    ] {
        let numbers = report.matrix("scores").all();
        ensure!(numbers.is_multiple_of((n * n) as u128), "{key}: no multiple of n²");
        // Softmax of the table reads four times and writes once; the product before it wrote the scores.
        let is_six = numbers / (n * n) as u128 == 4 + 1 + 1;
        ensure!(key != "fused" || is_six, "{key}: not what the table has, and one write");
        page.value(
            format!("crossings-{key}-long"),
            (numbers / (n * n) as u128).to_string(),
        );
    }
    Ok(())
}

/// A row of scores in slow memory, and its values, which are not counted.
struct Sweeps<'m> {
    row: laboratory::traffic::Slow<'m, f64>,
    values: DMatrix<f64>,
}

impl Sweeps<'_> {
    /// Lets `f` see every score, and replace it if `store`.
    fn sweep(&mut self, store: bool, mut f: impl FnMut(usize, &mut f64)) -> Result<()> {
        for columns in blocks(self.row.shape().1, 256) {
            let mut tile = self.row.load(0..1, columns.clone())?;
            for (score, j) in tile.view_mut().iter_mut().zip(columns.clone()) {
                f(j, score);
            }
            if store {
                self.row.store((0, columns.start), &tile)?;
            }
        }
        Ok(())
    }

    fn textbook(&mut self) -> Result<f64> {
        let (mut max, mut sum, mut average) = (f64::NEG_INFINITY, 0.0, 0.0);
        self.sweep(false, |_, s| max = max.max(*s))?;
        self.sweep(false, |_, s| sum += (*s - max).exp())?;
        self.sweep(true, |_, s| *s = (*s - max).exp() / sum)?;
        let values = self.values.clone();
        self.sweep(false, |j, weight| average += *weight * values[j])?;
        Ok(average)
    }

    fn divide_last(&mut self) -> Result<f64> {
        let (mut max, mut sum, mut weighted) = (f64::NEG_INFINITY, 0.0, 0.0);
        self.sweep(false, |_, s| max = max.max(*s))?;
        let values = self.values.clone();
        self.sweep(false, |j, s| {
            sum += (*s - max).exp();
            weighted += (*s - max).exp() * values[j];
        })?;
        Ok(weighted / sum)
    }

    fn online(&mut self) -> Result<f64> {
        let values = self.values.clone();
        let mut row = Row::empty();
        self.sweep(false, |j, s| row = row.absorb(&[(*s, values[j])]))?;
        Ok(row.output())
    }
}

// ------------------------------------------------------------------------------------------------ one row

/// The state of one row with values of width 1, from additions, multiplications and divisions alone, which have the same
/// last digit on every machine.
#[derive(Clone, Copy)]
struct Row<T> {
    max: T,
    sum: T,
    weighted: T,
}

impl<T: RealField + Copy> Row<T> {
    fn empty() -> Self {
        Row { max: convert(f64::NEG_INFINITY), sum: T::zero(), weighted: T::zero() }
    }

    /// e^(m − m'), which is 0 for a row that has seen nothing.
    fn correction(self, max: T) -> T {
        if self.max.is_finite() { exponential(self.max - max) } else { T::zero() }
    }

    /// A tile more: scores, each with its value.
    fn absorb(self, keys: &[(T, T)]) -> Self {
        let max = keys.iter().fold(self.max, |max, &(score, _)| max.max(score));
        let (mut sum, mut weighted) = (T::zero(), T::zero());
        for &(score, value) in keys {
            let weight = exponential(score - max);
            sum += weight;
            weighted += weight * value;
        }
        let correction = self.correction(max);
        Row {
            max,
            sum: self.sum * correction + sum,
            weighted: self.weighted * correction + weighted,
        }
    }

    fn merge(self, other: Self) -> Self {
        let max = self.max.max(other.max);
        let [a, b] = [self, other].map(|row| row.correction(max));
        Row {
            max,
            sum: self.sum * a + other.sum * b,
            weighted: self.weighted * a + other.weighted * b,
        }
    }

    fn output(self) -> T {
        self.weighted / self.sum
    }
}

/// “bank” asks, and both “the” are hidden: four scores, one after the other.
fn by_hand(page: &mut Page) -> Result<()> {
    let sentence = example::river();
    let [w_q, w_k, w_v] = example::projections();
    let (q, k, v) = (&sentence.x * w_q, &sentence.x * w_k, &sentence.x * w_v);
    let scores = scaled_scores(&q, &k)?;
    let bank = 5;
    let keys: Vec<usize> = (0..6).filter(|&j| sentence.tokens[j] != "the").collect();
    ensure!(keys.len() == 4, "four keys");

    let mut row = Row::empty();
    let mut rows = vec![];
    let mut changes = vec![];
    for &j in &keys {
        let (score, value) = (scores[(bank, j)], v[(j, 0)]);
        let before = row;
        row = row.absorb(&[(score, value)]);
        changes.push(row.max != before.max);
        rows.push(vec![
            sentence.tokens[j].to_owned(),
            fixed(score, 3),
            fixed(value, 1),
            fixed(row.max, 3),
            fixed((before.max - row.max).exp(), 3),
            fixed((score - row.max).exp(), 3),
            fixed(row.sum, 3),
            fixed(row.weighted, 3),
            fixed(row.output(), 3),
        ]);
        if sentence.tokens[j] == "river" {
            page.value("river-correction", fixed((before.max - row.max).exp(), 3));
            page.value("river-old-max", fixed(before.max, 3));
            page.value("river-new-max", fixed(row.max, 3));
            page.value("river-old-sum", fixed(before.sum, 3));
            page.value("river-new-sum", fixed(row.sum, 3));
            page.value("river-old-weighted", fixed(before.weighted, 3));
            page.value("river-new-weighted", fixed(row.weighted, 3));
        }
    }
    ensure!(changes == [true, false, true, false], "first and third: {changes:?}");
    let header = [
        "key",
        "$s$",
        "$v$",
        "$m$",
        "$\\alpha$",
        "$e^{s-m}$",
        "$\\ell$",
        "$o$",
        "$o / \\ell$",
    ];
    page.file("by-hand.md", table(&header, &rows));

    // The whole row at once says the same.
    let valid: Vec<bool> = (0..6).map(|j| keys.contains(&j)).collect();
    let (output, cache) = attention(&q, &k, &v, &Mask::padding(&valid)?)?;
    let (average, log_sum_exp) = (row.output(), row.max + row.sum.ln());
    ensure!((average - output[(bank, 0)]).abs() < 1e-14, "not the output");
    ensure!((log_sum_exp - cache.log_sum_exp[bank]).abs() < 1e-14, "not log-sum-exp");
    page.value("output", fixed(average, 3));
    page.value("log-sum-exp", fixed(log_sum_exp, 3));
    Ok(())
}

fn normal(n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..n).map(|_| StandardNormal.sample(rng)).collect()
}

/// Scores as they come, their running maximum, and log-sum-exp.
fn staircase(page: &mut Page) -> Result<()> {
    let n = 64;
    let scores = normal(n, &mut ChaCha8Rng::seed_from_u64(4));
    let mut row = Row::empty();
    let (mut max, mut log_sum_exp) = (vec![], vec![]);
    let mut n_changes = 0;
    let mut last_change = 0;
    for (j, &score) in scores.iter().enumerate() {
        let before = row;
        row = row.absorb(&[(score, 0.0)]);
        let t = j as f64 + 1.0;
        if row.max != before.max {
            n_changes += 1;
            last_change = j + 1;
            if j > 0 {
                max.push((t, before.max));
            }
        }
        max.push((t, row.max));
        log_sum_exp.push((t, row.max + row.sum.ln()));
    }
    ensure!(
        log_sum_exp.windows(2).all(|pair| pair[0].1 < pair[1].1),
        "log-sum-exp grows with every key"
    );
    let gain = |from: usize, to: usize| log_sum_exp[to].1 - log_sum_exp[from].1;
    ensure!(gain(0, n / 4) > gain(n / 4, n - 1), "most of all in the beginning");
    ensure!((4..=7).contains(&n_changes), "{n_changes} steps: another seed");
    ensure!(last_change < n, "the last step is not at the end");
    page.value("stairs", integer(n_changes));
    page.value("stairs-last", integer(last_change));
    page.value("stairs-n", integer(n));
    let dots: Vec<_> =
        scores.iter().enumerate().map(|(j, &s)| (j as f64 + 1.0, s)).collect();
    let line = |name: &str, colour, points| Line {
        name: name.to_owned(),
        colour,
        dashed: false,
        points,
    };
    let lines = [
        line("running maximum m", VERMILION, max),
        line("m + ln ℓ so far", BLUE, log_sum_exp),
    ];
    page.file(
        "staircase.svg",
        svg(
            "online-softmax-staircase",
            "The running maximum and log-sum-exp of scores that come one at a time",
            "Dots are scattered around zero. A staircase rises in a few steps and lies on the highest dot so far. A line \
             above it rises with every key, most of all in the beginning.",
            (520, 340),
            |area| {
                let x = Axis::linear("keys seen", 0.0..65.0);
                let y = Axis::linear("score", -3.0..6.0);
                line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

// ------------------------------------------------------------------------------------------------ ways to merge

/// The size of a box that stands for a state.
const SIZE: (i32, i32) = (64, 34);

/// Arrows from boxes with these corners to another.
fn join(area: &Area, from: &[(i32, i32)], to: (i32, i32)) -> Result<()> {
    for &corner in from {
        let start = (corner.0 + SIZE.0 / 2, corner.1 + SIZE.1);
        arrow(area, &[start, (to.0 + SIZE.0 / 2, to.1 - 2)], TEXT)?;
    }
    Ok(())
}

/// Four tiles, merged one after the other, and as a tree.
fn shapes_of_merging(page: &mut Page) -> Result<()> {
    let tiles: Vec<(i32, i32)> = (0..4).map(|i| (8 + 82 * i, 8)).collect();
    let size = (336, 250);

    let chain = svg(
        "online-softmax-chain",
        "Four tiles merged one after the other",
        "Four boxes in a row. The first two are joined, the third is joined to the result, and the fourth to the result \
         of that: three steps, each of which waits for the one before.",
        size,
        |area| {
            let joined = [(49, 74), (115, 140), (185, 206)];
            for (&corner, name) in tiles.iter().zip(["1", "2", "3", "4"]) {
                Block::new(corner, SIZE, name, BLUE).draw(area)?;
            }
            for (&corner, name) in joined.iter().zip(["1–2", "1–3", "1–4"]) {
                Block::new(corner, SIZE, name, VERMILION).draw(area)?;
            }
            join(area, &[tiles[0], tiles[1]], joined[0])?;
            join(area, &[joined[0], tiles[2]], joined[1])?;
            join(area, &[joined[1], tiles[3]], joined[2])
        },
    )?;
    let tree = svg(
        "online-softmax-tree",
        "Four tiles merged as a tree",
        "Four boxes in a row. The first two are joined, and so are the last two; the two results are joined: three \
         steps, of which the first two need not wait for each other.",
        size,
        |area| {
            let joined = [(49, 107), (213, 107), (131, 206)];
            for (&corner, name) in tiles.iter().zip(["1", "2", "3", "4"]) {
                Block::new(corner, SIZE, name, BLUE).draw(area)?;
            }
            for (&corner, name) in joined.iter().zip(["1–2", "3–4", "1–4"]) {
                Block::new(corner, SIZE, name, VERMILION).draw(area)?;
            }
            join(area, &[tiles[0], tiles[1]], joined[0])?;
            join(area, &[tiles[2], tiles[3]], joined[1])?;
            join(area, &[joined[0], joined[1]], joined[2])
        },
    )?;
    page.file("chain.svg", chain);
    page.file("tree.svg", tree);
    Ok(())
}

/// One row of scores, each with its value of width 1.
struct Keys<T>(Vec<(T, T)>);

impl<T: RealField + Copy + Into<f64>> Keys<T> {
    /// Normal scores, values between 0 and 1.
    fn random(n: usize, seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let scores = normal(n, rng);
        let values = scores.iter().map(|_| rng.random_range(0.0..1.0));
        let values: Vec<f64> = values.collect();
        let both = scores.iter().zip(values);
        Keys(both.map(|(&s, v)| (convert(s), convert(v))).collect())
    }

    /// Rising scores: the maximum changes with every key.
    fn sorted(&self) -> Self {
        let mut keys = self.0.clone();
        keys.sort_by(|a, b| a.0.into().total_cmp(&b.0.into()));
        Keys(keys)
    }

    /// `width` keys at a time.
    fn absorbed(&self, width: usize) -> Row<T> {
        self.0.chunks(width).fold(Row::empty(), Row::absorb)
    }

    /// A tree whose leaves are tiles.
    fn tree(&self, width: usize) -> Row<T> {
        let tiles = self.0.chunks(width);
        let mut rows: Vec<_> = tiles.map(|tile| Row::empty().absorb(tile)).collect();
        while rows.len() > 1 {
            let pairs = rows.chunks(2);
            rows = pairs
                .filter_map(|pair| pair.iter().copied().reduce(Row::merge))
                .collect();
        }
        rows[0]
    }

    /// Softmax of the whole row, and then the average, with sums that `add` takes.
    fn plain(&self, add: fn(&[T]) -> T) -> T {
        let max = self.0.iter().fold(self.0[0].0, |max, &(score, _)| max.max(score));
        let weights = self.0.iter().map(|&(score, _)| exponential(score - max));
        let weights: Vec<T> = weights.collect();
        let sum = add(&weights);
        let terms =
            weights.iter().zip(&self.0).map(|(&weight, &(_, v))| weight / sum * v);
        add(&terms.collect::<Vec<T>>())
    }

    /// In twice the digits of an `f64`.
    fn exact(&self) -> Double {
        let keys = self.0.iter().map(|&(score, value)| (score.into(), value.into()));
        let keys: Vec<(f64, f64)> = keys.collect();
        let max = keys.iter().fold(f64::NEG_INFINITY, |max, key| max.max(key.0));
        let (mut sum, mut weighted) = (Double::from(0.0), Double::from(0.0));
        for (score, value) in keys {
            let weight = (Double::from(score) - Double::from(max)).exp();
            sum = sum + weight;
            weighted = weighted + weight * Double::from(value);
        }
        weighted / sum
    }

    /// What the crate says, `width` keys at a time or as a tree of tiles.
    fn of_the_crate(&self, width: usize, is_tree: bool) -> Result<T> {
        let mut states = vec![OnlineSoftmax::new(1, 1)?];
        for tile in self.0.chunks(width) {
            let scores = DMatrix::from_fn(1, tile.len(), |_, j| tile[j].0);
            let values = DMatrix::from_fn(tile.len(), 1, |j, _| tile[j].1);
            if is_tree {
                states.push(OnlineSoftmax::new(1, 1)?);
            }
            let state = states.last_mut().context("a state")?;
            state.absorb(&scores, &values)?;
        }
        while states.len() > 1 {
            let mut pairs = states.into_iter();
            states = vec![];
            while let Some(left) = pairs.next() {
                states.push(match pairs.next() {
                    Some(right) => left.merge(right)?,
                    None => left,
                });
            }
        }
        Ok(states.pop().context("a row without keys")?.finish().0[0])
    }
}

fn one_by_one<T: RealField + Copy>(terms: &[T]) -> T {
    terms.iter().fold(T::zero(), |sum, &term| sum + term)
}

/// Each half by itself, and then both.
fn as_a_tree<T: RealField + Copy>(terms: &[T]) -> T {
    match terms {
        [] => T::zero(),
        &[term] => term,
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            as_a_tree(left) + as_a_tree(right)
        }
    }
}

/// Any order of the keys, split anywhere, and split again: down to single keys, or to tiles of a few.
fn any_way_of<T: RealField + Copy>(keys: &[(T, T)], rng: &mut ChaCha8Rng) -> Row<T> {
    if keys.len() == 1 || keys.len() <= 16 && rng.random_bool(0.2) {
        return Row::empty().absorb(keys);
    }
    let (left, right) = keys.split_at(rng.random_range(1..keys.len()));
    any_way_of(left, rng).merge(any_way_of(right, rng))
}

/// The share by which an output is off, in units of u, half the gap between 1 and the next number of the type.
fn error<T: RealField + Copy + Into<f64>>(output: T, exact: Double) -> f64 {
    let u = T::default_epsilon().into() / 2.0;
    ((Double::from(output.into()) - exact) / exact).rounded().abs() / u
}

/// The mean error of each way, over many rows.
struct Errors {
    one: f64,
    tiles: f64,
    tree: f64,
    plain: f64,
    plain_tree: f64,
    rising: f64,
    rising_plain: f64,
}

fn errors<T: RealField + Copy + Into<f64>>(n: usize, rows: usize) -> Errors {
    let mut mean = Errors {
        one: 0.0,
        tiles: 0.0,
        tree: 0.0,
        plain: 0.0,
        plain_tree: 0.0,
        rising: 0.0,
        rising_plain: 0.0,
    };
    for seed in 0..rows as u64 {
        let keys = Keys::<T>::random(n, seed);
        let exact = keys.exact();
        let share = |output: T| error(output, exact) / rows as f64;
        mean.one += share(keys.absorbed(1).output());
        mean.tiles += share(keys.absorbed(TILE).output());
        mean.tree += share(keys.tree(TILE).output());
        mean.plain += share(keys.plain(one_by_one));
        mean.plain_tree += share(keys.plain(as_a_tree));
        let rising = keys.sorted();
        mean.rising += share(rising.absorbed(1).output());
        mean.rising_plain += share(rising.plain(one_by_one));
    }
    mean
}

/// The crate, whose exponentials are the system's, is as exact as what is measured here.
fn check_the_crate(n: usize, rows: usize) -> Result<()> {
    let here = errors::<f64>(n, rows);
    for (name, right, width, is_tree) in [
        ("one at a time", here.one, 1, false),
        ("tiles", here.tiles, TILE, false),
        ("tree", here.tree, TILE, true),
    ] {
        let mut mean = 0.0;
        for seed in 0..rows as u64 {
            let keys = Keys::<f64>::random(n, seed);
            mean += error(keys.of_the_crate(width, is_tree)?, keys.exact()) / rows as f64;
        }
        let ratio = mean / right;
        ensure!((0.6..1.6).contains(&ratio), "{name}: {mean} in the crate, {right} here");
    }
    Ok(())
}

/// The error against the number of keys, for each way of splitting them.
fn rounding(page: &mut Page) -> Result<()> {
    let rows = 60;
    let lengths: Vec<usize> = (6..=14).map(|power| 1 << power).collect();
    let mut doubles = vec![];
    let mut spots = vec![];
    for &n in &lengths {
        doubles.push(errors::<f64>(n, rows));
        if n.ilog2().is_multiple_of(2) {
            let Errors { one, tiles, tree, .. } = errors::<f32>(n, rows);
            let double = &doubles[doubles.len() - 1];
            for (a, b) in [(one, double.one), (tiles, double.tiles), (tree, double.tree)]
            {
                ensure!(a < 1.6 * b && b < 1.6 * a, "n = {n}: f32 like f64, {a}, {b}");
            }
            for (error, colour) in [(one, BLUE), (tiles, VERMILION), (tree, GREEN)] {
                let place = (n as f64, error);
                spots.push(Spot {
                    name: String::new(),
                    place,
                    colour,
                    side: Side::Right,
                });
            }
        }
    }
    // What the chapter says of the figure.
    let near = |a: f64, b: f64, factor: f64| a < factor * b && b < factor * a;
    for (&n, e) in lengths.iter().zip(&doubles) {
        ensure!(near(e.one, e.plain, 1.4), "n = {n}: one at a time is as exact as plain");
        ensure!(e.rising < e.one, "n = {n}: no worse if the maximum changes each time");
        ensure!(e.tree < 2.5, "n = {n}: the tree is level");
        ensure!(e.plain_tree < 2.5, "n = {n}: so is plain softmax with sums as trees");
        ensure!(e.plain_tree < e.tree, "n = {n}: and more exact, down to single keys");
        ensure!(n < 512 || 4.0 * e.tiles < e.one, "n = {n}: tiles are far more exact");
        ensure!(n < 4096 || 2.0 * e.tree < e.tiles, "n = {n}: and the tree more still");
    }
    for e in &doubles[4..] {
        ensure!(e.rising_plain < e.rising && e.rising < e.plain, "a price, and a gain");
        // Independent errors add in squares.
        let price = (e.rising.powi(2) - e.rising_plain.powi(2)).sqrt();
        ensure!(near(price, e.rising_plain, 2.0), "comparable with the additions");
    }
    let growth = |part: fn(&Errors) -> f64| part(&doubles[8]) / part(&doubles[2]);
    ensure!(near(growth(|e| e.one), 8.0, 1.4), "64 times the keys, 8 times the error");
    ensure!(near(growth(|e| e.plain), 8.0, 1.4), "of plain softmax as well");
    check_the_crate(1024, rows)?;
    let line = |name: &str, colour, dashed, part: fn(&Errors) -> f64| Line {
        name: name.to_owned(),
        colour,
        dashed,
        points: lengths.iter().zip(&doubles).map(|(&n, e)| (n as f64, part(e))).collect(),
    };
    let lines = [
        line("one key at a time", BLUE, false, |e| e.one),
        line("plain softmax", TEXT, true, |e| e.plain),
        line("plain, sums as trees", MUTED, true, |e| e.plain_tree),
        line("tiles of 64", VERMILION, false, |e| e.tiles),
        line("a tree of tiles of 64", GREEN, false, |e| e.tree),
    ];
    let last = &doubles[doubles.len() - 1];
    page.value("rounding-rows", integer(rows));
    page.value("rounding-n", integer(lengths[lengths.len() - 1]));
    for (key, error) in [
        ("one", last.one),
        ("plain", last.plain),
        ("plain-tree", last.plain_tree),
        ("tiles", last.tiles),
        ("tree", last.tree),
        ("rising", last.rising),
        ("rising-plain", last.rising_plain),
    ] {
        page.value(format!("rounding-{key}"), significant(error, 2));
    }
    page.file(
        "rounding.svg",
        svg(
            "online-softmax-rounding",
            "Rounding errors of the output against the number of keys, for several ways to split a row",
            "Two lines, one key at a time and plain softmax, rise side by side with the square root of the number of \
             keys. The line of tiles rises far more slowly. That of a tree of tiles stays level, and beside it that of \
             plain softmax whose sums are taken as trees. Dots for f32, in the colours of the three solid lines, lie on \
             these or not far off.",
            (520, 424),
            |area| {
                let x = Axis::log("keys n (logarithmic)", 2.0, 64.0..16384.0);
                let y = Axis::log("error in units of u (logarithmic)", 2.0, 0.5..64.0);
                line_chart(area, &x, &y, &lines, Marks { spots: &spots, ..Marks::default() })
            },
        )?,
    );
    Ok(())
}

/// The tile width with the smallest error, if tiles are absorbed one after the other.
fn best_width(page: &mut Page) -> Result<()> {
    let (n, rows) = (16_384, 60);
    let widths: Vec<usize> = (4..=12).map(|power| 1 << power).collect();
    let mut means = vec![0.0; widths.len()];
    for seed in 0..rows {
        let keys = Keys::<f64>::random(n, seed);
        let exact = keys.exact();
        for (mean, &width) in means.iter_mut().zip(&widths) {
            *mean += error(keys.absorbed(width).output(), exact) / rows as f64;
        }
    }
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let found: BTreeMap<usize, f64> = widths.into_iter().zip(means).collect();
    // Where n / c + c² / n is least.
    let expected = (n as f64 * n as f64 / 2.0).cbrt().round() as usize;
    ensure!(found.contains_key(&expected), "{expected} is not among the widths");
    for (&width, &mean) in &found {
        let is_near = (expected / 2..=expected * 2).contains(&width);
        ensure!(is_near == (mean < 1.2 * least), "c = {width}: {mean}, least {least}");
    }
    ensure!(found[&16] > 2.0 * least && found[&2048] > 2.0 * least, "far off is worse");
    page.value("width-expected", integer(expected));
    page.value("width-root", integer(n.isqrt()));
    let predicted = |width: usize| {
        let (n, c) = (n as f64, width as f64);
        (n / c + c * c / n).sqrt()
    };
    for (name, width) in [("half", expected / 2), ("double", 2 * expected)] {
        let more = predicted(width) / predicted(expected) - 1.0;
        page.value(format!("width-{name}-more"), percent(more, 0));
    }
    for width in [16, 128, 512, 2048] {
        page.value(format!("width-{width}"), significant(found[&width], 2));
    }
    Ok(())
}

/// Many ways to split one row, in any order.
fn any_way(page: &mut Page) -> Result<()> {
    page.value("ways", integer(WAYS));
    page.value("ways-n", integer(N_OF_WAYS));
    let (doubles, singles) = (ways::<f64>("f64")?, ways::<f32>("f32")?);
    let names = ["whole, by plain softmax", "one at a time", "split anywhere"];
    let row = |((name, double), single): ((&str, [f64; 2]), [f64; 2])| {
        let errors = [double, single].concat();
        let errors = errors.into_iter().map(|error| significant(error, 2));
        [(*name).to_owned()].into_iter().chain(errors).collect()
    };
    let rows: Vec<Vec<String>> =
        names.into_iter().zip(doubles).zip(singles).map(row).collect();
    let header =
        ["the row is taken", "`f64`: median", "largest", "`f32`: median", "largest"];
    page.file("ways.md", table(&header, &rows));
    Ok(())
}

const WAYS: usize = 1000;
const N_OF_WAYS: usize = 1000;

/// The median and the largest error of each of three ways.
fn ways<T: RealField + Copy + Into<f64>>(name: &str) -> Result<[[f64; 2]; 3]> {
    let mut keys = Keys::<T>::random(N_OF_WAYS, 18);
    let exact = keys.exact();
    let rng = &mut ChaCha8Rng::seed_from_u64(18);
    let mut errors = [vec![], vec![], vec![]];
    for _ in 0..WAYS {
        keys.0.shuffle(rng);
        let outputs = [
            keys.plain(one_by_one),
            keys.absorbed(1).output(),
            any_way_of(&keys.0, rng).output(),
        ];
        for (errors, output) in errors.iter_mut().zip(outputs) {
            errors.push(error(output, exact));
        }
    }
    for errors in &mut errors {
        errors.sort_by(f64::total_cmp);
    }
    let [plain, one, split] = &errors;
    let half = WAYS / 2;
    ensure!((0.7..1.4).contains(&(one[half] / plain[half])), "{name}: as exact as plain");
    ensure!(2.0 * split[half] < plain[half], "{name}: twice as exact and more");
    ensure!(2.0 * split[WAYS - 1] < plain[WAYS - 1], "{name}: and at worst, too");
    Ok(errors.map(|errors| [errors[half], errors[WAYS - 1]]))
}

// ------------------------------------------------------------------------------------------------ cost

/// 1 + 1/2 + … + 1/n
fn harmonic(n: usize) -> f64 {
    (1..=n).map(|i| 1.0 / i as f64).sum()
}

/// How often the maximum changes over a row, if it is looked at in tiles.
fn n_changes(scores: &[f64], tile: usize) -> usize {
    let mut max = f64::NEG_INFINITY;
    let mut n_changes = 0;
    for tile in scores.chunks(tile) {
        let new = tile.iter().copied().fold(max, f64::max);
        n_changes += usize::from(new != max);
        max = new;
    }
    n_changes
}

fn changes(page: &mut Page) -> Result<()> {
    let (rows, n) = (2000, 4096);
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let lengths: Vec<usize> = (0..=12).map(|power| 1 << power).collect();
    let mut counts = vec![(0, 0); lengths.len()];
    for _ in 0..rows {
        let scores = normal(n, rng);
        for (count, &n) in counts.iter_mut().zip(&lengths) {
            count.0 += n_changes(&scores[..n], 1);
            count.1 += n_changes(&scores[..n], TILE);
        }
    }
    let mean = |count: usize| count as f64 / f64::from(rows);
    let mut dots = vec![];
    for (&(one, tiles), &n) in counts.iter().zip(&lengths) {
        ensure!((mean(one) - harmonic(n)).abs() < 0.15, "n = {n}: {}", mean(one));
        dots.push((n as f64, mean(one)));
        if n >= TILE {
            ensure!((mean(tiles) - harmonic(n / TILE)).abs() < 0.15, "n = {n}, tiles");
            dots.push((n as f64, mean(tiles)));
        }
    }
    let expected = |name: &str, colour, tile: usize| Line {
        name: name.to_owned(),
        colour,
        dashed: false,
        points: (1..=n / tile).map(|i| ((i * tile) as f64, harmonic(i))).collect(),
    };
    let lines = [
        expected("one key at a time: Hₙ", BLUE, 1),
        expected("tiles of 64: H of n / 64", VERMILION, TILE),
        Line {
            name: "ln n".to_owned(),
            colour: TEXT,
            dashed: true,
            points: lengths.iter().map(|&n| (n as f64, (n as f64).ln())).collect(),
        },
    ];
    page.value("changes-rows", integer(rows as usize));
    page.value("changes-n", integer(n));
    page.value("changes-ln", fixed((n as f64).ln(), 1));
    ensure!(harmonic(n).round() == 9.0, "nine times");
    page.value("changes-harmonic", fixed(harmonic(n), 1));
    page.value("changes-gap", fixed(harmonic(n) - (n as f64).ln(), 2));
    page.file(
        "changes.svg",
        svg(
            "online-softmax-changes",
            "How often the maximum of random scores changes, against the number of keys",
            "One key at a time, the number of changes follows the harmonic number, a nearly straight line over the \
             logarithm of the number of keys, a little above ln n. In tiles of 64 it is a line as steep, which starts at 1 \
             where the first tile is full.",
            (520, 360),
            |area| {
                let x = Axis::log("keys n (logarithmic)", 2.0, 1.0..4096.0);
                let y = Axis::linear("changes of the maximum", 0.0..10.0);
                line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
            },
        )?,
    );

    // The same, and the best and the worst order.
    let (one, tiles) = counts[counts.len() - 1];
    let increasing: Vec<f64> = (0..n).map(|j| j as f64).collect();
    let decreasing: Vec<f64> = increasing.iter().rev().copied().collect();
    let exactly = |name: &str, scores: &[f64]| {
        let count = |tile| integer(n_changes(scores, tile));
        vec![name.to_owned(), count(1), count(TILE)]
    };
    let rows = [
        exactly("falling", &decreasing),
        vec![
            "random, expected".to_owned(),
            fixed(harmonic(n), 1),
            fixed(harmonic(n / TILE), 1),
        ],
        vec![
            format!("random, mean of {} rows", integer(rows as usize)),
            fixed(mean(one), 1),
            fixed(mean(tiles), 1),
        ],
        exactly("rising", &increasing),
    ];
    let header = ["scores", "one key at a time", "in tiles of 64"];
    page.file("changes.md", table(&header, &rows));
    Ok(())
}

/// Online softmax of one row with values of width [`D_V`], which counts what it does beside the products.
#[derive(Default)]
struct Counted {
    exponentials: usize,
    corrections: usize, // multiplications of the sum and of the values
}

impl Counted {
    fn exp(&mut self, x: f64) -> f64 {
        self.exponentials += 1;
        x.exp()
    }

    fn correct(&mut self, x: &mut f64, correction: f64) {
        self.corrections += 1;
        *x *= correction;
    }

    fn attend(&mut self, scores: &[f64], values: &DMatrix<f64>, tile: usize) -> Vec<f64> {
        let (mut max, mut sum) = (f64::NEG_INFINITY, 0.0);
        let mut weighted = vec![0.0; D_V];
        for keys in blocks(scores.len(), tile) {
            let new = scores[keys.clone()].iter().copied().fold(max, f64::max);
            let correction = self.exp(max - new);
            self.correct(&mut sum, correction);
            for x in &mut weighted {
                self.correct(x, correction);
            }
            for j in keys {
                let weight = self.exp(scores[j] - new);
                sum += weight;
                for (x, v) in weighted.iter_mut().zip(values.row(j).iter()) {
                    *x += weight * v;
                }
            }
            max = new;
        }
        weighted.iter().map(|x| x / sum).collect()
    }
}

/// What a row costs more than the plain softmax.
fn cost(page: &mut Page) -> Result<()> {
    let n = 4096;
    page.value("cost-n", integer(n));
    let rng = &mut ChaCha8Rng::seed_from_u64(8);
    let scores = normal(n, rng);
    let values = DMatrix::from_fn(n, D_V, |_, _| StandardNormal.sample(rng));
    let expected = softmax_rows(&DMatrix::from_row_slice(1, n, &scores))? * &values;
    let products = 2 * n * D_V; // a multiplication for each entry of each key and value
    let mut rows = vec![];
    for tile in [1, 4, 16, 64, 256] {
        let mut counted = Counted::default();
        let output = counted.attend(&scores, &values, tile);
        let off = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-14;
        ensure!(output.iter().zip(&expected).all(off), "c = {tile}: not attention");
        let Counted { exponentials, corrections } = counted;
        ensure!(exponentials == n + n / tile, "c = {tile}: exponentials");
        ensure!(corrections == n / tile * (D_V + 1), "c = {tile}: multiplications");
        let extra = (exponentials - n) as f64 / n as f64;
        rows.push(vec![
            integer(tile),
            percent(extra, if extra < 0.1 { 1 } else { 0 }),
            significant(corrections as f64 / n as f64, 3),
            percent(corrections as f64 / products as f64, 1),
        ]);
        if tile == TILE {
            ensure!(extra < 0.02 && 100 * corrections < products, "next to nothing");
        }
    }
    let header = [
        "keys in a tile, $c$",
        "extra exponentials",
        "extra multiplications per score",
        "of those in both products",
    ];
    page.file("cost.md", table(&header, &rows));
    Ok(())
}
