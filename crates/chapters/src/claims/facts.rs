//! The computations that test the claims, in the order of the page.

use crate::random::normal;
use crate::records::Records;
use crate::why_sqrt_d_k::{self, FAINT, mean, share};
use anyhow::{Context, Result};
use attention::{
    Mask, MultiHeadAttention, Rotary, mask::Visibility, positions::RotaryPairs,
};
use laboratory::cost::AttentionShape;
use laboratory::hardware::A100;
use laboratory::traffic::blocks;
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use record::Unit;

// ---------------------------------------------------------------------------------------------------- 1, gradients

/// The size of gradients without scaling, of the rows that [Why √dₖ](why_sqrt_d_k) draws.
pub struct SmallGradients {
    pub n: usize,
    pub d: usize,
    /// The mean largest weight of a row.
    pub largest: f64,
    /// The share of rows in which the norm of the gradient with respect to the query is [`FAINT`].
    pub rows: f64,
    pub scaled_rows: f64,
    /// The share of scores whose gradient is.
    pub scores: f64,
    pub scaled_scores: f64,
}

pub fn small_gradients() -> [SmallGradients; 6] {
    let sizes = [(8, 64), (8, 512), (64, 64), (64, 512), (512, 64), (512, 512)];
    why_sqrt_d_k::draw_all(sizes.into_iter().rev());
    let of_size = |(n, d)| {
        let rows = why_sqrt_d_k::rows(n, d);
        SmallGradients {
            n,
            d,
            largest: mean(&rows.unscaled, |row| row.largest),
            rows: share(&rows.unscaled, |row| row.grad_query < FAINT),
            scaled_rows: share(&rows.scaled, |row| row.grad_query < FAINT),
            scores: mean(&rows.unscaled, |row| row.faint_scores),
            scaled_scores: mean(&rows.scaled, |row| row.faint_scores),
        }
    };
    sizes.map(of_size)
}

// ---------------------------------------------------------------------------------------------------- 2, two to four times

/// Tokens, as in *Making it fast*, whose times the page shows.
pub const FASTER_N: usize = 2048;
/// Queries and keys of a tile.
pub const FASTER_TILE: usize = 64;

/// The share of tiles that a causal mask leaves.
pub fn causal_share() -> Result<f64> {
    let mask = Mask::causal().sized(FASTER_N, FASTER_N)?;
    let tiles = || blocks(FASTER_N, FASTER_TILE);
    let all: Vec<_> =
        tiles().flat_map(|q| tiles().map(move |k| (q.clone(), k))).collect();
    let computed = all.iter().filter(|(queries, keys)| {
        mask.visibility(queries.clone(), keys.clone()) != Visibility::Hidden
    });
    Ok(computed.count() as f64 / all.len() as f64)
}

/// Returns what is left of speedups of two and of four if both programs compute the same pairs.
pub fn left_of_speedups() -> Result<[f64; 2]> {
    let share = causal_share()?;
    Ok([2.0, 4.0].map(|said| said * share))
}

/// Seconds of the forward pass in *Making it fast*, without a mask and with a causal one.
pub struct Times {
    pub naive: [f64; 2],
    /// The last step on one thread.
    pub tiled: [f64; 2],
}

pub fn times(records: &Records) -> Result<Times> {
    let [ladder, ..] = records.of_one_machine(["ladder", "parts", "roofline"])?;
    let time = |pass: &str, step: &str| -> Result<f64> {
        let what = format!("ladder/{pass} {step}");
        let measured = ladder.all(&what, "f32").next().context(what.clone())?;
        ladder.in_unit(measured, Unit::Seconds)
    };
    let of = |step: &str| -> Result<[f64; 2]> {
        Ok([time("forward", step)?, time("forward causal", step)?])
    };
    Ok(Times { naive: of("naive")?, tiled: of("registers")? })
}

// ---------------------------------------------------------------------------------------------------- 3, the ridge

/// The times that the (n, n) matrix crosses slow memory if each step is a sweep of its own: scores are written; scale, mask and softmax
/// read and write; the product with the values reads.
pub const NAIVE_CROSSINGS: usize = 1 + 2 + 2 + 2 + 1;

/// Numbers that cross slow memory: four (n, d) matrices once, the (n, n) matrix so many times.
pub fn core_traffic(n: usize, d: usize, crossings: usize) -> f64 {
    (4 * n * d + crossings * n * n) as f64
}

/// The ridge of bf16 with a bandwidth of about 2 TB/s.
pub const SAID_RIDGE: f64 = A100.bf16 / 2e12;

const RIDGE_N: usize = 4096;
const RIDGE_D: usize = 64;

/// A kind of numbers, with the rate of what computes with them.
pub struct Kind {
    pub name: &'static str,
    pub rate: f64,
    /// FLOP/byte with each matrix once, with all sweeps, and if the weights never leave fast memory.
    pub intensities: [f64; 3],
}

impl Kind {
    pub fn ridge(&self) -> f64 {
        self.rate / A100.bandwidth
    }

    pub fn waits_for_memory(&self) -> [bool; 3] {
        self.intensities.map(|intensity| intensity < self.ridge())
    }
}

pub fn kinds() -> Result<Vec<Kind>> {
    let core = AttentionShape::self_attention(1, RIDGE_N, RIDGE_D, RIDGE_D, 1);
    let flops = core.flops()?.core() as f64;
    let kind = |(name, rate, element): (_, _, usize)| {
        let crossing =
            |times| flops / (element as f64 * core_traffic(RIDGE_N, RIDGE_D, times));
        let once = core.intensity(element)?;
        Ok(Kind {
            name,
            rate,
            intensities: [once, crossing(NAIVE_CROSSINGS), crossing(0)],
        })
    };
    let kinds = [
        ("`f32`, no tensor cores", A100.f32, 4),
        ("`f32` rounded to TF32", A100.tf32, 4),
        ("bf16", A100.bf16, 2),
    ];
    kinds.into_iter().map(kind).collect()
}

// ---------------------------------------------------------------------------------------------------- 4, three measurements

/// Tokens, and the megabytes that were measured.
pub const MEASURED: [(f64, f64); 3] = [(512.0, 15.0), (2048.0, 85.0), (8192.0, 1200.0)];

/// Seconds that the shortest and the longest of the three took.
pub const SECONDS: [f64; 2] = [2e-3, 0.28];

/// The width for which a speed is computed from that time.
pub const WIDTH: usize = 512;

/// Returns the power with which something grew between two of the measurements.
fn exponent(tokens: [f64; 2], grew: [f64; 2]) -> f64 {
    (grew[1] / grew[0]).ln() / (tokens[1] / tokens[0]).ln()
}

/// Returns the power of the length with which memory grew, from each measurement to the next.
pub fn exponents() -> [f64; 2] {
    let [(a, bytes_a), (b, bytes_b), (c, bytes_c)] = MEASURED;
    [exponent([a, b], [bytes_a, bytes_b]), exponent([b, c], [bytes_b, bytes_c])]
}

/// Returns the bytes per n² that the difference between each measurement and the next gives: a constant doesn't count there.
pub fn bytes_per_square() -> [f64; 2] {
    let of = |from: usize| {
        let [(n, bytes), (more, more_bytes)] = [MEASURED[from], MEASURED[from + 1]];
        1e6 * (more_bytes - bytes) / (more * more - n * n)
    };
    [of(0), of(1)]
}

/// Returns the megabytes that don't grow with the length, if all else grows with its square.
pub fn constant_megabytes() -> f64 {
    let (n, bytes) = MEASURED[0];
    bytes - bytes_per_square()[0] * n * n / 1e6
}

/// Returns the FLOP/s of the two products of the longest sequence.
pub fn speed() -> f64 {
    let (n, _) = MEASURED[2];
    4.0 * n * n * WIDTH as f64 / SECONDS[1]
}

// ---------------------------------------------------------------------------------------------------- 5, order

/// Returns how far the last of eight random tokens' outputs moves, as a share of its largest entry, when the first two tokens change
/// places: after one layer without positions, and after two.
pub fn moved_by_a_swap(mask: &Mask) -> Result<[f64; 2]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(110);
    let layer =
        |seed| MultiHeadAttention::xavier(16, 2, &mut ChaCha8Rng::seed_from_u64(seed));
    let layers = [layer(111)?, layer(112)?];
    let mut texts = [(); 2].map(|()| normal(8, 16, rng));
    texts[1] = texts[0].clone();
    texts[1].swap_rows(0, 1);
    let mut moved = [0.0; 2];
    for (layer, moved) in layers.iter().zip(&mut moved) {
        for text in &mut texts {
            *text = layer.forward(&*text, mask)?.0;
        }
        let [last, after] = texts.each_ref().map(|text| text.row(7));
        *moved = (after - last).amax() / last.amax();
    }
    Ok(moved)
}

// ---------------------------------------------------------------------------------------------------- 6, falling scores

pub const FALL_PAIRS: usize = 20_000;
pub const FALL_WIDTH: usize = 64;
pub const FARTHEST: usize = 512;

/// Scores at a distance, as shares of those at distance 0.
#[derive(Debug, Clone, Copy)]
pub struct Fall {
    pub distance: usize,
    /// The mean, where the query equals the key.
    pub equal: f64,
    /// The root mean square, of queries and keys that have nothing to do with one another.
    pub random: f64,
}

fn rotary() -> Result<Rotary> {
    Ok(Rotary::new(10_000.0, RotaryPairs::Halves)?)
}

/// Returns the scores of random rows under rotary positions, at some distances.
pub fn falls() -> Result<[Fall; 5]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(130);
    // Each row is a head, so that all queries stand at one position.
    let [q, k] = [(); 2].map(|()| normal(1, FALL_PAIRS * FALL_WIDTH, rng));
    let mut falls = [0, 1, 8, 64, FARTHEST].map(|distance| Fall {
        distance,
        equal: 1.0,
        random: 1.0,
    });
    for fall in &mut falls {
        let turned = rotary()?.turn(&q, FALL_PAIRS, fall.distance as isize)?;
        let heads = (0..FALL_PAIRS).map(|head| FALL_WIDTH * head);
        let score = |keys: &DMatrix<f64>, first: usize| {
            turned.columns(first, FALL_WIDTH).dot(&keys.columns(first, FALL_WIDTH))
        };
        fall.equal = heads.clone().map(|first| score(&q, first)).sum();
        fall.random = heads.map(|first| score(&k, first).powi(2)).sum::<f64>().sqrt();
    }
    let at_0 = falls[0];
    Ok(falls.map(|Fall { distance, equal, random }| Fall {
        distance,
        equal: equal / at_0.equal,
        random: random / at_0.random,
    }))
}

/// Returns the number of steps to the next distance at which the score of a row and its copy rises, if all of its pairs are equally
/// long.
pub fn rises() -> Result<usize> {
    let row = DMatrix::repeat(1, FALL_WIDTH, 1.0);
    let score =
        |distance: usize| Ok(rotary()?.turn(&row, 1, distance as isize)?.dot(&row));
    let scores = (0..=FARTHEST).map(score).collect::<Result<Vec<_>>>()?;
    Ok(scores.windows(2).filter(|pair| pair[1] > pair[0]).count())
}

// ---------------------------------------------------------------------------------------------------- 7, scores of 180

/// The score that the claim has, its width and its tokens.
pub const SAID_SCORE: f64 = 180.0;
pub const REACH_WIDTH: usize = 512;
pub const REACH_N: usize = 8;
/// How often queries and keys are drawn.
pub const REACH_DRAWS: usize = 1000;

/// The largest of the scores of n random queries and n random keys.
pub struct Reach {
    pub d: usize,
    /// The mean over all draws.
    pub mean: f64,
    /// The largest of all draws.
    pub most: f64,
}

impl Reach {
    /// The mean, once scores are divided by √d.
    pub fn scaled(&self) -> f64 {
        self.mean / (self.d as f64).sqrt()
    }
}

/// Returns how large unscaled scores of tokens with normal entries become, at some widths.
pub fn reaches() -> [Reach; 3] {
    let rng = &mut ChaCha8Rng::seed_from_u64(140);
    [64, REACH_WIDTH, 4096].map(|d| {
        let mut largest = || {
            let [q, k] = [(); 2].map(|()| normal(d, REACH_N, rng)); // a column each
            q.tr_mul(&k).max()
        };
        let all: Vec<f64> = (0..REACH_DRAWS).map(|_| largest()).collect();
        Reach {
            d,
            mean: all.iter().sum::<f64>() / all.len() as f64,
            most: all.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    })
}
