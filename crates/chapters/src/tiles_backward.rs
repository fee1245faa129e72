//! Tiles, backward: what is kept and what is computed again, in bytes, operations and last digits.

use crate::claims::{A100_BANDWIDTH, A100_BF16, A100_F32};
use crate::gradient_checking::random;
use crate::output::Page;
use crate::random::normal;
use crate::{complexity, records, tiles_traffic};
use anyhow::{Result, ensure};
use attention::flash::{
    Flash, FlashOutput, Inputs, Tiles, tiled_attention, tiled_attention_backward,
};
use attention::{
    AttentionGradients, AttentionShape, Flops, Mask, attention, attention_backward,
    gradient_check, log_sum_exp_rows, scaled_scores, softmax_rows, softmax_rows_backward,
};
use figures::format::{bytes, fixed, integer, percent, scientific, significant, table};
use figures::{
    Axis, BLUE, Block, Color, GREEN, Line, MUTED, Marks, TEXT, VERMILION, arrow, filled,
    framed, label, line_chart, svg,
};
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;

pub fn generate(page: &mut Page) -> Result<()> {
    walk(page)?;
    one_tile(page)?;
    kept(page)?;
    layer(page)?;
    operations(page)?;
    keep_or_recompute(page)?;
    rounding(page)?;
    checked(page)?;
    orders_of_a_sum(page)?;
    tiles_traffic::backward(page)
}

/// Width of a head's queries, keys and values.
const D: usize = 64;
/// Bytes of an f32.
const ELEMENT: usize = 4;

// ---------------------------------------------------------------------------------------------------- two diagrams

/// The matrix of scores in tiles, and the way through it: down one column after the other.
fn walk(page: &mut Page) -> Result<()> {
    const CELL: i32 = 46;
    const BLOCKS: i32 = 5;
    const HERE: (i32, i32) = (2, 2); // the tile at work: row, column
    let (left, top) = (150, 76);
    let drawn = svg(
        "tiles-backward-walk",
        "The matrix of scores in tiles, with the walk of the backward pass",
        "A grid of five by five tiles, a block of queries down the side and a block of keys on top for each. The walk goes down one \
         column. The keys and values of this column, and their gradients below it, stay. From the left a block of queries, \
         gradients of outputs, log-sum-exps and D flows into the tile, and to the right its share of the queries' gradients \
         flows out.",
        (520, 400),
        |area| {
            for (i, j) in (0..BLOCKS).flat_map(|i| (0..BLOCKS).map(move |j| (i, j))) {
                let corner = (left + CELL * j, top + CELL * i);
                let corners = [corner, (corner.0 + CELL - 3, corner.1 + CELL - 3)];
                let done = j < HERE.1 || (j == HERE.1 && i < HERE.0);
                let (colour, strength) = match (done, (i, j) == HERE) {
                    (_, true) => (BLUE, 0.75),
                    (true, _) => (BLUE, 0.25),
                    _ => (MUTED, 0.08),
                };
                filled(area, corners, colour.mix(strength))?;
                framed(area, corners, MUTED.mix(0.5))?;
            }
            let middle = |index| CELL * index + (CELL - 3) / 2;
            let (column, row) = (left + middle(HERE.1), top + middle(HERE.0));
            let bottom = top + CELL * BLOCKS;
            let down = [(column, row + 12), (column, bottom - 10)];
            arrow(area, &down, TEXT)?;

            let stays = (column - 52, 28);
            Block::new(stays, (104, 34), "K, V: stay", GREEN).draw(area)?;
            arrow(area, &[(column, 62), (column, top + 8)], GREEN)?;
            Block::new((column - 78, bottom + 30), (156, 34), "dK, dV: grow", GREEN)
                .draw(area)?;
            arrow(area, &[(column, bottom - 2), (column, bottom + 28)], GREEN)?;

            let flows = [(0, "Q, dO"), (1, "L, D")];
            for (line, text) in flows {
                let corner = (18, row - 38 + 40 * line);
                Block::new(corner, (74, 34), text, VERMILION).draw(area)?;
            }
            arrow(area, &[(94, row), (left - 4, row)], VERMILION)?;
            let right = left + CELL * BLOCKS;
            arrow(area, &[(right, row), (right + 46, row)], VERMILION)?;
            Block::new((right + 48, row - 17), (74, 34), "dQ +=", VERMILION)
                .draw(area)?;

            label(area, (left + CELL * BLOCKS / 2, 12), "blocks of keys", MUTED)?;
            label(area, (55, top + 8), "blocks of", MUTED)?;
            label(area, (55, top + 28), "queries", MUTED)
        },
    )?;
    page.file("walk.svg", drawn);
    Ok(())
}

/// The five products of a tile, and what lies between them.
fn one_tile(page: &mut Page) -> Result<()> {
    let drawn = svg(
        "tiles-backward-tile",
        "The backward pass of one tile",
        "Two products stand at the top: first, scores from queries and keys, again; second, the gradient of the weights from \
         the gradient of the output and the values. The log-sum-exp turns scores into weights. Weights, their gradient and D give \
         the gradient of the scores. From the weights comes the third product, the share in the gradient of the values; from the \
         gradient of the scores the fourth and the fifth, those of the queries and the keys.",
        (520, 330),
        |area| {
            let block = |corner, width, text, colour| {
                Block::new(corner, (width, 36), text, colour).draw(area)
            };
            block((8, 8), 230, "1.  S = Q Kᵀ / √d", VERMILION)?;
            block((282, 8), 230, "2.  dA = dO Vᵀ", BLUE)?;
            arrow(area, &[(123, 44), (123, 108)], MUTED)?;
            arrow(area, &[(397, 44), (397, 108)], MUTED)?;
            label(area, (146, 74), "L", TEXT)?;
            label(area, (422, 74), "D", TEXT)?;
            block((8, 110), 230, "A = exp(S − L)", MUTED)?;
            block((282, 110), 230, "dS = A ⊙ (dA − D)", MUTED)?;
            arrow(area, &[(238, 128), (280, 128)], MUTED)?;
            arrow(area, &[(88, 146), (88, 250)], GREEN)?;
            arrow(area, &[(340, 146), (262, 250)], GREEN)?;
            arrow(area, &[(433, 146), (433, 250)], GREEN)?;
            block((8, 252), 160, "3.  dV += Aᵀ dO", GREEN)?;
            block((180, 252), 160, "4.  dQ += dS K", GREEN)?;
            block((352, 252), 160, "5.  dK += dSᵀ Q", GREEN)?;
            label(area, (346, 312), "both divided by √d", MUTED)
        },
    )?;
    page.file("tile.svg", drawn);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- memory

/// Numbers that one head keeps for its backward pass: queries, keys, values and output, the weights, the log-sum-exp.
struct Kept {
    linear: usize,
    weights: usize,
    log_sum_exp: usize,
}

impl Kept {
    fn new(n: usize) -> Self {
        Kept { linear: 4 * n * D, weights: n * n, log_sum_exp: n }
    }

    fn naive(&self) -> usize {
        self.linear + self.weights
    }

    fn tiled(&self) -> usize {
        self.linear + self.log_sum_exp
    }
}

/// The formulas are what the crate keeps. (Its naive cache holds the log-sum-exp as well, and not the output; the layer does.)
fn ensure_kept() -> Result<()> {
    let n = 48;
    let x = normal(n, D, &mut ChaCha8Rng::seed_from_u64(0));
    let (output, cache) = attention(&x, &x, &x, &Mask::none())?;
    let kept = Kept::new(n);
    let linear = cache.q.len() + cache.k.len() + cache.v.len() + output.len();
    ensure!(linear == kept.linear && cache.weights.len() == kept.weights, "naive");
    let mask = Mask::none();
    let FlashOutput { output, log_sum_exp, log_sum_exp_low } =
        tiled_attention(&Inputs::new(&x, &x, &x, &mask)?, Tiles::default())?;
    ensure!(3 * x.len() + output.len() == kept.linear, "tiled");
    ensure!(log_sum_exp.len() == kept.log_sum_exp, "tiled: log-sum-exp");
    // The chapter says in a sentence that the crate keeps this second number, and counts without it.
    ensure!(log_sum_exp_low.len() == kept.log_sum_exp, "tiled: the second number a row");
    Ok(())
}

/// Bytes over the length: a square, and two straight lines.
fn kept(page: &mut Page) -> Result<()> {
    ensure_kept()?;
    let lengths: Vec<usize> = (6..=16).map(|power| 1 << power).collect();
    let line = |name: &str, colour, dashed, of: fn(&Kept) -> usize| Line {
        name: name.to_owned(),
        colour,
        dashed,
        points: lengths
            .iter()
            .map(|&n| (n as f64, (ELEMENT * of(&Kept::new(n))) as f64))
            .collect(),
    };
    let lines = [
        line("A", VERMILION, false, |kept| kept.weights),
        line("Q, K, V, O", MUTED, true, |kept| kept.linear),
        line("L", BLUE, false, |kept| kept.log_sum_exp),
    ];
    page.file(
        "kept.svg",
        svg(
            "tiles-backward-kept",
            "Bytes that one head keeps for the backward pass, against the number of tokens",
            "On logarithmic axes the line of the weights is twice as steep as the two others. It crosses that of queries, keys, \
             values and output at 256 tokens. The log-sum-exp runs far below, parallel to the latter.",
            (520, 400),
            |area| {
                let x = Axis::log("tokens n (logarithmic)", 2.0, 64.0..65_536.0);
                let y = Axis::log("bytes (logarithmic)", 10.0, 100.0..1e11);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    let even = Kept::new(4 * D);
    ensure!(even.linear == even.weights, "the lines cross at n = 4d");
    page.value("kept-even", integer(4 * D));
    page.value("kept-width", integer(D));
    Ok(())
}

/// A layer of a realistic size.
fn layer(page: &mut Page) -> Result<()> {
    let (n, heads, layers) = (4096, 32, 24);
    let kept = Kept::new(n);
    let of_layer = |numbers: usize| bytes((ELEMENT * heads * numbers) as u128);
    let row = |what: &str, naive: usize, tiled: usize| {
        let cell = |numbers: usize| match numbers {
            0 => "–".to_owned(),
            numbers => of_layer(numbers),
        };
        vec![what.to_owned(), cell(naive), cell(tiled)]
    };
    let rows = [
        row("$Q$, $K$, $V$", kept.linear / 4 * 3, kept.linear / 4 * 3),
        row("$O$", kept.linear / 4, kept.linear / 4),
        row("$A$", kept.weights, 0),
        row("$L$", 0, kept.log_sum_exp),
        row("together", kept.naive(), kept.tiled()),
    ];
    page.file("layer.md", table(&["", "naive", "tiled"], &rows));
    page.value("layer-n", integer(n));
    page.value("layer-heads", integer(heads));
    page.value("layer-layers", integer(layers));
    page.value(
        "layer-all-naive",
        bytes((ELEMENT * heads * layers * kept.naive()) as u128),
    );
    page.value(
        "layer-all-tiled",
        bytes((ELEMENT * heads * layers * kept.tiled()) as u128),
    );
    page.value("layer-ratio", fixed(kept.naive() as f64 / kept.tiled() as f64, 0));
    let share = kept.log_sum_exp as f64 / kept.tiled() as f64;
    page.value("layer-share", percent(share, 1));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- operations

/// What the core costs forward and backward, if weights are kept and if they are computed again.
struct Steps {
    forward: f64,
    naive_back: f64,
    tiled_back: f64,
}

impl Steps {
    fn new(n: usize) -> Result<Self> {
        let shape = AttentionShape::self_attention(1, n, D, D, 1);
        let (forward, back) = (shape.flops()?, shape.backward_flops()?);
        let products = |flops: Flops| flops.scores + flops.values;
        ensure!(products(back) == 2 * products(forward), "two products for one");
        let scores = (n * n) as u128;
        // Backward, for each score: a subtraction and an exponential for its weight, a difference and a product for its
        // gradient. And D, 2d for a row.
        let tiled_back =
            products(back) + forward.scores + 4 * scores + (2 * n * D) as u128;
        Ok(Steps {
            forward: forward.core() as f64,
            naive_back: back.core() as f64,
            tiled_back: tiled_back as f64,
        })
    }

    fn of_step(&self) -> f64 {
        (self.forward + self.tiled_back) / (self.forward + self.naive_back) - 1.0
    }

    fn of_backward(&self) -> f64 {
        self.tiled_back / self.naive_back - 1.0
    }
}

fn operations(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    for n in [256, 1024, 4096, 16_384, 65_536] {
        let (steps, kept) = (Steps::new(n)?, Kept::new(n));
        let billions = |operations: f64| significant(operations / 1e9, 3);
        let size = |numbers: usize| bytes((ELEMENT * numbers) as u128);
        rows.push(vec![
            integer(n),
            billions(steps.forward + steps.naive_back),
            billions(steps.forward + steps.tiled_back),
            size(kept.naive()),
            size(kept.tiled()),
            significant(kept.naive() as f64 / kept.tiled() as f64, 3),
        ]);
        let usual = Steps::new(4096)?;
        let away = (steps.of_step() - usual.of_step())
            .abs()
            .max((steps.of_backward() - usual.of_backward()).abs());
        ensure!(away < 0.002, "n = {n}: the length matters");
        if n == 4096 {
            page.value("more-counted", percent(steps.of_step(), 1));
            page.value("more-counted-backward", percent(steps.of_backward(), 1));
        }
    }
    let header = ["$n$", "GFLOP, naive", "tiled", "kept, naive", "tiled", "ratio"];
    page.file("operations.md", table(&header, &rows));
    page.value("more-step", percent(1.0 / 6.0, 0));
    page.value("more-backward", percent(1.0 / 4.0, 0));
    page.value("more-checkpoint", percent(1.0 / 3.0, 0));
    page.value("convention", fixed(5.0 / 2.0, 1));
    page.value("convention-step", fixed(7.0 / 2.0, 1));
    // A kernel that goes twice through the matrix has seven products backward, and is credited with five.
    page.value("two-sweeps", percent(5.0 / 7.0, 0));
    Ok(())
}

/// What a weight costs that is fetched, and one that is computed again.
pub fn keep_or_recompute(page: &mut Page) -> Result<()> {
    let operations = (2 * D + 2) as f64; // a dot product, a subtraction, an exponential
    let [_, _, roof] = complexity::records(page)?;
    let cpu = complexity::ridge(&roof)?;
    let name = format!(
        "{} of the {} in [Complexity](complexity.md#the-roofline), `f32`",
        records::threads(&roof),
        roof.machine.cpu
    );
    let machines = [
        (name.as_str(), cpu, ELEMENT),
        ("A100, `f32`, no tensor cores", A100_F32 / A100_BANDWIDTH, ELEMENT),
        ("A100, bf16, tensor cores", A100_BF16 / A100_BANDWIDTH, 2),
    ];
    let mut rows = vec![];
    let mut ratios = vec![];
    for (name, ridge, element) in machines {
        let even = operations / (2 * element) as f64; // written once, read once
        rows.push(vec![
            name.to_owned(),
            significant(ridge, 3),
            fixed(even, 2),
            significant(ridge / even, 2),
        ]);
        ratios.push(ridge / even);
    }
    // Of the data sheet; what the thread says is measured.
    ensure!(ratios[1] < 1.0 && ratios[1] > 0.5, "fetching is faster");
    ensure!(ratios[2] > 4.0, "computing again is faster");
    let (true_of, faster) = recompute_in_words(ratios[0]);
    page.value("recompute-true-of", true_of);
    page.value("recompute-faster", faster);
    let header = ["machine", "ridge", "even at", "fetched / computed"];
    page.file("recompute.md", table(&header, &rows));
    page.value("recompute-operations", integer(2 * D + 2));
    page.value("recompute-bytes", integer(2 * ELEMENT));
    page.value("recompute-even", fixed(operations / (2 * ELEMENT) as f64, 2));
    Ok(())
}

/// Of what it is true that recomputing is faster than reading, and what a program had better do with its weights on the thread: it
/// takes so many times as long to fetch one as to compute it.
fn recompute_in_words(fetched: f64) -> (&'static str, &'static str) {
    if fetched < 1.0 {
        (
            "of a GPU with tensor cores, and of nothing else in this table",
            "kept its weights",
        )
    } else {
        (
            "of a GPU with tensor cores, and of the thread in this table",
            "computed its weights again",
        )
    }
}

// ---------------------------------------------------------------------------------------------------- rounding

/// The next power of two that is not smaller.
fn bound(x: f64) -> String {
    format!("$2^{{{}}}$", fixed(x.log2().ceil(), 0))
}

/// How far weights are off that were computed by softmax, and those computed again from the log-sum-exp, in `f32`.
fn rounding(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let (n_q, n_k) = (256, 512);
    let scores = scaled_scores(&normal(n_q, D, rng), &normal(n_k, D, rng))?;
    let unit = f64::from(f32::EPSILON) / 2.0;
    let mut rows = vec![];
    let mut errors = vec![];
    for shift in [0.0, 16.0, 128.0, 1024.0] {
        // What the scores are in f32 is what they are; the question is what becomes of them.
        let single = scores.map(|s| (s + shift) as f32);
        let exact_scores = single.map(f64::from);
        let exact = softmax_rows(&exact_scores)?;
        let off = |weights: &DMatrix<f32>| {
            let relative = weights.zip_map(&exact, |a, e| (f64::from(a) / e - 1.0).abs());
            relative.max()
        };
        let lse = log_sum_exp_rows(&single)?;
        let again = DMatrix::from_fn(n_q, n_k, |i, j| (single[(i, j)] - lse[i]).exp());
        let (by_softmax, by_lse) = (off(&softmax_rows(&single)?), off(&again));
        // All weights of a row are off by the same factor, which the rounding of its log-sum-exp makes; or nearly all of it.
        let foretold: Vec<f64> = log_sum_exp_rows(&exact_scores)?
            .iter()
            .zip(&lse)
            .map(|(exact, &rounded)| (exact - f64::from(rounded)).exp())
            .collect();
        let left = again
            .map_with_location(|i, j, a| {
                (f64::from(a) / exact[(i, j)] / foretold[i] - 1.0).abs()
            })
            .max();
        let largest = f64::from(lse.max());
        ensure!(by_lse < 2.0 * unit * largest + 16.0 * unit, "{shift}: {by_lse}");
        ensure!(left < 16.0 * unit, "{shift}: a factor for the row leaves {left}");
        errors.push((by_softmax, by_lse));
        rows.push(vec![
            fixed(largest, 0),
            bound(by_softmax),
            bound(by_lse),
            bound(unit * largest),
        ]);
    }
    ensure!(errors.iter().all(|(by_softmax, _)| *by_softmax < 32.0 * unit), "{errors:?}");
    ensure!(errors[3].1 > 50.0 * errors[3].0, "the log-sum-exp is not worse: {errors:?}");
    ensure!(errors[0].1 < 4.0 * errors[0].0, "and it is, of small scores: {errors:?}");
    let header = ["largest $L$", "softmax", "$e^{S - L}$", "$u L$"];
    page.file("rounding.md", table(&header, &rows));

    // In f64, on the program's own scores.
    let (q, k) = (normal(n_q, D, rng), normal(n_k, D, rng));
    let scores = scaled_scores(&q, &k)?;
    let lse = log_sum_exp_rows(&scores)?;
    let again = DMatrix::from_fn(n_q, n_k, |i, j| (scores[(i, j)] - lse[i]).exp());
    let difference = (again - softmax_rows(&scores)?).amax();
    ensure!(difference < 1e-15, "in f64: {difference}");
    page.value("rounding-f64", scientific(1e-15, 0));
    page.value("rounding-queries", integer(n_q));
    page.value("rounding-keys", integer(n_k));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- gradients

/// What a check asks for, here as in the tests.
const THRESHOLD: f64 = 1e-5;

struct Problem {
    q: DMatrix<f64>,
    k: DMatrix<f64>,
    v: DMatrix<f64>,
    r: DMatrix<f64>,
    n_heads: usize,
}

/// A program that returns an output, and gradients for that of the output.
#[derive(Clone)]
enum Program {
    Naive,
    Tiled(Tiles),
    Fast(Flash),
}

impl Problem {
    /// (5 queries, 7 keys) in two heads of (4, 3).
    fn new() -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(11);
        let (q, k) = (2.0 * random(5, 8, rng), random(7, 8, rng));
        Problem { q, k, v: random(7, 6, rng), r: random(5, 6, rng), n_heads: 2 }
    }

    fn head(&self, h: usize) -> [DMatrix<f64>; 3] {
        let slice = |x: &DMatrix<f64>| {
            let d = x.ncols() / self.n_heads;
            x.columns(h * d, d).into_owned()
        };
        [slice(&self.q), slice(&self.k), slice(&self.v)]
    }

    fn output(&self, program: &Program, mask: &Mask) -> attention::Result<DMatrix<f64>> {
        let inputs = Inputs::new(&self.q, &self.k, &self.v, mask)?;
        let inputs = inputs.with_heads(self.n_heads)?;
        match program {
            Program::Naive => {
                let mut output = self.r.clone();
                let d_v = output.ncols() / self.n_heads;
                for h in 0..self.n_heads {
                    let [q, k, v] = self.head(h);
                    let head = attention(&q, &k, &v, mask)?.0;
                    output.columns_mut(h * d_v, d_v).copy_from(&head);
                }
                Ok(output)
            }
            Program::Tiled(tiles) => Ok(tiled_attention(&inputs, *tiles)?.output),
            Program::Fast(flash) => Ok(flash.forward(&inputs).output),
        }
    }

    fn gradients(
        &self,
        program: &Program,
        mask: &Mask,
        grad_output: &DMatrix<f64>,
    ) -> attention::Result<AttentionGradients<f64>> {
        let inputs = Inputs::new(&self.q, &self.k, &self.v, mask)?;
        let inputs = inputs.with_heads(self.n_heads)?;
        match program {
            Program::Naive => {
                let mut gradients = AttentionGradients {
                    q: self.q.clone(),
                    k: self.k.clone(),
                    v: self.v.clone(),
                };
                for h in 0..self.n_heads {
                    let [q, k, v] = self.head(h);
                    let (d_k, d_v) = (q.ncols(), v.ncols());
                    let (_, cache) = attention(&q, &k, &v, mask)?;
                    let grad_output = grad_output.columns(h * d_v, d_v).into_owned();
                    let head = attention_backward(&cache, &grad_output)?;
                    gradients.q.columns_mut(h * d_k, d_k).copy_from(&head.q);
                    gradients.k.columns_mut(h * d_k, d_k).copy_from(&head.k);
                    gradients.v.columns_mut(h * d_v, d_v).copy_from(&head.v);
                }
                Ok(gradients)
            }
            Program::Tiled(tiles) => {
                let forward = tiled_attention(&inputs, *tiles)?;
                tiled_attention_backward(&inputs, &forward, grad_output, *tiles)
            }
            Program::Fast(flash) => {
                flash.backward(&inputs, &flash.forward(&inputs), grad_output)
            }
        }
    }

    /// The worst relative error by queries, keys and values, with the loss Σ sin(output) ⊙ P.
    fn worst(&self, program: &Program, mask: &Mask, epsilon: f64) -> Result<[f64; 3]> {
        let output = self.output(program, mask)?;
        let here = output.map(f64::sin);
        let grad_output = output.map(f64::cos).component_mul(&self.r);
        let gradients = self.gradients(program, mask, &grad_output)?;
        let loss = |q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>| {
            let problem = Problem {
                q: q.clone(),
                k: k.clone(),
                v: v.clone(),
                r: self.r.clone(),
                n_heads: self.n_heads,
            };
            Ok((problem.output(program, mask)?.map(f64::sin) - &here).dot(&self.r))
        };
        let Problem { q, k, v, .. } = self;
        let by_q = gradient_check(q, &gradients.q, epsilon, |q| loss(q, k, v))?;
        let by_k = gradient_check(k, &gradients.k, epsilon, |k| loss(q, k, v))?;
        let by_v = gradient_check(v, &gradients.v, epsilon, |v| loss(q, k, v))?;
        Ok([by_q, by_k, by_v].map(|check| check.max_relative_error))
    }
}

/// Central differences under every mask, at a step where truncation is all there is, so that the digits are the same on
/// every machine.
fn checked(page: &mut Page) -> Result<()> {
    let problem = Problem::new();
    let tiles = Tiles { queries: 2, keys: 3 };
    let tiled = Program::Tiled(tiles);
    let fast = Program::Fast(Flash::new().with_tiles(tiles)?.with_threads(2)?);
    let rng = &mut ChaCha8Rng::seed_from_u64(12);
    let padding = Mask::padding(&[true, false, true, true, false, true, true])?;
    let masks = [
        ("none", Mask::none()),
        ("causal", Mask::causal()),
        ("padding", padding.clone()),
        ("window of 2", Mask::window(2)?),
        ("dense", Mask::dense(DMatrix::from_fn(5, 7, |_, _| rng.random_bool(0.5)))?),
        ("causal and padding", Mask::causal().and(padding)),
    ];
    let mut rows = vec![];
    let mut worst = 0.0_f64;
    for (name, mask) in &masks {
        let narrow = problem.worst(&tiled, mask, 1e-3)?;
        let wide = problem.worst(&tiled, mask, 1e-2)?;
        for (program, what) in [(&Program::Naive, "naive"), (&fast, "Flash")] {
            let other = problem.worst(program, mask, 1e-3)?;
            let same = narrow.iter().zip(other).all(|(a, b)| (a / b - 1.0).abs() < 1e-3);
            ensure!(same, "{name}: {what} has another error: {narrow:?}, {other:?}");
        }
        for (wide, narrow) in wide.iter().zip(narrow) {
            let ratio = wide / narrow;
            ensure!((95.0..105.0).contains(&ratio), "{name}: it shrinks by {ratio}");
        }
        for program in [&tiled, &fast] {
            let usual = problem.worst(program, mask, 1e-5)?;
            worst = usual.into_iter().fold(worst, f64::max);
        }
        let cells = narrow.map(|error| format!("${}$", scientific(error, 0)));
        rows.push([vec![(*name).to_owned()], cells.to_vec()].concat());
    }
    ensure!(worst < THRESHOLD / 100.0, "the worst of all is {worst}");
    page.file("checked.md", table(&["mask", "$dQ$", "$dK$", "$dV$"], &rows));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- order

const QUERIES: usize = 32;
const KEYS: usize = 4096;
const ORDERS: usize = 200;

/// The gradient of some queries as a sum over blocks of keys, rounded in `f32` in many orders.
fn orders_of_a_sum(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let [q, grad_output] = [QUERIES, QUERIES].map(|n| normal(n, D, rng));
    let [k, v] = [KEYS, KEYS].map(|n| normal(n, D, rng));
    let weights = softmax_rows(&scaled_scores(&q, &k)?)?;
    let grad_scores = softmax_rows_backward(&weights, grad_output * v.transpose())?;
    let grad_products = grad_scores / (D as f64).sqrt();

    let mut rows = vec![];
    let mut means = vec![];
    for blocks in [4, 16, 64] {
        let width = KEYS / blocks;
        let share = |block: usize| {
            let (grads, k) = (
                grad_products.columns(block * width, width),
                k.rows(block * width, width),
            );
            (grads * k).map(|x| x as f32) // (queries, d)
        };
        let shares: Vec<DMatrix<f32>> = (0..blocks).map(share).collect();
        let exact: DMatrix<f64> = shares.iter().map(|share| share.map(f64::from)).sum();
        let size = (exact.norm_squared() / exact.len() as f64).sqrt();
        let add = |order: &[usize]| {
            let mut sum = DMatrix::<f32>::zeros(QUERIES, D);
            order.iter().for_each(|&block| sum += &shares[block]);
            sum
        };
        let error =
            |sum: &DMatrix<f32>| (sum.map(f64::from) - &exact).norm() / exact.norm();
        let mut order: Vec<usize> = (0..blocks).collect();
        let in_order = error(&add(&order));
        let mut seen = vec![BTreeSet::new(); exact.len()];
        let mut errors = vec![];
        let mut different = BTreeSet::new();
        for _ in 0..ORDERS {
            order.shuffle(rng);
            let sum = add(&order);
            errors.push(error(&sum));
            for (values, x) in seen.iter_mut().zip(sum.iter()) {
                values.insert(x.to_bits());
            }
            different.insert(sum.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        }
        let (least, most) = errors
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(a, b), &e| (a.min(e), b.max(e)));
        // The order of the blocks is one order among others, neither better nor worse.
        ensure!(
            (0.9 * least..1.1 * most).contains(&in_order),
            "{least} {in_order} {most}"
        );
        ensure!(
            blocks == 4 || different.len() == ORDERS,
            "two orders gave the same bits"
        );
        let vary = seen.iter().filter(|values| values.len() > 1).count() as f64
            / seen.len() as f64;
        let mean =
            seen.iter().map(BTreeSet::len).sum::<usize>() as f64 / seen.len() as f64;
        let spread =
            seen.iter()
                .map(|values| {
                    let number = |bits: &u32| f64::from(f32::from_bits(*bits));
                    let (low, high) =
                        values.iter().map(number).fold(
                            (f64::INFINITY, f64::NEG_INFINITY),
                            |(low, high), x| (low.min(x), high.max(x)),
                        );
                    high - low
                })
                .fold(0.0, f64::max)
                / size;
        ensure!(vary > 0.5, "{blocks} blocks: most entries do not vary");
        means.push(mean);
        rows.push(vec![
            integer(blocks),
            percent(vary, 0),
            fixed(mean, 1),
            format!("${}$", scientific(spread, 0)),
            format!("${}$", scientific(in_order, 0)),
        ]);
        ensure!(spread < 5e-6, "{blocks} blocks: {spread}");
    }
    ensure!(means.is_sorted_by(|a, b| a < b), "more blocks, more values");
    let header =
        ["blocks", "entries that vary", "values of an entry", "largest spread", "error"];
    page.file("order.md", table(&header, &rows));
    page.value("order-count", integer(ORDERS));
    page.value("order-keys", integer(KEYS));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recomputing_is_praised_where_fetching_takes_longer() {
        assert!(recompute_in_words(0.1).0.contains("nothing else"));
        assert_eq!(recompute_in_words(0.1).1, "kept its weights");
        assert!(recompute_in_words(2.0).0.contains("of the thread"));
        assert_eq!(recompute_in_words(2.0).1, "computed its weights again");
    }
}
