//! Random queries and keys: how far scores reach, how large the largest weight is, and how small gradients are.

use super::verdict::{Claim, by_parts, only_when};
use crate::output::Page;
use crate::random::normal;
use crate::why_sqrt_d_k::{self, FAINT, ROWS, median, share};
use anyhow::{Context, Result};
use attention::{log_sum_exp_rows, scaled_scores, softmax_rows};
use figures::format::{fixed, integer, percent, scientific, significant};
use figures::{Axis, BLUE, Line, Marks, VERMILION, line_chart};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use record::statistics::quantile;
use std::f64::consts::LN_10;

/// The width of queries and keys in (7) and (8).
pub const D: usize = 512;

const DRAWS: usize = 4000;
pub const SAID_SCORE: f64 = 180.0;

/// (14) How far scores reach and weights fall among eight tokens, a number a draw.
pub struct Reach {
    /// The largest score.
    pub scores: Vec<f64>,
    pub scaled_scores: Vec<f64>,
    /// The smallest weight as a power of ten, without its minus: the weight itself may be too small for a number.
    pub weights: Vec<f64>,
    pub scaled_weights: Vec<f64>,
}

pub fn reach() -> Result<Reach> {
    let (n, root) = (8, deviation());
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let smallest = |s: &DMatrix<f64>| -> Result<f64> {
        let lse = log_sum_exp_rows(s)?;
        let rows = s.row_iter().zip(lse.iter());
        Ok(-rows.map(|(row, lse)| row.min() - lse).fold(0.0, f64::min) / LN_10)
    };
    let [mut scores, mut weights, mut scaled_weights] = [const { vec![] }; 3];
    for _ in 0..DRAWS {
        let (q, k) = (normal(n, D, rng), normal(n, D, rng));
        let s = scaled_scores(&q, &k)?; // (n, n)
        scores.push(s.amax() * root);
        weights.push(smallest(&(&s * root))?);
        scaled_weights.push(smallest(&s)?);
    }
    Ok(Reach {
        scaled_scores: scores.iter().map(|s| s / root).collect(),
        scores,
        weights,
        scaled_weights,
    })
}

/// The standard deviation of a score, √d.
pub fn deviation() -> f64 {
    (D as f64).sqrt()
}

pub fn claim_reach(page: &mut Page) -> Result<Claim> {
    let Reach { scores, scaled_scores, weights, scaled_weights } = reach()?;
    let row = |name: &str, x: &[f64], said: &str, text: &dyn Fn(f64) -> String| {
        let cells = [0.05, 0.5, 0.95, 1.0].map(|share| text(quantile(x, share)));
        [&[name.to_owned()][..], &cells, &[said.to_owned()]].concat()
    };
    let power = |x: f64| format!("$10^{{{}}}$", fixed(-x, 1));
    let rows = [
        row("largest score, unscaled", &scores, "180", &|x| fixed(x, 0)),
        row("smallest weight, unscaled", &weights, "$10^{−78}$", &power),
        row("largest score, scaled", &scaled_scores, "8", &|x| fixed(x, 1)),
        row("smallest weight, scaled", &scaled_weights, "$10^{−4}$", &power),
    ];
    let header = ["", "tamest 1 in 20", "median", "wildest 1 in 20", "wildest", "said"];
    page.table("reach", &header, &rows);
    let sigmas = SAID_SCORE / deviation();
    page.value("reach-draws", integer(DRAWS));
    page.value("reach-sigma", fixed(deviation(), 1));
    page.value("reach-sigmas", fixed(sigmas, 2));
    page.value("reach-beyond-score", "10^{−14}");
    Ok(Claim {
        section: "14-how-far-scores-reach",
        said: "For $d_k = 512$ and eight tokens, unscaled scores reach 180 and weights fall to $10^{-78}$; scaled, 8 and \
               $10^{-4}$."
            .to_owned(),
        verdict: by_parts(&[("the scores", quantile(&scores, 1.0) >= SAID_SCORE)]),
    })
}

const SETS: usize = 40;
const QUERIES: usize = 500;

/// Sets of unscaled scores: rows of several queries against the same `n` keys.
fn score_sets(n: usize) -> impl Iterator<Item = DMatrix<f64>> {
    let mut rng = ChaCha8Rng::seed_from_u64((10_000 * n + D) as u64);
    (0..SETS).map(move |_| {
        let (q, k) = (normal(QUERIES, D, &mut rng), normal(n, D, &mut rng));
        &q * k.transpose()
    })
}

/// (13) The mean largest weight of a row against n keys.
pub struct LargestWeight {
    pub n: usize,
    pub unscaled: f64,
    pub scaled: f64,
}

impl LargestWeight {
    pub fn is_as_said(&self) -> bool {
        self.unscaled > 0.9 && self.scaled < 0.5
    }
}

pub fn largest_weights() -> Result<Vec<LargestWeight>> {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let largest =
        |w: DMatrix<f64>| mean(&w.row_iter().map(|row| row.max()).collect::<Vec<_>>());
    let of_length = |n| {
        let [mut unscaled, mut scaled] = [const { vec![] }; 2]; // the mean of each set
        for scores in score_sets(n) {
            unscaled.push(largest(softmax_rows(&scores)?));
            scaled.push(largest(softmax_rows(&(scores / deviation()))?));
        }
        Ok(LargestWeight { n, unscaled: mean(&unscaled), scaled: mean(&scaled) })
    };
    let lengths = [2, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256, 512, 1024];
    lengths.into_par_iter().map(of_length).collect()
}

/// The first and the last number of keys for which the claim holds.
pub fn range_as_said(all: &[LargestWeight]) -> Result<(&LargestWeight, &LargestWeight)> {
    let mut held = all.iter().filter(|at| at.is_as_said());
    let first = held.next().context("the claim holds for no n")?;
    Ok((first, held.next_back().unwrap_or(first)))
}

pub fn claim_largest_weight(page: &mut Page, all: &[LargestWeight]) -> Result<Claim> {
    for LargestWeight { n, unscaled, scaled } in all {
        match n {
            4 | 5 => page.value(format!("largest-{n}-scaled"), fixed(*scaled, 2)),
            1024 => page.value("largest-1024", fixed(*unscaled, 3)),
            _ => {}
        }
    }
    page.value("largest-rows", integer(SETS * QUERIES));
    let (from, to) = range_as_said(all)?;
    largest_weight_figure(page, all)?;
    let condition = format!("there are {} to {} keys", from.n, to.n);
    let everywhere = all.iter().all(LargestWeight::is_as_said);
    Ok(Claim {
        section: "13-the-largest-weight",
        said: "For $d_k = 512$ the largest weight of a row averages over $0.9$ unscaled, and under $0.5$ scaled.".to_owned(),
        verdict: only_when(&condition, everywhere, true)?,
    })
}

fn largest_weight_figure(page: &mut Page, all: &[LargestWeight]) -> Result<()> {
    let (from, to) = range_as_said(all)?;
    let line = |name, colour, of: fn(&LargestWeight) -> f64| {
        Line::new(name, colour, all.iter().map(|at| (at.n as f64, of(at))))
    };
    let level =
        |name, colour, y| Line::new(name, colour, [(2.0, y), (1024.0, y)]).dashed();
    let lines = [
        line("unscaled", VERMILION, |at| at.unscaled),
        line("scaled", BLUE, |at| at.scaled),
        level("0.9", VERMILION, 0.9),
        level("0.5", BLUE, 0.5),
    ];
    page.figure(
        "largest-weight",
        (
            "The mean largest weight of a row against the number of keys, for a width of 512",
            &format!(
                "Unscaled it falls slowly and stays above 0.9 up to {} keys. Scaled it falls fast and is below 0.5 from \
                 {} keys on.",
                to.n, from.n
            ),
        ),
        (520, 380),
        |area| {
            let x = Axis::log("keys n (logarithmic)", 2.0, 2.0..1024.0);
            let y = Axis::linear("mean largest weight", 0.0..1.0);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}

/// (3) The size of gradients without scaling, of the rows that [Why √dₖ](why_sqrt_d_k) draws.
pub struct SmallGradients {
    pub n: usize,
    pub d: usize,
    /// The median norm of the gradient with respect to the query.
    pub median: f64,
    /// The share of rows for which that is [`FAINT`].
    pub rows: f64,
    /// The share of scores whose gradient is.
    pub scores: f64,
    pub scaled_scores: f64,
}

pub fn small_gradients() -> [SmallGradients; 6] {
    let sizes = [(8, 64), (8, 512), (64, 64), (64, 512), (512, 64), (512, 512)];
    why_sqrt_d_k::draw_all(sizes.into_iter().rev());
    let of_size = |(n, d)| {
        let rows = why_sqrt_d_k::rows(n, d);
        let faint_scores = |rows| why_sqrt_d_k::mean(rows, |row| row.faint_scores);
        SmallGradients {
            n,
            d,
            median: median(&rows.unscaled, |row| row.grad_query),
            rows: share(&rows.unscaled, |row| row.grad_query < FAINT),
            scores: faint_scores(&rows.unscaled),
            scaled_scores: faint_scores(&rows.scaled),
        }
    };
    sizes.map(of_size)
}

pub fn claim_small_gradients(page: &mut Page, all: &[SmallGradients]) -> Claim {
    page.table_of(
        "small-gradients",
        all,
        &[
            ("$n$", &|of| integer(of.n)),
            ("$d_k$", &|of| integer(of.d)),
            ("median $\\lVert \\partial \\mathcal{L} / \\partial q \\rVert$", &|of| {
                match of.median {
                    median if median < 0.01 => format!("${}$", scientific(median, 0)),
                    median => significant(median, 1),
                }
            }),
            ("rows below", &|of| percent(of.rows, 0)),
            ("scores below", &|of| percent(of.scores, 0)),
            ("scores below, scaled", &|of| percent(of.scaled_scores, 1)),
        ],
    );
    let most = all.iter().map(|of| of.rows).fold(0.0, f64::max);
    page.value("small-draws", integer(ROWS));
    page.value("small-most", percent(most, 0));
    Claim {
        section: "3-gradients-that-vanish",
        said: "Without scaling, gradients are below $10^{-6}$.".to_owned(),
        verdict: by_parts(&[
            ("most scores", all[1..].iter().all(|of| of.scores > 0.5)),
            ("most rows", most > 0.5),
        ]),
    }
}
